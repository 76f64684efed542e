"""The contracts of sources, operators and sinks: when each method is called, and what is not promised.

Each task has an object of its own, used by one thread at a time, so none of them needs a lock. No method may block: the
thread that calls it also moves every other tuple of its slot. A value must not be changed once it has been handed over;
the receiver may get the very same object, or a copy decoded from the network. An exception ends the run, and names the
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
    """Say whether something is a number that times can be compared with."""
    return isinstance(value, Real) and not math.isnan(value)


class TaskContext:
    """What a task knows of itself, and what it may ask for."""

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
        self.tasks = tasks  # how many the component has
        self.folder = folder  # of the run; relative paths of sinks are below it
        self.run = run  # its name
        self.epoch = epoch  # grows by one with every recovery, so that names with it in them are never used again
        self.seed = seed  # of the run
        self.origin = origin  # when its first tuple was due, where others say so; None: when it is first polled
        self.timers: list[float] = []  # when `on_timer` is due: a heap, kept by `at`
        self._clock = clock
        self._wake = wake

    @property
    def name(self) -> str:
        """The task's name in plans and output, `component[number]`."""
        return f"{self.component}[{self.task}]"

    def now(self) -> float:
        """Return the time in seconds, on a clock that only goes forward; the one that timers and dues are on."""
        return 0.0 if self._clock is None else self._clock()

    def at(self, when: float) -> None:
        """Ask for a call of `on_timer` at a time of this clock, or soon after."""
        if not is_time(when):
            raise InvalidInput("at", f"expected a time in seconds, got {when!r}; add to now()")
        heapq.heappush(self.timers, when)

    def wake(self) -> None:
        """Ask for a `poll` soon; the only method here that another thread may call."""
        if self._wake is not None:
            self._wake()


class Timed(NamedTuple, Generic[T]):
    """Values with the times at which they were due: latency counts from then, however late they were polled."""

    values: Sequence[T]
    dues: Sequence[float]  # one a value, on the context's clock


class Source(Generic[T]):
    """Makes tuples.

    `open`, then `poll` again and again, then `close`. Where `rewinds` is true, `position` says how far it has come, and
    a new object that is opened and told to `seek` there goes on with the next tuple: so a source is moved.
    """

    rewinds: ClassVar[bool] = False

    def check(self) -> None:
        """Raise a `PenstockError` where it could not run. Called on the driver before the run starts, before `open`."""

    def open(self, context: TaskContext) -> None:
        """Get ready: open files, connect. Called once, before anything else."""

    def poll(self, now: float, limit: int) -> Sequence[T] | Timed[T] | None:
        """Return at most `limit` tuples that are due: an empty list for none now, None for none ever again."""
        raise NotImplementedError

    def next_due(self, now: float) -> float:
        """Say when to poll again after a poll that gave nothing; `TaskContext.wake` may come earlier."""
        return now + 0.001

    def position(self) -> Any:
        """Return how far it has come, as numbers, texts, lists and dicts. Only where `rewinds` is true."""
        raise NotImplementedError

    def seek(self, position: Any) -> None:
        """Go on after a position. Called after `open`, before the first `poll`. Only where `rewinds` is true."""
        raise NotImplementedError

    def close(self) -> None:
        """Let go of what `open` took. Called at the end, and when the task moves elsewhere."""

    @property
    def rate_tps(self) -> float | None:
        """The tuples per second that all tasks of it together offer, where that is known; for planning."""
        return None


class Operator(Generic[In, Out]):
    """Turns tuples into others.

    `open`, then `process` for every tuple and `on_timer` when one is due, then `finish` when every source has ended,
    then `close`. An operator that keeps state gives it with `snapshot` and takes it with `restore`; without them it
    cannot move once it has any.
    """

    def open(self, context: TaskContext) -> None:
        """Get ready. Called once, before anything else."""

    def process(self, value: In) -> Iterable[Out] | None:
        """Return the tuples that follow from one tuple, or None. A generator is run to its end before the next call."""
        raise NotImplementedError

    def on_timer(self, when: float) -> Iterable[Out] | None:
        """Return the tuples that follow from a timer; `when` is the time that was asked for."""
        return None

    def finish(self) -> Iterable[Out] | None:
        """Return the last tuples, once no more can come."""
        return None

    def snapshot(self) -> Any:
        """Return the state as numbers, texts, bytes, lists, dicts and structs; its annotation says how to read it."""
        return None

    def restore(self, state: Any) -> None:
        """Take the state that `snapshot` gave, here or elsewhere. Called after `open`, before anything else."""

    def close(self) -> None:
        """Let go of what `open` took. Called at the end, and when the task moves elsewhere."""


class Sink(Generic[In]):
    """Takes tuples out.

    `open`, then `write` for every batch, then `close`. At a checkpoint, and before it moves elsewhere, `prepare` is
    called and then `snapshot`. After a failure a new object is opened and told to `restore` what `snapshot` gave at the
    last checkpoint, and gets every tuple since then again. So a sink that acts on its tuples at once acts on some of
    them twice. One that must not writes them to a file under a name of its own, with the context's `epoch` in it, and
    leaves the rest to `prepare`: it says so by `exactly_once`.
    """

    exactly_once: ClassVar[bool] = False

    def check(self) -> None:
        """Raise a `PenstockError` where it could not run. Called on the driver before the run starts, before `open`."""

    def folders(self) -> Sequence[str | PathLike[str]]:
        """Return the folders outside the run's folder in which `prepare` leaves files.

        When a run is resumed, files elsewhere that its folder names are refused. A relative folder is below the run's.
        """
        return ()

    def open(self, context: TaskContext) -> None:
        """Get ready. Called once, before anything else."""

    def write(self, values: Sequence[In]) -> None:
        """Take a batch of tuples, in order."""
        raise NotImplementedError

    def flush(self, now: float) -> None:
        """Make visible what was written so far, where that can be done; called about once a second."""

    def prepare(self) -> Sequence[tuple[str, str]]:
        """Finish the files that were written since the last call: return the name of each, and the one it is to get.

        They get it once the checkpoint is complete, and never where it does not come to its end: then the tuples come
        again. A name that is to be given must not depend on when the call comes, nor be one that is there already.
        """
        return ()

    def snapshot(self) -> Any:
        """Return what a sink that goes on elsewhere must know, as for an operator; called after `prepare`."""
        return None

    def restore(self, state: Any) -> None:
        """Take what `snapshot` gave, after `open`."""

    def close(self) -> None:
        """Let go of what `open` took: at the end, when it moves, and when everything goes back to a checkpoint."""
