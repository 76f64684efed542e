"""Letting applications into a cluster on the command line: the book, and what each change to it says."""

import json
import random
import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest

from penstock.admission import Admitted, BookFile, Outdated, Refused, measure_usage
from penstock.admission import admit as admit_to_book
from penstock.cli.cluster.admit import decide_and_save
from penstock.cli.cluster.books import TRIES, change_book
from penstock.cli.svg.elements import text_width
from penstock.model.book import CPU, Book, BookedPath
from penstock.model.cluster import Cluster, Link, Machine
from tests.admission.book.cases import application, fan
from tests.conftest import Ran

Penstock = Callable[..., Ran]

FACES = ("face-detection", "--pin", "camera=field1", "--pin", "consumer=field1")


@pytest.fixture
def book(tmp_path: Path) -> Path:
    return tmp_path / "book.json"


@pytest.fixture
def admitted(penstock: Penstock, book: Path) -> Path:
    """Return a book with a guaranteed application and two that share the rest."""
    assert penstock("cluster", "admit", *FACES, "--rate", 0.1, "field-and-cloud", "--book", book).code == 0
    for name, priority in (("two", 2), ("one", 1)):
        ran = penstock(
            "cluster", "admit", *FACES, "--as", name, "--best-effort", "--priority", priority, "--book", book
        )
        assert ran.code == 0, ran.err
    return book


def rates(penstock: Penstock, book: Path) -> dict[str, float]:
    found = json.loads(penstock("cluster", "book", "--book", book, "--json").out)
    return {application["name"]: application["rate_tps"] for application in found["applications"]}


def test_a_guaranteed_application_gets_its_rate_and_the_others_share_by_priority(
    penstock: Penstock, admitted: Path
) -> None:
    got = rates(penstock, admitted)
    assert got["face-detection"] == pytest.approx(0.1)
    assert got["two"] == pytest.approx(2 * got["one"], rel=1e-4)
    shown = penstock("cluster", "book", "--book", admitted).out
    for word in ("guaranteed 0.100/s", "best effort, priority 2", "fullest", "field1--router"):
        assert word in shown


def test_a_refusal_names_the_binding_element_and_a_change_that_would_admit_it_and_leaves_the_book(
    penstock: Penstock, admitted: Path
) -> None:
    before = admitted.read_bytes()
    command = ("cluster", "admit", *FACES, "--as", "more", "--rate", 5, "--book", admitted)
    ran = penstock(*command)
    assert ran.code == 1
    assert "refused more" in ran.out
    assert "is achievable" in ran.out
    answer = json.loads(penstock(*command, "--json").out)
    assert answer["admitted"] is False
    assert answer["binding"]
    best = next(remedy for remedy in answer["suggestions"] if remedy["kind"] == "rate")
    assert admitted.read_bytes() == before
    assert penstock("cluster", "admit", *FACES, "--as", "more", "--rate", best["after"], "--book", admitted).code == 0


def test_parameters_of_the_application_are_kept_in_the_book(penstock: Penstock, book: Path, tmp_path: Path) -> None:
    file = tmp_path / "parameters.json"
    file.write_text('{"splitters": 3, "sources": 5}')
    common = ("cluster", "admit", "word-count", "star-8", "--best-effort", "--as", "words", "--book", book)
    assert penstock(*common, "--set", "sources=2", "--parameters", file).code == 0
    (booking,) = BookFile(book).load().bookings
    assert booking.given == "word-count:splitters=3,sources=2"
    assert [booking.application[name].parallelism for name in ("source", "split")] == [2, 3]
    refused = penstock("cluster", "admit", "words", "--again", "--set", "sources=3", "--book", book)
    assert refused.err.startswith("error: set: expected none with --again")


def test_a_dry_run_changes_nothing(penstock: Penstock, book: Path) -> None:
    ran = penstock("cluster", "admit", *FACES, "field-and-cloud", "--rate", 0.1, "--dry-run", "--book", book)
    assert ran.code == 0
    assert "would be admitted" in ran.out
    assert not book.exists()


