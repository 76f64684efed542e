"""From the controller to a worker: what it has to do, and what it must know for that."""

from collections.abc import Callable
from typing import Any

import msgspec

from penstock.model.decoding import msgpack_decoder
from penstock.runtime.protocol.wire import Wire

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
    capacity: tuple[float, float] | None = None  # cpu and memory (MB) of its machine, where that is not emulated


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


class Part(Wire, tag=57):
    """Send nothing more to a worker that leaves, and say so to it; it answers when it has heard all of the others."""

    epoch: int
    worker: int
    others: tuple[int, ...]


Command = (
    Checkpoint
    | Part
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

decode_command: Callable[[bytes], Command] = msgpack_decoder(Command)
