"""From a worker to the controller: that it is there, what it did, what has come of what it was told."""

from collections.abc import Callable

from penstock.model.decoding import msgpack_decoder
from penstock.runtime.protocol.frames import Pending
from penstock.runtime.protocol.wire import Wire


class Register(Wire, tag=20):
    """A worker process has started."""

    worker: str
    host: str
    port: int
    pid: int


class Ready(Wire, tag=21):
    """All tasks are open and all connections stand."""

    epoch: int


class TaskReport(Wire):
    """One task since the last report."""

    task: int
    processed: int
    given: int
    busy: float
    blocked: float
    queue: int
    waiting_out: int
    spent: tuple[float, ...] = ()  # s from arrival to end of processing, of sampled tuples
    skipped: int = 0  # tuples that its error policy let go
    retried: int = 0  # times that it had one tried again


class Root(Wire):
    """A sampled tuple left its source."""

    root: int
    task: int
    due: float
    emitted: float


class Ack(Wire):
    """Sampled tuples of a tree that were processed and made: the exclusive or of their ids."""

    root: int
    ids: int
    finished: float


class Report(Wire, tag=22):
    """What a worker did since its last report."""

    epoch: int
    at: float
    interval: float
    tasks: tuple[TaskReport, ...]
    roots: tuple[Root, ...]
    acks: tuple[Ack, ...]
    cpu: float  # share of the process's core, or of the emulated cores
    lag: float
    warning: str = ""
    aligning: bool = False  # tasks that a checkpoint waits for have processed tuples


class Log(Wire, tag=23):
    """A line that a user's code logged."""

    at: float
    level: str
    component: str
    task: int
    text: str


class Failure(Wire, tag=24):
    """A user's code raised, or a worker cannot go on."""

    epoch: int
    component: str
    task: int
    value: str  # the tuple
    error: str
    traceback: str
    user: bool = True  # it would happen again; False: the runtime's own, which a new epoch may mend


class Prepared(Wire, tag=25):
    """The answer to `Prepare`: why the task cannot move, or nothing."""

    epoch: int
    move: int
    problem: str


class Moved(Wire, tag=26):
    """A task has arrived, with every tuple that was on its way; until then its tuples were held up."""

    epoch: int
    move: int
    left: float  # clock of the worker that it left
    settled: float  # clock of the worker that tells


class Ended(Wire, tag=27):
    """A task has seen the end of its input and is closed."""

    epoch: int
    task: int
    counted: int  # tuples that it gave, or wrote


class Pong(Wire, tag=28):
    """The answer to `Ping`."""

    number: int
    at: float


class Beat(Wire, tag=29):
    """A sign of life from a worker's side thread, on a connection of its own; the answer is `Pulse`."""

    at: float  # the worker's clock

    progress: int  # turns of its loop so far
    cpu: float  # s of processor time so far
    memory_mb: float


class Lost(Wire, tag=30):
    """A connection to another worker broke."""

    epoch: int
    peer: int
    reason: str


class Parted(Wire, tag=35):
    """Nothing is on its way any more between this worker and one that leaves."""

    epoch: int
    peer: int


class Passed(Wire, tag=31):
    """A sink has seen everything that follows from the first tuples of a source."""

    epoch: int
    sink: int  # task
    source: int  # task
    value: int  # tuples


class Entry(Wire):
    """A task in a checkpoint: where in the worker's file its state is, and what the manifest says of it."""

    task: int
    offset: int
    size: int
    checksum: int
    ended: bool
    counted: int  # tuples that it gave, or took
    position: str  # of a source, as JSON; empty: it is none
    pending: tuple[Pending, ...]


class Saved(Wire, tag=32):
    """The states of all tasks of a worker at a checkpoint are on disk."""

    epoch: int
    checkpoint: int
    file: str
    size: int
    entries: tuple[Entry, ...]


class Unsaved(Wire, tag=33):
    """A worker cannot do its part of a checkpoint."""

    epoch: int
    checkpoint: int
    problem: str


class Unusable(Wire, tag=34):
    """A worker could not read its tasks' states from a checkpoint."""

    epoch: int
    checkpoint: int
    problem: str


Telling = (
    Register
    | Ready
    | Report
    | Log
    | Failure
    | Prepared
    | Moved
    | Ended
    | Pong
    | Beat
    | Lost
    | Parted
    | Passed
    | Saved
    | Unsaved
    | Unusable
)

decode_telling: Callable[[bytes], Telling] = msgpack_decoder(Telling)
