"""A target with a known latency: a base, plus a penalty for every task that is not in its best slot.

Also good and bad policies for it, and an autopilot.
"""

from collections.abc import Callable

import numpy as np

from penstock.autopilot.autopilot import Autopilot, AutopilotSettings
from penstock.autopilot.control_target import Reading, TargetEnded
from penstock.autopilot.guard import Guard
from penstock.autopilot.ledger import Inputs, TaskMove
from penstock.autopilot.proposal import Proposal
from penstock.model.cluster import Cluster, Machine
from penstock.model.errors import PenstockError
from penstock.model.plan import Plan, PlannedRoute
from penstock.model.topology import Application, Component, Kind, Stream
from penstock.runtime.handle import MovedTask

APPLICATION = Application(
    name="chain",
    components=(
        Component(name="in", kind=Kind.SOURCE, cpu=1e-4),
        Component(name="work", kind=Kind.OPERATOR, parallelism=4, cpu=1e-3),
        Component(name="out", kind=Kind.SINK, cpu=1e-4),
    ),
    streams=(Stream(source="in", target="work"), Stream(source="work", target="out")),
    rate_tps={"in": 100.0},
)
CLUSTER = Cluster(name="pair", machines=tuple(Machine(name=f"m{n}", cores=2, slots=2) for n in range(2)))
TASKS = ("in[0]", "work[0]", "work[1]", "work[2]", "work[3]", "out[0]")
SEARCH = "local-search:seconds=none,steps=2000"  # independent of the machine's load
START = dict(zip(TASKS, ("m0/0", "m0/0", "m1/0", "m0/1", "m1/1", "m0/1"), strict=True))


class FakeTarget:
    """Has as latency what a function of the placement says, with noise of a seed."""

    application = APPLICATION

    def __init__(
        self, latency_s: Callable[[dict[str, str]], float], *, noise: float = 0.02, seed: int = 0, lasts: float = 1e9
    ) -> None:
        self.cluster = CLUSTER
        self.policy = "as it was"
        self.latency_s = latency_s
        self.applied: list[dict[str, str]] = []
        self.history: list[tuple[float, float]] = []  # time, true latency
        self.happens: dict[float, Callable[[FakeTarget], None]] = {}  # at a time
        self.breaks: set[int] = set()  # numbers of applications that fail halfway
        self.refuses: set[int] = set()  # numbers of applications that fail before anything has moved
        self.epoch = 0
        self.steady = True
        self.tasks: dict[str, float] = {}  # tuples a second of each, where that is known
        self._noise, self._rng = noise, np.random.default_rng(seed)
        self._lasts = lasts
        self._at = self._read = 0.0
        self.placed = dict(START)
        self.planned: tuple[PlannedRoute, ...] = ()

    def now(self) -> float:
        return self._at

    def wait(self, seconds: float) -> None:
        until = self._at + seconds
        for at in sorted(at for at in self.happens if at <= until):
            self.happens.pop(at)(self)
        self.history.append((until, self.latency_s(self.placed)))
        self._at = until
        if until > self._lasts:
            raise TargetEnded

    def placement(self) -> dict[str, str]:
        return dict(self.placed)

    def routes(self) -> tuple[PlannedRoute, ...]:
        return self.planned

    def reading(self) -> Reading:
        seconds, self._read = self._at - self._read, self._at
        if not seconds:  # nothing can have been seen
            return Reading(at=self._at, seconds=0.0, epoch=self.epoch, steady=self.steady)
        mean = self.latency_s(self.placed) * float(self._rng.normal(1.0, self._noise))
        return Reading(
            at=self._at, seconds=seconds, count=50, mean_s=mean, p99_s=3 * mean, rates={"in": 100.0},
            tasks=self.tasks, epoch=self.epoch, steady=self.steady,
        )  # fmt: skip

    def apply(self, plan: Plan) -> list[MovedTask]:
        wanted = {f"{name}[{n}]": slot for name, slots in plan.tasks.items() for n, slot in enumerate(slots)}
        moves = [task for task, slot in wanted.items() if self.placed[task] != slot]
        self.applied.append(wanted)
        if len(self.applied) in self.refuses:
            raise PenstockError("move: no task would go")
        self.planned = plan.routes
        if len(self.applied) in self.breaks:
            self.placed[moves[0]] = wanted[moves[0]]
            raise PenstockError("move: the second task would not go")
        found = [MovedTask(task, self.placed[task], wanted[task], 0.02) for task in moves]
        self.placed.update(wanted)
        self.policy = plan.policy
        self._at += 0.05
        return found


def misplaced(placement: dict[str, str]) -> float:
    """Return 100 ms, and 50 ms more for every task of `work` on the second machine."""
    return 0.1 + 0.05 * sum(placement[f"work[{n}]"].startswith("m1") for n in range(4))


def proposing(moves: dict[str, str], gain: float = 0.3) -> Callable[..., Proposal]:
    def propose(_: Application, __: Cluster, inputs: Inputs) -> Proposal:
        steps = [TaskMove(task, inputs.placement[task], slot) for task, slot in moves.items()]
        steps = [step for step in steps if step.before != step.after]
        return Proposal(moves=steps, weights=[1.0] * len(steps), gain=gain if steps else 0.0)

    return propose


GUARD = Guard(interval_s=1.0, cool_down_s=10.0)
GOOD = proposing({"work[1]": "m0/0", "work[3]": "m0/1"})
BAD = proposing({"work[0]": "m1/0", "work[2]": "m1/1"}, gain=0.9)


def pilot(
    target: FakeTarget, propose: Callable[..., Proposal] = GOOD, guard: Guard = GUARD, shadow: bool = False
) -> Autopilot:
    return Autopilot(target, AutopilotSettings(policy="any", shadow=shadow), guard=guard, propose=propose)
