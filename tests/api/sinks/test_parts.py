"""The life of a sink that writes parts: whatever fails, the files that show hold each tuple exactly once."""

import errno
import json
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.api.contracts import TaskContext
from penstock.api.sinks import parts
from penstock.api.sinks.json_lines import JsonLines
from penstock.api.sinks.parquet import Parquet
from penstock.api.sinks.parts import KEPT, PartFile, PartFiles
from penstock.model.errors import FileProblem
from tests.api.sinks.life import Life, hidden, published, restore, saved, visible

MAKERS: list[Callable[[], PartFiles]] = [lambda: JsonLines("out", roll_rows=3), lambda: Parquet("out", roll_rows=3)]
EACH = pytest.mark.parametrize("make", MAKERS, ids=["json", "parquet"])


def shown(life: Life) -> list[int]:
    """Return the numbers in the files that show, in the order of their names."""
    files = visible(life.folder / "out")
    if isinstance(life.sink, Parquet):
        return [number for file in files for number in pq.read_table(file)["value"].to_pylist()]
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


@EACH
def test_nothing_shows_before_its_checkpoint_is_complete(make: Callable[[], PartFiles], tmp_path: Path) -> None:
    life = Life(make, tmp_path)
    life.feed(4)
    life.sink.flush(0.0)  # rolls
    life.feed(1)
    assert shown(life) == []
    life.checkpoint(publish=False)
    life.feed(2)
    assert shown(life) == []
    life.publish()
    assert shown(life) == list(range(5))
    assert [file.name.split("-")[3] for file in visible(tmp_path / "out")] == ["000000", "000001"]
    life.end()
    assert shown(life) == list(range(7))
    assert hidden(tmp_path / "out") == []


@EACH
def test_a_crash_leaves_each_tuple_once(make: Callable[[], PartFiles], tmp_path: Path) -> None:
    life = Life(make, tmp_path)
    life.feed(5)
    life.checkpoint()
    life.feed(3)
    life.checkpoint(complete=False)
    life.feed(3)
    life.recover()
    life.haunt()
    assert life.given == 5
    life.feed(4)
    life.haunt()
    life.end()
    assert shown(life) == list(range(9))
    assert [file.name.split("-")[3] for file in visible(tmp_path / "out")] == ["000000", "000001"]


@EACH
def test_parts_of_a_checkpoint_outlast_the_next_epoch_until_they_are_published(
    make: Callable[[], PartFiles], tmp_path: Path
) -> None:
    life = Life(make, tmp_path)
    life.feed(5)
    life.checkpoint(publish=False)
    life.feed(2)
    life.recover(published_late=True)
    life.feed(1)
    life.end()
    assert shown(life) == list(range(6))


@EACH
def test_a_move_keeps_what_was_prepared(make: Callable[[], PartFiles], tmp_path: Path) -> None:
    life = Life(make, tmp_path)
    for _ in range(3):
        life.feed(2)
        life.move()
    assert shown(life) == []
    life.end()
    assert shown(life) == list(range(6))


