import errno
import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.api.sinks.json_lines import JsonLines
from penstock.api.sources.lines import Lines
from penstock.model.errors import FileProblem, InvalidInput
from tests.api.clock import Clock, context
from tests.api.sources.polling import poll_to_end


class Count(msgspec.Struct):
    """A tuple."""

    word: str
    times: int


def opened(folder: Path, place: str = "out", clock: Clock | None = None, task: int = 0, **how: Any) -> JsonLines:
    sink = JsonLines(place, **how)
    sink.open(context(task, 4, component="save", folder=folder, clock=clock))
    return sink


def visible(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("_"))


def test_writes_a_value_a_line_below_the_folder_of_the_run(tmp_path: Path) -> None:
    sink = opened(tmp_path, "output/counts", task=3)
    sink.write([Count("a", 1), ("b", 2), "c"])
    sink.write([{"d": None}])
    sink.close()
    written = tmp_path / "output" / "counts" / "part-save-3-000000.jsonl"
    lines = [json.loads(line) for line in written.read_text().splitlines()]
    assert lines == [{"word": "a", "times": 1}, ["b", 2], "c", {"d": None}]


def test_nothing_is_visible_before_it_is_complete(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    sink.write([1])
    assert visible(tmp_path / "out") == []
    assert [name[0] for name in os.listdir(tmp_path / "out")] == ["_"]
    sink.close()
    assert os.listdir(tmp_path / "out") == ["part-save-0-000000.jsonl"]


def test_rolls_by_time_and_rows(tmp_path: Path) -> None:
    clock = Clock(10.0)
    sink = opened(tmp_path, clock=clock, roll_seconds=5.0, roll_rows=3)
    sink.write([1])
    sink.flush(14.9)
    assert visible(tmp_path / "out") == []
    sink.flush(15.0)
    assert visible(tmp_path / "out") == ["part-save-0-000000.jsonl"]
    clock.time = 16.0
    sink.write([2, 3])
    sink.flush(16.5)
    assert len(visible(tmp_path / "out")) == 1
    sink.write([4])
    sink.flush(16.5)
    assert len(visible(tmp_path / "out")) == 2
    sink.flush(99.0)
    sink.write([])
    sink.close()
    texts = [(tmp_path / "out" / name).read_text() for name in visible(tmp_path / "out")]
    assert texts == ["1\n", "2\n3\n4\n"]


@pytest.mark.parametrize("begun", [False, True])
def test_a_moved_sink_never_writes_over_a_file(tmp_path: Path, begun: bool) -> None:
    here = opened(tmp_path / "here", roll_rows=1)
    for number in range(3):
        here.write([number])
        if number < 2 or not begun:
            here.flush(0.0)
    state = here.snapshot()
    here.close()
    there = opened(tmp_path / "there")
    there.restore(state)
    there.write([3])
    there.close()
    assert visible(tmp_path / "here" / "out") == [f"part-save-0-{number:06}.jsonl" for number in range(3)]
    assert visible(tmp_path / "there" / "out") == ["part-save-0-000003.jsonl"]


def test_a_folder_that_holds_files_keeps_them(tmp_path: Path) -> None:
    for number in range(3):
        sink = opened(tmp_path)
        sink.write([number])
        sink.close()
    assert len(visible(tmp_path / "out")) == 3


def names_and_texts(folder: Path) -> dict[str, str]:
    return {name: (folder / name).read_text() for name in sorted(os.listdir(folder))}


def test_two_sinks_of_the_same_name_in_one_folder_keep_each_other_s_files(tmp_path: Path) -> None:
    one, other = opened(tmp_path), opened(tmp_path)
    for sink, values in ((one, [1, 2]), (other, [3, 4])):
        sink.write([values[0]])
        sink._publish()
        sink.write([values[1]])
    one.close()
    other.close()
    assert names_and_texts(tmp_path / "out") == {
        f"part-save-0-00000{number}.jsonl": f"{value}\n" for number, value in enumerate([1, 3, 2, 4])
    }


def test_a_folder_that_knows_no_links_takes_parts_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    one, other = opened(tmp_path), opened(tmp_path)
    for number, sink in enumerate((one, other)):
        sink.write([number])
        sink.close()
    assert names_and_texts(tmp_path / "out") == {
        "part-save-0-000000.jsonl": "0\n",
        "part-save-0-000001.jsonl": "1\n",
    }


def test_what_is_written_can_be_read_by_a_source_while_more_is_written(tmp_path: Path) -> None:
    sink = opened(tmp_path, roll_rows=1)
    sink.write(["a", "b"])
    sink.flush(0.0)
    sink.write(["c"])
    source = Lines(tmp_path / "out")
    source.open(context())
    assert poll_to_end(source, Clock()).values == ['"a"', '"b"']
    source.close()
    sink.close()


def test_names_the_value_that_json_cannot_hold(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    with pytest.raises(InvalidInput, match=r"save\[0\]: expected what JSON can hold, got \(2, <object"):
        sink.write([(1, 2), (2, object())])
    sink.close()


def test_refuses_a_folder_that_cannot_be_one(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(FileProblem, match="file: expected a folder, this is a file; choose another place"):
            JsonLines(place).check()
        with pytest.raises(FileProblem, match="cannot be written"):
            JsonLines(place).open(context())
    JsonLines(tmp_path / "new").check()
    JsonLines("relative").check()
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("how", [{"roll_seconds": 0}, {"roll_rows": 0}, {"roll_rows": 1.5}])
def test_refuses_how_it_cannot_roll(how: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=f"{next(iter(how))}: expected"):
        JsonLines("out", **how)
