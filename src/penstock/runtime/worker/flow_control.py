"""Credit-based flow control: receivers return credit for processed tuples, and set the windows of their channels.

A channel's window is the maximum number of its tuples in flight. A receiver returns credit when it has processed a
quarter of the window. When its task becomes slower, it narrows the window at once, by negative credit: the sender waits
until enough of its tuples have been processed.
"""

from collections.abc import Callable
from typing import Protocol

from penstock.runtime.protocol.frames import Credit
from penstock.runtime.worker.input import InChannel
from penstock.runtime.worker.routing import EarlyArrivals, TaskDirectory
from penstock.runtime.worker.running_task import RunningTask
from penstock.runtime.worker.task import Task


class _Windows(Protocol):
    """The part of `TaskExecution` that sets the windows of channels, and wakes a task that has received credit."""

    def now(self) -> float: ...
    def window(self, seconds: float | None, channels: int) -> int: ...
    def wake(self, task: Task) -> None: ...


class _Feedback(Protocol):
    """The part of `ActivePolicies` that decides when credit reports the load of a task to senders."""

    def processed(self, task: Task, channel: InChannel) -> None: ...
    def credited(self, task: Task, channel: InChannel) -> tuple[float, float]: ...


class CreditControl:
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
        """Report load with later credit, for routing policies; None: report no load."""
        self._feedback = feedback

    def processed(self, task: Task, channel: InChannel, count: int, arrived: float) -> None:
        """Count processed tuples of a task, and give their sender credit once there are enough."""
        task.count(count, arrived, self._now())
        task.inbox.consume(channel, count)
        if self._feedback is not None:
            self._feedback.processed(task, channel)
        if channel.consumed >= max(1, channel.granted // 4) or channel.granted > 2 * self._window(task, channel):
            self.grant(task, channel)

    def grant(self, task: Task, channel: InChannel) -> None:
        """Give a channel's sender credit for processed tuples, adjusted if its window changes."""
        wider = self._widening(task, channel)
        amount = channel.grant(wider)
        if not amount and not wider and self._feedback is None:
            return
        seconds, price = (0.0, 0.0) if self._feedback is None else self._feedback.credited(task, channel)
        path = (channel.stream, channel.source, task.number)
        self.receive(Credit(self._epoch, *path, amount, task.inbox.queued, channel.expected, seconds, price, wider))

    def _widening(self, task: Task, channel: InChannel) -> int:
        """Return the change of a channel's window; small changes are suppressed."""
        window = self._window(task, channel)
        change = window - channel.granted
        return change if window == self._maximum or 4 * abs(change) > channel.granted else 0

    def _window(self, task: Task, channel: InChannel) -> int:
        """Return the window that a task's speed allows."""
        return self._windows.window(task.service_time.seconds, max(1, task.inbox.active + (not channel.queued)))

    def receive(self, credit: Credit) -> None:
        """Add credit to a lane, whether its task is local or remote."""
        source = credit.source
        task = self._directory.here.get(source)
        if task is None:
            if self._arrivals.awaits(source):
                self._arrivals.keep(source, credit)
            else:
                self._post(self._directory.hosts[source], credit)
            return
        before = self._running.task
        self._running.set(task)  # the credit lets it send its own tuples
        for queue in task.queues:
            if queue.stream == credit.stream:
                queue.add_credit(credit)
        self._running.set(before)
        self._windows.wake(task)
