"""What workers and the controller say to each other: MessagePack arrays with a leading tag, never anything executable.

*Frames* travel between workers and carry tuples, markers and credits of *channels*: a channel joins one task to another
over one stream. Tuples and markers on a channel are numbered from 0 in each epoch, so that a receiver sees at once
whether any was lost or overtaken; only the marker of a move has no number of its own, as it says where others go. Every
frame carries its epoch; one of another epoch is dropped. *Reports* and *commands* travel between a worker and the
controller.
"""

from typing import Any

import msgspec

PROTOCOL = 3

# What a marker means to the tasks it passes.
BARRIER = 0  # a checkpoint: everything before it belongs to it
MOVE = 1  # the channel goes on over another worker
END = 2  # nothing comes after it
PROGRESS = 3  # a source's count of tuples, so that its in-flight limit can follow


class Wire(msgspec.Struct, array_like=True, gc=False):
    """Anything on the wire."""


class Mark(Wire):
    """A sampled tuple within a frame, or waiting to be sent: which it is, and the tuple it follows from."""

    place: int  # in the frame, or among those that wait
    root: int
    id: int
    parent: int
    emitted: float  # sender's clock


class Data(Wire, tag=1):
    """Tuples of one channel."""

    epoch: int
    stream: int
    source: int  # task
    target: int  # task
    number: int  # of the first tuple
    count: int
    sent: float  # sender's clock
    values: bytes  # a MessagePack array
    marks: tuple[Mark, ...] = ()
    sender: int = 0  # worker that the tuples left, which a relay is not
    at: float = 0.0  # emulated: when it arrives at what comes next
    links: tuple[int, ...] = ()  # emulated: what it has still to cross


class Marker(Wire, tag=2):
    """Something that travels between the tuples of a channel and overtakes none."""

    epoch: int
    stream: int
    source: int
    target: int
    number: int  # its own; of a move, that of what comes after it
    kind: int
    value: int = 0  # of the checkpoint, move or progress
    origin: int = 0  # progress: the source task
    sender: int = 0
    at: float = 0.0
    links: tuple[int, ...] = ()


class Credit(Wire, tag=3):
    """Leave for a channel's source to send more, and what it may want to know of its target before it does."""

    epoch: int
    stream: int
    source: int
    target: int
    amount: int
    queue: int  # tuples that wait at the target
    received: int = 0  # numbers of this channel that have come there, so that the sender knows what is on its way
    seconds: float = 0.0  # that a tuple takes there of late; 0: not known
    price: float = 0.0  # of all that follows from a tuple there, by the measure of the routing policies in force


class Waiting(Wire):
    """Tuples or a marker that wait in a lane of a task that moves."""

    values: bytes = b""
    count: int = 0
    marks: tuple[Mark, ...] = ()
    marker: Marker | None = None


class LaneState(Wire):
    """The sender's end of a channel."""

    target: int
    credits: int
    number: int
    waiting: tuple[Waiting, ...]


class QueueState(Wire):
    """An out-queue of a task that moves."""

    stream: int
    turn: int
    unbound: Waiting
    lanes: tuple[LaneState, ...]


class InState(Wire):
    """The receiver's end of a channel."""

    stream: int
    source: int
    expected: int
    consumed: int
    ended: bool
    progress: tuple[tuple[int, int], ...]


Pending = tuple[str, str]  # a file that is complete: the name it has, and the one it gets when it is published


class State(Wire, tag=4):
    """A task that moves: what its logic knows, and both ends of its channels."""

    epoch: int
    move: int
    task: int
    slot: str
    left: float  # since when it stands still; clock of the worker that it leaves
    logic: bytes
    timers: tuple[float, ...]  # seconds from now
    ended: bool
    counted: int  # tuples that a source has given
    progressed: int
    inputs: tuple[InState, ...]
    outputs: tuple[QueueState, ...]
    pending: tuple[Pending, ...] = ()  # files that wait for a checkpoint to publish them
    letters: bytes = b""  # of the sink of tuples that it skips
    at: float = 0.0
    links: tuple[int, ...] = ()


Frame = Data | Marker | Credit | State


class Hello(Wire, tag=10):
    """The first message on a connection: who calls, and a number for the other to prove itself with."""

    protocol: int
    run: str
    worker: int
    incarnation: int
    nonce: bytes
    heart: bool = False  # a connection to the controller that carries heartbeats only


class Welcome(Wire, tag=11):
    """The answer: proof of the secret, and a number to prove it with in turn."""

    proof: bytes
    nonce: bytes


class Proof(Wire, tag=12):
    """The caller's proof; after it the connection is open."""

    proof: bytes


Greeting = Hello | Welcome | Proof


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
    | Passed
    | Saved
    | Unsaved
    | Unusable
)


Route = tuple[str, str, str, tuple[str, ...]]  # stream, source machine, target machine, labels of links


