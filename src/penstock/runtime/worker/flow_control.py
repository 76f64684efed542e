"""Credit-based flow control: receivers give senders credit for what they have processed, and set their windows.

A channel's window is the number of tuples that it may have in flight. Credit is given back when a quarter of the window
has been processed.
"""

from collections.abc import Callable
from typing import Protocol

from penstock.runtime.protocol.frames import Credit
from penstock.runtime.worker.input import InChannel
from penstock.runtime.worker.routing import EarlyArrivals, TaskDirectory
from penstock.runtime.worker.running_task import RunningTask
from penstock.runtime.worker.task import Task


class _Windows(Protocol):
    """What sets the windows of channels, and wakes a task that has got credit: `Execution`."""

    def now(self) -> float: ...
    def window(self, seconds: float | None, channels: int) -> int: ...
    def wake(self, task: Task) -> None: ...


class _Feedback(Protocol):
    """What decides when senders hear of the load of a task, and adds it to the credit: `ActivePolicies`."""

    def processed(self, task: Task, channel: InChannel) -> None: ...
    def credited(self, task: Task, channel: InChannel) -> tuple[float, float]: ...


class FlowControl:
    """The credit of the channels into and out of the tasks of a worker."""

    def __init__(
        self,
        epoch: int,
        maximum: int,
        directory: TaskDirectory,
        windows: _Windows,
        arrivals: EarlyArrivals,
        post: Callable[[int, Credit], None],
        running: RunningTask,
    ) -> None:
        self._epoch = epoch
        self._maximum = maximum  # of a window
        self._directory = directory
        self._windows = windows
        self._now = windows.now
        self._arrivals = arrivals
        self._post = post
        self._running = running
        self._feedback: _Feedback | None = None

    def use_feedback(self, feedback: _Feedback | None) -> None:
        """Add load to the credit from now on, for routing policies; None: no more."""
        self._feedback = feedback

    def processed(self, task: Task, channel: InChannel, count: int, arrived: float) -> None:
        """Count tuples that a task has processed, and give their sender credit once there are enough."""
        task.count(count, arrived, self._now())
        task.inbox.consume(channel, count)
        if self._feedback is not None:
            self._feedback.processed(task, channel)
        if channel.consumed >= max(1, channel.granted // 4):
            self.grant(task, channel)

    def grant(self, task: Task, channel: InChannel) -> None:
        """Give a channel's sender credit for what was processed, and more or less if its window changes."""
        wider = max(self._widening(task, channel), -channel.consumed)
        amount = channel.grant(wider)
        if not amount and not wider and self._feedback is None:
            return
        seconds, price = (0.0, 0.0) if self._feedback is None else self._feedback.credited(task, channel)
        path = (channel.stream, channel.source, task.number)
        self.receive(Credit(self._epoch, *path, amount, task.inbox.queued, channel.expected, seconds, price, wider))

    def _widening(self, task: Task, channel: InChannel) -> int:
        """Return by how much a channel's window should change; small changes are not worth it."""
        inbox = task.inbox
        window = self._windows.window(task.service_time.seconds, max(1, inbox.active + (not channel.queued)))
        change = window - channel.granted
        return change if window == self._maximum or 4 * abs(change) > channel.granted else 0

    def receive(self, credit: Credit) -> None:
        """Add credit to a lane, wherever its task is."""
        source = credit.source
        task = self._directory.here.get(source)
        if task is None:
            if self._arrivals.awaits(source):
                self._arrivals.keep(source, credit)
            else:
                self._post(self._directory.hosts[source], credit)
            return
        before = self._running.task
        self._running.set(task)  # the tuples that the credit lets it send are its own
        for queue in task.queues:
            if queue.stream == credit.stream:
                queue.add_credit(credit)
        self._running.set(before)
        self._windows.wake(task)