def test_reports_the_guarantees_that_a_failure_breaks_until_it_is_restored(penstock: Penstock, admitted: Path) -> None:
    before = rates(penstock, admitted)
    ran = penstock("cluster", "fail", "field1", "--book", admitted)
    assert "face-detection is guaranteed 0.100/s and gets 0/s" in ran.out
    assert "penstock cluster admit face-detection --again" in ran.out
    again = penstock("cluster", "admit", "face-detection", "--again", "--book", admitted)
    assert again.code == 1
    assert "pinned to machine 'field1', which has failed" in again.out
    assert "failed: field1" in penstock("cluster", "book", "--book", admitted).out
    assert penstock("cluster", "restore", "field1", "--book", admitted).code == 0
    assert rates(penstock, admitted) == pytest.approx(before)


def test_half_a_machine_halves_what_it_limits(penstock: Penstock, admitted: Path) -> None:
    before = rates(penstock, admitted)
    answer = json.loads(penstock("cluster", "restore", "field1", "--capacity", 0.5, "--book", admitted, "--json").out)
    assert answer["rates"]
    assert rates(penstock, admitted)["two"] < before["two"]
    penstock("cluster", "restore", "field1", "--capacity", 1, "--book", admitted)
    assert rates(penstock, admitted) == pytest.approx(before)


def test_a_link_may_be_named_from_either_end(penstock: Penstock, admitted: Path) -> None:
    before = rates(penstock, admitted)
    penstock("cluster", "restore", "router--field1", "--capacity", 0.01, "--book", admitted)
    assert rates(penstock, admitted)["face-detection"] < 0.1
    assert penstock("cluster", "restore", "field1--router", "--capacity", 1, "--book", admitted).code == 0
    assert rates(penstock, admitted) == pytest.approx(before)
    penstock("cluster", "fail", "router--field1", "--book", admitted)
    penstock("cluster", "restore", "router--field1", "--capacity", 0.5, "--book", admitted)
    assert BookFile(admitted).load().version == 7
    assert BookFile(admitted).load().capacities == {"field1--router": 0.5}


@pytest.mark.slow
def test_what_had_less_capacity_when_it_failed_has_as_much_when_it_works_again(
    penstock: Penstock, admitted: Path
) -> None:
    described = rates(penstock, admitted)
    penstock("cluster", "restore", "field1", "--capacity", 0.5, "--book", admitted)
    lower = rates(penstock, admitted)
    penstock("cluster", "fail", "field1", "--book", admitted)
    ran = penstock("cluster", "restore", "field1", "--book", admitted)
    assert "field1 works at 0.5 of its described capacity, as before; --capacity 1 resets it" in ran.out
    assert rates(penstock, admitted) == pytest.approx(lower)
    again = penstock("cluster", "restore", "field1", "--book", admitted)
    assert again.code == 2
    assert "'field1' has not failed; it is at 0.5 of its described capacity, and --capacity 1 resets that" in again.err
    assert rates(penstock, admitted) == pytest.approx(lower)
    penstock("cluster", "fail", "field1", "--book", admitted)
    answer = json.loads(penstock("cluster", "restore", "field1", "--capacity", 1, "--book", admitted, "--json").out)
    assert answer["capacities"] == {}
    assert answer["failed"] == []
    assert rates(penstock, admitted) == pytest.approx(described)


def test_of_two_links_between_the_same_machines_the_one_that_is_named_fails(penstock: Penstock, book: Path) -> None:
    links = tuple(Link(source=one, target=other, bandwidth_mbps=10.0) for one, other in (("a", "b"), ("b", "a")))
    pair = Cluster(name="pair", machines=(Machine(name="a"), Machine(name="b")), links=links)
    BookFile(book).save(Book(cluster=pair), None)
    for element in ("a--b", "b--a"):
        ran = penstock("cluster", "fail", element, "--book", book)
        assert ran.out.startswith(f"{element} has failed")
        assert BookFile(book).load().failed == (element,)
        assert f"'{element}' has already failed" in penstock("cluster", "fail", element, "--book", book).err
        assert penstock("cluster", "restore", element, "--book", book).code == 0
        assert BookFile(book).load().failed == ()


def test_an_application_that_gets_nothing_is_named_and_found_other_paths_by_another_policy(
    penstock: Penstock, admitted: Path
) -> None:
    where = BookFile(admitted).load()["two"].paths[0].plan.tasks["denoise"][0].partition("/")[0]
    ran = penstock("cluster", "fail", where, "--book", admitted)
    assert "two gets nothing; penstock cluster admit two --again searches for other paths" in ran.out
    again = penstock("cluster", "admit", "two", "--again", "--policy", "greedy-sorted", "--book", admitted)
    assert "paths by greedy-sorted" in again.out
    assert rates(penstock, admitted)["two"] > 0


