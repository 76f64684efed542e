"""The contracts of sources, operators and sinks: when each method is called, and what is not guaranteed.

Each task has its own object, used by one thread at a time, so no object needs a lock. No method may block: the calling
thread also moves every other tuple of its slot. A value must not be changed after it has been emitted; the receiver may
get the same object, or a copy decoded from the network. An exception ends the run with an error that names the
component, the task and the tuple, unless the component has an error policy (`on_error`).
"""

import heapq
import math
from collections.abc import Callable, Iterable, Sequence
from numbers import Real
from os import PathLike
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from penstock.model.errors import InvalidInput

T = TypeVar("T")
In = TypeVar("In")
Out = TypeVar("Out")


def is_time(value: Any) -> bool:
    """Return whether a value is a number that can be compared with times."""
    return isinstance(value, Real) and not math.isnan(value)


class TaskContext:
    """What a task knows about itself, and the services that it can call."""

    def __init__(
        self,
        component: str,
        task: int,
        tasks: int,
        *,
        folder: str = ".",
        run: str = "test",
        epoch: int = 1,
        seed: int = 0,
        clock: Callable[[], float] | None = None,
        wake: Callable[[], None] | None = None,
        origin: float | None = None,
    ) -> None:
        self.component = component
        self.task = task  # number of this task, from 0
        self.tasks = tasks  # parallelism of the component
        self.folder = folder  # of the run; relative paths of sinks are inside it
        self.run = run  # its name
        self.epoch = epoch  # increases with every recovery, so names that contain it are never reused
        self.seed = seed  # of the run
        self.origin = origin  # when its first tuple was due, if set externally; None: at the first poll
        self.timers: list[float] = []  # heap of the times at which `on_timer` is due, maintained by `at`
        self._clock = clock
        self._wake = wake

    @property
    def name(self) -> str:
        """The task's name in plans and output, `component[number]`."""
        return f"{self.component}[{self.task}]"

    def now(self) -> float:
        """Return the time in seconds on a monotonic clock, the one of timers and due times."""
        return 0.0 if self._clock is None else self._clock()

    def at(self, when: float) -> None:
        """Request a call of `on_timer` at a time of this clock, or soon after."""
        if not is_time(when):
            raise InvalidInput("at", f"expected a time in seconds, got {when!r}; add to now()")
        heapq.heappush(self.timers, when)

    def wake(self) -> None:
        """Request a `poll` soon; the only method here that other threads may call."""
        if self._wake is not None:
            self._wake()


class Timed(NamedTuple, Generic[T]):
    """Values with the times at which they were due; latency is measured from then, however late they were polled."""

    values: Sequence[T]
    dues: Sequence[float]  # one per value, on the context's clock


class Source(Generic[T]):
    """Produces tuples.

    Calls: `open`, then `poll` repeatedly, then `close`. If `rewinds` is true, `position` returns how far the source has
    read, and a new object continues with the next tuple after `open` and `seek`: this is how a source moves.
    """

    rewinds: ClassVar[bool] = False

    def check(self) -> None:
        """Raise a `PenstockError` if it could not run. Called on the driver before the run starts, before `open`."""

    def open(self, context: TaskContext) -> None:
        """Open files, connect. Called once, before anything else."""

    def poll(self, now: float, limit: int) -> Sequence[T] | Timed[T] | None:
        """Return at most `limit` tuples that are due; an empty list: none are due now; None: the source has ended."""
        raise NotImplementedError

    def next_due(self, now: float) -> float:
        """Return when to poll again after a poll without tuples; `TaskContext.wake` may cause an earlier poll."""
        return now + 0.001

    def position(self) -> Any:
        """Return how far it has read, as numbers, texts, lists and dicts. Required only if `rewinds` is true."""
        raise NotImplementedError

    def seek(self, position: Any) -> None:
        """Continue after a position. Called after `open`, before the first `poll`. Needed only if `rewinds` is true."""
        raise NotImplementedError

    def rescale(self, positions: Sequence[Any], tasks: int) -> Sequence[Any]:
        """Return the positions of another number of tasks, from which they emit what the others have not.

        Called on a new object, instead of `open`. By default, the number of tasks cannot change.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Release what `open` acquired. Called at the end, and when the task moves."""

    @property
    def rate_tps(self) -> float | None:
        """The tuples per second that all of its tasks together offer, if known; for planning."""
        return None


class Operator(Generic[In, Out]):
    """Transforms tuples.

    Calls: `open`, then `process` for every tuple and `on_timer` for every due timer, then `finish` when every source
    has ended, then `close`. An operator with state returns it from `snapshot` and receives it in `restore`; without
    these methods it cannot move once it has state.
    """

    def open(self, context: TaskContext) -> None:
        """Prepare the object. Called once, before anything else."""

    def process(self, value: In) -> Iterable[Out] | None:
        """Return the tuples derived from one tuple, or None. A generator is exhausted before the next call."""
        raise NotImplementedError

    def on_timer(self, when: float) -> Iterable[Out] | None:
        """Return the tuples emitted by a timer; `when` is the requested time."""
        return None

    def finish(self) -> Iterable[Out] | None:
        """Return the last tuples, after the end of all input."""
        return None

    def snapshot(self) -> Any:
        """Return the state as numbers, texts, bytes, lists, dicts and structs, decoded according to its annotation."""
        return None

    def restore(self, state: Any) -> None:
        """Receive the state that `snapshot` returned, here or elsewhere. Called after `open`, before anything else."""

    def close(self) -> None:
        """Release what `open` acquired. Called at the end, and when the task moves."""


class Sink(Generic[In]):
    """Consumes tuples.

    Calls: `open`, then `write` for every batch, then `close`. At a checkpoint, and before the sink moves, `prepare` and
    then `snapshot` are called. After a failure a new object is opened, receives the snapshot of the last checkpoint in
    `restore`, and then all later tuples again. Therefore a sink with immediate side effects repeats some of them. A
    sink that must not repeat any writes its tuples to a file under a private name that contains the context's `epoch`,
    leaves publishing it to `prepare`, and sets `exactly_once`.
    """

    exactly_once: ClassVar[bool] = False

    def check(self) -> None:
        """Raise a `PenstockError` if it could not run. Called on the driver before the run starts, before `open`."""

    def folders(self) -> Sequence[str | PathLike[str]]:
        """Return the folders outside the run's folder in which `prepare` leaves files.

        When a run is resumed, files in other folders are rejected. A relative folder is inside the run's folder.
        """
        return ()

    def open(self, context: TaskContext) -> None:
        """Prepare the object. Called once, before anything else."""

    def write(self, values: Sequence[In]) -> None:
        """Write a batch of tuples, in order."""
        raise NotImplementedError

    def flush(self, now: float) -> None:
        """Make written tuples visible if possible; called about once per second."""

    def prepare(self) -> Sequence[tuple[str, str]]:
        """Complete the files written since the last call; return the current and the final name of each.

        Files get their final names when the checkpoint is complete. If it fails, they never do, and their tuples are
        replayed. A final name must not depend on when the call occurs, and no file with that name may exist.
        """
        return ()

    def snapshot(self) -> Any:
        """Return the state of a sink that continues elsewhere, as for an operator; called after `prepare`."""
        return None

    def restore(self, state: Any) -> None:
        """Receive the result of `snapshot`, after `open`."""

    def rescale(self, states: Sequence[Any], tasks: int) -> Sequence[Any]:
        """Return the states of another number of tasks, made from those of the present ones.

        Called on a new object, instead of `open`. By default, the number of tasks cannot change.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Release what `open` acquired: at the end, when the task moves, and when the run is rolled back."""
