"""The state of a running application, as the live table, `penstock status` and programs see it."""

import msgspec

from penstock.model.tuples import TuplePolicies


class ComponentStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One component over the last seconds."""

    name: str
    kind: str
    tasks: int
    machines: int  # on which they run
    rate_tps: float  # tuples processed; sources: given
    queue: int  # tuples waiting before it
    waiting_out: int = 0  # tuples in its out-queues
    processing_ms: float | None = None  # mean a tuple
    p50_ms: float | None = None  # from a tuple's arrival at the task to the end of its processing, sampled
    p99_ms: float | None = None
    blocked: float = 0.0  # share of the time in which its busiest task lacked credit
    skipped: int = 0  # tuples that its error policy let go so far; those that come again count again
    retried: int = 0  # times that it had one tried again
    processed: tuple[int, ...] = ()  # tuples that each of its tasks has processed so far; sources: given


class MachineStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One worker process: an emulated machine, or a slot on a real one."""

    name: str
    host: str
    tasks: int
    cpu: float  # share of the cores used: the process's own, or the emulated ones
    alive: bool = True
    lag_ms: float = 0.0  # how late its loop, or its emulation, was at worst
    offset_ms: float = 0.0  # of its clock
    pid: int = 0  # of its worker
    note: str = ""
    slots: tuple[str, ...] = ()  # where tasks may be put on it, by name


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """Sampled source tuples, from when they were due to when all that follows from them was processed."""

    count: int
    p50_ms: float
    p99_ms: float
    mean_ms: float
    worst_ms: float


class CheckpointStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The last complete checkpoint, and what has kept the next one from being complete."""

    number: int
    age_s: float  # since it was complete
    seconds: float  # that it took
    bytes: int  # of state
    problem: str = ""  # of those after it, such as a full disk; empty: none


class PilotStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The autopilot of a run."""

    policy: str | None  # None: it is off
    shadow: bool = False  # it decides but does nothing
    state: str = "off"  # what it is about
    decisions: int = 0  # so far
    last: str = ""  # what became of the last one
    model: str = ""  # the file of latency models that it goes by
    caution: str = ""  # what its policy lacks

    @property
    def text(self) -> str:
        """How it stands, in a line; empty where it is off and nothing is wrong."""
        if self.policy is None:
            return "" if self.state == "off" else self.state
        made = f"; decisions: {self.decisions}, the last {self.last or 'under way'}" if self.decisions else ""
        return f"{self.policy}{' in shadow' if self.shadow else ''}, {self.state}{made}"


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """A whole run."""

    run: str
    application: str
    phase: str  # starting, running, recovering, draining, stopped, failed
    seconds: float  # since the start
    emulated: str | None  # the cluster that is emulated
    master: str
    policy: str  # or the plan's
    tuples: TuplePolicies = TuplePolicies()  # those in force
    limits: dict[str, float] = {}  # source component -> tuples a second that it may give, where that is limited
    components: list[ComponentStatus]
    machines: list[MachineStatus]
    latency: Latency | None  # over the last seconds; None: nothing sampled has finished yet
    placement: dict[str, str]  # task -> slot
    emitted: int = 0  # source tuples so far
    written: int = 0  # tuples that sinks took so far
    in_flight: int | None = None  # source tuples not yet processed to the end, where that is tracked
    timed_out: int = 0  # sampled trees that did not finish in time
    operation: str = ""  # what is being done: a move, an apply
    epoch: int = 0  # counts the times that it began, anew or from a checkpoint
    resumed: int = 0  # the checkpoint from which this driver went on, all counts being since then; 0: none
    recoveries: int = 0  # since this driver has it; tuples that come again after one count again
    last_recovery: str = ""  # why, from which checkpoint and how long it took, in one line
    last_recovery_s: float = 0.0  # from the loss until tuples flowed again
    checkpoint: CheckpointStatus | None = None  # None: none is complete yet
    autopilot: str = ""  # how it stands; empty: off
    warnings: list[str] = []
    error: str = ""
