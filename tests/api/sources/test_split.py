"""A source shared by several paths: every tuple once, whoever dies, in proportion to weights."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.api.contracts import Source, TaskContext, Timed
from penstock.api.sources.generated import Generated
from penstock.api.sources.lines import Lines
from penstock.api.sources.split import Split
from penstock.api.sources.split_log import SplitLog
from penstock.api.sources.tcp import TcpLines
from penstock.model.errors import FileProblem, InvalidInput
from tests.api.clock import Clock, context


def numbers(rate: float | None = None, count: int | None = None) -> Any:
    return lambda: Generated(int, rate=rate, count=count)


def opened(clock: Clock, folder: Path, path: str, make: Any, task: int = 0, tasks: int = 1) -> Split:
    source = Split(make, folder / "split.jsonl", path, wall=lambda: clock.time + 1e9)
    source.open(context(task, tasks, component="in", clock=clock))
    return source


def given(source: Source[Any], clock: Clock, limit: int = 10_000) -> list[Any] | None:
    found = source.poll(clock.time, limit)
    return None if found is None else list(getattr(found, "values", found))


def test_one_path_emits_everything_in_order(tmp_path: Path) -> None:
    clock = Clock(100.0)
    source = opened(clock, tmp_path, "a", numbers(rate=100.0))
    given(source, clock)
    clock.time += 3.0
    assert given(source, clock) == list(range(1, 301))


@pytest.mark.slow
def test_two_paths_share_tuples_by_weight_though_they_start_apart(tmp_path: Path) -> None:
    clock = Clock(100.0)
    a = opened(clock, tmp_path, "a", numbers(rate=100.0))
    SplitLog(tmp_path / "split.jsonl").weigh({"a": 3.0, "b": 1.0})
    found: dict[str, list[int]] = {"a": [], "b": []}
    paths = {"a": a}
    for step in range(4000):
        if step == 200:
            paths["b"] = opened(clock, tmp_path, "b", numbers(rate=100.0))
        for name, source in paths.items():
            found[name] += given(source, clock) or []
        clock.time += 0.01
    both = sorted(found["a"] + found["b"])
    assert both == list(range(len(both)))
    assert len(both) == pytest.approx(4000, abs=25)
    late = [number for number in found["b"] if number > 400]
    assert len(late) / (len(both) - 400) == pytest.approx(0.25, abs=0.02)


def test_a_path_that_cannot_keep_up_leaves_tuples_to_the_other(tmp_path: Path) -> None:
    clock = Clock(100.0)
    slow, fast = (opened(clock, tmp_path, name, numbers(rate=1000.0)) for name in ("slow", "fast"))
    counts = {"slow": 0, "fast": 0}
    for _ in range(2000):
        counts["slow"] += len(given(slow, clock, 1) or [])
        counts["fast"] += len(given(fast, clock) or [])
        clock.time += 0.01
    assert counts["slow"] == pytest.approx(2000, rel=0.01)
    assert counts["fast"] == pytest.approx(18_000, rel=0.05)


@pytest.mark.parametrize("seed", range(8))
def test_every_tuple_counts_once_whichever_path_fails_resumes_or_is_abandoned(tmp_path: Path, seed: int) -> None:
    """What was given since a path's last checkpoint counts for nothing when it fails."""
    rng = np.random.default_rng(seed)
    clock, total = Clock(100.0), 2000
    make = numbers(rate=500.0, count=total)
    committed: list[int] = []
    live: dict[str, tuple[Split, dict[str, Any] | None, list[int]]]
    live = {f"p{n}": (opened(clock, tmp_path, f"p{n}", make), None, []) for n in range(3)}
    born = 3
    while live and clock.time < 200:
        clock.time += 0.02
        for name, (source, saved, pending) in list(live.items()):
            found = given(source, clock, int(rng.integers(1, 40)))
            if found is None:
                committed += pending
                del live[name]
                continue
            pending += found
            chance = rng.random()
            if chance < 0.05:
                committed += pending
                live[name] = (source, source.position(), [])
            elif chance < 0.06:
                again = opened(clock, tmp_path, name, make)
                if saved is not None:
                    again.seek(saved)
                live[name] = (again, saved, [])
            elif chance < 0.063:
                positions: dict[str, Any] = {} if saved is None else {f"{name}/0": saved}
                SplitLog(tmp_path / "split.jsonl").give_back(name, positions)
                del live[name]
                fresh = f"p{born}"
                live[fresh], born = (opened(clock, tmp_path, fresh, make), None, []), born + 1
    assert not live
    assert sorted(committed) == list(range(total)), seed


