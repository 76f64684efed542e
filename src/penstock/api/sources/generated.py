"""A source of made-up tuples, for trying out, measuring and testing."""

from collections.abc import Callable
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, TypeVar, get_type_hints

from penstock.api.contracts import Source, TaskContext, Timed
from penstock.api.sources.pace import Arrivals, Pace
from penstock.model.errors import InvalidInput

T = TypeVar("T")


class Generated(Source[T]):
    """Tuples that a function makes from their number: `Generated(lambda i: i % 7, rate=1000)`.

    make: called with 0, 1, 2, …; over several tasks each number is used once, so that the tuples do not depend on how
    many tasks there are. It should return the same whenever it is called with the same number, for a source that moved
    to go on as it would have. Its annotated return type is the type of the tuples.
    rate: tuples per second of all tasks together; or
    arrivals: an arrival process (`penstock.workloads.arrivals`); with neither, as fast as they can be taken.
    count: how many tuples all tasks together give before the source ends; None: it never ends.
    """

    rewinds = True

    def __init__(
        self,
        make: Callable[[int], T],
        rate: float | None = None,
        arrivals: Arrivals | None = None,
        count: int | None = None,
    ) -> None:
        if not callable(make):
            raise InvalidInput("make", f"expected a function of a whole number, got {make!r}")
        if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 0):
            raise InvalidInput("count", f"expected a whole number ≥ 0 or None, got {count!r}")
        self.make = make
        self.pace = Pace(rate, arrivals)
        self.count = count
        self.gives = _returned(make)

    @property
    def rate_tps(self) -> float | None:
        """The tuples per second of all tasks together, where that is known."""
        return self.pace.rate_tps

    def open(self, context: TaskContext) -> None:
        """Take the numbers of this task."""
        self._first, self._step = context.task, context.tasks
        self._share = None if self.count is None else len(range(context.task, self.count, context.tasks))
        self.pace.open(context)

    def poll(self, now: float, limit: int) -> list[T] | Timed[T] | None:
        """Make what is due."""
        given = self.pace.count
        if self._share is not None:
            limit = min(limit, self._share - given)
            if given >= self._share:
                return None
        dues = self.pace.take(now, limit)
        first = self._first + given * self._step
        values = list(map(self.make, range(first, first + len(dues) * self._step, self._step)))
        return Timed(values, dues) if self.pace.paces else values

    def next_due(self, now: float) -> float:
        """Say when the next tuple is due, or now where only the end is left to be told."""
        return now if self.pace.count == self._share else self.pace.next_due(now)

    def position(self) -> dict[str, Any]:
        """Return how many were given, and the pace's time."""
        return self.pace.position()

    def seek(self, position: dict[str, Any]) -> None:
        """Go on after a position."""
        self.pace.seek(position)


def _returned(make: Callable[[int], Any]) -> Any:
    """Return the type of what a function, class, or object that can be called returns; None where it does not say."""
    if isinstance(make, partial):
        return _returned(make.func)
    if isinstance(make, type):
        return make
    function = make if isinstance(make, FunctionType | MethodType | BuiltinFunctionType) else type(make).__call__
    try:
        return get_type_hints(function).get("return")
    except (TypeError, NameError, AttributeError):
        return None
