"""Telemetry: the records of sampled tuples, tasks and events, in one flat schema for every engine.

A record is one row; its `kind` determines which columns it fills. Times are seconds on the clock of the worker that
wrote the row, or, for the two send times of a hop, on the sender's clock; `clock` records contain the offset of each
clock from the controller's. Sampled tuples form trees: a `root` is a tuple emitted by its source; a `hop` is one
tuple's transfer over one stream and its processing by one task, and refers to its parent tuple.
"""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.model.errors import FileProblem

if TYPE_CHECKING:
    import pyarrow as pa

VERSION = 2  # 1: `busy` of a real worker was the number of cores used by its process, not a fraction of its machine


class RecordKind(StrEnum):
    """The subject of a record."""

    ROOT = "root"  # a sampled tuple left its source: root, id, due, emitted
    HOP = "hop"  # a tuple came over a stream and was processed: all of the times
    DONE = "done"  # the whole tree of a root has been processed: root, due, finished; written by the controller
    TASK = "task"  # a task over an interval: processed, given, busy, queue, blocked
    MACHINE = "machine"  # a worker over an interval: busy is the used fraction of the machine, lag its delay
    CLOCK = "clock"  # a worker's clock: controller's time = t - (offset + drift * (t - at))
    EVENT = "event"  # something happened: event, detail, at; such as start, move, applying, apply, stop, failure


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One row of telemetry. Columns that a kind does not fill are None."""

    kind: str
    run: str
    worker: str  # the writer: a machine or slot, or `controller`
    incarnation: int = 0  # of the worker: its clock differs after each start
    version: int = VERSION
    at: float  # when it was written, or the end of the interval
    epoch: int = 0
    emulated: bool = False

    root: int | None = None  # of the tree
    id: int | None = None  # of the tuple
    parent: int | None = None  # the tuple from which it was derived; None for a root
    stream: str | None = None  # `source->target`
    source: str | None = None  # task that sent it, `component[number]`
    task: str | None = None  # task that processed it, or the subject of the record
    source_worker: str | None = None
    source_incarnation: int | None = None
    due: float | None = None  # when the root was due
    emitted: float | None = None  # sender: put into the out-queue
    sent: float | None = None  # sender: left the out-queue
    arrived: float | None = None  # receiver: put into the in-queue
    started: float | None = None  # receiver: processing started
    finished: float | None = None  # receiver: processing ended
    bytes: int | None = None  # of the tuple on the wire, averaged over its frame; 0 within a process

    interval: float | None = None  # s covered by a task or machine record
    processed: int | None = None  # tuples in the interval
    given: int | None = None  # tuples emitted in the interval
    queue: int | None = None  # tuples waiting at the end of it
    waiting_out: int | None = None  # tuples in out-queues at the end of it
    busy: float | None = None  # s of processing in it; a machine: share of its cpu that the worker used
    blocked: float | None = None  # s in which it was blocked for lack of credit
    lag: float | None = None  # maximum delay of the loop or the emulation, s
    memory_mb: float | None = None  # used by a worker's process; emulated machine: declared by its tasks
    capacity_cpu: float | None = None  # of the machine: core-seconds of speed 1 per second
    capacity_mb: float | None = None  # memory of the machine as described; all of its workers report the same

    offset: float | None = None  # s ahead of the controller's clock
    drift: float | None = None  # s per second
    error: float | None = None  # maximum error of the offset, s

    event: str | None = None
    detail: str | None = None


REQUIRED: dict[str, tuple[str, ...]] = {
    RecordKind.ROOT: ("root", "id", "task", "due", "emitted"),
    RecordKind.HOP: (
        "root", "id", "parent", "stream", "source", "task", "source_worker", "source_incarnation",
        "emitted", "sent", "arrived", "started", "finished",
    ),
    RecordKind.DONE: ("root", "due", "finished"),
    RecordKind.TASK: ("task", "interval", "processed", "given", "queue", "busy"),
    RecordKind.MACHINE: ("interval", "busy"),
    RecordKind.CLOCK: ("offset", "drift"),
    RecordKind.EVENT: ("event",),
}  # fmt: skip
"""The columns that a record of each kind must fill; the columns up to `emulated` are always filled."""


def arrow_schema() -> "pa.Schema":
    """Return the schema of telemetry files."""
    import pyarrow as pa

    types: dict[Any, Any] = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
    fields = []
    for field in msgspec.structs.fields(Record):
        kinds = [kind for kind in getattr(field.type, "__args__", (field.type,)) if kind is not type(None)]
        fields.append(pa.field(field.name, types[kinds[0]], nullable=field.type not in types))
    return pa.schema(fields)


def write_records(records: "pa.Table", folder: Path, run: str) -> Path:
    """Write the records of a run into an existing folder, as one file, atomically."""
    import pyarrow.parquet as pq

    final, temporary = folder / f"{run}.parquet", folder / f"_{run}.parquet"
    try:
        pq.write_table(records, temporary)
        temporary.replace(final)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise FileProblem.of(error, final, "cannot be written", "choose another folder") from None
    return final
