"""Messages from a worker to the controller: registration, reports, failures, and the results of commands."""

from collections.abc import Callable
from typing import Annotated

from msgspec import Meta

from penstock.model.decoding import msgpack_decoder
from penstock.runtime.protocol import Wire
from penstock.runtime.protocol.frames import Pending

FileName = Annotated[str, Meta(pattern=r"^[^/\x00]*[^./\x00][^/\x00]*\Z")]  # a name in a checkpoint's folder


class Register(Wire, tag=20):
    """A worker process has started."""

    worker: str
    host: str
    port: int
    pid: int


class Ready(Wire, tag=21):
    """All tasks of the epoch are open."""

    epoch: int


class TaskReport(Wire):
    """The counters of one task since the last report."""

    task: int
    processed: int
    emitted: int
    busy: float
    blocked: float
    queue: int
    waiting_out: int
    response_times: tuple[float, ...] = ()  # s from arrival to end of processing, of sampled tuples
    skipped: int = 0  # tuples, by the error policy
    retried: int = 0  # attempts, by the error policy


class Root(Wire):
    """A sampled tuple left its source."""

    root: int
    task: int
    due: float
    emitted: float


class Ack(Wire):
    """The exclusive or of the ids of the sampled tuples of a tree that were processed or emitted."""

    root: int
    ids: int
    finished: float


class ActivityReport(Wire, tag=22):
    """The activity of a worker since its last report; sent periodically."""

    epoch: int
    at: float
    interval: float
    tasks: tuple[TaskReport, ...]
    roots: tuple[Root, ...]
    acks: tuple[Ack, ...]
    cpu: float  # cores used by the process, or the used fraction of the emulated cores
    lag: float
    warning: str = ""
    aligning: bool = False  # whether tasks that have not saved their state for the checkpoint yet have processed tuples
    checkpoint: int = 0  # in which the worker takes part
    saved: tuple[int, ...] = ()  # tasks whose state it has encoded for this checkpoint


class LogMessage(Wire, tag=23):
    """A line that an author's code logged or printed."""

    at: float
    level: str
    component: str
    task: int
    text: str


class Failure(Wire, tag=24):
    """An author's code raised, or the worker itself failed."""

    epoch: int
    component: str
    task: int
    value: str  # the tuple
    error: str
    traceback: str
    user: bool = True  # a retry would fail again; False: a failure of the runtime, which a new epoch may resolve


class MovePrepared(Wire, tag=25):
    """The answer to `PrepareMove`: why the task cannot move; empty if it can."""

    epoch: int
    move: int
    problem: str


class Moved(Wire, tag=26):
    """A task and all tuples in flight to it have arrived; its tuples waited from `left` to `settled`."""

    epoch: int
    move: int
    left: float  # clock of the worker that it left
    settled: float  # clock of the worker that reports it


class Ended(Wire, tag=27):
    """A task has processed the end of its input."""

    epoch: int
    task: int
    counted: int  # tuples that it emitted (a source) or processed


class Pong(Wire, tag=28):
    """The answer to `Ping`."""

    number: int
    at: float


class Heartbeat(Wire, tag=29):
    """A heartbeat from a worker's side thread, on its own connection; the answer is `RenewLease`."""

    at: float  # the worker's clock
    progress: int  # turns of its loop so far
    cpu: float  # s of processor time so far
    memory_mb: float


class PeerLost(Wire, tag=30):
    """A connection to another worker broke."""

    epoch: int
    peer: int
    reason: str


class Detached(Wire, tag=35):
    """Nothing is in flight any more between this worker and the departing one."""

    epoch: int
    peer: int


class SinkProgress(Wire, tag=31):
    """A sink has processed all results of the first `value` tuples of a source."""

    epoch: int
    sink: int  # task
    source: int  # task
    value: int  # tuples


class StatePart(Wire):
    """A part of the state of a keyed task: a piece of a checkpoint's file."""

    checkpoint: Annotated[int, Meta(ge=1)]
    file: FileName
    offset: Annotated[int, Meta(ge=0)]
    size: Annotated[int, Meta(ge=0)]
    checksum: int
    age: float = 0.0  # seconds since it was saved


class TaskEntry(Wire):
    """A task in a checkpoint: the location of its state in the worker's file, and its entry in the manifest."""

    task: int
    offset: int
    size: int
    checksum: int
    ended: bool
    counted: int  # tuples that it emitted (a source) or processed
    position: str  # of a source, as JSON; empty: not a source
    pending: tuple[Pending, ...]
    earlier: tuple[StatePart, ...] = ()  # of a keyed state: parts of earlier checkpoints, oldest first


class CheckpointSaved(Wire, tag=32):
    """The states of all tasks of a worker at a checkpoint are on disk."""

    epoch: int
    checkpoint: int
    file: str
    size: int
    entries: tuple[TaskEntry, ...]


class CheckpointFailed(Wire, tag=33):
    """A worker cannot do its part of a checkpoint."""

    epoch: int
    checkpoint: int
    problem: str


class CheckpointUnreadable(Wire, tag=34):
    """A worker could not read the states of its tasks from a checkpoint."""

    epoch: int
    checkpoint: int
    problem: str


WorkerMessage = (
    Register
    | Ready
    | ActivityReport
    | LogMessage
    | Failure
    | MovePrepared
    | Moved
    | Ended
    | Pong
    | Heartbeat
    | PeerLost
    | Detached
    | SinkProgress
    | CheckpointSaved
    | CheckpointFailed
    | CheckpointUnreadable
)

decode_worker_message: Callable[[bytes], WorkerMessage] = msgpack_decoder(WorkerMessage)
