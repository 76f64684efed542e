"""A run of the twin as a control target: the same control loop in virtual time."""

import numpy as np

from penstock.autopilot.control_target import Reading, TaskCounts
from penstock.model.plan import Plan, PlannedRoute, to_placement
from penstock.model.taskgraph import task_names
from penstock.runtime.handle import MovedTask
from penstock.sim.events import Twin, TwinRun, TwinSpan


class TwinTarget:
    """A run of the twin, observed through its spans."""

    def __init__(self, twin: Twin, run: TwinRun, policy: str = "") -> None:
        self.application = twin.application
        self.cluster = twin.cluster
        self.policy = policy
        self.spans: list[TwinSpan] = []  # all of them, for inspection
        self._run = run
        self._names = task_names(twin.application)
        self._move_s = twin.costs.move_s
        self._unread: list[TwinSpan] = []
        self._processed = np.zeros(len(self._names))  # by task, so far
        self._counts = TaskCounts()
        self._counts.take(run.now, self._so_far())
        self._epoch = 0
        self._unreachable: set[str] = set()
        self._disturbed = False  # since the last reading
        sources = {component.name for component in twin.application.sources}
        self._sources = [task for task, name in enumerate(self._names) if name.rpartition("[")[0] in sources]

    def now(self) -> float:
        """Return the virtual time."""
        return self._run.now

    def wait(self, seconds: float) -> None:
        """Advance virtual time."""
        span = self._run.advance(seconds)
        self.spans.append(span)
        self._unread.append(span)

    def placement(self) -> dict[str, str]:
        """Return the slot of every task."""
        names = self.cluster.slot_names
        return {task: names[slot] for task, slot in zip(self._names, self._run.slots, strict=True)}

    def routes(self) -> tuple[PlannedRoute, ...]:
        """Return no routes: the twin uses the widest."""
        return ()

    def reading(self) -> Reading:
        """Return the measurements since the last reading."""
        spans, self._unread = self._unread, []
        steady, self._disturbed = not self._disturbed, False
        unreachable = tuple(sorted(self._unreachable))
        if not spans:
            return Reading(at=self.now(), seconds=0.0, epoch=self._epoch, steady=steady, unreachable=unreachable)
        last, seconds = spans[-1], sum(span.seconds for span in spans)
        self._processed += np.sum([span.processed for span in spans], axis=0)
        latencies = np.concatenate([span.latencies for span in spans])
        cpu = np.average([span.machine_cpu for span in spans], axis=0, weights=[span.seconds for span in spans])
        return Reading(
            at=self.now(),
            seconds=seconds,
            count=len(latencies),
            mean_s=float(latencies.mean()) if len(latencies) else None,
            p99_s=float(np.percentile(latencies, 99)) if len(latencies) else None,
            rates=self._rates(spans, seconds),
            tasks=self._counts.take(self.now(), self._so_far()),
            cpu={machine.name: float(used) for machine, used in zip(self.cluster.machines, cpu, strict=True)},
            queue=int(last.queue.sum() + last.waiting_out.sum()),
            blocked=float(np.sum([span.blocked_s for span in spans], axis=0)[self._sources].max()) / seconds,
            epoch=self._epoch,
            steady=steady,
            unreachable=unreachable,
        )

    def apply(self, plan: Plan) -> list[MovedTask]:
        """Move the tasks whose slots differ in a plan; each is suspended for the time in the twin's costs."""
        wanted = to_placement(plan, self.application, self.cluster).slots
        before = self._run.slots
        moves = {task: slot for task, slot in enumerate(wanted) if slot != before[task]}
        self._run.move(moves)
        self.policy = plan.policy
        names = self.cluster.slot_names
        return [MovedTask(self._names[t], names[before[t]], names[slot], self._move_s) for t, slot in moves.items()]

    def fail(self, machine: str) -> None:
        """Fail a machine."""
        self._run.fail(machine)
        self._unreachable.add(machine)
        self._epoch, self._disturbed = self._epoch + 1, True

    def restore(self, machine: str) -> None:
        """Restore a machine."""
        self._run.restore(machine)
        self._unreachable.discard(machine)
        self._epoch, self._disturbed = self._epoch + 1, True

    def scale(self, factor: float) -> None:
        """Scale the rates of all sources."""
        self._run.scale(factor)

    def _so_far(self) -> dict[str, float]:
        return dict(zip(self._names, self._processed.tolist(), strict=True))

    def _rates(self, spans: list[TwinSpan], seconds: float) -> dict[str, float]:
        """Return what each component processed per second; of sources, emitted."""
        processed = np.sum([span.processed for span in spans], axis=0)
        rates = dict.fromkeys((component.name for component in self.application.components), 0.0)
        for name, count in zip(self._names, processed, strict=True):
            rates[name.rpartition("[")[0]] += float(count) / seconds
        return rates
