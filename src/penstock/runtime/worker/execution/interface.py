"""What a worker asks of the way in which its tasks run: `direct`, as fast as the processor goes, or `emulated`."""

from collections.abc import Callable
from typing import Protocol

from penstock.runtime.protocol.controller_messages import Route
from penstock.runtime.protocol.frames import Data, Marker, State
from penstock.runtime.worker.task import Task


class Execution(Protocol):
    """What a worker asks of the way in which its tasks run."""

    hands_over: bool  # whether tuples for a task in the same process skip the network
    timed: bool  # whether queues are kept short where tasks are slow

    def window(self, seconds: float | None, channels: int) -> int:
        """Return how many tuples a channel may have in flight to a task that takes so long for each; None: not known.

        The task is busy with tuples from so many channels.
        """
        ...

    def begin(self) -> None:
        """Note that something has come from outside, now."""
        ...

    def now(self) -> float:
        """Return the time of what is being done."""
        ...

    def turn(self, now: float) -> bool:
        """Work for a bounded while; return whether there is more to do at once."""
        ...

    def wakeup(self) -> float:
        """Return when there is something to do again, if nothing comes before."""
        ...

    def later(self, when: float, step: Callable[[float], None]) -> None:
        """Have something done at a time, or as soon after it as there is a turn."""
        ...

    def leeway(self, seconds: float) -> tuple[float, float]:
        """Return how many bytes may leave the machine now, and when to ask again where there are none.

        They are as many as its network card is done with in so many seconds, those before them included.
        """
        ...

    def carry(self, frame: Data | Marker | State, source_slot: str, target_slot: str, worker: int) -> None:
        """Send a frame on its way to a task."""
        ...

    def receive(self, frame: Data | Marker | State, size: int) -> None:
        """Take a frame from the network."""
        ...

    def added(self, task: Task) -> None:
        """Begin with a task."""
        ...

    def removed(self, task: Task) -> None:
        """Forget a task."""
        ...

    def reslot(self, task: Task, slot: str) -> None:
        """Let a task go on in another slot of this worker."""
        ...

    def idle(self, task: Task) -> bool:
        """Say whether a task is between two tuples, so that it can leave."""
        ...

    def arrived(self, task: Task) -> None:
        """Note that something has come to a task's inbox."""
        ...

    def relieved(self, task: Task) -> None:
        """Note that a task's out-queues may have room again, or that it need not stand still any more."""
        ...

    def reroute(self, routes: tuple[Route, ...]) -> None:
        """Send over other links from now on, where links are emulated."""
        ...

    def load(self, now: float, interval: float, cpu: float) -> tuple[float, float, str]:
        """Return the cpu used, the worst lateness in seconds, and a warning, since the last call.

        The cpu is a share of the emulated machine's; of a process, how many cores' time it took.
        """
        ...

    def capacity(self) -> tuple[float, float] | None:
        """Return the cpu and memory of the machine, where that is emulated."""
        ...

    def close(self) -> None:
        """Run no more, in this epoch or at all."""
        ...
