"""Windows of the twin: the pipeline's tables without records."""

from pathlib import Path

import msgspec
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_allclose

from penstock.estimate.latency import Loads
from penstock.model.features import EDGE_WINDOW
from penstock.model.instance import Instance
from penstock.model.taskgraph import task_names
from penstock.model.topology import Application
from penstock.papers.predictive.settings import li_cluster, setting
from penstock.papers.predictive.visits import Site
from penstock.papers.predictive.windows import Tables
from penstock.sim.events import Twin, TwinSpan
from penstock.workloads.storm_applications import word_count

SECONDS, BUSY_S = 6.0, 4.0
SLOTS = (0, 32, 1, 33, 0, 32, 34)  # two sources, two splitters, two counters, a database on two machines


def small() -> Application:
    made = word_count(sources=2, splitters=2, counters=2, databases=1)
    return msgspec.structs.replace(made, rate_tps={"source": 60.0})


def drained(twin: Twin, records: float = 0.0) -> tuple[TwinSpan, TwinSpan, "pd.DataFrame | None"]:
    """Run until all that came is processed, so that no tuple is at the edge of the window."""
    run = twin.start(SLOTS, seed=3, records=records, name="small")
    first = run.advance(BUSY_S)
    run.scale(0.0)
    second = run.advance(SECONDS - BUSY_S)
    return first, second, run.records() if records else None


def test_loads_shares_and_neighbours_are_those_of_the_placement() -> None:
    twin = Twin(small(), li_cluster(2))
    span = twin.start(SLOTS, seed=3).advance(SECONDS)
    tables = Tables(twin.instance)
    window = tables.window(SLOTS, span)
    first = np.array([0, 2, 4])  # tasks on the first machine
    assert_allclose(window.tasks[first, 3], span.processed[first].sum() / SECONDS)
    assert_allclose(window.tasks[:, 2], span.processed / SECONDS)
    assert window.tasks[:, 4].tolist() == [2, 3, 2, 3, 2, 3, 3]
    assert_allclose(window.used, span.machine_cpu[[0, 1, 0, 1, 0, 1, 1]])
    machine = twin.instance.cluster.machines[0]  # they are all alike
    assert set(window.tasks[:, 0]) == {machine.cpu}
    assert set(window.tasks[:, 1]) == {machine.memory_mb}
    edges = tables.edge_table([window]).to_pandas()
    assert tuple(edges.columns) == EDGE_WINDOW
    same = edges["source_machine"] == edges["target_machine"]
    assert (edges["same_machine"] == same).all()
    assert 0 < same.sum() < len(edges)


def test_rows_of_regressions_have_every_component_but_sources_and_every_stream() -> None:
    twin = Twin(small(), li_cluster(2))
    tables = Tables(twin.instance)
    run = twin.start(SLOTS, seed=3)
    windows = [tables.window(SLOTS, run.advance(SECONDS)) for _ in range(2)]
    rows = tables.rows(windows)
    streams = ["source->split", "split->count", "count->database"]
    assert list(rows) == [
        *(("component", one) for one in ("split", "count", "database")),
        *(("stream", s) for s in streams),
    ]
    split = rows["component", "split"]
    assert split.windows.tolist() == [0, 0, 1, 1]
    assert split.counts.sum() == sum(int(window.span.processed[2:4].sum()) for window in windows)


def test_longest_path_of_a_chain_is_the_sum_of_its_times() -> None:
    twin = Twin(small(), li_cluster(2))
    tables = Tables(twin.instance)
    times = tables.measured(twin.start(SLOTS, seed=3).advance(SECONDS))
    assert len(times) == 6
    assert tables.longest(times) == pytest.approx(sum(times.values()))


@pytest.mark.slow
@pytest.mark.parametrize("reported", [1.0, 0.5, 2.0])
def test_loads_that_one_placement_shows_add_up_to_what_machines_use(reported: float) -> None:
    """Whatever was declared: machines whose mixes of tuples are much alike must not make these look cheaper."""
    base = setting("log-processing")
    site = Site(base, 0.6, 500)
    windows = site.following(base.default, 7, 10)
    used = np.mean([window.span.machine_cpu @ site.instance.slots.machine_cpu for window in windows])
    costs = tuple(msgspec.structs.replace(one, cpu=reported * one.cpu) for one in site.application.components)
    instance = Instance(msgspec.structs.replace(site.application, components=costs), base.cluster)
    tables = site.tables.feature_table(windows), site.tables.share_table(windows)
    found = Loads.observed(instance, *tables, window_s=site.window_s, seconds=10 * site.window_s)
    assert found.cpu.sum() == pytest.approx(used, rel=0.01)


@pytest.mark.spark
def test_equal_the_pipelines_tables_of_the_same_run(tmp_path: Path) -> None:
    from penstock.pipeline.job import run_pipeline
    from penstock.pipeline.session import session
    from penstock.pipeline.store import read_table

    twin = Twin(small(), li_cluster(2))
    *_, records = drained(twin, records=-1.0)
    (tmp_path / "in").mkdir()
    pq.write_table(records, tmp_path / "in" / "small.parquet")
    with session("windows") as spark:
        run_pipeline(spark, tmp_path / "in", tmp_path / "out", window_s=SECONDS)
        names = ("features", "task_windows", "edge_windows", "shares")
        found = {name: read_table(spark, tmp_path / "out", name).toPandas() for name in names}
    tables = Tables(twin.instance)
    window = tables.window(SLOTS, whole(*drained(twin)[:2]))
    pair = ["stream", "source", "target"]
    for name, made, order in (
        ("features", tables.feature_table([window], "small"), ["task"]),
        ("edge_windows", tables.edge_table([window], "small"), pair),
        ("shares", tables.share_table([window], "small"), pair),
    ):
        own = made.to_pandas().sort_values(order).reset_index(drop=True)
        theirs = found[name][list(own.columns)].sort_values(order).reset_index(drop=True)
        pd.testing.assert_frame_equal(own, theirs, check_dtype=False, rtol=1e-6)
    spent = dict(zip(task_names(twin.application), window.processing_s, strict=True))
    labels = found["task_windows"].set_index("task")["processing_s"].to_dict()
    assert labels == pytest.approx({task: spent[task] for task in spent if not task.startswith("source")}, rel=1e-6)


def whole(first: TwinSpan, second: TwinSpan) -> TwinSpan:
    """Return two spans as one."""
    import dataclasses

    added = ("processed", "busy_s", "taken", "edge_tuples", "edge_transfer_s")
    sums = {name: getattr(first, name) + getattr(second, name) for name in added}
    seconds = first.seconds + second.seconds
    cpu = (first.machine_cpu * first.seconds + second.machine_cpu * second.seconds) / seconds
    return dataclasses.replace(first, end=second.end, machine_cpu=cpu, **sums)
