"""What the commands about a book say of promises that are not kept."""

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.admission.book.cases import application, diamond
from tests.conftest import Ran

Penstock = Callable[..., Ran]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Go to a folder with a network, either of whose ways works 90 % of the time, and an application."""
    monkeypatch.chdir(tmp_path)
    Path("net.json").write_bytes(msgspec.json.encode(diamond(fails=0.1)))
    Path("flow.json").write_bytes(msgspec.json.encode(application()))
    return tmp_path


@pytest.mark.usefixtures("here")
def test_a_guarantee_that_holds_too_seldom_is_named_by_what_changes_the_book_and_by_what_shows_it(
    penstock: Penstock,
) -> None:
    assert penstock("cluster", "admit", "flow.json", "net.json", "--rate", 4, "--availability", 0.98).code == 0
    says = "flow is guaranteed 4.00/s with availability 98.0% and has 90.0%; penstock cluster admit flow --again"
    assert says in penstock("cluster", "restore", "a--c", "--capacity", 0.5).out
    assert says in penstock("cluster", "book").out
    shown = json.loads(penstock("cluster", "book", "--json").out)
    (missed,) = shown["unmet"]
    assert missed["achieved_availability"] == shown["applications"][0]["achieved_availability"] == pytest.approx(0.9)
    assert (missed["short"], missed["seldom"], missed["availability"]) == (False, True, 0.98)
    assert f"{says.partition(';')[0]}; it gets 2.00/s" in penstock("cluster", "fail", "b").out
    assert json.loads(penstock("cluster", "restore", "b", "--json").out)["unmet"] == [missed]
    assert "guaranteed" not in penstock("cluster", "restore", "a--c", "--capacity", 1).out
    assert json.loads(penstock("cluster", "book", "--json").out)["unmet"] == []


@pytest.mark.usefixtures("here")
def test_a_best_effort_application_that_is_served_too_seldom_is_named(penstock: Penstock) -> None:
    assert penstock("cluster", "admit", "flow.json", "net.json", "--best-effort", "--availability", 0.98).code == 0
    says = "flow requested availability 98.0% and has 90.0%"
    assert says in penstock("cluster", "admit", "flow.json", "--as", "firm", "--rate", 10).out
    again = json.loads(penstock("cluster", "admit", "flow.json", "--as", "late", "--rate", 1, "--json").out)
    assert [missed["application"] for missed in again["unmet"]] == ["flow"]
    assert says in penstock("cluster", "priority", "flow", 2).out
    assert says in penstock("cluster", "release", "late").out
    assert json.loads(penstock("cluster", "release", "firm", "--json").out)["unmet"] == []
