from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.admission import BookFile
from penstock.admission.reconciler.state import PathPhase, PathState, ReconcilerState
from penstock.cli.cluster.serve import _flow, _table
from penstock.model.book import Book, Booking
from penstock.model.errors import InvalidInput
from penstock.workloads.applications import application
from tests.admission.reconciler.fakes import admitted, flow, two_ways
from tests.conftest import Ran


def booking(given: str, **promised: float) -> Booking:
    from msgspec.structs import replace

    found = replace(application(given or "word-count"), **promised)
    return Booking(application=found, given=given, policy="sparcle", achieved_availability=1.0, paths=())


def test_says_in_a_line_what_is_missing(penstock: Callable[..., Ran], tmp_path: Path) -> None:
    ran = penstock("cluster", "serve", "--book", tmp_path / "none.json")
    assert ran.code == 2
    assert ran.err.count("\n") == 1
    assert "there is no book" in ran.err


def test_refuses_times_that_are_none(penstock: Callable[..., Ran], tmp_path: Path) -> None:
    for option in ("--every", "--for"):
        ran = penstock("cluster", "serve", "--book", tmp_path / "none.json", option, 0)
        assert ran.code == 2
        assert f"{option[2:]}: expected seconds > 0" in ran.err


def test_says_how_many_workers_are_needed_before_spark_is_started(penstock: Callable[..., Ran], tmp_path: Path) -> None:
    book = admitted(Book(cluster=two_ways()), flow("alpha").application, availability=0.98)
    BookFile(tmp_path / "book.json").save(book, None)
    ran = penstock("cluster", "serve", "--book", tmp_path / "book.json", "--workers", 2, "--runs", tmp_path / "runs")
    assert ran.code == 2
    assert "need 6" in ran.err
    assert "starting Spark" not in ran.err


def test_refuses_a_book_that_is_damaged(penstock: Callable[..., Ran], tmp_path: Path) -> None:
    (tmp_path / "book.json").write_text("{")
    ran = penstock("cluster", "serve", "--book", tmp_path / "book.json")
    assert ran.code == 2
    assert "not a book" in ran.err


def test_finds_the_dataflow_that_the_command_line_named() -> None:
    assert _flow(booking("word-count:sources=2")).application.components[0].parallelism == 2
    assert _flow(booking("face-detection", guaranteed_tps=0.25)).application.offered_tps == pytest.approx(0.25)
    with pytest.raises(InvalidInput, match="does not name the program"):
        _flow(booking(""))


def test_draws_every_path_and_what_it_is_about() -> None:
    from rich.console import Console

    paths = tuple(
        PathState(application="alpha", number=n, path=f"p{n}", phase=phase, booked_tps=12.5, machines=("w1",))
        for n, phase in enumerate((PathPhase.RUNNING, PathPhase.DOWN))
    )
    console = Console(width=100, record=True)
    console.print(_table(ReconcilerState(pid=1, at=0.0, version=1, paths=paths)))
    text = console.export_text()
    assert "running" in text
    assert "down" in text
    assert text.count("12.5") == 2
