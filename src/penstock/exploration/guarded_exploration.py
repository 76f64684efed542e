"""Explores on an application that runs: bounded, watched, and with the way back.

Tasks move a few at a time, and every placement on the way must sustain the load too, by the estimator. Latency is read
all the time, also on the way; beyond the bound twice in a row, exploration ends. However it ends, also by Ctrl-C or a
move that fails, tasks go back to where they were, and what was gathered is kept. Where they cannot be put back, that is
said.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
import numpy as np

from penstock.autopilot.control_target import ControlTarget, Ended, Reading
from penstock.exploration.index import Explored, run_name
from penstock.exploration.random_placements import Drawing, machines_used
from penstock.model.errors import InvalidInput, PenstockError
from penstock.model.placement import Hop, Placement
from penstock.model.plan import to_plan
from penstock.model.routes import route
from penstock.model.topology import Application

ORDERS = 20  # in which moves are tried to be made, before a placement is given up
BEYOND = 2  # readings in a row
PAUSE_S = 1.0  # between two batches of moves
RETURNS = 5  # times that tasks are tried to be put back
NOT_BACK = "its tasks were not put back: the run has ended"


class Limits(NamedTuple):
    """What an exploration must not exceed."""

    moves: int  # tasks at a time
    latency_s: float | None = None  # mean of source tuples; None: `times` that of the beginning
    times: float = 5.0
    reading_s: float = 5.0  # between two looks at the latency


class Exceeded(PenstockError):
    """Latency went beyond its bound."""


@dataclass
class Exploration:
    """What became of it so far."""

    runs: dict[str, Explored] = field(default_factory=dict)  # those that were held to the end
    skipped: int = 0  # placements that could not be reached by steps that sustain the load
    stopped: str = ""  # why it ended before all were tried
    left: str = ""  # what is not where it was, and why


def explore_live(
    plant: ControlTarget,
    *,
    placements: int,
    hold_s: float,
    settle_s: float,
    limits: Limits,
    margin: float = 0.2,
    seed: int = 0,
    application: Application | None = None,
    tried: Callable[[str, Explored], None] = lambda *_: None,
) -> Exploration:
    """Try random placements on a plant, and put its tasks back.

    application: what runs, with measured costs where its own are not known; the load is taken from the plant.
    """
    first = _first_reading(plant, limits)
    measured = _loaded(application or plant.application, first)
    drawing = Drawing(measured, plant.cluster, margin=margin, seed=seed)
    walk = _Walk(plant, drawing, limits, _bound(limits, first), seed)
    home, policy, done = walk.here(), plant.policy, Exploration()
    try:
        for number in range(placements):
            name = run_name(number)
            if not walk.go(drawing.draw(), name):
                done.skipped += 1
                continue
            walk.watch(settle_s)
            mean = walk.watch(hold_s)
            done.runs[name] = Explored(
                placement=plant.placement(),
                rates=dict(measured.rate_tps),
                machines=machines_used(plant.cluster, walk.here()),
                seed=seed,
                mean_s=mean,
            )
            tried(name, done.runs[name])
    except Ended:
        done.stopped, done.left = "the run has ended", NOT_BACK
    except PenstockError as problem:
        done.stopped = str(problem)
    except KeyboardInterrupt:
        done.stopped = "it was stopped"
    finally:
        done.left = done.left or walk.return_to(home, policy)
    return done


def _first_reading(plant: ControlTarget, limits: Limits) -> Reading:
    plant.reading()
    plant.wait(limits.reading_s)
    found = plant.reading()
    if found.mean_s is None:
        problem = f"nothing came to its end in {limits.reading_s:g} s, so that nothing could be watched"
        raise InvalidInput("run", f"{problem}; run it at a higher rate or with --sample")
    return found


def _bound(limits: Limits, first: Reading) -> float:
    if limits.latency_s is not None:
        if first.mean_s is not None and first.mean_s > limits.latency_s:
            problem = (
                f"latency is {1e3 * first.mean_s:.4g} ms already, above the bound of {1e3 * limits.latency_s:g} ms"
            )
            raise InvalidInput("most_latency", f"{problem}; choose another --most-latency")
        return limits.latency_s
    return limits.times * (first.mean_s or 0.0)


def _loaded(application: Application, reading: Reading) -> Application:
    """Return an application with the load that was seen."""
    rates = {source.name: reading.rates.get(source.name, 0.0) for source in application.sources}
    missing = [name for name, rate in rates.items() if rate <= 0]
    if missing:
        raise InvalidInput("run", f"source {missing[0]!r} gives nothing, so that no load is known; let it run first")
    return msgspec.structs.replace(application, rate_tps=rates)


class Passing(NamedTuple):
    """The latency of several readings together."""

    seconds: float = 0.0
    total_s: float = 0.0
    ended: int = 0  # tuples

    def and_then(self, reading: Reading) -> "Passing":
        """Return it with one more."""
        total = self.total_s + (reading.mean_s or 0.0) * reading.count
        return Passing(self.seconds + reading.seconds, total, self.ended + reading.count)

    @property
    def mean_s(self) -> float | None:
        """Their mean; None: there was none."""
        return self.total_s / self.ended if self.ended else None


class _Walk:
    """The way from placement to placement."""

    def __init__(self, plant: ControlTarget, drawing: Drawing, limits: Limits, bound_s: float, seed: int) -> None:
        self._plant = plant
        self._drawing = drawing
        self._limits = limits
        self._bound_s = bound_s
        self._rng = np.random.default_rng([seed, 1])
        self._beyond = 0  # readings in a row
        self._passing = Passing()  # between moves, since it was last judged

    def here(self) -> Placement:
        """Return where tasks are."""
        number = {name: slot for slot, name in enumerate(self._plant.cluster.slot_names)}
        return self._routed([number[slot] for slot in self._plant.placement().values()])

    def go(self, target: Placement, name: str) -> bool:
        """Move to a placement, some tasks at a time, and look at the latency in between.

        Return whether there was a way that sustains the load.
        """
        steps = self._steps(self.here(), target)
        if steps is None:
            return False
        for number, step in enumerate(steps):
            self._apply(step, name if number + 1 == len(steps) else f"{name} on its way")
            if number + 1 < len(steps):
                self._plant.wait(PAUSE_S)
                self._glance()
        return True

    def watch(self, seconds: float) -> float | None:
        """Let time pass, looking at the latency; return its mean over that time."""
        until = self._plant.now() + seconds
        whole, self._passing = Passing(), Passing()
        self._plant.reading()
        while (left := until - self._plant.now()) > 1e-9:
            self._plant.wait(min(left, self._limits.reading_s))
            reading = self._plant.reading()
            self._judge(reading.mean_s)
            whole = whole.and_then(reading)
        return whole.mean_s

    def _glance(self) -> None:
        """Read the latency between two moves; what is seen in so short a time is judged once it is a reading's worth.

        Sooner, few tuples or none have come to their end.
        """
        self._passing = self._passing.and_then(self._plant.reading())
        if self._passing.seconds >= self._limits.reading_s:
            mean, self._passing = self._passing.mean_s, Passing()
            self._judge(mean)

    def _judge(self, mean_s: float | None) -> None:
        """End the exploration where latency is beyond its bound again."""
        slow = mean_s is None or mean_s > self._bound_s
        self._beyond = self._beyond + 1 if slow else 0
        if self._beyond >= BEYOND:
            seen = "nothing came to its end" if mean_s is None else f"{1e3 * mean_s:.4g} ms"
            raise Exceeded(f"latency exceeded its bound of {1e3 * self._bound_s:.4g} ms: {seen}")

    def return_to(self, home: Placement, policy: str) -> str:
        """Put tasks back, trying again where that fails; return what is not back in the end, and why."""
        try:
            for _ in range(RETURNS):
                try:
                    self._return_once(home, policy)
                except PenstockError as found:
                    problem = str(found)
                    self._plant.wait(PAUSE_S)
                else:
                    return ""
            away = len(_away(self.here(), home))
        except Ended:
            return NOT_BACK
        return f"{away} tasks are not back where they were: {problem}"

    def _return_once(self, home: Placement, policy: str) -> None:
        """Put tasks back, some at a time, whatever the estimator says of the placements on the way."""
        here = self.here()
        moving = _away(here, home)
        slots = list(here.slots)
        for batch in _batches(moving, self._limits.moves) or [[]]:
            for task in batch:
                slots[task] = home.slots[task]
            self._apply(self._routed(slots), policy)

    def _apply(self, placement: Placement, name: str) -> None:
        plant = self._plant
        plan = to_plan(plant.application, plant.cluster, placement, policy=name, objective="throughput")
        plant.apply(plan)

    def _steps(self, here: Placement, target: Placement) -> list[Placement] | None:
        """Return the placements on the way to one, the target last; None where some would not sustain the load."""
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
        """Return a placement with its routes, where the network is routed."""
        if not self._plant.cluster.routed:
            return Placement(tuple(slots))
        view = self._drawing.instance
        routes = route(view.tasks, view.slots, view.links, list(slots))
        return Placement(tuple(slots), {} if isinstance(routes, Hop) else routes)


def _away(here: Placement, target: Placement) -> list[int]:
    """Return the tasks that are not where they are in another placement."""
    return [task for task, (a, b) in enumerate(zip(here.slots, target.slots, strict=True)) if a != b]


def _batches(tasks: Sequence[int], most: int) -> list[list[int]]:
    return [list(tasks[start : start + most]) for start in range(0, len(tasks), most)]
