"""Dhalion's throughput policy: symptoms, a diagnosis, a resolution, one step at a time (Floratou et al. 2017).

*Symptoms* are back-pressure, which a component causes if those before it are blocked and it is not; tasks with many
more waiting tuples, or a much higher processing rate, than others of the component; and queues that are nearly empty.
*Diagnoses*: with back-pressure, long queues at tasks of equal rates mean slow tasks, at tasks of higher rates skewed
keys, and otherwise too few tasks; without it, empty queues mean too many. *Resolutions*: a component that causes
back-pressure grows by 1 + blocked / (1 - blocked), for the share of time in which it blocked others; one with too many
tasks shrinks by a constant factor. Dhalion restarts slow tasks and changes the hash function of skewed keys; neither is
a matter of parallelism, so this policy only reports them.
"""

from dataclasses import dataclass
from math import ceil, floor

import numpy as np

from penstock.model.entity import Count, NonNegative, Probability, Share
from penstock.model.parallelism import allowed, shares_work
from penstock.model.taskgraph import Floats
from penstock.model.topology import Kind
from penstock.policies.api import Resize, ScalingView
from penstock.policies.scaling.demand import by_component, described

NEARLY_ALWAYS = 0.99  # share of time blocked above which a larger factor has no meaning


@dataclass(frozen=True, slots=True)
class Dhalion:
    """Grow the component that causes back-pressure; shrink one whose queues are empty.

    blocked: share of its time for which a task must be blocked to be a symptom.
    pending: mean number of waiting tuples per task below which queues count as empty.
    skew: relative excess over the component's mean above which a task stands out.
    reduction: share of a component's tasks that one rescale removes.
    most: maximum factor by which one rescale multiplies a component's tasks.
    hold: number of intervals after a rescale in which nothing is reduced.
    """

    blocked: Probability = 0.1
    pending: NonNegative = 1.0
    skew: NonNegative = 0.5
    reduction: Share = 0.2
    most: NonNegative = 2.0
    hold: Count = 2

    def resize(self, view: ScalingView, rng: np.random.Generator) -> Resize:
        """Return the parallelism after at most one resolution; `rng` is not used."""
        blocked = {name: float(own.max()) for name, own in by_component(view, view.loads.blocked).items()}
        if any(share >= self.blocked for share in blocked.values()):
            return self._relieve(view, blocked)
        return self._shrink(view) if view.steady >= self.hold else Resize(view.parallelism)

    def _relieve(self, view: ScalingView, blocked: dict[str, float]) -> Resize:
        """Resolve back-pressure at the first component that causes it."""
        for name in view.parallelism:
            before = [blocked[stream.source] for stream in view.topology.streams if stream.target == name]
            held = max(before, default=0.0)
            if held < self.blocked or blocked[name] >= self.blocked:
                continue
            if found := self._unequal(view, name):
                return Resize(view.parallelism, note=f"{name} causes back-pressure: {found}; its parallelism is kept")
            if not shares_work(view.topology, name):
                continue
            held = min(held, NEARLY_ALWAYS)
            factor = min(1 + held / (1 - held), self.most)
            grown = self._changed(view, name, ceil(view.parallelism[name] * factor))
            return Resize(grown.parallelism, note=f"{name} blocks others for {held:.0%} of the time; {grown.note}")
        return Resize(view.parallelism)

    def _unequal(self, view: ScalingView, name: str) -> str:
        """Return the diagnosis of a component with some queues much longer than others; empty if there are none."""
        queue = by_component(view, view.loads.queue)[name]
        long = np.flatnonzero(self._stands_out(queue) & (queue > self.pending))
        if not len(long):
            return ""
        fast = self._stands_out(by_component(view, view.loads.processed_tps)[name])
        listed = ", ".join(f"{name}[{task}]" for task in long)
        return f"skewed keys at {listed}" if fast[long].any() else f"slow tasks {listed}"

    def _stands_out(self, values: Floats) -> np.ndarray:
        return np.asarray(values > values.mean() * (1 + self.skew))

    def _shrink(self, view: ScalingView) -> Resize:
        """Remove tasks of the component with the shortest queues, if they are nearly empty."""
        queue = {name: float(own.mean()) for name, own in by_component(view, view.loads.queue).items()}
        for name in sorted(queue, key=lambda one: queue[one]):
            component = view.topology[name]
            if component.kind is Kind.SOURCE or not shares_work(view.topology, name) or queue[name] >= self.pending:
                continue
            fewer = floor(component.parallelism * (1 - self.reduction) * (1 + 1e-9))
            shrunk = self._changed(view, name, min(fewer, component.parallelism - 1))
            if shrunk.parallelism != view.parallelism:
                return Resize(shrunk.parallelism, note=f"{name} has {queue[name]:.2g} waiting per task; {shrunk.note}")
        return Resize(view.parallelism)

    def _changed(self, view: ScalingView, name: str, number: int) -> Resize:
        found = allowed(view.topology, view.bounds, {name: float(number)})
        return Resize(found, note=described(view, found) or "as many tasks as allowed")
