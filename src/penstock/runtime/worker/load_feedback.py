"""What senders hear of the tasks that they send to, on streams whose routing looks at load.

Credit goes back when a quarter of the window has been processed, on every stream. Where senders look at load it goes
back besides when a slot has passed since the last and something was processed, at most once a slot and channel, so that
they know queues as of about a slot ago; what was processed last is told too, though nothing follows it.
"""

from functools import partial
from typing import TYPE_CHECKING

from penstock.runtime.worker.input import InChannel
from penstock.runtime.worker.task import Task

if TYPE_CHECKING:
    from penstock.runtime.worker.state_machine import Worker


class Feedback:
    """Gives credit soon on some streams, and says with it how fast a task is."""

    def __init__(self, worker: "Worker", streams: frozenset[int], slot_s: float) -> None:
        self.worker = worker
        self._streams = streams
        self._slot_s = slot_s

    def added(self, task: Task) -> None:
        """Begin with a task; credit that it owes from where it was before is given in time."""
        for channel in task.inputs.values():
            channel.promised = False
            if channel.stream in self._streams and channel.consumed:
                self._promise(task, channel)

    def processed(self, task: Task, channel: InChannel) -> None:
        """Take note of tuples that were processed, and give credit now or before long."""
        if channel.stream not in self._streams:
            return
        now = self.worker.execution.now()
        if now >= channel.credited + self._slot_s:
            self.worker.give_credit(task, channel)
        else:
            self._promise(task, channel)

    def credited(self, task: Task, channel: InChannel) -> float:
        """Take note that credit is given; return the seconds a tuple that go with it."""
        if channel.stream not in self._streams:
            return 0.0
        channel.credited = self.worker.execution.now()
        return task.pace.seconds

    def _promise(self, task: Task, channel: InChannel) -> None:
        if not channel.promised:
            channel.promised = True
            due = max(self.worker.execution.now(), channel.credited + self._slot_s)
            self.worker.execution.later(due, partial(self._keep, task, channel))

    def _keep(self, task: Task, channel: InChannel, _: float) -> None:
        """Give the credit that was promised, unless it has been given or the task has left."""
        ruling = self.worker.ruling
        if ruling is None or ruling.feedback is not self or self.worker.tasks.get(task.number) is not task:
            return
        channel.promised = False
        if channel.consumed:
            self.worker.give_credit(task, channel)