@EACH
def test_what_is_after_a_damaged_checkpoint_is_withdrawn(
    make: Callable[[], PartFiles], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    life = Life(make, tmp_path)
    for _ in range(3):
        life.feed(2)
        life.checkpoint()
    with caplog.at_level(logging.WARNING):
        life.recover(damaged=True)
    assert "withdrew 1 of the files of save[3]" in caplog.text
    assert shown(life) == list(range(4))
    life.feed(1)
    life.end()
    assert shown(life) == list(range(5))


@EACH
def test_a_damaged_first_checkpoint_withdraws_everything(
    make: Callable[[], PartFiles], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    life = Life(make, tmp_path)
    life.feed(2)
    life.checkpoint()
    life.recover(damaged=True)
    assert life.checkpoints[-1].state is None
    life.checkpoint()  # without a tuple
    assert shown(life) == []
    assert "withdrew 1 of the files of save[3]" in caplog.text
    life.feed(3)
    life.end()
    assert shown(life) == list(range(3))


ACTIONS = st.one_of(
    st.tuples(st.just("feed"), st.integers(1, 5)),
    st.tuples(st.sampled_from(["roll", "complete", "give up", "move", "haunt"])),
    st.tuples(st.just("complete"), st.booleans()),
    st.tuples(st.just("recover"), st.booleans(), st.booleans()),
)


@pytest.mark.slow
@settings(max_examples=150)
@given(make=st.sampled_from(MAKERS), actions=st.lists(ACTIONS, max_size=30), kept=st.sampled_from([0, KEPT]))
def test_whatever_happens_each_tuple_is_in_the_files_once(
    make: Callable[[], PartFiles], actions: list[tuple[Any, ...]], kept: int
) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "KEPT", kept)
        life = Life(make, Path(folder))
        for action in actions:
            match action:
                case ("feed", count):
                    life.feed(count)
                case ("roll",):
                    life.sink.flush(0.0)
                case ("complete", *published_now):
                    if life.checkpoints[-1].pairs:
                        life.publish()  # the one before is always published first
                    life.checkpoint(publish=all(published_now))
                case ("give up",):
                    life.checkpoint(complete=False)
                case ("move",):
                    life.move()
                case ("haunt",):
                    life.haunt()
                case ("recover", damaged, late):
                    life.recover(damaged=damaged, published_late=late)
            assert shown(life) == list(range(len(shown(life))))
        life.publish()
        life.end()
        assert shown(life) == list(range(life.given))


def opened(folder: Path, run: str = "monday", epoch: int = 1, task: int = 0, **how: Any) -> JsonLines:
    sink = JsonLines("out", **how)
    sink.open(TaskContext("save", task, 2, folder=str(folder), run=run, epoch=epoch))
    return sink


def test_names_say_component_task_number_and_run(tmp_path: Path) -> None:
    sink = opened(tmp_path, "monday", 7)
    sink.write([1])
    [(temporary, final)] = sink.prepare()
    assert hidden(tmp_path / "out") == ["_part-save-0-000000.monday.e7"]
    assert temporary == str(tmp_path / "out" / "_part-save-0-000000.monday.e7")
    assert Path(final).parent == tmp_path / "out"
    assert Path(final).name == "part-save-0-000000-d618fb.jsonl"
    assert [path.name for path in (tmp_path / "epochs").iterdir()] == ["part-save-0.monday.e7"]
    sink.close()


def test_runs_and_tasks_share_a_folder(tmp_path: Path) -> None:
    sinks = [opened(tmp_path, run, task=task) for run in ("monday", "tuesday") for task in range(2)]
    for number, sink in enumerate(sinks):
        sink.write([number])
    for sink in sinks:
        published(sink)
    recovered = opened(tmp_path, "monday", 2)  # from the very beginning
    recovered.write([4])
    published(recovered)
    for sink in (*sinks, recovered):
        sink.close()
    assert sorted(file.read_text() for file in visible(tmp_path / "out")) == ["1\n", "2\n", "3\n", "4\n"]


def test_a_second_run_of_the_same_name_keeps_the_files_of_the_first(tmp_path: Path) -> None:
    first = opened(tmp_path)
    first.write([1])
    [name] = published(first)
    first.close()
    second = opened(tmp_path)
    with pytest.raises(FileProblem) as refused:
        second.write([2])
    assert str(refused.value) == (
        f"{tmp_path / 'out' / name}: already exists, of an earlier run named 'monday', or of this one before its "
        "checkpoints were removed; remove all part-*-d618fb.jsonl there, or choose another folder"
    )
    second.close()
    assert [file.name for file in visible(tmp_path / "out")] == [name]


def test_a_zombie_and_a_later_epoch_write_the_same_part_to_different_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "KEPT", 0)
    zombie, newer = opened(tmp_path), opened(tmp_path, epoch=2)
    for number in range(3):
        zombie.write([-number])
        newer.write([number])
    zombie.prepare()
    [name] = published(newer)
    zombie.write([-3])
    zombie.close()
    newer.close()
    assert (tmp_path / "out" / name).read_text() == "0\n1\n2\n"


def test_a_process_that_wakes_up_while_it_restores_withdraws_nothing(tmp_path: Path) -> None:
    first = opened(tmp_path)
    first.write([1])
    state = saved(first)  # of a checkpoint that has none of it
    first.close()
    asleep = opened(tmp_path, epoch=2)
    newer = opened(tmp_path, epoch=3)
    restore(newer, state)
    newer.write([1])
    [name] = published(newer)
    newer.write([2])
    with pytest.raises(FileProblem, match="epoch 3 of the run has started; epoch 2 must not continue"):
        restore(asleep, state)
    asleep.close()
    assert [file.name for file in visible(tmp_path / "out")] == [name]
    published(newer)
    newer.close()
    assert len(visible(tmp_path / "out")) == 2


def test_removes_only_what_earlier_epochs_of_its_own_task_and_run_have_left(tmp_path: Path) -> None:
    left = [opened(tmp_path, run, epoch, task) for run, epoch, task in [("m", 1, 0), ("m", 3, 0), ("m", 1, 1)]]
    left += [opened(tmp_path, "m.e1.m", 1), opened(tmp_path, "n", 1)]
    for sink in left:
        sink.snapshot()  # it has begun
    for sink in left:
        sink.write([0])
        sink.prepare()
    assert len(hidden(tmp_path / "out")) == len(left)
    kept = set(hidden(tmp_path / "out")) - {"_part-save-0-000000.m.e1"}
    again = opened(tmp_path, "m", 3)
    again.snapshot()
    assert set(hidden(tmp_path / "out")) == kept
    for sink in (*left, again):
        sink.close()


def test_what_a_zombie_has_left_is_removed_once_the_part_has_its_name(tmp_path: Path) -> None:
    zombie, newer = opened(tmp_path, epoch=1), opened(tmp_path, epoch=2)
    zombie.write([0])
    newer.write([1])
    zombie.prepare()
    zombie.write([-1])
    zombie.prepare()
    assert len(hidden(tmp_path / "out")) == 2
    published(newer)
    newer.write([2])
    published(newer)
    restore(newer, saved(newer))
    assert hidden(tmp_path / "out") == []
    zombie.close()
    newer.close()


