"""The interface of a worker to its execution: `direct` on the real processor, or `emulated` on a described machine."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from penstock.runtime.protocol.controller_messages import Route
from penstock.runtime.protocol.frames import Envelope, Frame, MarkerBody
from penstock.runtime.worker.input import InChannel
from penstock.runtime.worker.task import Task


class Handlers(NamedTuple):
    """The callbacks of an execution into the worker."""

    deliver: Callable[[Envelope, int, float], None]  # a frame that has reached its task, its size and time of arrival
    post: Callable[[int, Frame], None]  # a frame to another worker
    processed: Callable[[Task, InChannel, int, float], None]  # tuples of a channel, and their time of arrival
    take_marker: Callable[[Task, InChannel, MarkerBody], None]  # a marker is at the head of the inbox
    finish: Callable[[Task], None]  # a source has no more tuples
    idle: Callable[[Task], None]  # a suspended task is between two tuples now


class MachineUsage(NamedTuple):
    """The use of the machine since the last report."""

    cpu: float  # emulated: the fraction of the cores; else: the number of cores that the process used
    lag: float  # the maximum delay of events or polls, in seconds
    warning: str = ""


class TaskExecution(Protocol):
    """When tasks get processor time, and when frames reach them."""

    hands_over: bool  # whether tuples for a task in the same process skip the network
    timed: bool  # whether calls and queues are kept short by measured times

    def connect(self, handlers: Handlers) -> None:
        """Set the callbacks; called once, before any other method."""

    def close(self) -> None:
        """Stop, in this epoch or for good."""

    # Time

    def sync(self) -> None:
        """Note that a frame or command has just arrived."""

    def now(self) -> float:
        """Return the time of the current event."""

    def call_at(self, when: float, step: Callable[[float], None]) -> None:
        """Call a function at a time, or in the next turn after it."""

    def turn(self, now: float) -> bool:
        """Run tasks for a bounded time; return whether more work is ready."""

    def wakeup(self) -> float:
        """Return when the next turn is due if nothing arrives before."""

    # Tasks

    def add(self, task: Task) -> None:
        """Add a task."""

    def remove(self, task: Task) -> None:
        """Remove a task."""

    def change_slot(self, task: Task, slot: str) -> None:
        """Change the slot of a task within this worker."""

    def wake(self, task: Task) -> None:
        """Note that a task may have input, or room for results, or is no longer suspended."""

    def is_idle(self, task: Task) -> bool:
        """Return whether a task is between two tuples, so that it can be saved or moved."""

    def window(self, seconds: float | None, channels: int) -> int:
        """Return the window of each channel into a task, from its time per tuple (None: unknown) and their number."""

    # The network

    def carry(self, frame: Envelope, source_slot: str, target_slot: str, worker: int) -> None:
        """Send a frame to a task's slot and worker."""

    def receive(self, frame: Envelope, size: int) -> None:
        """Take a frame from the network."""

    def send_budget(self, seconds: float) -> tuple[float, float]:
        """Return how many bytes may leave the machine now, and when to ask again if there are none.

        These are the bytes that its network card sends within `seconds`, minus those that wait for it.
        """

    def reroute(self, routes: tuple[Route, ...]) -> None:
        """Change the links of later frames, if links are emulated."""

    # Reports

    def usage(self, now: float, interval: float, cpu: float) -> MachineUsage:
        """Return the use of the machine since the last call; `cpu` is the cores that the process used."""

    def capacity(self) -> tuple[float, float] | None:
        """Return the cpu and memory of an emulated machine; None: the machine is real."""