class Peer(Wire):
    """Where a worker listens."""

    name: str
    host: str
    port: int
    incarnation: int


class Kept(Wire):
    """Where the state of a task is kept."""

    task: int
    file: str
    offset: int
    size: int
    checksum: int
    counted: int


class Rules(msgspec.Struct, array_like=True, frozen=True):
    """The tuple policies in force, as one worker must know them."""

    routing: dict[str, str] = {}  # label of a stream -> policy; streams that are not in it go by their grouping
    sending: str = ""
    slot_s: float = 1e-3  # between two decisions of an out-queue
    costs: dict[str, float] = {}  # machine -> links from this worker's to it; 1 where it is not in it
    onward: tuple[float, ...] = ()  # of each task: the least cost of all that follows from a tuple there


class Assign(Wire, tag=40):
    """Everything a worker needs to begin an epoch."""

    epoch: int
    worker: int
    incarnation: int
    peers: tuple[Peer, ...]  # by number
    slots: dict[str, int]  # slot -> worker
    placement: tuple[str, ...]  # slot of each task
    window: int  # tuples that a channel may have under way
    sample_tps: float  # sampled tuples a second and source task; 0: none, below 0: all
    in_flight: int  # limit a source task; 0: none
    seed: int
    folder: str
    telemetry: str  # folder; empty: none
    emulated: dict[str, Any] | None = None  # the cluster
    routes: tuple[Route, ...] = ()
    lease_s: float = 3.0  # for which it goes on without a sign of the controller
    checkpoints: str = ""  # folder
    checkpoint: int = 0  # from which this epoch goes on; 0: from the beginning
    kept: tuple[Kept, ...] = ()  # the tasks of this worker in it
    given_up: int = 0  # the last checkpoint whose barriers are to be passed over
    rules: Rules = Rules()
    limits: dict[str, float] = {}  # source component -> tuples a second of all its tasks, where that is limited
    share: str = ""  # folder in which emulated machines keep what runs share; empty: they are this run's own


class Go(Wire, tag=41):
    """Begin: every worker is ready."""

    epoch: int


class Prepare(Wire, tag=42):
    """Say whether a task can move; one that can stands still until it is told to move, or released."""

    epoch: int
    move: int
    task: int


class Move(Wire, tag=43):
    """Move a task to a slot; every worker gets it."""

    epoch: int
    move: int
    task: int
    slot: str


class Drain(Wire, tag=44):
    """Let the sources end."""

    epoch: int


class Progressed(Wire, tag=45):
    """What a source task has given is processed to the end up to this number."""

    epoch: int
    task: int
    value: int


class Ping(Wire, tag=46):
    """Answer with your clock."""

    number: int


class Stop(Wire, tag=47):
    """End at once."""


class Release(Wire, tag=48):
    """Let a task go on that stands still for a move which was given up."""

    epoch: int
    move: int
    task: int


class Routes(Wire, tag=49):
    """Send tuples over the links of another plan from now on; every worker gets it."""

    epoch: int
    routes: tuple[Route, ...]


class Checkpoint(Wire, tag=50):
    """Let every source put a barrier between its tuples; a task that has one from everywhere saves its state."""

    epoch: int
    number: int


class Abort(Wire, tag=51):
    """Forget a checkpoint that did not come to its end."""

    epoch: int
    number: int


class Completed(Wire, tag=52):
    """A checkpoint is complete: what it holds will be published."""

    epoch: int
    number: int


class Peers(Wire, tag=53):
    """Another worker has come and has no tasks yet."""

    epoch: int
    peers: tuple[Peer, ...]
    slots: dict[str, int]


class Pulse(Wire, tag=54):
    """The answer to `Beat`, on its connection: the controller has heard of this worker at that time of its clock."""

    at: float


class Switch(Wire, tag=55):
    """Route and send tuples by these policies from now on; those that have a lane already keep it."""

    epoch: int
    rules: Rules


class Limit(Wire, tag=56):
    """Let sources give so many tuples a second from now on.

    It needs no operation: it changes when tuples are given, never which or where they go, so that no worker has to know
    what others know of it; one that is about to begin an epoch hears of it by `Assign`.
    """

    epoch: int
    limits: dict[str, float]  # as in `Assign`


Command = (
    Checkpoint
    | Limit
    | Switch
    | Abort
    | Completed
    | Peers
    | Pulse
    | Assign
    | Go
    | Prepare
    | Move
    | Drain
    | Progressed
    | Ping
    | Stop
    | Release
    | Routes
)

encode = msgspec.msgpack.Encoder().encode
decode_frame = msgspec.msgpack.Decoder(Frame).decode
decode_greeting = msgspec.msgpack.Decoder(Greeting).decode
decode_telling = msgspec.msgpack.Decoder(Telling).decode
decode_command = msgspec.msgpack.Decoder(Command).decode
