"""Several runs in one Spark session of one process, added and removed while others run."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

import penstock as ps
from penstock.model.errors import InvalidInput
from penstock.pipeline.session import NoSpark, running_session
from penstock.runtime.run import Run
from penstock.runtime.spark.executors import registered
from tests.settings import changes

pytestmark = pytest.mark.spark

ONE = ps.Cluster(name="one", machines=(ps.Machine(name="m0", cores=1, slots=3),))


def flow() -> ps.Dataflow:
    """Return an application that would take the whole of the machine."""
    made = ps.Dataflow("busy")
    numbers = made.source("in", ps.Generated(int, rate=200.0), cpu=0.01)
    made.sink("out", ps.Discard(), numbers)
    return made


def within(seconds: float, true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_runs_come_and_go_side_by_side_as_long_as_there_is_room(tmp_path: Path) -> None:
    share = tmp_path / "machines"

    def start(runs: str, **settings: object) -> Run:
        return ps.run(flow(), emulate=ONE, runs=tmp_path / runs, config=changes(share=str(share), seed=1, **settings))

    with ps.session(workers=1, folder=tmp_path / "spark") as spark:
        (executor,) = registered(spark)
        room = executor.cores - 1
        first, second = start("one"), start("other", limits={"in": 20.0})
        assert first.info.application == second.info.application == "busy"
        within(20, lambda: 0 < rate(second) <= 25 and rate(first) > 40)
        assert second.status().limits == {"in": 20.0}
        assert second.limit({"in": None}) == {}
        within(20, lambda: rate(second) > 35 and rate(first) < 65)  # they have half the machine each
        first.stop()
        within(20, lambda: rate(second) > 80)  # all of it
        more = [start("one") for _ in range(room - 1)]
        with pytest.raises(NoSpark, match=f"room for {room} workers, of which other runs of this process hold {room};"):
            start("one")
        assert len(list((tmp_path / "one").iterdir())) == room, "one that never began leaves no folder"
        for run in [second, *more]:
            assert run.status().phase == "running"
            run.stop()
        start("one").stop()
        assert running_session() is not None
    assert running_session() is None


def test_the_session_that_a_run_starts_goes_on_until_the_last_run_has_ended(tmp_path: Path) -> None:
    first = ps.run(flow(), emulate=ONE, runs=tmp_path)
    second = ps.run(flow(), emulate=ONE, runs=tmp_path)
    first.drain()
    assert second.status().phase == "running"
    within(20, lambda: second.status().emitted > 10)
    second.drain()
    assert second.status().error == ""
    assert running_session() is None


def test_refuses_to_share_what_is_not_emulated_here(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="share: expected emulate beside it"):
        ps.run(flow(), config=changes(share=str(tmp_path / "x")), runs=tmp_path / "runs")
    with pytest.raises(InvalidInput, match="share: expected an embedded session"):
        ps.run(
            flow(),
            emulate=ONE,
            config=changes(share=str(tmp_path / "x"), master="spark://h:7077"),
            runs=tmp_path / "runs",
        )
    assert not (tmp_path / "runs").exists()


def rate(run: Run) -> float:
    """Return the tuples a second of a run's source."""
    return next(component.rate_tps for component in run.status().components if component.name == "in")
