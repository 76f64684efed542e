"""Cut telemetry by time, so that each placement of an exploration becomes a run of its own.

A tuple belongs to the span in which it was due, with all its descendants, whenever they end. A record of a task or a
machine belongs to the span that contains its whole interval. Spans use the controller's clock; worker clocks are
corrected by their clock records. So windows, which count from a run's first tuple, contain one placement.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from penstock.model.errors import FileProblem
from penstock.model.taskgraph import Floats
from penstock.model.telemetry import RecordKind, arrow_schema

TREES = (RecordKind.ROOT.value, RecordKind.HOP.value, RecordKind.DONE.value)
AFTERMATH_S = 60.0  # after a span, for its last trees to complete
TICK_S = 1e-6  # by which intervals may exceed a span because of rounding


class Span(NamedTuple):
    """The interval in which a placement was held, on the controller's clock."""

    run: str
    start: float
    end: float


def cut_span(records: pa.Table, span: Span) -> pa.Table:
    """Return the records of a span, as records of a run with the span's name."""
    kind = np.asarray(records["kind"].to_pylist(), dtype=object)
    ahead = _ahead(records, kind)
    due = _numbers(records, "due") - ahead
    roots = records["root"].to_numpy()
    begun = (kind == RecordKind.ROOT.value) & (due >= span.start) & (due < span.end)
    own = np.isin(roots, roots[begun]) & np.isin(kind, TREES)
    at = _numbers(records, "at") - ahead
    interval = np.nan_to_num(_numbers(records, "interval"))
    inside = (at - interval >= span.start - TICK_S) & (at <= span.end + TICK_S)
    clocks = kind == RecordKind.CLOCK.value
    others = inside & ~np.isin(kind, TREES)
    kept = records.filter(pa.array(own | others | clocks))
    run = pa.array([span.run] * len(kept), pa.string())
    return kept.set_column(kept.schema.get_field_index("run"), kept.schema.field("run"), run)


def _ahead(records: pa.Table, kind: "np.ndarray[tuple[int], np.dtype[np.object_]]") -> Floats:
    """Return the offset of each record's worker clock to the controller's, which DONE records use."""
    worker = np.asarray(records["worker"].to_pylist(), dtype=object)
    incarnation = _numbers(records, "incarnation")
    offset = _numbers(records, "offset")
    ahead = np.zeros(len(kind))
    clocks = kind == RecordKind.CLOCK.value
    for name, number in {(worker[row], incarnation[row]) for row in np.flatnonzero(clocks)}:
        own = (worker == name) & (incarnation == number)
        ahead[own] = np.median(offset[own & clocks])
    return ahead


def _numbers(records: pa.Table, column: str) -> Floats:
    return np.asarray(pc.cast(records[column], pa.float64()).to_numpy(), dtype=np.float64)


def applied_at(telemetry: Path, run: str) -> dict[str, float]:
    """Return when each plan was applied in a run, by its policy's name, on the controller's clock."""
    wanted = (ds.field("kind") == RecordKind.EVENT.value) & (ds.field("event") == "apply") & (ds.field("run") == run)
    found = _telemetry(telemetry).to_table(columns=["at", "detail"], filter=wanted)
    return {row["detail"]: row["at"] for row in sorted(found.to_pylist(), key=lambda row: float(row["at"]))}


def records_of(telemetry: Path, run: str, span: Span) -> pa.Table:
    """Return the records of a run that may belong to a span, to be reduced with `cut`."""
    data = _telemetry(telemetry)
    of_run = ds.field("run") == run
    clocks = data.to_table(filter=of_run & (ds.field("kind") == RecordKind.CLOCK.value))
    offsets = _numbers(clocks, "offset")
    low, high = (float(offsets.min()), float(offsets.max())) if len(offsets) else (0.0, 0.0)
    near = (ds.field("at") >= span.start + min(low, 0.0)) & (ds.field("at") <= span.end + AFTERMATH_S + max(high, 0.0))
    rest = data.to_table(filter=of_run & near & (ds.field("kind") != RecordKind.CLOCK.value))
    return pa.concat_tables([clocks, rest])


def _telemetry(folder: Path) -> ds.Dataset:
    """Return the complete files of a folder; names starting with `_` or `.` are still being written."""
    files = sorted(str(path) for path in folder.glob("*.parquet") if path.name[0] not in "_.")
    if not files:
        raise FileProblem(f"{folder}: contains no telemetry (*.parquet); does the run write any?")
    return ds.dataset(files, schema=arrow_schema())
