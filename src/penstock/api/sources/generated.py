"""A source of generated tuples, for trying out, measuring and testing."""

from collections.abc import Callable, Sequence
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, TypeVar, get_type_hints

from penstock.api.contracts import Source, TaskContext, Timed
from penstock.api.sources.pace import ArrivalProcess, Pace
from penstock.model.errors import InvalidInput

T = TypeVar("T")


class Generated(Source[T]):
    """Tuples computed from their number by a function: `Generated(lambda i: i % 7, rate=1000)`.

    make: called with 0, 1, 2, …; each number is used by one task only, so that the tuples do not depend on the number
    of tasks. It should return the same result for the same number, so that a source that moved continues consistently.
    Its annotated return type is the type of the tuples.
    rate: tuples per second of all tasks together; or
    arrivals: an arrival process (`penstock.arrivals`); with neither, at maximum speed.
    count: the number of tuples that all tasks together emit before the source ends; None: unlimited.
    """

    rewinds = True

    def __init__(
        self,
        make: Callable[[int], T],
        rate: float | None = None,
        arrivals: ArrivalProcess | None = None,
        count: int | None = None,
    ) -> None:
        if not callable(make):
            raise InvalidInput("make", f"expected a function of a whole number, got {make!r}")
        if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 0):
            raise InvalidInput("count", f"expected a whole number ≥ 0 or None, got {count!r}")
        self.make = make
        self.pace = Pace(rate, arrivals)
        self.count = count
        self.emits = _returned(make)

    @property
    def rate_tps(self) -> float | None:
        """The tuples per second of all tasks together, if known."""
        return self.pace.rate_tps

    def open(self, context: TaskContext) -> None:
        """Select the numbers of this task."""
        self._first, self._step = context.task, context.tasks
        self._share = None if self.count is None else len(range(context.task, self.count, context.tasks))
        self._left: list[range] = []  # earlier numbers that another number of tasks has not used
        self.pace.open(context)

    def poll(self, now: float, limit: int) -> list[T] | Timed[T] | None:
        """Generate the tuples that are due."""
        if self._left:
            return self._make_left(now, limit)
        given = self.pace.count
        if self._share is not None:
            limit = min(limit, self._share - given)
            if given >= self._share:
                return None
        dues = self.pace.take(now, limit)
        first = self._first + given * self._step
        values = list(map(self.make, range(first, first + len(dues) * self._step, self._step)))
        return Timed(values, dues) if self.pace.paces else values

    def _make_left(self, now: float, limit: int) -> list[T] | Timed[T]:
        """Generate the tuples of earlier numbers."""
        numbers = self._left[0][:limit]
        self._left[:1] = [rest] if (rest := self._left[0][limit:]) else []
        values = list(map(self.make, numbers))
        return Timed(values, [now] * len(values)) if self.pace.paces else values

    def next_due(self, now: float) -> float:
        """Return when the next tuple is due, or now if only the end remains to be reported."""
        return now if self._left or self.pace.count == self._share else self.pace.next_due(now)

    def position(self) -> dict[str, Any]:
        """Return the number of emitted tuples, the pace's time, and earlier numbers that are left."""
        left = [[numbers.start, numbers.stop, numbers.step] for numbers in self._left]
        return self.pace.position() | ({"left": left} if left else {})

    def seek(self, position: dict[str, Any]) -> None:
        """Continue after a position."""
        self._left = [range(*numbers) for numbers in position.get("left", ())]
        self.pace.seek(position)

    def rescale(self, positions: Sequence[dict[str, Any]], tasks: int) -> Sequence[dict[str, Any]]:
        """Let the tasks share the numbers from the greatest one on, and those before it that are left.

        The pace starts again.
        """
        before = len(positions)
        following = [task + place["count"] * before for task, place in enumerate(positions)]
        first = max(following)
        end = first if self.count is None else min(first, self.count)
        left = [numbers for place in positions for numbers in place.get("left", ())]
        left += [[number, end, before] for number in following if number < end]
        counts = [len(range(task, first, tasks)) for task in range(tasks)]
        return [
            {"count": count, "elapsed": 0.0, "by": "", "others": count, "left": left[task::tasks]}
            for task, count in enumerate(counts)
        ]


def _returned(make: Callable[[int], Any]) -> Any:
    """Return the type that a function, class, or callable object returns; None if it is not annotated."""
    if isinstance(make, partial):
        return _returned(make.func)
    if isinstance(make, type):
        return make
    function = make if isinstance(make, FunctionType | MethodType | BuiltinFunctionType) else type(make).__call__
    try:
        return get_type_hints(function).get("return")
    except (TypeError, NameError, AttributeError):
        return None
