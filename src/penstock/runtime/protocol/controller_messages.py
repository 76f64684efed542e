"""Messages from the controller to a worker: commands, with their settings."""

from collections.abc import Callable

import msgspec

from penstock.model.cluster import Cluster
from penstock.model.decoding import msgpack_decoder
from penstock.runtime.config import RunConfig
from penstock.runtime.protocol import Wire
from penstock.runtime.protocol.worker_messages import StatePart

Route = tuple[str, str, str, tuple[str, ...]]  # stream, source machine, target machine, labels of links


class Peer(Wire):
    """The address of a worker."""

    name: str
    host: str
    port: int
    incarnation: int


class StateLocation(Wire):
    """The location of the saved state of a task."""

    task: int
    file: str
    offset: int
    size: int
    checksum: int
    counted: int
    earlier: tuple[StatePart, ...] = ()


class PolicyRules(msgspec.Struct, array_like=True, frozen=True):
    """The tuple policies in force, in the form that one worker needs."""

    routing: dict[str, str] = {}  # label of a stream -> policy; other streams follow their grouping
    sending: str = ""
    slot_s: float = 1e-3  # minimum interval between two decisions of an out-queue
    costs: dict[str, float] = {}  # machine -> links from this worker's machine to it; default: 1
    onward: tuple[float, ...] = ()  # of each task: the minimum cost of all results of a tuple there


class Folders(Wire, kw_only=True):
    """The folders that a run writes to."""

    run: str
    telemetry: str = ""  # empty: not written
    checkpoints: str


class Assign(Wire, tag=40, kw_only=True):
    """Start an epoch with these tasks and settings."""

    epoch: int
    worker: int
    incarnation: int
    peers: tuple[Peer, ...]  # by number
    slots: dict[str, int]  # slot -> worker
    placement: tuple[str, ...]  # slot of each task
    config: RunConfig = RunConfig()
    folders: Folders
    emulated: Cluster | None = None
    routes: tuple[Route, ...] = ()
    rules: PolicyRules = PolicyRules()
    limits: dict[str, float] = {}  # source component -> tuples per second of all its tasks, if limited
    checkpoint: int = 0  # from which this epoch continues; 0: from the start
    kept: tuple[StateLocation, ...] = ()  # the tasks of this worker in it
    given_up: int = 0  # the last checkpoint that was aborted: its barriers are ignored
    capacity: tuple[float, float] | None = None  # cpu and memory (MB) of its machine if the machine is not emulated


class Start(Wire, tag=41):
    """Process tuples: every worker is ready."""

    epoch: int


class PrepareMove(Wire, tag=42):
    """Check whether a task can move; if so, it may be suspended until it is moved or released."""

    epoch: int
    move: int
    task: int


class PerformMove(Wire, tag=43):
    """Move a task to a slot; sent to every worker."""

    epoch: int
    move: int
    task: int
    slot: str


class Drain(Wire, tag=44):
    """End the sources, and process all tuples in flight."""

    epoch: int


class SourceProgress(Wire, tag=45):
    """The first `value` tuples of a source task are processed to the end, at all sinks."""

    epoch: int
    task: int
    value: int


class Ping(Wire, tag=46):
    """Answer with the time of the worker's clock."""

    number: int


class Stop(Wire, tag=47):
    """Stop at once."""


class ReleaseTask(Wire, tag=48):
    """Resume a task that is suspended for an aborted move."""

    epoch: int
    move: int
    task: int


class Routes(Wire, tag=49):
    """Send later tuples over the links of another plan; sent to every worker."""

    epoch: int
    routes: tuple[Route, ...]


class BeginCheckpoint(Wire, tag=50):
    """Start a checkpoint: every source emits a barrier; a task with barriers on all inputs saves its state."""

    epoch: int
    number: int


class AbortCheckpoint(Wire, tag=51):
    """Abort a checkpoint that was not completed."""

    epoch: int
    number: int


class CheckpointCompleted(Wire, tag=52):
    """A checkpoint is complete: the files in it will be published."""

    epoch: int
    number: int


class Peers(Wire, tag=53):
    """Another worker has joined; it has no tasks yet."""

    epoch: int
    peers: tuple[Peer, ...]
    slots: dict[str, int]


class RenewLease(Wire, tag=54):
    """The answer to `Heartbeat`, on its connection: the time, by the worker's clock, from which its lease counts."""

    at: float


class SwitchPolicies(Wire, tag=55):
    """Route and send tuples by these policies from now on; tuples already bound to a lane keep it."""

    epoch: int
    rules: PolicyRules


class LimitRates(Wire, tag=56):
    """Limit the rates of sources from now on.

    It needs no operation: it changes only the time at which tuples are emitted, never their selection or destination,
    so workers need not agree on it. A worker that is about to start an epoch receives the rates by `Assign`.
    """

    epoch: int
    limits: dict[str, float]  # as in `Assign`


class Detach(Wire, tag=57):
    """Send a `Farewell` to a departing worker, and nothing more; it answers when it has one from all `others`."""

    epoch: int
    worker: int
    others: tuple[int, ...]


Command = (
    BeginCheckpoint
    | Detach
    | LimitRates
    | SwitchPolicies
    | AbortCheckpoint
    | CheckpointCompleted
    | Peers
    | RenewLease
    | Assign
    | Start
    | PrepareMove
    | PerformMove
    | Drain
    | SourceProgress
    | Ping
    | Stop
    | ReleaseTask
    | Routes
)

decode_command: Callable[[bytes], Command] = msgpack_decoder(Command)
