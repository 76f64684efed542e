"""Windows: Li's features and labels, against pandas on the truth of a run, and computed by hand for a tiny one."""

from typing import Any

import msgspec
import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession

from penstock.model.features import EDGE_WINDOW, TASK_WINDOW
from penstock.model.telemetry import Record
from penstock.pipeline.clocks import clocks
from penstock.pipeline.hops import hops
from penstock.pipeline.ingest import record_schema
from penstock.pipeline.windows import compute_features, compute_shares, edge_windows, find_starts, task_windows
from tests.pipeline.conftest import Steps
from tests.pipeline.synthetic import BUSY, CAPACITY, CHANGE_S, END_S, TASKS, WORKERS, Synthetic

pytestmark = pytest.mark.spark
WINDOW_S = 4.0
CLOSE = 1e-6


def features_of(truth: Synthetic, start: float) -> pd.DataFrame:
    """Compute one row per window and task that stayed, from the truth."""
    rows = []
    for second in range(int(END_S)):
        for task in TASKS:
            processed = 5 * sum(hop["task"] == task and second <= hop["finished"] < second + 1 for hop in truth.hops)
            window = (second + 0.5 - start) // WINDOW_S
            rows.append({"window": window, "task": task, "machine": truth.placed(task, second), "processed": processed})
    reported = pd.DataFrame(rows)
    seconds = pd.DataFrame(
        {"window": (second + 0.4 - start) // WINDOW_S, "machine": machine}
        for second in range(int(END_S))
        for machine in WORKERS
    )
    machines = seconds.groupby(["window", "machine"]).size().rename("machine_seconds")
    by_machine = reported.groupby(["window", "machine"]).agg(total=("processed", "sum"), tasks=("task", "nunique"))
    places = reported.groupby(["window", "task"])["machine"].nunique()
    by_task = reported.groupby(["window", "task", "machine"])["processed"].mean().rename("task_load").reset_index()
    by_task = by_task[[places[row.window, row.task] == 1 for row in by_task.itertuples()]]
    found = by_task.merge(by_machine.reset_index()).merge(machines.reset_index())
    found["machine_load"] = found["total"] / found["machine_seconds"]
    found["colocated"] = found["tasks"] - 1.0
    found["used_cpu"] = found["machine"].map(BUSY)
    for place, name in enumerate(("machine_cpu", "machine_memory")):
        found[name] = [CAPACITY[machine][place] for machine in found["machine"]]
    return found.drop(columns=["total", "tasks", "machine_seconds"])


def hops_of(truth: Synthetic, start: float) -> pd.DataFrame:
    found = pd.DataFrame(truth.hops).rename(columns={"task": "target", "worker": "target_machine"})
    found["source_machine"] = found["source_worker"]
    found["window"] = (found["started"] - start) // WINDOW_S
    found["processing_s"] = found["finished"] - found["started"]
    found["transfer_s"] = found["started"] - found["emitted"]
    return found


def same(found: DataFrame, expected: pd.DataFrame, keys: list[str]) -> None:
    rows = found.drop("run").toPandas().sort_values(keys, ignore_index=True)
    wanted = expected[rows.columns].sort_values(keys, ignore_index=True)
    pd.testing.assert_frame_equal(rows, wanted, check_dtype=False, rtol=0, atol=CLOSE)
    assert len(rows) > 10


def test_windows_equal_those_of_pandas(made: Steps, truth: Synthetic) -> None:
    start = min(root["due"] for root in truth.roots)
    own, passed = features_of(truth, start), hops_of(truth, start)
    starts = find_starts(made.good, made.clocks).cache()
    seen = compute_features(made.good, made.clocks, starts, WINDOW_S).cache()
    labels = passed.groupby(["window", "target", "target_machine"])["processing_s"].agg(["size", "mean"]).reset_index()
    labels.columns = pd.Index(["window", "task", "machine", "count", "processing_s"])
    tasks = labels.merge(own)
    tasks["component"] = tasks["task"].str.partition("[")[0]
    found = task_windows(made.hops, seen, starts, WINDOW_S)
    assert tuple(found.columns) == TASK_WINDOW
    same(found, tasks, ["window", "task"])
    changed = (CHANGE_S - start) // WINDOW_S
    moved = {task for task in TASKS if truth.placements[0][task] != truth.placements[1][task]}
    assert moved
    assert not moved & set(tasks[tasks["window"] == changed]["task"])

    pair = ["window", "stream", "source", "target"]
    counted = passed.groupby(pair).size().rename("tuples").reset_index()
    counted["share"] = counted["tuples"] / counted.groupby(["window", "stream"])["tuples"].transform("sum")
    same(compute_shares(made.hops, starts, WINDOW_S), counted, pair)

    edges = (
        passed.groupby([*pair, "source_machine", "target_machine"])["transfer_s"].agg(["size", "mean"]).reset_index()
    )
    edges = edges.rename(columns={"size": "count", "mean": "transfer_s"})
    for end in ("source", "target"):
        names = {"task": end, "machine": f"{end}_machine", "machine_cpu": f"{end}_cpu"}
        names |= {"machine_memory": f"{end}_memory", "task_load": f"{end}_load"}
        names |= {"machine_load": f"{end}_machine_load", "used_cpu": f"{end}_used_cpu"}
        edges = edges.merge(own.drop(columns="colocated").rename(columns=names))
    edges["same_machine"] = (edges["source_machine"] == edges["target_machine"]).astype(float)
    found = edge_windows(made.hops, seen, starts, WINDOW_S)
    assert tuple(found.columns) == EDGE_WINDOW
    same(found, edges, pair)


def record(kind: str, worker: str, at: float, **columns: Any) -> tuple[Any, ...]:
    made = msgspec.structs.asdict(Record(kind=kind, run="007", worker=worker, at=at, **columns))
    return tuple(made[name] for name in record_schema().names)


def hop(number: int, emitted: float, started: float, spent: float, target: str, workers: tuple[str, str]) -> Any:
    times = {"emitted": emitted, "sent": emitted, "arrived": started, "started": started, "finished": started + spent}
    names = {"stream": "a->b", "source": "a[0]", "task": target, "source_worker": workers[0], "source_incarnation": 0}
    return record("hop", workers[1], started + spent, root=number, id=number + 100, parent=number, **names, **times)


def test_a_window_has_the_features_of_its_task_and_machine(spark: SparkSession) -> None:
    reported = {"given": 0, "queue": 0, "busy": 0.1}
    rows = [
        record("root", "m0/0", 10.0, root=1, id=1, task="a[0]", due=10.0, emitted=10.0),
        # Two workers of one machine: the shares of it that they used are added up, a longer interval counts for more;
        # what the machine has they share. The other machine's worker is of a version that did not report it.
        record("machine", "m0/0", 11.0, interval=1.0, busy=0.2, memory_mb=100.0, capacity_cpu=2.0, capacity_mb=512.0),
        record("machine", "m0/0", 14.0, interval=3.0, busy=0.6, memory_mb=200.0, capacity_cpu=2.0, capacity_mb=512.0),
        record("machine", "m0/1", 14.0, interval=4.0, busy=0.1, memory_mb=50.0, capacity_cpu=2.0, capacity_mb=512.0),
        record("machine", "m1/0", 14.0, interval=4.0, busy=0.9),
        record("task", "m0/0", 14.0, task="a[0]", interval=4.0, processed=40, **reported),
        record("task", "m0/1", 14.0, task="b[0]", interval=4.0, processed=20, **reported),
        record("task", "m1/0", 14.0, task="b[1]", interval=4.0, processed=60, **reported),
        # It was on both machines, and is there for the others' count and load.
        record("task", "m0/1", 11.0, task="c[0]", interval=1.0, processed=8, **reported),
        record("task", "m1/0", 14.0, task="c[0]", interval=3.0, processed=30, **reported),
        record("task", "m1/0", 18.0, task="b[1]", interval=4.0, processed=4, **reported),
        hop(1, 10.0, 10.5, 0.1, "b[0]", ("m0/0", "m0/1")),
        hop(2, 11.0, 11.5, 0.3, "b[0]", ("m0/0", "m0/1")),
        hop(3, 11.0, 13.0, 0.2, "b[1]", ("m0/0", "m1/0")),
        hop(4, 13.9, 14.1, 0.2, "b[1]", ("m0/0", "m1/0")),  # started in the next window
        hop(5, 11.0, 13.0, 0.2, "c[0]", ("m0/0", "m1/0")),
    ]
    good = spark.createDataFrame(rows, record_schema())
    table, starts = clocks(good), find_starts(good, clocks(good))
    made = hops(good, table)
    seen = compute_features(good, table, starts, 4.0)
    alone = seen.where("machine is null").collect()
    assert [(row["window"], row["task"], row["task_load"]) for row in alone] == [(0, "c[0]", 9.5)]
    tasks = task_windows(made, seen, starts, 4.0).orderBy("window", "task").collect()
    near = pytest.approx
    assert [tuple(row) for row in tasks] == [
        ("007", 0, "b", "b[0]", "m0", 2.0, 512.0, 5.0, 17.0, 2.0, near(0.6), 2, near(0.2)),
        ("007", 0, "b", "b[1]", "m1", None, None, 15.0, 22.5, 1.0, near(0.9), 1, near(0.2)),
        ("007", 1, "b", "b[1]", "m1", None, None, 1.0, 1.0, 0.0, None, 1, near(0.2)),
    ]
    edges = edge_windows(made, seen, starts, 4.0).orderBy("window", "target").collect()
    columns = ("window", "target", "source_load", "target_machine_load", "same_machine", "count", "transfer_s")
    assert [tuple(row[name] for name in columns) for row in edges] == [
        (0, "b[0]", 10.0, 17.0, 1.0, 2, pytest.approx(0.5)),
        (0, "b[1]", 10.0, 22.5, 0.0, 1, pytest.approx(2.0)),
    ]
    found = compute_shares(made, starts, 4.0).orderBy("window", "target").collect()
    assert [(row["window"], row["target"], row["tuples"], row["share"]) for row in found] == [
        (0, "b[0]", 2, 0.5), (0, "b[1]", 1, 0.25), (0, "c[0]", 1, 0.25), (1, "b[1]", 1, 1.0),
    ]  # fmt: skip


def test_a_worker_that_was_there_for_a_part_of_a_window_used_its_machine_for_that_part(spark: SparkSession) -> None:
    reported = {"interval": 4.0, "processed": 40, "given": 0, "queue": 0, "busy": 0.1}
    rows = [
        record("root", "m0/0", 10.0, root=1, id=1, task="a[0]", due=10.0, emitted=10.0),
        record("machine", "m0/0", 14.0, interval=4.0, busy=0.25),
        record("machine", "m0/1", 12.0, interval=1.0, busy=0.2),
        record("machine", "m0/1", 13.0, interval=1.0, busy=0.4),
        record("task", "m0/0", 14.0, task="a[0]", **reported),
    ]
    good = spark.createDataFrame(rows, record_schema())
    (row,) = compute_features(good, clocks(good), find_starts(good, clocks(good)), 4.0).collect()
    assert row["used_cpu"] == pytest.approx(0.25 + (0.2 + 0.4) / 4)


def test_each_time_is_corrected_by_the_clock_record_before_it(spark: SparkSession) -> None:
    offsets = {5.0: 1.0, 10.0: 2.0, 11.0: 0.0, 50.0: -3.0, 1e6: 7.0}
    rows = [record("clock", "m0", at, offset=offset, drift=0.0) for at, offset in offsets.items()]
    rows += [record("clock", "m1", 4.0, offset=0.0, drift=0.0), record("clock", "m2", 4.0, offset=9.0, drift=0.0)]
    times = {-5.0: 1.0, 5.0: 1.0, 9.9: 1.0, 10.0: 2.0, 11.0: 0.0, 49.0: 0.0, 50.0: -3.0, 9e5: -3.0, 1e6: 7.0, 1e9: 7.0}
    rows += [record("root", "m0", at, root=1, id=1, task="a[0]", due=at, emitted=at) for at in times]
    rows += [record("root", worker, 3.0, root=1, id=1, task="a[0]", due=3.0, emitted=3.0) for worker in ("m1", "m2")]
    from penstock.pipeline.clocks import on_controller_clock

    good = spark.createDataFrame(rows, record_schema())
    found = on_controller_clock(good.where("kind = 'root'"), clocks(good), ("due",)).collect()
    corrected = {(row["worker"], row["emitted"]): row["emitted"] - row["due"] for row in found}
    assert corrected == pytest.approx(
        {("m0", at): ahead for at, ahead in times.items()} | {("m1", 3.0): 0.0, ("m2", 3.0): 9.0}
    )
