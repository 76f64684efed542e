"""Telemetry is cut by placement on the controller's clock, trees kept whole."""

from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from penstock.exploration.spans import Span, applied_at, cut_span, records_of
from penstock.model.errors import FileProblem
from penstock.model.telemetry import Record, arrow_schema, write_records


def table(*records: Record) -> pa.Table:
    names = [field.name for field in msgspec.structs.fields(Record)]
    return pa.table({name: [getattr(record, name) for record in records] for name in names}, schema=arrow_schema())


def record(kind: str, at: float, worker: str = "m0", **fields: Any) -> Record:
    return Record(kind=kind, run="live", worker=worker, at=at, **fields)


AHEAD = 1000.0  # of the worker's clock
RECORDS = table(
    record("clock", AHEAD + 1.0, offset=AHEAD, drift=0.0),
    record("root", AHEAD + 9.0, root=1, id=1, task="in[0]", due=AHEAD + 9.0, emitted=AHEAD + 9.0),
    record("root", AHEAD + 10.0, root=2, id=2, task="in[0]", due=AHEAD + 10.0, emitted=AHEAD + 10.0),
    record("hop", AHEAD + 10.5, root=1, id=3, started=AHEAD + 10.4),
    record("hop", AHEAD + 21.0, root=2, id=4, started=AHEAD + 20.9),
    record("done", 21.0, "controller", root=2, due=10.0, finished=21.0),
    record("task", AHEAD + 10.5, task="in[0]", interval=1.0),
    record("task", AHEAD + 12.0, task="in[0]", interval=1.0),
    record("event", 9.5, "controller", event="apply", detail="explore-007"),
)


def test_keeps_trees_by_when_they_were_due_and_intervals_that_are_inside() -> None:
    found = cut_span(RECORDS, Span("explore-007", 10.0, 20.0)).to_pylist()
    assert {row["run"] for row in found} == {"explore-007"}
    kinds = [(row["kind"], row["root"] or row["at"]) for row in found]
    assert kinds == [("clock", AHEAD + 1.0), ("root", 2), ("hop", 2), ("done", 2), ("task", AHEAD + 12.0)]


def test_finds_in_files_when_a_plan_was_applied_and_what_is_near(tmp_path: Path) -> None:
    write_records(RECORDS, tmp_path, "live")
    (tmp_path / "_unfinished.parquet").write_bytes(b"")
    assert applied_at(tmp_path, "live") == {"explore-007": 9.5}
    assert applied_at(tmp_path, "another") == {}
    near = records_of(tmp_path, "live", Span("explore-007", 10.0, 20.0))
    assert cut_span(near, Span("explore-007", 10.0, 20.0)).num_rows == 5


def test_refuses_a_folder_without_telemetry(tmp_path: Path) -> None:
    with pytest.raises(FileProblem, match="contains no telemetry"):
        applied_at(tmp_path, "live")
