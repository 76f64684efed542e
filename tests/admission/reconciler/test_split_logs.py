"""Tuples of a path that is given up: with real checkpoints, every tuple is published exactly once."""

import operator
from functools import partial
from pathlib import Path

import msgspec
import pytest

from penstock.admission.reconciler.split_logs import Splits, settle_run
from penstock.api.dataflow import Dataflow
from penstock.api.sinks.json_lines import JsonLines
from penstock.api.sources.generated import Generated
from penstock.api.sources.split import split_sources
from penstock.model.errors import FileProblem
from penstock.runtime.config import RunConfig
from penstock.runtime.storage.run_folder import RunInUse, RunLock, create, load, write_info
from penstock.testing.cluster import TestCluster

TOTAL = 1500


def flow() -> Dataflow:
    made = Dataflow("numbers")
    numbers = made.source("in", Generated(int, rate=400.0, count=TOTAL), parallelism=2)
    made.sink("out", JsonLines("output/numbers"), made.map("work", abs, numbers, parallelism=2))
    return made


def run_folder(folder: Path, path: str) -> Path:
    """Make a run's folder, named as its path."""
    made = create("numbers", folder, config=RunConfig())
    write_info(msgspec.structs.replace(made, run=path))
    return made.path.rename(folder / path)


def cluster(folder: Path, path: str, seed: int = 0) -> TestCluster:
    run_folder(folder, path)
    own = split_sources(flow(), folder / "logs", path)
    return TestCluster(own, capture=False, folder=str(folder / path), checkpoint_s=0.5, seed=seed).start()


def published(folder: Path) -> list[int]:
    files = [file for file in folder.glob("*/output/numbers/*.jsonl") if not file.name.startswith("_")]
    return sorted(msgspec.json.decode(line) for file in files for line in file.read_bytes().splitlines())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_another_path_processes_unprocessed_tuples_exactly_once(tmp_path: Path, seed: int) -> None:
    splits = Splits(tmp_path / "logs", ["in"])
    first, second = cluster(tmp_path, "p0", seed), cluster(tmp_path, "p1", seed)
    for _ in range(7):
        first.advance(0.19)
        second.advance(0.19)
    returned = splits.give_back("p0", settle_run(tmp_path / "p0"))  # the first is never heard of again
    assert 0 < returned < TOTAL
    assert 0 < len(published(tmp_path)) < TOTAL
    second.finish()
    assert published(tmp_path) == list(range(TOTAL))


@pytest.mark.slow
def test_what_a_drained_path_had_taken_and_not_given_goes_to_another(tmp_path: Path) -> None:
    splits = Splits(tmp_path / "logs", ["in"])
    first = cluster(tmp_path, "p0")
    first.advance(1.03)
    first.drain()
    covered = settle_run(tmp_path / "p0")
    assert all(each.position is None for each in covered.values())
    done = published(tmp_path)
    assert 0 < len(done) < TOTAL
    assert splits.give_back("p0", covered) > 0
    assert splits.give_back("p0", covered) == 0
    cluster(tmp_path, splits.name(0)).finish()
    assert published(tmp_path) == list(range(TOTAL))


@pytest.mark.slow
def test_returns_nothing_of_a_source_read_to_its_end(tmp_path: Path) -> None:
    splits = Splits(tmp_path / "logs", ["in"])
    cluster(tmp_path, "p0").finish()
    assert splits.unfinished() == ["p0"]
    assert splits.give_back("p0", settle_run(tmp_path / "p0")) == 0
    assert splits.unfinished() == []
    assert published(tmp_path) == list(range(TOTAL))


@pytest.mark.slow
def test_returns_everything_without_a_complete_checkpoint(tmp_path: Path) -> None:
    splits = Splits(tmp_path / "logs", ["in"])
    first = cluster(tmp_path, "p0")
    first.advance(0.3)
    assert settle_run(tmp_path / "p0") == {}
    assert splits.give_back("p0", {}) > 0
    cluster(tmp_path, "p0.2").finish()
    assert published(tmp_path) == list(range(TOTAL))


