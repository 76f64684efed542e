"""Letting applications into a cluster on the command line: the book, and what each change to it says."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest

from penstock.control.book import BookFile
from tests.conftest import Ran
from tests.control.book.cases import application, fan

Penstock = Callable[..., Ran]

FACES = ("face-detection", "--pin", "camera=field1", "--pin", "consumer=field1")


@pytest.fixture
def book(tmp_path: Path) -> Path:
    return tmp_path / "book.json"


@pytest.fixture
def admitted(penstock: Penstock, book: Path) -> Path:
    """Return a book with a guaranteed application and two that share the rest."""
    assert penstock("admit", *FACES, "--rate", 0.1, "field-and-cloud", "--book", book).code == 0
    for name, priority in (("two", 2), ("one", 1)):
        ran = penstock("admit", *FACES, "--as", name, "--best-effort", "--priority", priority, "--book", book)
        assert ran.code == 0, ran.err
    return book


def rates(penstock: Penstock, book: Path) -> dict[str, float]:
    found = json.loads(penstock("book", "--book", book, "--json").out)
    return {application["name"]: application["rate_tps"] for application in found["applications"]}


def test_a_guaranteed_application_gets_its_rate_and_the_others_share_by_priority(
    penstock: Penstock, admitted: Path
) -> None:
    got = rates(penstock, admitted)
    assert got["face-detection"] == pytest.approx(0.1)
    assert got["two"] == pytest.approx(2 * got["one"], rel=1e-4)
    shown = penstock("book", "--book", admitted).out
    for word in ("guaranteed 0.100/s", "best effort, priority 2", "fullest", "field1--router"):
        assert word in shown


def test_a_refusal_names_the_binding_element_and_a_change_that_would_admit_it_and_leaves_the_book(
    penstock: Penstock, admitted: Path
) -> None:
    before = admitted.read_bytes()
    asked = ("admit", *FACES, "--as", "more", "--rate", 5, "--book", admitted)
    ran = penstock(*asked)
    assert ran.code == 1
    assert "refused more" in ran.out
    assert "can be had" in ran.out
    told = json.loads(penstock(*asked, "--json").out)
    assert told["admitted"] is False
    assert told["binding"]
    best = next(remedy for remedy in told["remedies"] if remedy["kind"] == "rate")
    assert admitted.read_bytes() == before
    assert penstock("admit", *FACES, "--as", "more", "--rate", best["after"], "--book", admitted).code == 0


def test_a_dry_run_changes_nothing(penstock: Penstock, book: Path) -> None:
    ran = penstock("admit", *FACES, "field-and-cloud", "--rate", 0.1, "--dry-run", "--book", book)
    assert ran.code == 0
    assert "would be admitted" in ran.out
    assert not book.exists()


def test_a_failure_is_told_with_the_guarantees_that_it_breaks_and_restored(penstock: Penstock, admitted: Path) -> None:
    before = rates(penstock, admitted)
    ran = penstock("fail", "field1", "--book", admitted)
    assert "face-detection is guaranteed 0.100/s and gets 0/s" in ran.out
    assert "penstock admit face-detection --again" in ran.out
    again = penstock("admit", "face-detection", "--again", "--book", admitted)
    assert again.code == 1
    assert "pinned to machine 'field1', which has failed" in again.out
    assert "failed: field1" in penstock("book", "--book", admitted).out
    assert penstock("restore", "field1", "--book", admitted).code == 0
    assert rates(penstock, admitted) == pytest.approx(before)


def test_half_a_machine_halves_what_it_limits(penstock: Penstock, admitted: Path) -> None:
    before = rates(penstock, admitted)
    told = json.loads(penstock("restore", "field1", "--capacity", 0.5, "--book", admitted, "--json").out)
    assert told["rates"]
    assert rates(penstock, admitted)["two"] < before["two"]
    penstock("restore", "field1", "--capacity", 1, "--book", admitted)
    assert rates(penstock, admitted) == pytest.approx(before)


def test_restoring_takes_a_lower_capacity_back_and_a_link_may_be_named_from_either_end(
    penstock: Penstock, admitted: Path
) -> None:
    before = rates(penstock, admitted)
    penstock("restore", "router--field1", "--capacity", 0.01, "--book", admitted)
    assert rates(penstock, admitted)["face-detection"] < 0.1
    assert penstock("restore", "field1--router", "--book", admitted).code == 0
    assert rates(penstock, admitted) == pytest.approx(before)
    penstock("fail", "router--field1", "--book", admitted)
    penstock("restore", "router--field1", "--capacity", 0.5, "--book", admitted)
    assert BookFile(admitted).load().version == 7
    assert BookFile(admitted).load().capacities == {"field1--router": 0.5}


def test_an_application_that_gets_nothing_is_named_and_found_other_paths_by_another_policy(
    penstock: Penstock, admitted: Path
) -> None:
    where = BookFile(admitted).load()["two"].paths[0].plan.tasks["denoise"][0].partition("/")[0]
    ran = penstock("fail", where, "--book", admitted)
    assert "two gets nothing; penstock admit two --again looks for other paths" in ran.out
    again = penstock("admit", "two", "--again", "--policy", "greedy-sorted", "--book", admitted)
    assert "paths by greedy-sorted" in again.out
    assert rates(penstock, admitted)["two"] > 0


def test_priorities_change_and_applications_leave(penstock: Penstock, admitted: Path) -> None:
    assert "one: " in penstock("priority", "one", 2, "--book", admitted).out
    got = rates(penstock, admitted)
    assert got["one"] == pytest.approx(got["two"], rel=1e-4)
    assert "released two" in penstock("release", "two", "--book", admitted).out
    assert rates(penstock, admitted)["one"] > got["one"]
    assert BookFile(admitted).load().version == 5


def test_the_drawing_shows_every_element_with_how_full_it_is(
    penstock: Penstock, admitted: Path, tmp_path: Path
) -> None:
    penstock("fail", "field2", "--book", admitted)
    assert penstock("book", "--book", admitted, "--svg", tmp_path / "b.svg").code == 0
    tips = " ".join(element.text or "" for element in ElementTree.parse(tmp_path / "b.svg").iter())
    assert "field1--router: 10 Mbit/s, 1 ms; " in tips
    assert tips.count("% used") >= 9
    assert "failed" in tips


def test_mistakes_are_told_in_a_line_and_leave_the_book(penstock: Penstock, admitted: Path, tmp_path: Path) -> None:
    before = admitted.read_bytes()
    torn = tmp_path / "torn.json"
    torn.write_bytes(before[: len(before) // 2])
    edited = tmp_path / "edited.json"
    edited.write_text(before.decode().replace('"version": 3', '"version": 4', 1))
    for arguments, words in (
        (("book", "--book", tmp_path / "none.json"), "there is no book; begin one by penstock admit APP CLUSTER"),
        (("book", "--book", torn), "not a book"),
        (("book", "--book", edited), "its checksum does not fit"),
        (("admit", *FACES, "--book", tmp_path / "none.json"), "there is no book yet; name the cluster too"),
        (("admit", *FACES, "--book", admitted), "'face-detection' is in the book already"),
        (("admit", *FACES, "star-8", "--as", "x", "--book", admitted), "which is another cluster"),
        (
            ("admit", *FACES, "--as", "x", "--rate", -1, "--book", admitted),
            "rate: expected source tuples a second > 0, got -1",
        ),
        (("admit", *FACES, "--as", "x", "--rate", 1, "--availability", 2, "--book", admitted), "availability"),
        (("admit", *FACES, "--as", "x", "--rate", 1, "--priority", 2, "--book", admitted), "only best-effort"),
        (("admit", *FACES, "--as", "x", "--rate", 1, "--best-effort", "--book", admitted), "leave one out"),
        (("admit", *FACES, "--as", "x", "--pin", "camera", "--book", admitted), "expected COMPONENT=MACHINE"),
        (("admit", *FACES, "--as", "x", "--pin", "nobody=field1", "--book", admitted), "no component is named"),
        (("admit", *FACES, "--as", "x", "--policy", "best", "--book", admitted), "no policy is named 'best'"),
        (("admit", "one", "--again", "--priority", 3, "--book", admitted), "expected none beside --again"),
        (("release", "nobody", "--book", admitted), "the book has none named 'nobody'"),
        (("priority", "face-detection", 2, "--book", admitted), "is guaranteed a rate and has none"),
        (("fail", "mars", "--book", admitted), "has no machine or link 'mars'"),
        (("restore", "cloud", "--book", admitted), "has not failed"),
        (("restore", "cloud", "--capacity", 0, "--book", admitted), "capacity: expected a number > 0, got 0"),
        (("book", "--book", admitted, "--svg", tmp_path / "b.png"), "ends in .svg"),
    ):
        ran = penstock(*arguments)
        assert ran.code == 2, arguments
        assert ran.out == ""
        assert words in ran.err
        assert ran.err.count("\n") == 1
        assert admitted.read_bytes() == before


def test_a_cluster_in_two_parts_and_a_link_without_bandwidth_are_refused(penstock: Penstock, tmp_path: Path) -> None:
    for name, link in (("apart", ""), ("nothing", "[[links]]\nsource='b'\ntarget='a'\nbandwidth_mbps=0.0\n")):
        cluster, book = tmp_path / f"{name}.toml", tmp_path / f"{name}.json"
        joined = "[[links]]\nsource='a'\ntarget='hub'\nbandwidth_mbps=1.0\n"
        cluster.write_text(
            f"name='{name}'\nswitches=['hub']\n[[machines]]\nname='a'\n[[machines]]\nname='b'\n{joined}{link}"
        )
        faces = ("face-detection", "--pin", "camera=a", "--pin", "consumer=b")
        ran = penstock("admit", *faces, cluster, "--best-effort", "--book", book)
        assert ran.code == 1
        assert "refused face-detection" in ran.out
        assert "no links with bandwidth lead there" in ran.out
        assert not book.exists()


def test_a_change_made_by_somebody_else_in_between_is_not_lost(
    penstock: Penstock, admitted: Path, tmp_path: Path
) -> None:
    file = BookFile(admitted)
    old = file.load()
    shutil.copy(admitted, tmp_path / "copy.json")
    assert penstock("release", "two", "--book", admitted).code == 0
    with pytest.raises(Exception, match="somebody else has written 4 since"):
        file.save(old, old.version)
    assert "two" not in rates(penstock, admitted)


def test_the_cluster_may_be_an_option_but_not_twice(penstock: Penstock, book: Path) -> None:
    ran = penstock("admit", *FACES, "--rate", 0.1, "--cluster", "field-and-cloud", "--book", book)
    assert ran.code == 0, ran.err
    twice = penstock("admit", *FACES, "field-and-cloud", "--cluster", "field-and-cloud", "--book", book)
    assert twice.code == 2
    assert "cluster: expected it once, got 'field-and-cloud' and --cluster 'field-and-cloud'" in twice.err


def test_an_estimated_availability_is_said_to_be_one_with_its_bounds(penstock: Penstock, tmp_path: Path) -> None:
    cluster, asked = tmp_path / "fan.json", tmp_path / "flow.json"
    cluster.write_bytes(msgspec.json.encode(fan(24, 0.7).cluster))
    asked.write_bytes(msgspec.json.encode(application(availability=0.998)))
    common = ("admit", asked, "--cluster", cluster, "--paths", 24, "--book", tmp_path / "book.json")
    refused = penstock(*common)
    assert refused.code == 2
    assert "have it estimated (--estimate)" in refused.err
    told = json.loads(penstock(*common, "--estimate", "--dry-run", "--json").out)
    assert told["estimated"] is True
    assert 0.998 <= told["availability"] < told["availability_at_most"] <= 1
    assert "(estimated, between 99.8" in penstock(*common, "--estimate").out


def test_a_great_priority_is_nobody_elses_concern_and_brings_no_warnings(penstock: Penstock, admitted: Path) -> None:
    ran = penstock("priority", "one", 1e9, "--book", admitted)
    assert ran.code == 0, ran.err
    assert "Warning" not in ran.out + ran.err
    got = rates(penstock, admitted)
    assert got["one"] == pytest.approx(1e9 / 2 * got["two"], rel=1e-6)
