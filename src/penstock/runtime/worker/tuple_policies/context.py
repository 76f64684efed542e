"""The interface of a worker to its policies."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from penstock.runtime.layout import Layout
from penstock.runtime.worker.input import InChannel
from penstock.runtime.worker.routing import TaskDirectory
from penstock.runtime.worker.task import Task


class Scheduler(Protocol):
    """The part of `Execution` that provides the time and the send budget of the machine."""

    def now(self) -> float:
        """Return the time."""
        ...

    def call_at(self, when: float, step: Callable[[float], None]) -> None:
        """Call a function at a time, or in the next turn after it."""
        ...

    def send_budget(self, seconds: float) -> tuple[float, float]:
        """Return how many bytes may leave the machine now, and when to ask again if there are none."""
        ...

    def wake(self, task: Task) -> None:
        """Note that the out-queues of a task may have room."""
        ...


class PolicyContext(NamedTuple):
    """The inputs and the actions of a worker's policies."""

    layout: Layout
    directory: TaskDirectory
    scheduler: Scheduler
    seed: tuple[int, int]  # of the run, and the epoch
    pump: Callable[[Task], None]  # send all sendable tuples of a task's out-queues
    grant: Callable[[Task, InChannel], None]  # give credit to a channel's sender
