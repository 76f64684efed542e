"""The reconciler on embedded Spark: two applications on one bottleneck, then one of them leaves."""

from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep

import pytest

import penstock as ps
from penstock.admission import BookFile, release
from penstock.admission.reconciler.service import BookService
from penstock.admission.reconciler.state import PathPhase
from penstock.model.book import Book
from penstock.model.errors import InvalidInput, PenstockError
from tests.admission.reconciler.fakes import admitted

pytestmark = pytest.mark.spark

SERVICE_S = 0.1  # long, for two busy cores to emulate it truly
CAPACITY = 1 / SERVICE_S  # tuples per second of the machine in between
STAR = ps.Cluster(
    name="star",
    machines=(ps.Machine(name="ends"), ps.Machine(name="middle")),
    switches=("hub",),
    links=tuple(ps.Link(source="hub", target=name, bandwidth_mbps=100.0) for name in ("ends", "middle")),
)


def flow(name: str) -> ps.Dataflow:
    made = ps.Dataflow(name)
    numbers = made.source("in", ps.Generated(int, rate=3 * CAPACITY), cpu=1e-4, pinned="ends")
    work = made.map("work", abs, numbers, cpu=SERVICE_S, pinned="middle")
    made.sink("out", ps.Discard(), work, cpu=1e-4, pinned="ends")
    return made


def wait_until(true: Callable[[], object], seconds: float = 60.0) -> None:
    deadline = monotonic() + seconds
    while not true():
        assert monotonic() < deadline
        sleep(0.05)


def written(service: BookService) -> dict[str, int]:
    """Return the number of tuples written by the sinks of each application."""
    found: dict[str, int] = {}
    for application in list(service.reconciler.applications.values()):
        runs = [path.run for path in application.paths if path.run is not None]
        found[application.name] = sum(run.status().written for run in runs)
    return found


def measured(service: BookService, seconds: float, warned: list[str]) -> dict[str, float]:
    """Return the rates at the sinks over some seconds from now."""
    began, before = monotonic(), written(service)
    watch(service, seconds, warned)
    after, took = written(service), monotonic() - began
    return {name: (after[name] - before[name]) / took for name in after}


def watch(service: BookService, seconds: float, warned: list[str]) -> None:
    """Wait, and record warnings about a lagging emulation."""
    until = monotonic() + seconds
    while monotonic() < until:
        sleep(0.2)
        warned += [path.note for path in service.state().paths if "emulation" in path.note]


def limits(service: BookService) -> dict[str, float]:
    """Return the limits in force according to the runs."""
    applications = list(service.reconciler.applications.values())
    return {
        each.name: sum(path.run.status().limits.values()) for each in applications for path in each.paths if path.run
    }


def test_two_applications_share_a_bottleneck_by_priority_until_one_leaves(tmp_path: Path) -> None:
    flows = {name: flow(name) for name in ("alpha", "beta")}
    book = admitted(Book(cluster=STAR), flows["alpha"].application, paths=1, priority=2.0)
    book = admitted(book, flows["beta"].application, paths=1, priority=1.0)
    assert book["alpha"].rate_tps == pytest.approx(2 * CAPACITY / 3, rel=1e-3)
    file = BookFile(tmp_path / "book.json")
    file.save(book, None)
    reported: list[str] = []
    warned: list[str] = []
    with ps.serve(file.path, flows, runs=tmp_path / "runs", telemetry=False, report=reported.append) as service:
        wait_until(lambda: [path.phase for path in service.state().paths] == [PathPhase.RUNNING] * 2)
        with pytest.raises(PenstockError, match="another reconciler"):
            ps.serve(file.path, flows)
        promised = {booking.name: booking.rate_tps for booking in book.bookings}
        assert limits(service) == pytest.approx(promised)
        assert promised["alpha"] / promised["beta"] == pytest.approx(2.0, rel=1e-3)
        watch(service, 3.0, warned)
        both = measured(service, 12.0, warned)
        after = release(book, "beta")
        file.save(after, book.version)
        watch(service, 4.0, warned)
        wait_until(lambda: [path.application for path in service.state().paths] == ["alpha"])
        assert limits(service) == pytest.approx({"alpha": after["alpha"].rate_tps})
        assert after["alpha"].rate_tps == pytest.approx(CAPACITY, rel=1e-3)
        alone = measured(service, 6.0, warned)["alpha"]  # so that it has the rest within 10 s
        watch(service, 3.0, warned)  # delays at the end are reported only then
    assert any("beta: released" in text for text in reported)
    assert len(list((tmp_path / "runs").iterdir())) == 2, "no path was restarted"
    assert both.keys() == {"alpha", "beta"}
    assert min(*both.values(), alone) > 0
    if warned:
        pytest.skip(f"the host is too busy to emulate truly: {warned[0]}; measured {both}, then {alone:.1f}/s")
    assert both["alpha"] / both["beta"] == pytest.approx(2.0, rel=0.1)
    assert sum(both.values()) >= 0.9 * CAPACITY
    assert alone >= 0.9 * CAPACITY


def test_refuses_a_session_that_is_too_small(tmp_path: Path) -> None:
    alpha = flow("alpha")
    BookFile(tmp_path / "book.json").save(admitted(Book(cluster=STAR), alpha.application, paths=1), None)
    with pytest.raises(InvalidInput, match="need 2, one per machine of a path, got 1"):
        ps.serve(tmp_path / "book.json", {"alpha": alpha}, workers=1)
