"""Frames between workers: tuples, markers and credits of channels, and tasks that move."""

from collections.abc import Callable
from typing import NamedTuple

from penstock.model.decoding import msgpack_decoder
from penstock.runtime.protocol import Wire

# Kinds of markers.
BARRIER = 0  # of a checkpoint: everything before it belongs to the checkpoint
MOVE = 1  # the channel continues over another worker
END = 2  # nothing follows
PROGRESS = 3  # the number of tuples emitted by a source, for its in-flight limit


class Mark(Wire):
    """A sampled tuple in a batch: its position, its id, and its parent tuple."""

    place: int  # in the batch
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
    sender: int = 0  # worker that first sent the tuples; a worker that forwards them keeps it
    at: float = 0.0  # emulated: time of arrival at the next link, or at the target
    links: tuple[int, ...] = ()  # emulated: remaining links


class Marker(Wire, tag=2):
    """A control event in the stream of a channel: it overtakes no tuple, and no tuple overtakes it."""

    epoch: int
    stream: int
    source: int
    target: int
    number: int  # its own; of a move, that of the next item
    kind: int
    value: int = 0  # of the checkpoint, move or progress
    origin: int = 0  # progress: the source task
    sender: int = 0
    at: float = 0.0
    links: tuple[int, ...] = ()


class MarkerBody(NamedTuple):
    """A marker that is not on a channel yet."""

    kind: int
    value: int = 0
    origin: int = 0


class Credit(Wire, tag=3):
    """Credit for a channel's source to send more tuples, with the load of the target."""

    epoch: int
    stream: int
    source: int
    target: int
    amount: int
    queue: int  # tuples that wait at the target
    received: int = 0  # number of the next tuple that the target expects, which determines the tuples in flight
    seconds: float = 0.0  # recent mean per tuple at the target; 0: unknown
    price: float = 0.0  # of all results of a tuple there, in the measure of the routing policies in force
    wider: int = 0  # change of the channel's window; `amount` includes it


class Waiting(Wire):
    """Tuples or a marker waiting in a lane of a moving task."""

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
    """An out-queue of a moving task."""

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


Pending = tuple[str, str]  # a complete file: its current name, and its name once published


class MovingTask(Wire, tag=4):
    """A moving task: the state of its logic, and its ends of its channels."""

    epoch: int
    move: int
    task: int
    slot: str
    left: float  # start of its suspension; clock of the worker that it leaves
    logic: bytes
    timers: tuple[float, ...]  # seconds from now
    ended: bool
    counted: int  # tuples that it emitted (a source) or processed
    progressed: int
    inputs: tuple[InState, ...]
    outputs: tuple[QueueState, ...]
    pending: tuple[Pending, ...] = ()  # files that wait for a checkpoint to publish them
    letters: bytes = b""  # state of the dead-letter sink
    at: float = 0.0
    links: tuple[int, ...] = ()


class Farewell(Wire, tag=5):
    """The last frame on a connection: to a departing worker, or its answer."""

    epoch: int
    sender: int  # worker
    leaves: bool = False  # whether the sender is the departing worker


Envelope = Data | Marker | MovingTask  # frames carried to a task's slot
Frame = Envelope | Credit

decode_frame: Callable[[bytes], Frame | Farewell] = msgpack_decoder(Frame | Farewell)
