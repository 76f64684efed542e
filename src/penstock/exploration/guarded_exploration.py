"""Explore placements of a running application within limits, and restore its placement afterwards.

Tasks move a few at a time, and every intermediate placement has to sustain the load according to the estimator. Latency
is read continuously, also between moves; exploration ends when two consecutive readings exceed the bound. However it
ends, also by Ctrl-C or a failed move, tasks are moved back and the collected data is kept. If tasks cannot be moved
back, the result says so.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
import numpy as np

from penstock.autopilot.control_target import ControlTarget, Reading, TargetEnded
from penstock.exploration.index import Explored, Trials, run_name
from penstock.exploration.random_placements import Drawing, machines_used
from penstock.model.errors import InvalidInput, PenstockError
from penstock.model.placement import Hop, Placement
from penstock.model.plan import to_plan
from penstock.model.routes import route_hops
from penstock.model.topology import Application

ORDERS = 20  # random orders of moves that are tried before a placement is skipped
BEYOND = 2  # consecutive readings
PAUSE_S = 1.0  # between two batches of moves
RETURNS = 5  # attempts to restore the placement
NOT_BACK = "its placement was not restored: the run has ended"


class Limits(NamedTuple):
    """Limits of an exploration."""

    moves: int  # tasks moved at a time
    latency_s: float | None = None  # mean of source tuples; None: `times` the initial latency
    times: float = 5.0
    reading_s: float = 5.0  # between two readings of the latency


class Exceeded(PenstockError):
    """Latency exceeded its bound."""


@dataclass
class Exploration:
    """The result so far."""

    runs: dict[str, Explored] = field(default_factory=dict)  # placements that were held to the end
    skipped: int = 0  # placements that no sequence of sustainable steps reached
    stopped: str = ""  # why it ended before all were tried
    left: str = ""  # which tasks were not moved back, and why


def explore_live(
    target: ControlTarget, trials: Trials, limits: Limits, application: Application | None = None
) -> Exploration:
    """Try random placements on a control target, and restore its placement.

    application: with measured costs, if the target's own are unknown; the load is taken from the target.
    """
    first = _first_reading(target, limits)
    measured = _loaded(application or target.application, first)
    drawing = Drawing(measured, target.cluster, margin=trials.margin, seed=trials.seed)
    walk = _Walk(target, drawing, limits, _bound(limits, first), trials.seed)
    home, policy, done = walk.here(), target.policy, Exploration()
    try:
        for number in range(trials.placements):
            name = run_name(number)
            if not walk.go(drawing.draw(), name):
                done.skipped += 1
                continue
            walk.watch(trials.settle_s)
            mean = walk.watch(trials.hold_s)
            done.runs[name] = Explored(
                placement=target.placement(),
                rates=dict(measured.rate_tps),
                machines=machines_used(target.cluster, walk.here()),
                seed=trials.seed,
                mean_s=mean,
            )
            trials.tried(name, done.runs[name])
    except TargetEnded:
        done.stopped, done.left = "the run has ended", NOT_BACK
    except PenstockError as problem:
        done.stopped = str(problem)
    except KeyboardInterrupt:
        done.stopped = "it was interrupted"
    finally:
        done.left = done.left or walk.return_to(home, policy)
    return done


def _first_reading(target: ControlTarget, limits: Limits) -> Reading:
    target.reading()
    target.wait(limits.reading_s)
    found = target.reading()
    if found.mean_s is None:
        problem = f"no tuple completed in {limits.reading_s:g} s, so latency cannot be monitored"
        raise InvalidInput("run", f"{problem}; use a higher rate or --sample")
    return found


def _bound(limits: Limits, first: Reading) -> float:
    if limits.latency_s is not None:
        if first.mean_s is not None and first.mean_s > limits.latency_s:
            problem = (
                f"latency is {1e3 * first.mean_s:.4g} ms, already above the bound of {1e3 * limits.latency_s:g} ms"
            )
            raise InvalidInput("most_latency", f"{problem}; choose another --most-latency")
        return limits.latency_s
    return limits.times * (first.mean_s or 0.0)


def _loaded(application: Application, reading: Reading) -> Application:
    """Return an application with the observed load."""
    rates = {source.name: reading.rates.get(source.name, 0.0) for source in application.sources}
    missing = [name for name, rate in rates.items() if rate <= 0]
    if missing:
        raise InvalidInput("run", f"source {missing[0]!r} emits nothing, so the load is unknown; wait until it emits")
    return msgspec.structs.replace(application, rate_tps=rates)


class Passing(NamedTuple):
    """The latency of several readings combined."""

    seconds: float = 0.0
    total_s: float = 0.0
    ended: int = 0  # tuples

    def and_then(self, reading: Reading) -> "Passing":
        """Return this with one more reading."""
        total = self.total_s + (reading.mean_s or 0.0) * reading.count
        return Passing(self.seconds + reading.seconds, total, self.ended + reading.count)

    @property
    def mean_s(self) -> float | None:
        """Their mean; None if no tuple completed."""
        return self.total_s / self.ended if self.ended else None


class _Walk:
    """Moves the target from placement to placement."""

    def __init__(self, target: ControlTarget, drawing: Drawing, limits: Limits, bound_s: float, seed: int) -> None:
        self._target = target
        self._drawing = drawing
        self._limits = limits
        self._bound_s = bound_s
        self._rng = np.random.default_rng([seed, 1])
        self._beyond = 0  # consecutive readings
        self._passing = Passing()  # between moves, since the last check

    def here(self) -> Placement:
        """Return the current placement."""
        number = {name: slot for slot, name in enumerate(self._target.cluster.slot_names)}
        return self._routed([number[slot] for slot in self._target.placement().values()])

    def go(self, target: Placement, name: str) -> bool:
        """Move to a placement, some tasks at a time, and check the latency in between.

        Return whether there were intermediate placements that sustain the load.
        """
        steps = self._steps(self.here(), target)
        if steps is None:
            return False
        for number, step in enumerate(steps):
            self._apply(step, name if number + 1 == len(steps) else f"{name} (intermediate)")
            if number + 1 < len(steps):
                self._target.wait(PAUSE_S)
                self._glance()
        return True

    def watch(self, seconds: float) -> float | None:
        """Wait, checking the latency; return its mean over that time."""
        until = self._target.now() + seconds
        whole, self._passing = Passing(), Passing()
        self._target.reading()
        while (left := until - self._target.now()) > 1e-9:
            self._target.wait(min(left, self._limits.reading_s))
            reading = self._target.reading()
            self._judge(reading.mean_s)
            whole = whole.and_then(reading)
        return whole.mean_s

    def _glance(self) -> None:
        """Read the latency between two moves; check it when a full reading has been collected.

        In less time few tuples, or none, complete.
        """
        self._passing = self._passing.and_then(self._target.reading())
        if self._passing.seconds >= self._limits.reading_s:
            mean, self._passing = self._passing.mean_s, Passing()
            self._judge(mean)

    def _judge(self, mean_s: float | None) -> None:
        """End the exploration if latency exceeds its bound in consecutive readings."""
        slow = mean_s is None or mean_s > self._bound_s
        self._beyond = self._beyond + 1 if slow else 0
        if self._beyond >= BEYOND:
            seen = "no tuple completed" if mean_s is None else f"{1e3 * mean_s:.4g} ms"
            raise Exceeded(f"latency exceeded its bound of {1e3 * self._bound_s:.4g} ms: {seen}")

    def return_to(self, home: Placement, policy: str) -> str:
        """Restore the placement, with several attempts; return the problem if some tasks were not moved back."""
        try:
            for _ in range(RETURNS):
                try:
                    self._return_once(home, policy)
                except PenstockError as found:
                    problem = str(found)
                    self._target.wait(PAUSE_S)
                else:
                    return ""
            away = len(_away(self.here(), home))
        except TargetEnded:
            return NOT_BACK
        return f"{away} tasks were not moved back: {problem}"

    def _return_once(self, home: Placement, policy: str) -> None:
        """Move tasks back, some at a time, even if the estimator rejects intermediate placements."""
        here = self.here()
        moving = _away(here, home)
        slots = list(here.slots)
        for batch in _batches(moving, self._limits.moves) or [[]]:
            for task in batch:
                slots[task] = home.slots[task]
            self._apply(self._routed(slots), policy)

    def _apply(self, placement: Placement, name: str) -> None:
        target = self._target
        plan = to_plan(target.application, target.cluster, placement, policy=name, objective="throughput")
        target.apply(plan)

    def _steps(self, here: Placement, target: Placement) -> list[Placement] | None:
        """Return the intermediate placements and the target; None if some would not sustain the load."""
        moving = _away(here, target)
        for _ in range(ORDERS):
            slots, steps = list(here.slots), []
            for batch in _batches(self._rng.permutation(moving).tolist(), self._limits.moves)[:-1]:
                for task in batch:
                    slots[task] = target.slots[task]
                steps.append(self._routed(slots))
            if all(self._drawing.sustains(step) for step in steps):
                return [*steps, target]
        return None

    def _routed(self, slots: Sequence[int]) -> Placement:
        """Return a placement with routes if the network is routed."""
        if not self._target.cluster.routed:
            return Placement(tuple(slots))
        view = self._drawing.instance
        routes = route_hops(view.tasks, view.slots, view.links, list(slots))
        return Placement(tuple(slots), {} if isinstance(routes, Hop) else routes)


def _away(here: Placement, target: Placement) -> list[int]:
    """Return the tasks whose slots differ between two placements."""
    return [task for task, (a, b) in enumerate(zip(here.slots, target.slots, strict=True)) if a != b]


def _batches(tasks: Sequence[int], most: int) -> list[list[int]]:
    return [list(tasks[start : start + most]) for start in range(0, len(tasks), most)]