def test_recoveries_leave_nothing_in_the_folder_of_output(tmp_path: Path) -> None:
    life = Life(MAKERS[0], tmp_path)
    for _ in range(3):
        life.feed(2)
        life.checkpoint()
        life.recover()
    life.end()
    assert hidden(tmp_path / "out") == []
    assert [path.name for path in (tmp_path / "epochs").iterdir()] == ["part-save-3.monday.e4"]


def test_closing_drops_what_was_not_prepared(tmp_path: Path) -> None:
    sink = opened(tmp_path, roll_rows=1)
    sink.write([1])
    [pair] = sink.prepare()
    sink.write([2])
    sink.flush(0.0)
    sink.write([3])
    sink.close()
    assert hidden(tmp_path / "out") == [Path(pair[0]).name]


def test_a_part_without_tuples_gets_no_number(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    sink.write([])
    assert sink.prepare() == []
    with pytest.raises(ValueError, match="JSON"):
        sink.write([object()])
    assert sink.prepare() == []
    assert sink.snapshot() == 0
    assert hidden(tmp_path / "out") == []
    sink.close()


def test_a_file_system_without_links_takes_parts_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    life = Life(MAKERS[0], tmp_path)
    life.feed(4)
    life.checkpoint()
    life.feed(2)
    life.recover()
    life.feed(3)
    life.end()
    assert shown(life) == list(range(7))


FULL = """
import errno, resource, signal, sys
from penstock.api.contracts import TaskContext
from penstock.api.sinks import parts
from penstock.api.sinks.{module} import {kind}
from penstock.model.errors import FileProblem
from penstock.runtime.storage.disk import Posix

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a file that may not grow fails like one on a full disk
if {patient}:
    parts.FULL = (errno.EFBIG,)
sink = {kind}("out", roll_rows=200_000)
sink.open(TaskContext("save", 0, 1, folder=sys.argv[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
taken, problems = [], []
for first in range(0, 600_000, 1000):
    batch = [number * 7919 % 1_000_003 for number in range(first, first + 1000)]
    try:
        sink.write(batch)
        taken += batch
        sink.flush(0.0)
    except FileProblem as problem:
        problems.append(str(problem))
for _ in range(2):
    try:
        sink.prepare()
    except FileProblem as problem:
        problems.append(str(problem))
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
sink.write([1])
for temporary, final in sink.prepare():
    Posix().publish(temporary, final)
sink.close()
print(len(taken), len(problems), sum(taken) + 1, *set(problems), sep="\\n")
"""


@pytest.mark.slow
@pytest.mark.parametrize("patient", [False, True])
@pytest.mark.parametrize(("module", "kind"), [("json_lines", "JsonLines"), ("parquet", "Parquet")])
def test_a_disk_that_was_full_has_cost_no_tuple_that_was_taken(
    tmp_path: Path, module: str, kind: str, patient: bool
) -> None:
    code = FULL.format(module=module, kind=kind, patient=patient)
    reported = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    taken, problems, total, problem = reported.stdout.splitlines()
    if patient:
        assert (taken, problems) == ("600000", "2")
        assert f"{tmp_path}/out: no space left; save[0] buffers up to 64 MiB" in reported.stderr
    else:
        assert 0 < int(taken) < 600_000
        assert int(problems) > 2
    assert problem.startswith(f"{tmp_path}/out: cannot be written, file too large; ")
    files = visible(tmp_path / "out")
    if kind == "Parquet":
        numbers = pq.read_table(tmp_path / "out")["value"].to_pylist()
    else:
        numbers = [int(line) for file in files for line in file.read_text().splitlines()]
    assert len(numbers) == int(taken) + 1
    assert sum(numbers) == int(total)
    assert hidden(tmp_path / "out") == []


def test_says_that_there_is_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    if not os.access("/dev/full", os.W_OK):
        pytest.skip("no device that is always full")
    monkeypatch.setattr(parts, "PATIENCE", 3 * KEPT)
    sink = opened(tmp_path)
    os.symlink("/dev/full", tmp_path / "out" / "_part-save-0-000000.monday.e1")
    for _ in range(3):
        sink.write(["x" * KEPT])
    assert caplog.text.count("no space left") == 1
    for full in (lambda: sink.write(["y"]), sink.prepare, sink.prepare):
        with pytest.raises(FileProblem, match="out: cannot be written, no space left on device; free some space"):
            full()
    sink.close()


def test_a_part_that_could_not_be_synced_is_never_taken_for_complete(tmp_path: Path) -> None:
    read, write = os.pipe()  # takes bytes but cannot be synced
    os.symlink(f"/dev/fd/{write}", tmp_path / "pipe")
    part = PartFile(tmp_path / "pipe", tmp_path / "final")
    part.write(b"x")
    for _ in range(2):
        with pytest.raises(OSError, match="Invalid argument"):
            part.complete()
    part.drop()
    assert os.read(read, 10) == b"x"
    os.close(read)
    os.close(write)
