import contextlib
import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.api.sinks.json_lines import JsonLines
from penstock.api.sources.lines import Lines
from penstock.model.errors import FileProblem, InvalidInput
from tests.api.clock import Clock, context
from tests.api.sinks.life import published, visible
from tests.api.sources.polling import poll_to_end


class Count(msgspec.Struct):
    """A tuple."""

    word: str
    times: int


def opened(folder: Path, place: str = "out", task: int = 0, **how: Any) -> JsonLines:
    sink = JsonLines(place, **how)
    sink.open(context(task, 4, component="save", folder=folder))
    return sink


def test_writes_a_value_a_line_below_the_folder_of_the_run(tmp_path: Path) -> None:
    sink = opened(tmp_path, "output/counts", task=3)
    sink.write([Count("a", 1), ("b", 2), "c"])
    sink.write([{"d": None}])
    [name] = published(sink)
    sink.close()
    assert re.fullmatch(r"part-save-3-000000-[0-9a-f]{6}\.jsonl", name)
    written = tmp_path / "output" / "counts" / name
    lines = [json.loads(line) for line in written.read_text().splitlines()]
    assert lines == [{"word": "a", "times": 1}, ["b", 2], "c", {"d": None}]


def test_rolls_by_rows(tmp_path: Path) -> None:
    sink = opened(tmp_path, roll_rows=3)
    for batch in ([1, 2], [3], [4]):
        sink.flush(0.0)
        sink.write(batch)
    sink.flush(99.0)
    sink.write([])
    published(sink)
    sink.close()
    assert [file.read_text() for file in visible(tmp_path / "out")] == ["1\n2\n3\n", "4\n"]


def test_what_is_written_can_be_read_by_a_source_while_more_is_written(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    sink.write(["a", "b"])
    published(sink)
    sink.write(["c"])
    source = Lines(tmp_path / "out")
    source.open(context())
    assert poll_to_end(source, Clock()).values == ['"a"', '"b"']
    source.close()
    sink.close()


def test_a_batch_that_is_rejected_leaves_nothing_behind(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    for batch in ([1, 2], [3, object()], [4]):
        with contextlib.suppress(InvalidInput):
            sink.write(batch)
    published(sink)
    sink.close()
    assert [file.read_text() for file in visible(tmp_path / "out")] == ["1\n2\n4\n"]


def test_names_the_value_that_json_cannot_hold(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    with pytest.raises(InvalidInput, match=r"save\[0\]: expected a value that JSON supports, got \(2, <object"):
        sink.write([(1, 2), (2, object())])
    sink.close()


def test_rejects_a_folder_that_cannot_be_one(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(FileProblem, match="file: expected a folder, this is a file; choose another path"):
            JsonLines(place).check()
        with pytest.raises(FileProblem, match="cannot be written"):
            JsonLines(place).open(context())
    JsonLines(tmp_path / "new").check()
    JsonLines("relative").check()
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("how", [{"roll_rows": 0}, {"roll_rows": 1.5}, {"roll_rows": True}])
def test_rejects_how_it_cannot_roll(how: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=f"{next(iter(how))}: expected"):
        JsonLines("out", **how)
