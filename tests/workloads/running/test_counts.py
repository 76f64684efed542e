import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.api.contracts import TaskContext
from penstock.model.errors import FileProblem
from penstock.runtime.storage.disk import Posix
from penstock.workloads.running.counts import LatestCounts, count_name, latest_counts


def opened(folder: Path, task: int = 0, tasks: int = 1) -> LatestCounts:
    sink = LatestCounts()
    sink.open(TaskContext("database", task, tasks, folder=str(folder)))
    return sink


def publish(sink: LatestCounts) -> None:
    for temporary, final in sink.prepare():
        Posix().publish(temporary, final)


def test_each_name_is_counted_from_one() -> None:
    assert count_name(0, "a") == (1, ("a", 1))
    assert count_name(1, "a") == (2, ("a", 2))


def test_the_largest_count_is_kept_in_any_order(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    sink.write([("a", 2), ("b", 5)])
    sink.write([("a", 1), ("b", 6), ("a", 3)])
    publish(sink)
    assert latest_counts(tmp_path / "output/counts") == {"a": 3, "b": 6}


@pytest.mark.slow
@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2)), max_size=40))
def test_counts_at_any_task_in_any_order_add_up_to_the_truth(
    tmp_path_factory: pytest.TempPathFactory, words: list[tuple[str, int]]
) -> None:
    folder = tmp_path_factory.mktemp("counts")
    sinks = [opened(folder, task, 3) for task in range(3)]
    counts: dict[str, int] = {}
    numbered = []
    for name, task in words:
        counts[name], count = count_name(counts.get(name, 0), name)
        numbered.append((count, task))
    for count, task in reversed(numbered):
        sinks[task].write([count])
    for sink in sinks:
        publish(sink)
    assert latest_counts(folder / "output/counts") == counts


def test_a_checkpoint_adds_changed_counts_and_nothing_is_published_before(tmp_path: Path) -> None:
    sink, folder = opened(tmp_path), tmp_path / "output/counts"
    sink.write([("a", 1), ("b", 1)])
    sink.flush(1.0)
    assert latest_counts(folder) == {}
    publish(sink)
    assert latest_counts(folder) == {"a": 1, "b": 1}
    sink.write([("a", 2)])
    publish(sink)
    publish(sink)
    first, second = sorted(folder.glob("part-*"))
    assert [json.loads(line) for line in first.read_text().splitlines()] == [["a", 1], ["b", 1]]
    assert [json.loads(line) for line in second.read_text().splitlines()] == [["a", 2]]
    sink.close()


def test_a_moved_sink_continues_with_the_next_file(tmp_path: Path) -> None:
    there = opened(tmp_path)
    there.write([("a", 4)])
    publish(there)
    state = there.snapshot()
    there.close()
    here = opened(tmp_path)
    here.restore(state)
    here.write([("a", 3), ("b", 1)])
    publish(here)
    here.close()
    assert latest_counts(tmp_path / "output/counts") == {"a": 4, "b": 1}


def test_names_the_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "output").write_text("a file")
    with pytest.raises(FileProblem, match=r"output/counts: cannot be written, .*; choose another path"):
        opened(tmp_path)
