"""Runs a keyed operator: looks up the state of each tuple's key, calls the author's code, keeps what it returns.

For functions without a time to live, whole batches run in one loop. `select` sets the stream of the next tuples, since
streams may have different keys.
"""

import heapq
import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any

from penstock.api.contracts import Operator, TaskContext
from penstock.api.keyed import KeyContext, KeyedOperator, StatefulFlatMap, StatefulMap, not_a_pair, pair
from penstock.model.errors import InvalidInput, shown
from penstock.runtime.worker.keyed_state import KeyedState, KeyGroup

CALLS = 256  # maximum timers per turn
_MISSING: Any = object()

KeyOf = Callable[[Any], Hashable]


class KeyedRunner(Operator[Any, Any]):
    """The logic of a keyed task, as an operator."""

    def __init__(
        self,
        logic: KeyedOperator[Any, Any, Any],
        state: KeyedState,
        keys: Mapping[int, KeyOf | None],
        clock: Callable[[], float],
    ) -> None:
        self.logic = logic
        self.state = state
        self._keys = keys  # by stream; None: the tuple is the key
        self._key_of: KeyOf | None = next(iter(keys.values()))
        self._now = clock
        self._key = KeyContext(clock)
        self._ttl = math.inf if logic.ttl is None else logic.ttl
        self._checked: set[type] = set()  # types of states that can be saved
        self._due: list[tuple[float, int, Hashable]] = []  # heap of keys to check: time, order, key
        self._planned: dict[Hashable, float] = {}  # the time in the heap that is in force, by key
        self._order = 0
        self._failed: Hashable = None  # the key whose timer has raised last
        self._raised: BaseException | None = None  # by the next call of `on_timer`
        self._wake = math.inf  # the earliest requested call of `on_timer`
        self._request: Callable[[float], Any] = _ignore
        self._function = logic.function if isinstance(logic, StatefulFlatMap) else _ignore
        self.run = self._loop()

    def open(self, context: TaskContext) -> None:
        """Open the author's object."""
        self._request = context.at
        self.logic.open(context)

    def select(self, stream: int) -> None:
        """Set the stream of the next tuples."""
        self._key_of = self._keys[stream]

    def close(self) -> None:
        """Close the author's object."""
        self.logic.close()

    # Tuples

    def _loop(self) -> Callable[[Iterator[Any]], list[Any]]:
        """Return the function that processes a batch."""
        if type(self.logic) is StatefulMap and self.logic.ttl is None:
            return self._map
        if type(self.logic) is StatefulFlatMap and self.logic.ttl is None:
            return self._flat_map
        return self._each

    def _map(self, values: Iterator[Any]) -> list[Any]:
        function, key_of = self._function, self._key_of
        group_of, add_group = self.state.cache.get, self.state.group_of
        emitted: list[Any] = []
        emit = emitted.append
        for value in values:
            key = value if key_of is None else key_of(value)
            group = group_of(key) or add_group(key)
            state = group.states.get(key, _MISSING)
            if state is _MISSING:
                emitted += self.process(value)
                continue
            group.changed[key] = None
            result = function(state, value)
            try:
                state, output = result
            except (TypeError, ValueError):
                raise not_a_pair(result) from None
            if state is None:
                group.drop(key)
            else:
                group.states[key] = state
            emit(output)
        return emitted

    def _flat_map(self, values: Iterator[Any]) -> list[Any]:
        function, key_of = self._function, self._key_of
        group_of, add_group = self.state.cache.get, self.state.group_of
        emitted: list[Any] = []
        for value in values:
            key = value if key_of is None else key_of(value)
            group = group_of(key) or add_group(key)
            state = group.states.get(key, _MISSING)
            if state is _MISSING:
                emitted += self.process(value)
                continue
            group.changed[key] = None
            result = function(state, value)
            try:
                state, outputs = result
            except (TypeError, ValueError):
                raise not_a_pair(result) from None
            if outputs is not None:
                emitted += _listed(outputs)
            if state is None:
                group.drop(key)
            else:
                group.states[key] = state
        return emitted

    def _each(self, values: Iterator[Any]) -> list[Any]:
        emitted: list[Any] = []
        process = self.process
        for value in values:
            emitted += process(value)
        return emitted

    def process(self, value: Any) -> list[Any]:
        """Process a tuple."""
        key = value if self._key_of is None else self._key_of(value)
        group = self.state.cache.get(key) or self.state.group_of(key)
        if self._ttl == math.inf:
            return self._call(group, key, self.logic.process, value)
        now, seen = self._now(), group.seen.get(key)
        if seen is not None and seen + self._ttl <= now:
            group.drop(key)
            group.changed[key] = None
        emitted = self._call(group, key, self.logic.process, value)
        if key in group.states:
            group.seen[key] = now
            self._schedule(key, now + self._ttl)
        return emitted

    def _call(self, group: KeyGroup, key: Hashable, function: Callable[..., Any], *values: Any) -> list[Any]:
        """Call the author's code for a key, and keep the state that it returns."""
        context = self._key
        context.key, context.timer, context.changed = key, group.timers.get(key), False
        state = group.states.get(key, _MISSING)
        if state is _MISSING:
            state = self.logic.initial()
        group.changed[key] = None  # first: the call may change the state and then raise
        state, outputs = pair(function(context, state, *values))
        emitted = [] if outputs is None else _listed(outputs)
        if state is None:
            group.drop(key)
            return emitted
        if type(state) not in self._checked:
            self.state.check(key, state)
            self._checked.add(type(state))
        group.states[key] = state
        if context.changed:
            self._set_timer(group, key, context.timer)
        return emitted

    # Timers

    def _set_timer(self, group: KeyGroup, key: Hashable, when: float | None) -> None:
        if when is None:
            group.timers.pop(key, None)
        else:
            group.timers[key] = when
            self._schedule(key, when)

    def _schedule(self, key: Hashable, when: float) -> None:
        """Check a key at a time, unless it is checked before: then it is scheduled again."""
        planned = self._planned.get(key)
        if planned is None or when < planned:
            self._order += 1
            self._planned[key] = when
            heapq.heappush(self._due, (when, self._order, key))
            self._wake_up()

    def _schedule_again(self, group: KeyGroup, key: Hashable) -> None:
        when = group.timers.get(key, math.inf)
        if self._ttl < math.inf and key in group.seen:
            when = min(when, group.seen[key] + self._ttl)
        if when < math.inf:
            self._schedule(key, when)

    def _wake_up(self) -> None:
        """Request a call of `on_timer` when the first key is due, if there is no earlier request."""
        if self._due and self._due[0][0] < self._wake:
            self._wake = self._due[0][0]
            self._request(self._wake)

    def on_timer(self, when: float) -> list[Any]:
        """Run the timers that are due, and remove expired keys.

        If a call raises after others have emitted tuples, these are returned, and the next call raises.
        """
        self._wake, now = math.inf, max(self._now(), when)
        if self._raised is not None:
            error, self._raised = self._raised, None
            raise error
        emitted: list[Any] = []
        for _ in range(CALLS):
            if not self._due or self._due[0][0] > now:
                break
            due, _, key = first = heapq.heappop(self._due)
            if self._planned.get(key) != due:
                continue
            del self._planned[key]
            try:
                emitted += self._check(key, now)
            except BaseException as error:
                self._planned[key], self._failed = due, key
                heapq.heappush(self._due, first)
                if not emitted:
                    raise
                self._raised = error
                break
        self._wake_up()
        return emitted

    def _check(self, key: Hashable, now: float) -> list[Any]:
        """Remove a key that has expired, or call its timer if it is due."""
        group = self.state.group_of(key)
        emitted: list[Any] = []
        if group.seen.get(key, math.inf) + self._ttl <= now:
            group.drop(key)
            group.changed[key] = None
        elif group.timers.get(key, math.inf) <= now:
            when = group.timers.pop(key)
            try:
                emitted = self._call(group, key, self.logic.on_timer)
            except BaseException:
                group.timers[key] = when
                raise
        self._schedule_again(group, key)
        return emitted

    def skip_timer(self) -> None:
        """Remove the timer whose call has raised."""
        key = self._failed
        group = self.state.group_of(key)
        self._planned.pop(key, None)
        group.timers.pop(key, None)
        group.changed[key] = None
        self._schedule_again(group, key)
        self._wake_up()

    def resume(self) -> None:
        """Schedule the timers of a restored state."""
        self._due, self._planned, self._wake = [], {}, math.inf
        for group in self.state.groups():
            for key in group.states:
                self._schedule_again(group, key)

    # The end

    def finish(self) -> list[Any]:
        """Return the last tuples of every key."""
        if type(self.logic).finish is KeyedOperator.finish:
            return []
        emitted: list[Any] = []
        now, context = self._now(), self._key
        for group in self.state.groups():
            for key, state in group.states.items():
                seen = group.seen.get(key)
                if seen is None or seen + self._ttl > now:
                    context.key, context.timer, context.changed = key, group.timers.get(key), False
                    emitted += _listed(self.logic.finish(context, state) or ())
        return emitted


def _listed(outputs: Any) -> list[Any]:
    """Return the tuples to emit; raise `InvalidInput` if they are no iterable."""
    if type(outputs) is list:
        return outputs
    if type(outputs) is tuple:
        return [*outputs]
    if not isinstance(outputs, Iterable):
        problem = f"expected a list of tuples to emit, or None, beside the state, got {shown(outputs)}"
        raise InvalidInput("result", f"{problem}; use stateful_map for one tuple each")
    return list(outputs)


def _ignore(*_: Any) -> Any:
    """Do nothing: the task is not open, or its logic is no function."""