class InThrees(Source[int]):
    """Gives three numbers for each of another source's, and so more at once than it was asked for."""

    rewinds = True

    def __init__(self, count: int) -> None:
        self.inner = Generated(int, rate=100.0, count=count)

    def open(self, context: TaskContext) -> None:
        self.inner.open(context)

    def poll(self, now: float, limit: int) -> Any:
        found = self.inner.poll(now, max(1, limit // 3))
        if found is None:
            return None
        values = found.values if isinstance(found, Timed) else found
        return [3 * value + third for value in values for third in range(3)]

    def position(self) -> Any:
        return self.inner.position()

    def seek(self, position: Any) -> None:
        self.inner.seek(position)


@pytest.mark.parametrize("seed", range(3))
def test_a_source_that_exceeds_the_requested_number_is_split_as_well(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    clock = Clock(100.0)
    paths = {name: opened(clock, tmp_path, name, lambda: InThrees(500)) for name in "ab"}
    saved: dict[str, Any] = {name: source.position() for name, source in paths.items()}
    pending: dict[str, list[int]] = {"a": [], "b": []}
    got: dict[str, list[int]] = {"a": [], "b": []}
    while paths:
        clock.time += 0.05
        for name, source in list(paths.items()):
            found = given(source, clock, int(rng.integers(1, 20)))
            if found is None:
                got[name] += pending[name]
                del paths[name]
                continue
            pending[name] += found
            if rng.random() < 0.2:
                got[name] += pending[name]
                saved[name], pending[name] = source.position(), []
            elif rng.random() < 0.02:
                paths[name], pending[name] = opened(clock, tmp_path, name, lambda: InThrees(500)), []
                paths[name].seek(saved[name])
    assert sorted(got["a"] + got["b"]) == list(range(1500)), seed
    assert min(len(got["a"]), len(got["b"])) > 300


def test_a_path_that_starts_late_does_not_read_everything_before(tmp_path: Path) -> None:
    clock, made = Clock(100.0), []

    def make(number: int) -> int:
        made.append(number)
        return number

    early = opened(clock, tmp_path, "a", lambda: Generated(make, rate=1000.0))
    for _ in range(100):
        clock.time += 0.1
        given(early, clock)
    made.clear()
    late = opened(clock, tmp_path, "b", lambda: Generated(make, rate=1000.0))
    clock.time += 1.0
    assert given(late, clock)
    assert min(made) > 5000


def test_a_path_that_was_given_up_may_take_no_more(tmp_path: Path) -> None:
    clock = Clock(100.0)
    source = opened(clock, tmp_path, "a", numbers())
    given(source, clock, 10)
    assert SplitLog(tmp_path / "split.jsonl").give_back("a", {}) > 0
    with pytest.raises(InvalidInput, match="'a' was abandoned"):
        given(source, clock)
    assert given(opened(clock, tmp_path, "b", numbers()), clock, 3) == [0, 1, 2]


def test_lines_of_files_are_split_as_well(tmp_path: Path) -> None:
    clock, text = Clock(100.0), tmp_path / "text.txt"
    text.write_text("".join(f"line {n}\n" for n in range(5000)))
    paths = [opened(clock, tmp_path, name, lambda: Lines(text), n, 2) for name in "ab" for n in range(2)]
    found: list[str] = []
    while paths:
        for source in list(paths):
            lines = given(source, clock, 100)
            if lines is None:
                source.close()
                paths.remove(source)
            found += lines or []
    assert sorted(found) == sorted(f"line {n}" for n in range(5000))


def test_a_torn_line_is_no_entry_and_what_follows_is_whole(tmp_path: Path) -> None:
    clock = Clock(100.0)
    source = opened(clock, tmp_path, "a", numbers())
    with (tmp_path / "split.jsonl").open("a") as file:
        file.write('{"type":"block","taker":"b/0","start":0,')
    assert given(source, clock, 5) == [0, 1, 2, 3, 4]
    log = SplitLog(tmp_path / "split.jsonl")
    log.look()
    assert list(log.blocks) == ["a/0"]


def test_rejects_a_source_that_cannot_be_read_again_and_weights_that_make_no_sense(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="TcpLines cannot; store its input in files"):
        Split(lambda: TcpLines("localhost", 9), tmp_path / "split.jsonl", "a")
    with pytest.raises(InvalidInput, match=r"weights\.a: expected a number ≥ 0, got -1"):
        SplitLog(tmp_path / "split.jsonl").weigh({"a": -1})


@pytest.mark.slow
def test_a_truncated_log_returns_all_or_nothing(tmp_path: Path) -> None:
    clock = Clock(100.0)
    for task in range(2):
        given(opened(clock, tmp_path, "a", numbers(rate=200.0), task, 2), clock, 5)
    path = tmp_path / "split.jsonl"
    before = path.read_bytes()
    whole = SplitLog(path).give_back("a", {})
    after = path.read_bytes()
    assert whole > 20
    for length in range(len(before), len(after)):
        path.write_bytes(after[:length])
        log = SplitLog(path)
        assert log.give_back("a", {}) == whole
        assert log.give_back("a", {}) == 0
        taken: list[int] = []
        for number in range(whole):
            block = log.take("b/0", 7, number)
            assert block is not None
            taken += range(block.start, block.stop)
        assert sorted(taken) == list(range(len(taken)))  # each number once, those given back among them


def test_a_block_that_an_earlier_worker_took_meanwhile_is_not_lost(tmp_path: Path) -> None:
    clock = Clock(100.0)
    make = numbers(count=30)
    early = opened(clock, tmp_path, "a", make)
    assert given(early, clock, 5) == [0, 1, 2, 3, 4]
    late = opened(clock, tmp_path, "a", make)
    late.seek(early.position())
    stalled = SplitLog(tmp_path / "split.jsonl")
    stalled.look()
    assert stalled.take("a/0", 10, len(stalled.blocks["a/0"]))
    rest: list[int] = []
    while (found := given(late, clock)) is not None:
        rest += found
    assert rest == list(range(5, 30))


def test_an_abandoned_path_does_not_resume_from_its_checkpoint(tmp_path: Path) -> None:
    clock = Clock(100.0)
    source = opened(clock, tmp_path, "a", numbers())
    given(source, clock, 10)
    saved = source.position()
    given(source, clock, 10)
    SplitLog(tmp_path / "split.jsonl").give_back("a", {"a/0": saved})
    again = opened(clock, tmp_path, "a", numbers())
    with pytest.raises(InvalidInput, match="'a' was abandoned"):
        again.seek(saved)


def test_what_could_not_be_written_whole_was_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = SplitLog(tmp_path / "split.jsonl")
    assert log.take("a/0", 10, 0)
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, data: write(file, data[: len(data) // 2]))
    with pytest.raises(FileProblem, match="cannot be written completely; free some space"):
        log.take("a/0", 10, 1)
    monkeypatch.undo()
    found = log.take("b/0", 10, 0)
    assert found is not None
    assert found.start == 10


def test_the_run_of_a_path_is_noted(tmp_path: Path) -> None:
    SplitLog(tmp_path / "split.jsonl").note_run("p0.2", "runs/alpha-7")
    log = SplitLog(tmp_path / "split.jsonl")
    log.look()
    assert log.runs == {"p0.2": "runs/alpha-7"}
