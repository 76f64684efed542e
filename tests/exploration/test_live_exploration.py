"""A run of another process as a target, and its exploration over the control socket."""

from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.autopilot.control_target import TargetEnded
from penstock.exploration.guarded_exploration import Limits
from penstock.exploration.index import Trials
from penstock.exploration.live_exploration import RemoteTarget, explore_run, machines_of
from penstock.model.cluster import Cluster, Machine
from penstock.model.errors import InvalidInput
from penstock.model.files import save
from penstock.model.telemetry import write_records
from penstock.runtime.storage.run_folder import NoRun
from tests.exploration.test_spans import record, table
from tests.fake_run import PLACEMENT, Served, flow

TRIO = Cluster(name="trio", machines=tuple(Machine(name=f"m{n}", cores=2, slots=2) for n in range(3)))
APP = flow(1e5).application


def test_reads_a_run_and_moves_its_tasks(tmp_path: Path) -> None:
    with Served(tmp_path) as served:
        target = RemoteTarget(served.info, APP, TRIO)
        assert target.placement() == PLACEMENT
        reading = target.reading()
        assert reading.mean_s == pytest.approx(0.0051)
        assert (reading.count, reading.steady) == (512, True)
        assert reading.rates["in"] == 1234.0
        served.handle.move("split[1]", "m2/1")
        assert not target.reading().steady
        served.handle.phase = "stopped"
        with pytest.raises(TargetEnded):
            target.placement()


@pytest.mark.parametrize("reported", [2, 1])
def test_explores_a_run_and_cuts_its_telemetry(tmp_path: Path, reported: int) -> None:
    with Served(tmp_path / "runs") as served:
        run = served.info.run
        events = [
            record("event", 10.0 * n, "controller", event="apply", detail=f"explore-{n:03d}") for n in range(reported)
        ]
        roots = [
            record("root", at, root=number, id=number, task="in[0]", due=at, emitted=at)
            for number, at in ((1, 0.1), (2, 0.25), (3, 10.25))
        ]
        records = table(*events, *roots)
        renamed = records.set_column(1, records.schema.field(1), [[run] * len(records)])
        write_records(renamed, served.info.telemetry_path, "m0")
        out = tmp_path / "out"
        out.mkdir()
        target = RemoteTarget(served.info, APP, TRIO)
        index, done = explore_run(
            served.info, target, out, Trials(2, 0.2, 0.2, 0.2, margin=0.1), Limits(moves=6, reading_s=0.1), flush_s=0.0
        )
        assert (index.live, index.left, done.skipped) == (True, "", 0)
        assert ("no record of when explore-001 was applied" in index.stopped) == (reported == 1)
        assert list(index.runs) == ["explore-000", "explore-001"][:reported]
        assert served.handle.placement == PLACEMENT
    found = {path.stem: record_roots(path) for path in out.glob("*.parquet")}
    assert found == dict([("explore-000", [2]), ("explore-001", [3])][:reported])


def test_refuses_a_run_whose_autopilot_is_on(tmp_path: Path) -> None:
    with Served(tmp_path) as served:
        target = RemoteTarget(served.info, APP, TRIO)
        target.refuse_piloted()
        served.handle.autopilot = "stopped: a defect"
        target.refuse_piloted()
        served.handle.autopilot = "local-search, observing"
        refused = rf"run: the autopilot of run {served.info.run} is on .* penstock autopilot off "
        with pytest.raises(InvalidInput, match=refused):
            explore_run(served.info, target, tmp_path, Trials(1, 0.2, 0.0, 0.2, margin=0.1), Limits(moves=1))
        assert served.handle.applied == []


def test_refuses_a_run_that_ends_or_whose_driver_died(tmp_path: Path) -> None:
    with Served(tmp_path) as served:
        served.handle.phase = "draining"
        with pytest.raises(NoRun, match=rf"^run: run {served.info.run} is about to end \(draining\)"):
            RemoteTarget(served.info, APP, TRIO)
    dead = msgspec.structs.replace(served.info, pid=2**22 + 1, ended=None)
    with pytest.raises(NoRun, match=r"is not running: its driver \(pid \d+\) has died"):
        RemoteTarget(dead, APP, TRIO)


def record_roots(path: Path) -> list[int]:
    return [row["root"] for row in pq.read_table(path).to_pylist() if row["kind"] == "root"]


def test_knows_machines_only_from_the_runs_folder(tmp_path: Path) -> None:
    with Served(tmp_path) as served:
        save(TRIO, served.info.cluster_path)
        assert machines_of(served.info) == TRIO
        real = msgspec.structs.replace(served.info, emulated=None, master="spark://head:7077")
        with pytest.raises(InvalidInput, match=r"run: run fake-.* is on Spark's executors"):
            machines_of(real)
        embedded = machines_of(msgspec.structs.replace(real, master="embedded"))
        assert [machine.name for machine in embedded.machines] == ["local"]


def test_refuses_another_application(tmp_path: Path) -> None:
    with Served(tmp_path) as served, pytest.raises(InvalidInput, match="has other tasks than 'word-count'"):
        RemoteTarget(served.info, ps.application("word-count"), TRIO)
