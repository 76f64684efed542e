"""The state of a running application, for the live table, `penstock status` and programs."""

from collections.abc import Sequence
from itertools import groupby

import msgspec

from penstock.model.tuples import TuplePolicies


class ComponentStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One component over the last seconds."""

    name: str
    kind: str
    tasks: int  # on which they run
    machines: int  # on which they run
    rate_tps: float  # tuples processed; sources: emitted
    queue: int  # tuples waiting in front of it
    waiting_out: int = 0  # tuples in its out-queues
    processing_ms: float | None = None  # mean per tuple
    p50_ms: float | None = None  # from a tuple's arrival at the task to the end of its processing, sampled
    p99_ms: float | None = None
    blocked: float = 0.0  # fraction of the time in which its busiest task lacked credit
    skipped: int = 0  # tuples skipped by its error policy so far; replayed tuples count again
    retried: int = 0  # retries by its error policy
    processed: tuple[int, ...] = ()  # tuples processed by each of its tasks so far; sources: emitted


class MachineStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One worker process: an emulated machine, or a slot on a real one."""

    name: str
    host: str
    tasks: int
    cpu: float  # fraction of the cores used: by the process itself, or emulated
    alive: bool = True
    lag_ms: float = 0.0  # maximum delay of a poll of its sources, also of blocked ones, or of its emulation
    offset_ms: float = 0.0  # of its clock
    pid: int = 0  # of its worker
    note: str = ""
    slots: tuple[str, ...] = ()  # names of its slots


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """Latency of sampled source tuples: from when a tuple was due until its whole tree was processed."""

    count: int
    p50_ms: float
    p99_ms: float
    mean_ms: float
    worst_ms: float


class CheckpointStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The last complete checkpoint, and any problem with the next one."""

    number: int
    age_s: float  # since completion
    seconds: float  # duration
    bytes: int  # of state
    problem: str = ""  # with later checkpoints, such as a full disk; empty: none


class SavingStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The checkpoint in progress."""

    number: int
    age_s: float  # since it began
    awaited: list[str]  # tasks that it waits for; empty: all are saved, and its files are being written
    others: list[str]  # tasks that are not saved either: they are behind those

    @property
    def cause(self) -> str:
        """Why it is not complete."""
        if not self.awaited:
            return "is being written"
        others = f"; not saved either: {task_list(self.others)}" if self.others else ""
        return f"waits for {task_list(self.awaited)}{others}"


class PilotStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The autopilot of a run."""

    policy: str | None  # None: it is off
    shadow: bool = False  # it decides but changes nothing
    state: str = "off"  # current activity
    decisions: int = 0  # so far
    last: str = ""  # outcome of the last decision
    model: str = ""  # file of latency models that it uses
    caution: str = ""  # warning about its policy

    @property
    def text(self) -> str:
        """One line of text; empty if it is off without a problem."""
        if self.policy is None:
            return "" if self.state == "off" else self.state
        made = f"; decisions: {self.decisions}, the last {self.last or 'in progress'}" if self.decisions else ""
        return f"{self.policy}{' in shadow' if self.shadow else ''}, {self.state}{made}"


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """A whole run."""

    run: str
    application: str
    phase: str  # starting, running, recovering, draining, stopped, failed
    seconds: float  # since the start
    emulated: str | None  # the cluster that is emulated
    master: str
    policy: str  # or that of the plan
    tuples: TuplePolicies = TuplePolicies()  # in force
    limits: dict[str, float] = {}  # source component -> maximum tuples per second, if limited
    components: list[ComponentStatus]
    machines: list[MachineStatus]
    latency: Latency | None  # over the last seconds; None: no sampled tuple has finished
    placement: dict[str, str]  # task -> slot
    emitted: int = 0  # source tuples so far
    written: int = 0  # tuples written by sinks so far
    in_flight: int | None = None  # source tuples not yet fully processed, if tracked
    timed_out: int = 0  # sampled trees that did not finish in time
    operation: str = ""  # in progress: a move, an apply
    epoch: int = 0  # incremented at each start and recovery
    resumed: int = 0  # checkpoint from which this driver resumed; all counts start there; 0: none
    recoveries: int = 0  # by this driver; tuples replayed after one count again
    last_recovery: str = ""  # cause, checkpoint and duration, in one line
    last_recovery_s: float = 0.0  # from the loss until tuples flowed again
    checkpoint: CheckpointStatus | None = None  # None: none is complete yet
    saving: SavingStatus | None = None  # None: no checkpoint is in progress
    autopilot: str = ""  # one line; empty: off
    warnings: list[str] = []
    error: str = ""


def task_list(tasks: Sequence[str]) -> str:
    """Abbreviate a list of tasks: `split[0-2,5] count[1]`."""
    numbers: dict[str, list[int]] = {}
    for task in tasks:
        component, _, rest = task.rpartition("[")
        numbers.setdefault(component, []).append(int(rest.rstrip("]")))
    return " ".join(f"{component}[{_ranges(sorted(found))}]" for component, found in numbers.items())


def _ranges(numbers: Sequence[int]) -> str:
    runs = [[n for _, n in run] for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0])]
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
