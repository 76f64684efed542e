"""Exploration on the twin: a run a placement, whole trees of the time that it was held, equal for a seed."""

from pathlib import Path

import msgspec
import pyarrow.parquet as pq

import penstock as ps
from penstock.exploration.index import Index, Trials
from penstock.exploration.twin_exploration import explore_twin

CLUSTER = ps.cluster("homogeneous-8:machines=3,cores=2")
APP = msgspec.structs.replace(ps.application("word-count"), rate_tps={"source": 100.0})


def explored(folder: Path, seed: int = 0) -> Index:
    folder.mkdir()
    return explore_twin(APP, CLUSTER, folder, Trials(2, 4.0, 2.0, 2.0, margin=0.1, seed=seed), factors=(0.5, 1.5))


def test_writes_a_run_for_each_placement_and_an_index(tmp_path: Path) -> None:
    reported = explored(tmp_path / "out")
    index = msgspec.json.decode(reported.save(tmp_path / "out").read_bytes(), type=Index)
    assert index == reported
    assert list(index.runs) == ["explore-000", "explore-001"]
    for name, one in index.runs.items():
        records = pq.read_table(tmp_path / "out" / f"{name}.parquet").to_pandas()
        assert set(records["run"]) == {name}
        assert 50.0 <= one.rates["source"] <= 150.0
        assert one.machines == len({slot.partition("/")[0] for slot in one.placement.values()})
        dues = records.loc[records["kind"] == "root", "due"]
        assert dues.between(2.0, 6.0, inclusive="left").all()
        roots = set(records.loc[records["kind"] == "root", "root"])
        assert roots == set(records.loc[records["kind"] == "done", "root"])
        assert set(records.loc[records["kind"] == "hop", "root"]) <= roots
        tasks = records[records["kind"] == "task"]
        assert len(tasks) == 4 * APP.task_count
        assert (tasks["at"] - tasks["interval"]).min() >= 2.0 - 1e-6
        machine = {row.task: row.worker for row in tasks.itertuples()}
        assert machine == {task: slot.partition("/")[0] for task, slot in one.placement.items()}


def test_is_the_same_for_a_seed(tmp_path: Path) -> None:
    first, again, other = explored(tmp_path / "a"), explored(tmp_path / "b"), explored(tmp_path / "c", seed=9)
    assert first == again
    assert first != other
    for name in first.runs:
        tables = [pq.read_table(tmp_path / folder / f"{name}.parquet") for folder in ("a", "b")]
        assert tables[0].equals(tables[1])