def test_refuses_to_return_tuples_if_checkpoints_are_damaged(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    cluster(tmp_path, "p0").advance(1.2)
    for manifest in tmp_path.glob("p0/checkpoints/*/manifest.json"):
        manifest.write_text("{}")
    with pytest.raises(FileProblem, match="all checkpoints are damaged"):
        settle_run(tmp_path / "p0")


def test_nothing_of_a_run_is_settled_that_a_process_drives(tmp_path: Path) -> None:
    folder = run_folder(tmp_path, "p0")
    lock = RunLock(load(folder))
    with pytest.raises(RunInUse, match="run p0 is being run by"):
        settle_run(folder)
    assert not load(folder).given_up
    lock.release()
    assert settle_run(folder) == {}
    assert load(folder).given_up


@pytest.mark.slow
def test_a_recorded_run_determines_the_unprocessed_tuples(tmp_path: Path) -> None:
    splits = Splits(tmp_path / "logs", ["in"])
    splits.note_run("p0", tmp_path / "p0")
    first = cluster(tmp_path, "p0")
    first.advance(1.2)
    assert Splits(tmp_path / "logs", ["in"]).unfinished() == ["p0"]
    assert 0 < splits.give_up("p0") < TOTAL
    cluster(tmp_path, "p0.2").finish()
    assert published(tmp_path) == list(range(TOTAL))


def test_a_run_without_a_folder_returns_only_what_it_never_took(tmp_path: Path) -> None:
    splits = Splits(tmp_path / "logs", ["in"])
    splits.note_run("p0", tmp_path / "gone")
    assert splits.name(0) == "p0", "it came to nothing"
    cluster(tmp_path, "p0").advance(0.3)
    with pytest.raises(FileProblem, match="gone: the run's folder does not exist"):
        splits.give_up("p0")
    assert splits.unfinished() == ["p0"]
    splits.note_run("p1", tmp_path / "gone")
    assert splits.give_up("p1") == 0
    splits.note_run("p2", run_folder(tmp_path, "p2"))
    assert splits.name(2) == "p2.2", "it may still begin"


def test_a_path_is_never_named_as_one_that_took_tuples_or_was_given_up(tmp_path: Path) -> None:
    splits = Splits(tmp_path / "logs", ["in"])
    assert splits.name(0) == "p0"
    assert splits.name(0, ["p0"]) == "p0.2"
    cluster(tmp_path, "p0").advance(0.1)
    assert splits.name(0) == "p0.2"
    splits.give_back("p0.2", {})
    assert splits.name(0) == "p0.3"
    assert splits.name(1) == "p1"


def test_every_source_of_an_application_has_a_log_of_its_own(tmp_path: Path) -> None:
    made = Dataflow("both")
    low = made.source("low", Generated(int, rate=300.0, count=400))
    high = made.source("high", Generated(partial(operator.add, 1000), rate=100.0, count=150))
    made.sink("out", JsonLines("output/numbers"), low, high)
    splits = Splits(tmp_path / "logs", ["low", "high"])
    for name in ("p0", "p1"):
        run_folder(tmp_path, name)
    first = TestCluster(
        split_sources(made, tmp_path / "logs", "p0"), capture=False, folder=str(tmp_path / "p0"), checkpoint_s=0.3
    )
    first.start().advance(0.8)
    splits.weigh({"p1": 1.0})
    covered = settle_run(tmp_path / "p0")
    assert covered.keys() == {"low[0]", "high[0]"}
    assert splits.give_back("p0", covered) > 0
    second = TestCluster(
        split_sources(made, tmp_path / "logs", "p1"), capture=False, folder=str(tmp_path / "p1"), checkpoint_s=0.3
    )
    second.start().finish()
    assert published(tmp_path) == [*range(400), *range(1000, 1150)]
