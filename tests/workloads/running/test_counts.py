import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.api.contracts import TaskContext
from penstock.model.errors import FileProblem
from penstock.workloads.running.counts import LatestCounts, latest_counts
from penstock.workloads.running.word_count import CountWords


def opened(folder: Path, task: int = 0, tasks: int = 1, every: float = 2.0) -> LatestCounts:
    sink = LatestCounts("output", every=every)
    sink.open(TaskContext("database", task, tasks, folder=str(folder)))
    return sink


def test_each_name_is_counted_from_one() -> None:
    operator = CountWords()
    given_ = [count for name in ("a", "b", "a") for count in operator.process(name)]
    assert given_ == [("a", 1), ("b", 1), ("a", 2)]


def test_counts_go_on_where_they_were_taken_to() -> None:
    there, here = CountWords(), CountWords()
    there.process("a")
    here.restore(there.snapshot())
    there.process("a")  # what comes after a snapshot is not in it
    assert list(here.process("a")) == [("a", 2)]


def test_the_largest_count_is_kept_whatever_the_order(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    sink.write([("a", 2), ("b", 5)])
    sink.write([("a", 1), ("b", 6), ("a", 3)])
    sink.close()
    assert json.loads((tmp_path / "output" / "counts-0.json").read_text()) == {"a": 3, "b": 6}


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2)), max_size=40))
def test_counts_that_went_to_any_task_in_any_order_add_up_to_the_truth(
    tmp_path_factory: pytest.TempPathFactory, words: list[tuple[str, int]]
) -> None:
    folder = tmp_path_factory.mktemp("counts")
    sinks = [opened(folder, task, 3) for task in range(3)]
    counts = CountWords()
    numbered = [(count, task) for name, task in words for count in counts.process(name)]
    for count, task in reversed(numbered):
        sinks[task].write([count])
    for sink in sinks:
        sink.close()
    assert latest_counts(folder / "output") == counts.snapshot()


def test_the_file_is_replaced_as_a_whole_and_not_too_often(tmp_path: Path) -> None:
    sink = opened(tmp_path, every=2.0)
    file = tmp_path / "output" / "counts-0.json"
    sink.write([("a", 1)])
    sink.flush(1.0)
    assert not file.exists()
    sink.flush(2.5)
    assert latest_counts(file.parent) == {"a": 1}
    sink.write([("a", 2)])
    sink.flush(3.0)
    assert latest_counts(file.parent) == {"a": 1}
    sink.close()
    assert latest_counts(file.parent) == {"a": 2}
    assert [found.name for found in file.parent.iterdir()] == ["counts-0.json"]


def test_a_sink_that_moved_goes_on_with_what_it_had(tmp_path: Path) -> None:
    there, here = opened(tmp_path / "there"), opened(tmp_path / "here")
    there.write([("a", 4)])
    here.restore(there.snapshot())
    here.write([("a", 3), ("b", 1)])
    here.close()
    assert latest_counts(tmp_path / "here" / "output") == {"a": 4, "b": 1}


def test_a_task_that_got_nothing_leaves_an_empty_table(tmp_path: Path) -> None:
    opened(tmp_path).close()
    assert latest_counts(tmp_path / "output") == {}
    assert (tmp_path / "output" / "counts-0.json").exists()


def test_says_where_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "output").write_text("a file")
    with pytest.raises(FileProblem, match=r"output: cannot be written, .*; choose another place"):
        opened(tmp_path)