def test_priorities_change_and_applications_leave(penstock: Penstock, admitted: Path) -> None:
    assert "one: " in penstock("cluster", "priority", "one", 2, "--book", admitted).out
    got = rates(penstock, admitted)
    assert got["one"] == pytest.approx(got["two"], rel=1e-4)
    assert "released two" in penstock("cluster", "release", "two", "--book", admitted).out
    assert rates(penstock, admitted)["one"] > got["one"]
    assert BookFile(admitted).load().version == 5


def test_the_drawing_shows_every_element_with_how_full_it_is(
    penstock: Penstock, admitted: Path, tmp_path: Path
) -> None:
    penstock("cluster", "fail", "field2", "--book", admitted)
    assert penstock("cluster", "book", "--book", admitted, "--svg", tmp_path / "b.svg").code == 0
    tips = " ".join(element.text or "" for element in ElementTree.parse(tmp_path / "b.svg").iter())
    assert "field1--router: 10 Mbit/s, 1 ms; " in tips
    assert tips.count("% used") >= 9
    assert "failed" in tips


@pytest.mark.slow
def test_reports_invalid_input_in_one_line_and_keeps_the_book(
    penstock: Penstock, admitted: Path, tmp_path: Path
) -> None:
    before = admitted.read_bytes()
    torn = tmp_path / "torn.json"
    torn.write_bytes(before[: len(before) // 2])
    edited = tmp_path / "edited.json"
    edited.write_text(before.decode().replace('"version": 3', '"version": 4', 1))
    for arguments, words in (
        (
            ("cluster", "book", "--book", tmp_path / "none.json"),
            "there is no book; create one with penstock cluster admit APP CLUSTER",
        ),
        (("cluster", "book", "--book", torn), "not a book"),
        (("cluster", "book", "--book", edited), "wrong checksum"),
        (("cluster", "admit", *FACES, "--book", tmp_path / "none.json"), "there is no book yet; name the cluster too"),
        (("cluster", "admit", *FACES, "--book", admitted), "'face-detection' is already in the book"),
        (("cluster", "admit", *FACES, "star-8", "--as", "x", "--book", admitted), "which is another cluster"),
        (
            ("cluster", "admit", *FACES, "--as", "x", "--rate", -1, "--book", admitted),
            "rate: expected source tuples per second > 0, got -1",
        ),
        (
            ("cluster", "admit", *FACES, "--as", "x", "--rate", 1, "--availability", 2, "--book", admitted),
            "availability",
        ),
        (
            ("cluster", "admit", *FACES, "--as", "x", "--rate", 1, "--priority", 2, "--book", admitted),
            "only best-effort",
        ),
        (("cluster", "admit", *FACES, "--as", "x", "--rate", 1, "--best-effort", "--book", admitted), "leave one out"),
        (
            ("cluster", "admit", *FACES, "--as", "x", "--pin", "camera", "--book", admitted),
            "expected COMPONENT=MACHINE",
        ),
        (
            ("cluster", "admit", *FACES, "--as", "x", "--pin", "nobody=field1", "--book", admitted),
            "no component is named",
        ),
        (
            ("cluster", "admit", *FACES, "--as", "x", "--policy", "best", "--book", admitted),
            "no policy is named 'best'",
        ),
        (("cluster", "admit", "one", "--again", "--priority", 3, "--book", admitted), "expected none with --again"),
        (("cluster", "admit", "one", "--again", "--seed", 0, "--book", admitted), "seed: expected none with --again"),
        (("cluster", "release", "nobody", "--book", admitted), "the book has none named 'nobody'"),
        (("cluster", "priority", "face-detection", 2, "--book", admitted), "has a guaranteed rate and no priority"),
        (("cluster", "fail", "mars", "--book", admitted), "has no machine, switch or link 'mars'; there are cloud"),
        (("cluster", "fail", "field1--ruoter", "--book", admitted), "did you mean field1--router"),
        (("cluster", "restore", "cloud", "--book", admitted), "has not failed"),
        (("cluster", "restore", "router", "--capacity", 0.5, "--book", admitted), "'router' is a switch"),
        (
            ("cluster", "restore", "cloud", "--capacity", 0, "--book", admitted),
            "capacity: expected a number > 0, got 0",
        ),
        (("cluster", "book", "--book", admitted, "--svg", tmp_path / "b.png"), "ends in .svg"),
    ):
        ran = penstock(*arguments)
        assert ran.code == 2, arguments
        assert ran.out == ""
        assert words in ran.err
        assert ran.err.count("\n") == 1
        assert admitted.read_bytes() == before


def test_a_cluster_in_two_parts_and_a_link_without_bandwidth_are_refused(penstock: Penstock, tmp_path: Path) -> None:
    dry = "[[links]]\nsource='b'\ntarget='a'\nbandwidth_mbps=0.0\n"
    for name, link, why in (
        ("apart", "", "no links with bandwidth lead there"),
        ("nothing", dry, "link b--a has no bandwidth; any more of link b--a would admit it"),
    ):
        cluster, book = tmp_path / f"{name}.toml", tmp_path / f"{name}.json"
        joined = "[[links]]\nsource='a'\ntarget='hub'\nbandwidth_mbps=1.0\n"
        cluster.write_text(
            f"name='{name}'\nswitches=['hub']\n[[machines]]\nname='a'\n[[machines]]\nname='b'\n{joined}{link}"
        )
        faces = ("face-detection", "--pin", "camera=a", "--pin", "consumer=b")
        ran = penstock("cluster", "admit", *faces, cluster, "--best-effort", "--book", book)
        assert ran.code == 1
        assert "refused face-detection" in ran.out
        assert why in ran.out
        assert not book.exists()


def test_a_change_made_by_somebody_else_in_between_is_not_lost(
    penstock: Penstock, admitted: Path, tmp_path: Path
) -> None:
    file = BookFile(admitted)
    old = file.load()
    shutil.copy(admitted, tmp_path / "copy.json")
    assert penstock("cluster", "release", "two", "--book", admitted).code == 0
    with pytest.raises(Exception, match="another process has saved version 4"):
        file.save(old, old.version)
    assert "two" not in rates(penstock, admitted)


@pytest.mark.parametrize("there", [True, False])
def test_decides_again_after_a_concurrent_change_of_the_book(book: Path, there: bool) -> None:
    file, empty = BookFile(book), Book(cluster=fan(2, 0.1).cluster)
    if there:
        file.save(empty, None)
    given = book.with_name("fan.json")
    given.write_bytes(msgspec.json.encode(empty.cluster))
    seen: list[int] = []

    def decide(found: Book) -> Admitted | Refused:
        seen.append(found.version)
        if len(seen) == 1:  # somebody else is faster
            other = admit_to_book(empty, msgspec.structs.replace(application(), name="other"))
            assert isinstance(other, Admitted)
            file.save(other.book, 0 if there else None)
        return admit_to_book(found, application())

    before, result = decide_and_save(book, str(given), decide, keep=True, create=True)
    assert seen == [0, 1]
    assert before.version == 1
    assert isinstance(result, Admitted)
    assert file.load() == result.book
    assert set(file.load().index) == {"other", application().name}


def test_who_is_never_the_fastest_gives_up_in_the_end(book: Path) -> None:
    file = BookFile(book)
    file.save(Book(cluster=fan(2, 0.1).cluster), None)

    def hinder(found: Book) -> Book:
        after = msgspec.structs.replace(found, version=found.version + 1)
        file.save(after, found.version)
        return after

    with pytest.raises(Outdated, match="another process has saved"):
        change_book(book, hinder)
    assert file.load().version == TRIES


def test_a_rate_is_that_of_all_sources_together_and_each_has_its_share(penstock: Penstock, tmp_path: Path) -> None:
    sources = "".join(f"[[components]]\nname='{name}'\nkind='source'\ncpu=0.1\npinned='{name}'\n" for name in "ab")
    streams = "".join(f"[[streams]]\nsource='{name}'\ntarget='end'\n" for name in "ab")
    sink = "[[components]]\nname='end'\nkind='sink'\n"
    path, cluster, book = (tmp_path / name for name in ("two.toml", "pair.toml", "book.json"))
    path.write_text(f"name='two'\n{sources}{sink}{streams}[rate_tps]\na=3.0\nb=1.0\n")
    cluster.write_text("name='pair'\n[[machines]]\nname='a'\n[[machines]]\nname='b'\n")
    assert penstock("cluster", "admit", path, cluster, "--rate", 4, "--paths", 1, "--book", book).code == 0
    shares = {one.element: one.guaranteed for one in measure_usage(BookFile(book).load()) if one.kind == CPU}
    assert shares == pytest.approx({"a": 3 * 0.1, "b": 1 * 0.1})
    assert "of all sources together" in " ".join(penstock("cluster", "admit", "--help").out.replace("│", " ").split())


def test_the_cluster_may_be_an_option_but_not_twice(penstock: Penstock, book: Path) -> None:
    ran = penstock("cluster", "admit", *FACES, "--rate", 0.1, "--cluster", "field-and-cloud", "--book", book)
    assert ran.code == 0, ran.err
    twice = penstock("cluster", "admit", *FACES, "field-and-cloud", "--cluster", "field-and-cloud", "--book", book)
    assert twice.code == 2
    assert "cluster: expected it once, got 'field-and-cloud' and --cluster 'field-and-cloud'" in twice.err


def test_marks_an_estimated_availability_and_shows_its_bounds(penstock: Penstock, tmp_path: Path) -> None:
    cluster, path = tmp_path / "fan.json", tmp_path / "flow.json"
    cluster.write_bytes(msgspec.json.encode(fan(24, 0.7).cluster))
    path.write_bytes(msgspec.json.encode(application(availability=0.998)))
    common = ("cluster", "admit", path, "--cluster", cluster, "--paths", 24, "--book", tmp_path / "book.json")
    refused = penstock(*common)
    assert refused.code == 2
    assert "estimate it (--estimate)" in refused.err
    answer = json.loads(penstock(*common, "--estimate", "--dry-run", "--json").out)
    assert answer["estimated"] is True
    assert 0.998 <= answer["availability"] < answer["availability_at_most"] <= 1
    assert "(estimated, between 99.8" in penstock(*common, "--estimate").out


def test_a_great_priority_is_nobody_elses_concern_and_brings_no_warnings(penstock: Penstock, admitted: Path) -> None:
    ran = penstock("cluster", "priority", "one", 1e9, "--book", admitted)
    assert ran.code == 0, ran.err
    assert "Warning" not in ran.out + ran.err
    got = rates(penstock, admitted)
    assert got["one"] == pytest.approx(1e9 / 2 * got["two"], rel=1e-6)


def test_a_switch_fails_and_returns_and_the_drawing_and_the_table_show_it(
    penstock: Penstock, admitted: Path, tmp_path: Path
) -> None:
    before = rates(penstock, admitted)
    ran = penstock("cluster", "fail", "router", "--book", admitted)
    assert "router has failed" in ran.out
    over = [path for booking in BookFile(admitted).load().bookings for path in booking.paths if _over_router(path)]
    assert over
    assert all(path.rate_tps == 0 for path in over)
    shown = penstock("cluster", "book", "--book", admitted, "--svg", tmp_path / "b.svg").out
    assert "failed: router" in shown
    assert "field1--router ╳" in " ".join(shown.split())
    tips = [element.text or "" for element in ElementTree.parse(tmp_path / "b.svg").iter()]
    assert "router: switch; failed" in tips
    penstock("cluster", "fail", "router--field1", "--book", admitted)
    early = penstock("cluster", "restore", "router--field1", "--book", admitted)
    assert "it stays unusable until router is restored, too" in early.out
    assert "router works" in penstock("cluster", "restore", "router", "--book", admitted).out
    assert rates(penstock, admitted) == pytest.approx(before)


def _over_router(path: BookedPath) -> bool:
    return any("router" in element for element in path.elements)


@pytest.mark.slow
def test_a_drawing_of_a_large_network_names_what_is_in_use_and_nothing_overlaps(
    penstock: Penstock, tmp_path: Path
) -> None:
    rng = random.Random(7)
    names = [f"a-town-with-a-long-name-{number}" for number in range(60)]
    pairs = [(names[rng.randrange(place)], names[place]) for place in range(1, 60)]
    pairs += [tuple(rng.sample(names, 2)) for _ in range(40)]  # type: ignore[misc]
    links = {frozenset(pair): Link(source=pair[0], target=pair[1], bandwidth_mbps=100.0) for pair in pairs}
    large = Cluster(name="large", machines=tuple(Machine(name=name) for name in names), links=tuple(links.values()))
    (tmp_path / "large.json").write_bytes(msgspec.json.encode(large))
    book, drawing = tmp_path / "book.json", tmp_path / "large.svg"
    assert (
        penstock("cluster", "admit", "face-detection", tmp_path / "large.json", "--rate", 0.05, "--book", book).code
        == 0
    )
    assert penstock("cluster", "book", "--book", book, "--svg", drawing).code == 0
    root = ElementTree.parse(drawing).getroot()
    assert float(root.attrib["width"]) < 2000
    dots = [element for element in root.iter() if element.get("class") == "machine"]
    assert {(dot[0].text or "").partition(":")[0] for dot in dots} == set(names)
    written = [element for element in root.iter() if element.tag.endswith("}text") and "…" in (element.text or "")]
    used = {name for path in BookFile(book).load()["face-detection"].paths for name in path.load if name in names}
    assert 0 < len(written) <= len(used) < len(names)
    boxes = [[float(dot.attrib[key]) for key in ("x", "y", "width", "height")] for dot in dots]
    boxes += [
        [float(text.attrib["x"]), float(text.attrib["y"]) - 9, text_width(text.text or "", 10), 11] for text in written
    ]
    for place, (x, y, width, height) in enumerate(boxes):
        for other_x, other_y, other_width, other_height in boxes[place + 1 :]:
            beside = x + width <= other_x or other_x + other_width <= x
            assert beside or y + height <= other_y or other_y + other_height <= y


def test_a_drawing_of_a_large_network_names_idle_machines_that_a_path_needs(penstock: Penstock, tmp_path: Path) -> None:
    names = [f"n{number:02}" for number in range(40)]
    links = tuple(Link(source=one, target=other, bandwidth_mbps=100.0) for one, other in pairwise(names))
    long = Cluster(name="long", machines=tuple(Machine(name=name) for name in names), links=links)
    (tmp_path / "long.json").write_bytes(msgspec.json.encode(long))
    pins = ("--pin", "camera=n03", "--pin", "consumer=n07")
    book, drawing = tmp_path / "book.json", tmp_path / "long.svg"
    command = ("cluster", "admit", "face-detection", tmp_path / "long.json", *pins, "--rate", 0.001, "--paths", 1)
    assert penstock(*command, "--book", book).code == 0
    assert penstock("cluster", "book", "--book", book, "--svg", drawing).code == 0
    kept = BookFile(book).load()
    used = {one.element for one in measure_usage(kept) if one.utilisation > 0}
    needed = {name for path in kept["face-detection"].paths for name in path.elements if name in names}
    assert {"n03", "n04", "n05", "n06", "n07"} <= needed < set(names)
    assert not needed <= used, "some only pass a stream on"
    written = {element.text for element in ElementTree.parse(drawing).iter() if element.tag.endswith("}text")}
    assert written & set(names) == needed


def test_reports_the_differences_of_a_changed_cluster_description(penstock: Penstock, tmp_path: Path) -> None:
    cluster, book = tmp_path / "cell.toml", tmp_path / "book.json"
    text = "name='cell'\n" + "".join(f"[[machines]]\nname='{name}'\nspeed=4\n" for name in ("a", "b"))
    cluster.write_text(text)
    arguments = ("face-detection", cluster, "--book", book)
    assert penstock("cluster", "admit", *arguments, "--rate", 0.01).code == 0
    before = book.read_bytes()
    cluster.write_text(text.replace("speed=4", "speed=5", 1) + "[[machines]]\nname='c'\n")
    ran = penstock("cluster", "admit", *arguments, "--as", "more", "--rate", 0.01)
    assert ran.code == 2
    assert "differs from the cluster of" in ran.err
    assert "a, c differ; name no cluster to keep the book's own" in ran.err
    assert ran.err.count("\n") == 1
    assert book.read_bytes() == before
    assert penstock("cluster", "admit", "face-detection", "--book", book, "--as", "more", "--rate", 0.01).code == 0
