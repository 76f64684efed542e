import re
from dataclasses import dataclass
from datetime import UTC, date, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.api.sinks import parquet
from penstock.api.sinks.parquet import Parquet
from penstock.model.errors import InvalidInput
from tests.api.clock import context
from tests.api.sinks.life import hidden, published, restore, saved, visible


class Colour(StrEnum):
    """A value of an enumeration."""

    RED = "red"


class Place(msgspec.Struct):
    """A tuple within a tuple."""

    x: int
    y: float | None = None


class Everything(msgspec.Struct, omit_defaults=True):
    """A field of each kind."""

    word: str
    times: int = 0
    share: float | None = None
    raw: bytes = b""
    at: datetime = datetime(2020, 1, 1, tzinfo=UTC)
    day: date = date(2020, 1, 1)
    good: bool = True
    colour: Colour = Colour.RED
    places: list[Place] = []
    by_name: dict[str, int] = {}


class Pair(NamedTuple):
    """A tuple with names."""

    word: str
    times: int


@dataclass
class Box:
    """A dataclass."""

    side: int


def opened(folder: Path, schema: Any = None, **how: Any) -> Parquet:
    sink = Parquet("out", schema, **how)
    sink.open(context(1, 2, component="save", folder=folder))
    return sink


def written(folder: Path, batches: list[list[Any]], schema: Any = None) -> pa.Table:
    sink = opened(folder, schema)
    for batch in batches:
        sink.write(batch)
    published(sink)
    sink.close()
    return pq.read_table(folder / "out")


@pytest.mark.parametrize(
    ("values", "columns"),
    [
        ([("a", 1), ("b", 2)], {"_1": ["a", "b"], "_2": [1, 2]}),
        ([Pair("a", 1), Pair("b", 2)], {"word": ["a", "b"], "times": [1, 2]}),
        ([Place(1), Place(2, 0.5)], {"x": [1, 2], "y": [None, 0.5]}),
        ([{"a": 1}, {"b": "x", "a": None}], {"a": [1, None], "b": [None, "x"]}),
        ([Box(3)], {"side": [3]}),
        ([("a", Pair("b", 2), [Colour.RED])], {"_1": ["a"], "_2": [{"word": "b", "times": 2}], "_3": [["red"]]}),
        (["a", "b"], {"value": ["a", "b"]}),
        ([1, 2.5, None], {"value": [1.0, 2.5, None]}),
    ],
)
def test_what_is_written_is_read_back(tmp_path: Path, values: list[Any], columns: dict[str, list[Any]]) -> None:
    assert written(tmp_path, [values]).to_pydict() == columns


def test_annotations_say_the_types(tmp_path: Path) -> None:
    first = Everything("a")
    second = Everything("b", share=0.5, places=[Place(1, 2.0)], by_name={"k": 3})
    table = written(tmp_path, [[first], [second]])
    assert table.schema.field("share").type == pa.float64()
    assert table.schema.field("at").type == pa.timestamp("us", tz="UTC")
    rows = table.to_pylist()
    assert rows[0]["times"] == 0
    assert rows[0]["share"] is None
    assert rows[0]["at"] == datetime(2020, 1, 1, tzinfo=UTC)
    assert rows[0]["day"] == date(2020, 1, 1)
    assert rows[0]["colour"] == "red"
    assert rows[1]["places"] == [{"x": 1, "y": 2.0}]
    assert rows[1]["by_name"] == [("k", 3)]


@pytest.mark.parametrize("schema", [Place, pa.schema([("x", pa.int64()), ("y", pa.float64())])])
def test_a_given_schema_holds_for_dicts_too(tmp_path: Path, schema: Any) -> None:
    table = written(tmp_path, [[{"x": 1}], [{"y": 2, "x": 3}]], schema)
    assert table.to_pylist() == [{"x": 1, "y": None}, {"x": 3, "y": 2.0}]


