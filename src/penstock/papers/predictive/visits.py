"""Visits: an application on the twin under one placement after another, one settled window each."""

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from penstock.estimate.evaluator import Evaluator
from penstock.model.errors import InvalidInput
from penstock.model.instance import Instance
from penstock.model.placement import Placement
from penstock.model.taskgraph import Ints
from penstock.model.topology import Application
from penstock.papers.predictive.settings import COSTS, SOME, PlacedTopology, widest
from penstock.papers.predictive.windows import Tables, Window
from penstock.sim.events import Twin, TwinSpan

if TYPE_CHECKING:
    import pyarrow as pa

SETTLE = 0.5  # tuples before a window, relative to the window's
MARGIN = 0.05  # capacity of a placement beyond the load; without it queues would grow
TRIES = 400
FOLLOWED = 5_000  # approximate number of traced hops per window: enough to know costs to some percent
EACH = 8  # attempts with a number of machines before one more is used

Slots = Sequence[int]


class Visit(NamedTuple):
    """A window, and the records of traced tuples; also from before it, so that trees are complete."""

    window: Window
    records: "pa.Table"


class Site:
    """An application at one load; `tuples`: mean number per window and task of the widest component."""

    def __init__(self, setting: PlacedTopology, load: float, tuples: int) -> None:
        self.setting = setting
        self.load = load
        self.application: Application = setting.at(load)
        offered = sum(self.application.rate_tps.values())
        self.window_s = tuples * widest(self.application) / offered
        self.twin = Twin(self.application, setting.cluster, COSTS)
        self.tables = Tables(self.twin.instance)

    @property
    def instance(self) -> Instance:
        """The application and the cluster as arrays."""
        return self.twin.instance

    @cached_property
    def evaluator(self) -> Evaluator:
        """The estimator of a placement's maximum rate."""
        return Evaluator(self.application, self.setting.cluster)

    def span(self, slots: Slots, seed: int, windows: float = 1.0, twin: Twin | None = None) -> TwinSpan:
        """Return the span of a placement over some windows, after settling; `twin`: in another twin."""
        run = (twin or self.twin).start(slots, seed=seed)
        run.advance(SETTLE * self.window_s)
        return run.advance(windows * self.window_s)

    def window(self, slots: Slots, seed: int) -> Window:
        """Return a window under a placement."""
        return self.tables.window(slots, self.span(slots, seed))

    def visit(self, slots: Slots, seed: int) -> Visit:
        """Return the same window, with records."""
        run = self.twin.start(slots, seed=seed, records=self._followed_tps)
        run.advance(SETTLE * self.window_s)
        return Visit(self.tables.window(slots, run.advance(self.window_s)), run.records())

    @cached_property
    def _followed_tps(self) -> float:
        """Traced source tuples per second, per task, that give the intended number of hops."""
        tasks = self.instance.tasks
        hops = float(tasks.gain[~tasks.source].sum())  # per source tuple
        return FOLLOWED / hops / self.window_s / int(tasks.source.sum())

    def following(self, slots: Slots, seed: int, number: int) -> list[Window]:
        """Return consecutive windows of one run."""
        run = self.twin.start(slots, seed=seed)
        run.advance(SETTLE * self.window_s)
        return [self.tables.window(slots, run.advance(self.window_s)) for _ in range(number)]

    def carries(self, placement: Placement, margin: float = MARGIN) -> bool:
        """Return whether a placement carries the load with a margin."""
        found = self.evaluator.evaluate(placement)
        offered = sum(self.application.rate_tps.values())
        return found.fits_memory and found.even_tps >= (1 + margin) * offered

    def draw(self, how: str, rng: np.random.Generator) -> tuple[int, ...]:
        """Draw a placement that carries the load: a machine for every task, and a thread of its own there."""
        most = len(self.setting.cluster.machines)
        least = int(rng.integers(most)) + 1 if how == SOME else most
        for tried in range(TRIES):
            among = rng.choice(most, min(most, least + tried // EACH), replace=False)
            slots = seated(self.instance, rng.choice(among, self.instance.tasks.number))
            if self.carries(Placement(slots)):
                return slots
        problem = f"none of {TRIES} random placements of {self.application.name!r} carries it; lower it"
        raise InvalidInput("load", f"{self.load:g}: {problem}")


def seated(instance: Instance, machines: Ints) -> tuple[int, ...]:
    """Return a slot for each task on its machine: the busiest first, each in the least busy slot."""
    work, first = np.zeros(instance.slots.number), instance.slots.first
    slots = np.zeros(len(machines), dtype=np.int32)
    for task in np.argsort(-instance.work, kind="stable"):
        begin, end = first[machines[task]], first[machines[task] + 1]
        slots[task] = begin + np.argmin(work[begin:end])
        work[slots[task]] += instance.work[task]
    return tuple(slots.tolist())
