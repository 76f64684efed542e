"""Between workers: tuples, markers and credits of channels, and tasks that move."""

from collections.abc import Callable

from penstock.model.decoding import msgpack_decoder
from penstock.runtime.protocol.wire import Wire

# What a marker means to the tasks it passes.
BARRIER = 0  # a checkpoint: everything before it belongs to it
MOVE = 1  # the channel goes on over another worker
END = 2  # nothing comes after it
PROGRESS = 3  # a source's count of tuples, so that its in-flight limit can follow


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
    wider: int = 0  # the change of the number of tuples that the channel may have in flight; `amount` includes it


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
    window: int


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
    granted: int


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


class Farewell(Wire, tag=5):
    """The last frame on a connection: to a worker that leaves, or its answer."""

    epoch: int
    sender: int  # worker
    leaves: bool = False  # it is the one that leaves


Frame = Data | Marker | Credit | State

decode_frame: Callable[[bytes], Frame | Farewell] = msgpack_decoder(Frame | Farewell)
