"""Random schedules by seed: the application, the cluster, all delays, and the faults with their times."""

import math
import random
from dataclasses import dataclass, field

import msgspec

from penstock.model.errors import InvalidInput
from penstock.model.topology import Grouping, Topology
from penstock.model.tuples import TuplePolicies
from penstock.policies.streams import check
from penstock.runtime.layout import Layout
from penstock.testing.applications import NAMES, known_application

WORKERS = (3, 3, 4)
FAULTS = (
    "crash", "crash", "crash", "vanish", "driver", "pause", "pause", "pause driver", "stall", "cut", "cut", "half cut",
    "cut control", "cut heart", "slow line", "slow line", "full disk", "slow disk", "stop", "damage",
)  # fmt: skip
CHANGES = ("move", "move", "move", "apply", "leave")
ROUTINGS = (
    "", "shuffle", "round-robin", "load-aware-shuffle", "least-loaded", "local-first", "potus", "potus-plus",
    "potus:v=20,spread=none", "potus:spread=even,in_flight=true", "potus-plus:v=2,prices=false", "potus-plus:v=5",
)  # fmt: skip
SENDINGS = (
    "", "random", "round-robin", "round-robin-idle", "longest-backlog-first", "longest-backlog-first:tau=20",
    "longest-backlog-first:tau=5,conserving=false", "longest-backlog-first:tau=100000,conserving=false",
)  # fmt: skip
LABELS = (
    "Register", "Assign", "Ready", "Start", "BeginCheckpoint", "CheckpointSaved", "CheckpointCompleted",
    "PrepareMove", "MovePrepared", "PerformMove", "Moved", "Ended", "PeerLost", "AbortCheckpoint", "begin checkpoint",
    "end checkpoint", "begin manifest", "end manifest", "begin publish", "end publish", "begin epoch", "end epoch",
    "begin state", "begin journal", "end journal",
)  # fmt: skip

# Messages between workers that follow from a tuple; their number limits how many tuples a source task emits.
TUPLES = ((0.6, 30), (1.2, 18), (1.8, 12), (2.4, 10), (math.inf, 8))
CHECKPOINTS = "/run/checkpoints"
LEAST = 200  # minimum number of events of a schedule, before which no source ends
FEW_MESSAGES = 0.6  # messages per tuple, below which
WITH_POLICIES = 0.5  # fraction of schedules that start with tuple policies


@dataclass
class Fault:
    """A fault or a user's request: after a number of events, or when a message or action occurs."""

    kind: str
    event: int = 0
    label: str = ""
    countdown: int = 1  # occurrences of the label before it happens
    near: bool = True  # whether it affects the process of the label, if possible


@dataclass(frozen=True)
class FaultSchedule:
    """Everything that a seed determines before the run; the rest is random during the run."""

    seed: int
    application: str
    tuples: int  # per source task
    sites: tuple[tuple[int, int], ...]  # number and slots
    placement: tuple[str, ...]
    window: int
    in_flight: int
    checkpoint_s: float
    delay_s: float
    disk_s: float
    lease_s: float
    replace_s: float
    faults: list[Fault] = field(default_factory=list)
    policies: TuplePolicies = field(default_factory=TuplePolicies)


def draw_schedule(seed: int) -> FaultSchedule:
    """Return the schedule of a seed."""
    rng = random.Random(seed)  # noqa: S311  not for secrets
    application = rng.choice(NAMES)
    sites = tuple((number, rng.choice((1, 1, 2))) for number in range(rng.choice(WORKERS)))
    slots = [f"w{number}/{slot}" for number, count in sites for slot in range(count)]
    layout = known_application(application, 1).layout
    placement = tuple(rng.choice(slots) for _ in layout.components)
    window = rng.choice((1, 2, 3, 4, 8, 64))
    busy = _busy(layout, placement, window)
    return FaultSchedule(
        seed,
        application,
        next(tuples for most, tuples in TUPLES if busy <= most),
        sites,
        placement,
        window=window,
        in_flight=rng.choice((0, 0, 0, 3)),
        checkpoint_s=rng.choice((0.008, 0.02, 0.05)) if busy > FEW_MESSAGES else 0.004,
        delay_s=rng.choice((0.0002, 0.0006, 0.002)),
        disk_s=rng.choice((0.0005, 0.002)),
        lease_s=rng.choice((0.3, 0.4)),
        replace_s=rng.choice((0.05, 0.2)),
        faults=_faults(rng) + _switches(policy_rng := random.Random(f"{seed} policies")),  # noqa: S311
        policies=draw_policies(policy_rng, layout.application)
        if policy_rng.random() < WITH_POLICIES
        else TuplePolicies(),
    )


def draw_policies(rng: random.Random, application: Topology) -> TuplePolicies:
    """Return random tuple policies for an application; without routing if no stream supports the drawn one."""
    slot_ms = rng.choice((0.5, 1.0, 4.0, 20.0))
    drawn = TuplePolicies(routing=rng.choice(ROUTINGS), sending=rng.choice(SENDINGS), slot_ms=slot_ms)
    try:
        check(drawn, application)
    except InvalidInput:
        return msgspec.structs.replace(drawn, routing="")
    return drawn


def _switches(rng: random.Random) -> list[Fault]:
    """Return changes of policies while the application runs, in some schedules, and faults during them."""
    switches = [_fault(rng, "switch") for _ in range(rng.choice((0, 0, 1, 2)))]
    if switches and rng.random() < 0.3:
        switches.append(Fault(rng.choice(FAULTS), label="SwitchPolicies", countdown=rng.choice((1, 2, 3, 4))))
    return switches


def _busy(layout: Layout, placement: tuple[str, ...], window: int) -> float:
    """Return the approximate number of messages between workers per source tuple."""
    hosts = [slot.partition("/")[0] for slot in placement]
    messages = 0.0
    for stream in layout.streams:
        channels = [(a, b) for a in layout.tasks(stream.source) for b in layout.targets(stream, a)]
        copies = len(layout.tasks(stream.target)) if stream.outlet.grouping is Grouping.ALL else 1
        messages += copies * sum(hosts[a] != hosts[b] for a, b in channels) / len(channels)
    return messages * (1 + 1 / window)


def _faults(rng: random.Random) -> list[Fault]:
    kinds = rng.choices(FAULTS, k=rng.randrange(8)) + rng.choices(CHANGES, k=rng.randrange(5))
    if rng.random() < 0.2:
        kinds.append("drain")
    return [_fault(rng, kind) for kind in kinds]


def _fault(rng: random.Random, kind: str) -> Fault:
    if rng.random() < 0.5:
        return Fault(kind, event=rng.randrange(20, 350))
    return Fault(kind, label=rng.choice(LABELS), countdown=rng.choice((1, 1, 2, 3, 5, 8)), near=rng.random() < 0.7)
