"""How far tuples have come in an epoch: which trees are complete, what sinks have passed, which tasks have ended."""

from typing import TYPE_CHECKING

from penstock.model.telemetry import RecordKind
from penstock.runtime.controller.tuple_trees import Acker, Done
from penstock.runtime.protocol import controller_messages, worker_messages

if TYPE_CHECKING:
    from penstock.runtime.controller.state_machine import Controller


class Progress:
    """What the controller knows of the tuples under way."""

    def __init__(self, controller: "Controller") -> None:
        self.controller = controller
        self.acker = Acker()
        self.ended: set[int] = set()  # tasks
        self.through: dict[int, int] = {}  # source task -> its tuples that are processed to the end
        self._passed: dict[tuple[int, int], int] = {}  # the same, of a sink task and a source task
        self._emitted_before = 0  # this epoch
        self._counted_before: dict[int, int] = {}  # by each task

    def forget(self) -> None:
        """Forget what was said in an epoch that is over."""
        controller = self.controller
        self.ended, self._passed, self.through = set(), {}, {}
        self.acker = Acker()
        self._emitted_before = controller.gauges.emitted
        latest = controller.checkpointing.latest
        self._counted_before = (
            {} if latest is None else {controller.layout.by_name[saved.task]: saved.counted for saved in latest.tasks}
        )

    def tick(self, now: float) -> None:
        """Give up trees that take too long."""
        self.acker.expire(now)

    @property
    def all_ended(self) -> bool:
        """Whether every task has seen the end of its input."""
        return len(self.ended) == len(self.controller.layout.components)

    def reported(self, worker: int, report: worker_messages.Report, now: float) -> None:
        """Take in what a worker did, and what it knows of sampled tuples."""
        self.controller.gauges.report(worker, report, now)
        clock = self.controller.clock(worker)
        for root in report.roots:
            self._done(self.acker.root(root.root, root.task, clock.controller_time(root.due), now))
        for ack in report.acks:
            self._done(self.acker.ack(ack.root, ack.ids, clock.controller_time(ack.finished), now))

    def _done(self, done: Done | None) -> None:
        if done is None:
            return
        controller = self.controller
        controller.gauges.latency(done.finished, done.finished - done.due)
        fields = {"root": done.root, "due": done.due, "finished": done.finished}
        controller.diary.record(RecordKind.DONE, done.finished, task=controller.layout.names[done.task], **fields)

    def passed(self, _: int, message: worker_messages.SinkProgress, now: float) -> None:
        """Learn how far a source's tuples have come: as far as at the sink that is furthest behind."""
        key = (message.sink, message.source)
        self._passed[key] = max(self._passed.get(key, 0), message.value)
        sinks = self.controller.layout.sinks[message.source]
        least = min(self._passed.get((sink, message.source), 0) for sink in sinks)
        if least > self.through.get(message.source, 0):
            self.through[message.source] = least
            self.tell(message.source)

    def tell(self, source: int) -> None:
        """Let a source know how many of its tuples are processed to the end, where any are."""
        if source in self.through:
            controller = self.controller
            worker = controller.slots[controller.placement[source]]
            controller.out.append(
                (worker, controller_messages.SourceProgress(controller.epoch, source, self.through[source]))
            )

    @property
    def in_flight(self) -> int | None:
        """Source tuples that are not processed to the end; None where nobody limits them."""
        if not self.controller.spec.config.flow_control.in_flight:
            return None
        emitted = self.controller.gauges.emitted - self._emitted_before
        return max(0, emitted - sum(value - self._counted_before.get(t, 0) for t, value in self.through.items()))
