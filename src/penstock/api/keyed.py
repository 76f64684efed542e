"""Operators whose state the runtime keeps, one state per key: functions or small classes, without `snapshot`.

    counts = flow.stateful_map("count", lambda n, word: (n + 1, (word, n + 1)), words.fields(), initial=0)

The runtime keeps, saves and moves the states by key group. A state consists of numbers, texts, bytes, lists, dicts and
structs. It is decoded to its declared type: the annotation of the function's result, the first type argument of a
class, or `state=`.
"""

import copy
import math
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from penstock.api.contracts import TaskContext, is_time
from penstock.model.errors import InvalidInput, shown

State = TypeVar("State")
In = TypeVar("In")
Out = TypeVar("Out")

_SHARED = (int, float, str, bytes, bool, frozenset, type(None))  # initial states that need no copy per key


class KeyContext:
    """The key of the current call, and its timer. It is valid only during the call."""

    __slots__ = ("_now", "changed", "key", "timer")

    def __init__(self, now: Callable[[], float]) -> None:
        self.key: Any = None
        self.timer: float | None = None  # the time at which `on_timer` is due for this key; None: no timer
        self.changed = False  # whether the call has set or removed the timer
        self._now = now

    def now(self) -> float:
        """Return the time in seconds on a monotonic clock, the one of timers."""
        return self._now()

    def at(self, when: float | None) -> None:
        """Request a call of `on_timer` for this key at a time, in place of an earlier request; None: no call."""
        if when is not None and not is_time(when):
            raise InvalidInput("at", f"expected a time in seconds, got {when!r}; add to now()")
        self.timer, self.changed = when, True


class KeyedOperator(Generic[State, In, Out]):
    """Transforms tuples, with a state per key.

    All inputs are grouped by `fields`. `process` and `on_timer` receive the state of a key; they return its next state
    and the emitted tuples. The state None removes the key and its timer. Other keys are processed between two calls, so
    the object itself has no state.

    Calls: `open`, then `process` for every tuple and `on_timer` for every due timer, then `finish` for every key when
    every source has ended, then `close`.

    ttl: seconds after its last tuple when a key, its state and its timer are removed; None: never.
    """

    ttl: float | None = None

    def open(self, context: TaskContext) -> None:
        """Prepare the object. Called once, before anything else."""

    def initial(self) -> State:
        """Return the state of a key without one; None by default."""
        return None  # type: ignore[return-value]

    def process(self, key: KeyContext, state: State, value: In) -> tuple[State | None, Iterable[Out] | None]:
        """Return the next state of a tuple's key, and the tuples derived from the tuple."""
        raise NotImplementedError

    def on_timer(self, key: KeyContext, state: State) -> tuple[State | None, Iterable[Out] | None]:
        """Return the next state of a key whose timer is due, and the tuples to emit."""
        return state, None

    def finish(self, key: KeyContext, state: State) -> Iterable[Out] | None:
        """Return the last tuples of a key that has a state, after the end of all input."""
        return None

    def close(self) -> None:
        """Release what `open` acquired. Called at the end, and when the task moves."""


class StatefulFlatMap(KeyedOperator[Any, Any, Any]):
    """Any number of tuples for each tuple, by a function of the key's state and the tuple."""

    def __init__(self, function: Callable[[Any, Any], Any], initial: Any = None, ttl: float | None = None) -> None:
        self.function = function
        self.ttl = ttl
        if callable(initial):
            self.initial = initial  # type: ignore[method-assign]
        elif isinstance(initial, _SHARED):
            self.initial = lambda: initial  # type: ignore[method-assign]
        else:
            self.initial = lambda: copy.deepcopy(initial)  # type: ignore[method-assign]

    def process(self, key: KeyContext, state: Any, value: Any) -> Any:
        """Return what the function returns."""
        return self.function(state, value)


class StatefulMap(StatefulFlatMap):
    """One tuple for each tuple, by a function of the key's state and the tuple."""

    def process(self, key: KeyContext, state: Any, value: Any) -> Any:
        """Return what the function returns, as the only tuple."""
        result = self.function(state, value)
        state, output = pair(result)
        return state, (output,)


def pair(result: Any) -> tuple[Any, Any]:
    """Return the pair that an author's function returned; raise `InvalidInput` if it is none."""
    try:
        state, output = result
    except (TypeError, ValueError):
        raise not_a_pair(result) from None
    return state, output


def not_a_pair(result: Any) -> InvalidInput:
    """Return the error for a result that is no pair."""
    return InvalidInput("result", f"expected a pair of the key's next state and the output, got {shown(result)}")


def check_ttl(path: str, ttl: Any) -> None:
    """Raise `InvalidInput` for an invalid time to live."""
    valid = ttl is None or (isinstance(ttl, int | float) and not isinstance(ttl, bool) and 0 < ttl < math.inf)
    if not valid:
        raise InvalidInput(path, f"expected seconds > 0, or None, got {ttl!r}")