@pytest.mark.parametrize("small", [7, 1000])
def test_many_rows_become_row_groups_of_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: int) -> None:
    monkeypatch.setattr(parquet, "SEEN", 10)
    monkeypatch.setattr(parquet, "SMALL", small)
    monkeypatch.setattr(parquet, "ROW_GROUP", 100)
    sink = opened(tmp_path)
    for number in range(365):
        sink.write([number])
    assert visible(tmp_path / "out") == []
    published(sink)
    sink.close()
    [path] = visible(tmp_path / "out")
    assert re.fullmatch(r"part-save-1-000000-[0-9a-f]{6}\.parquet", path.name)
    file = pq.ParquetFile(path)
    assert [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)] == [100, 100, 100, 65]
    assert file.read().to_pydict() == {"value": list(range(365))}
    file.close()


def test_a_moved_sink_keeps_numbers_and_schema(tmp_path: Path) -> None:
    here = opened(tmp_path, roll_rows=1)
    here.write([(1, 0.5)])
    here.flush(0.0)
    here.write([(2, None)])
    published(here)
    state = saved(here)
    here.close()
    there = opened(tmp_path)
    restore(there, state)
    there.write([(3, 4)])
    published(there)
    there.close()
    files = visible(tmp_path / "out")
    assert [path.name.split("-")[3] for path in files] == ["000000", "000001", "000002"]
    assert pq.read_table(files[2]).schema.types == [pa.int64(), pa.float64()]


@pytest.mark.parametrize(
    ("first", "then", "reported"),
    [
        ([("a", 1)], [("b", 2), ("c", "three")], r"save\[1\]\._2: expected int64, got 'three'"),
        ([("a", 1)], [("b", 1.5)], r"save\[1\]\._2: expected int64, got 1\.5"),
        ([("a", 1)], [("b", 1, 2)], r"save\[1\]\._3: expected one of the fields _1, _2, got 2"),
        ([("a", 1)], [("b",)], r"save\[1\]\._2: missing in \('b',\)"),
        ([("a", 1)], ["b"], r"save\[1\]\.value: expected one of the fields"),
        ([1], [2**70], r"save\[1\]\.value: expected int64, got 1180591620717411303424"),
        ([{"a": [1]}], [{"a": [2, "x"]}], r"save\[1\]\.a: expected list<.*>, got \[2, 'x'\]"),
        ([{"a": {"b": 1}}], [{"a": {"c": 1}}], r"save\[1\]\.a: expected struct<b: int64>, got \{'c': 1\}"),
        ([{"a": ["x"]}], [{"a": "xy"}], r"save\[1\]\.a: expected list<.*>, got 'xy'"),
        ([1, "two"], [], r"save\[1\]\.value: expected int64, got 'two'"),
        ([object()], [], r"save\[1\]\.value: expected a value that Parquet supports, got <object"),
        ([(1, None)], [], r"save\[1\]\._2: expected a value to derive the type from"),
        ([(1, [])], [], r"save\[1\]\._2: expected a value to derive the type from"),
        ([()], [], r"save\[1\]: expected tuples with at least one field"),
    ],
)
def test_names_the_field_and_value_that_do_not_fit(
    tmp_path: Path, first: list[Any], then: list[Any], reported: str
) -> None:
    sink = opened(tmp_path)
    sink.write(first)
    if then:
        published(sink)
    for refused in [lambda: sink.write(then)] if then else [sink.prepare] * 2:  # what was taken is not forgotten
        with pytest.raises(InvalidInput, match=reported):
            refused()
    sink.close()
    assert [path.name.split("-")[3] for path in visible(tmp_path / "out")] == (["000000"] if then else [])
    assert hidden(tmp_path / "out") == []


def test_a_batch_that_is_rejected_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "SEEN", 3)
    sink = opened(tmp_path)
    sink.write([1, 2])
    for refused in ([3, "four"], [5, [6]]):
        with pytest.raises(InvalidInput):
            sink.write(refused)
    sink.write([7])
    with pytest.raises(InvalidInput):
        sink.write([8, "nine"])
    published(sink)
    sink.close()
    assert pq.read_table(tmp_path / "out").to_pydict() == {"value": [1, 2, 7]}


def test_rejects_what_is_no_schema() -> None:
    with pytest.raises(InvalidInput, match="schema: expected a msgspec Struct type, a pyarrow schema or None"):
        Parquet("out", schema="a: int")
