"""Small applications whose output is known for every number of tuples that their sources have emitted.

The expected output is computed here without any runtime, from the positions of the source tasks; tuples of one group
must appear in the computed order. The source rewinds; it emits a few tuples at a time and pauses in between. The sink
writes parts to a disk in memory, under private names until a checkpoint publishes them.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import msgspec

from penstock.api.contracts import Operator, Sink, Source, TaskContext
from penstock.api.dataflow import Dataflow, Outlet
from penstock.api.keyed import KeyContext, KeyedOperator
from penstock.api.keys import KEY_GROUPS, key_group
from penstock.model.decoding import decode_msgpack
from penstock.runtime.layout import Layout
from penstock.runtime.storage.disk import Disk

Row = tuple[Any, ...]
Rows = dict[Any, list[Row]]  # by group
Emitted = Mapping[str, int]  # source task -> tuples that it has emitted
Expected = Callable[[Emitted, bool], Rows]  # bool: whether all tasks have ended
PAUSE_S = 0.012  # between the tuples that a source emits together
MOST = 4  # emitted together
DELAY_S = 0.02
GROUPED = 24  # keys, in
GROUPS = 9  # key groups
OUTPUT = "output"


class Environment:
    """The current environment of an application: the disk of its sinks, and whether its sources may end."""

    disk: Disk
    may_end: bool = True


class _Numbers(Source[tuple[str, int]]):
    """Pairs of a key and a number from `make`, `count` per task. The last one waits until the source may end."""

    rewinds = True

    def __init__(self, make: Callable[[int, int], tuple[str, int]], count: int, place: Environment) -> None:
        self.make = make
        self.count = count
        self._place = place

    def open(self, context: TaskContext) -> None:
        self._task = context.task
        self._at = 0
        self._pause_until = 0.0

    def poll(self, now: float, limit: int) -> list[tuple[str, int]] | None:
        if self._at >= self.count:
            return None
        if now < self._pause_until:
            return []
        self._pause_until = now + PAUSE_S
        last = self.count if self._place.may_end else self.count - 1
        end = min(self._at + min(1 + (self._at + self._task) % MOST, limit), last)
        given = [self.make(self._task, number) for number in range(self._at, end)]
        self._at = end
        return given

    def next_due(self, now: float) -> float:
        return self._pause_until

    def position(self) -> int:
        return self._at

    def seek(self, position: int) -> None:
        self._at = position


class Parts(Sink[Any]):
    """Writes the tuples between two checkpoints to a file, which the checkpoint publishes."""

    exactly_once = True

    def __init__(self, place: Environment) -> None:
        self._place = place

    def open(self, context: TaskContext) -> None:
        """Start the first part."""
        self._path = f"{context.folder}/{OUTPUT}/"
        self._name = f"part-{context.component}-{context.task}"
        self._epoch = context.epoch
        self._number = 0
        self._rows: list[Any] = []

    def write(self, values: Sequence[Any]) -> None:
        """Collect the rows of the part."""
        self._rows.extend(values)

    def prepare(self) -> Sequence[tuple[str, str]]:
        """Write the part under a name that no other epoch uses."""
        if not self._rows:
            return ()
        final = f"{self._name}-{self._number:04}"
        temporary = f"{self._path}_{final}.e{self._epoch}"
        self._place.disk.write(temporary, [msgspec.msgpack.encode(self._rows)])
        self._number += 1
        self._rows = []
        return ((temporary, self._path + final),)

    def snapshot(self) -> int:
        """Return the number of the next part."""
        return self._number

    def restore(self, state: int) -> None:
        """Continue with the part of a number."""
        self._number = state

    def rescale(self, states: Sequence[int], tasks: int) -> Sequence[int]:
        """Continue every task's parts after those of all."""
        return [max(states)] * tasks


class Count(Operator[tuple[str, int], tuple[str, int, int]]):
    """The number of occurrences of each key so far, with the number that came."""

    def open(self, context: TaskContext) -> None:
        """Start with no counts."""
        self.counts: dict[str, int] = {}

    def process(self, value: tuple[str, int]) -> Iterable[tuple[str, int, int]]:
        """Count a key."""
        key, number = value
        count = self.counts[key] = self.counts.get(key, 0) + 1
        return ((key, count, number),)

    def snapshot(self) -> dict[str, int]:
        """Return the counts."""
        return self.counts

    def restore(self, state: dict[str, int]) -> None:
        """Restore the counts."""
        self.counts = state


class _CountOnly(Count):
    """The number of occurrences of each key so far, without the number, which depends on the order."""

    def process(self, value: tuple[str, int]) -> Iterable[tuple[str, int, int]]:
        ((key, count, _),) = super().process(value)
        return ((key, count, 0),)


class _Total(Operator[tuple[str, int], tuple[str, int, int]]):
    """The sum of the numbers of each key, at the end of the input."""

    def open(self, context: TaskContext) -> None:
        self.totals: dict[str, list[int]] = {}

    def process(self, value: tuple[str, int]) -> None:
        total = self.totals.setdefault(value[0], [0, 0])
        total[0] += 1
        total[1] += value[1]

    def finish(self) -> Iterable[tuple[str, int, int]]:
        return [(key, count, total) for key, (count, total) in sorted(self.totals.items())]

    def snapshot(self) -> dict[str, list[int]]:
        return self.totals

    def restore(self, state: dict[str, list[int]]) -> None:
        self.totals = state


class _Meet(Count):
    """Counts the tuples of each key and side, and emits the type of the received value."""

    def process(self, value: Any) -> Iterable[tuple[str, int, int]]:
        side = f"{value[0]}/{value[1]}/{type(value).__name__}"
        count = self.counts[side] = self.counts.get(side, 0) + 1
        return ((side, count, 0),)


class _Tally(Operator[tuple[str, int], tuple[str, int, int]]):
    """Emits every tuple with the number of its task."""

    def open(self, context: TaskContext) -> None:
        self._task = context.task
        self._seen = 0

    def process(self, value: tuple[str, int]) -> Iterable[tuple[str, int, int]]:
        self._seen += 1
        return ((f"{value[0]}@{self._task}", value[1], self._task),)

    def snapshot(self) -> int:
        return self._seen

    def restore(self, state: int) -> None:
        self._seen = state


class _Delay(Operator[tuple[str, int], tuple[str, int]]):
    """Emits tuples some time after their arrival, in the same order."""

    def open(self, context: TaskContext) -> None:
        self._context = context
        self._waiting: list[tuple[str, int]] = []

    def process(self, value: tuple[str, int]) -> None:
        if not self._waiting:
            self._context.at(self._context.now() + DELAY_S)
        self._waiting.append(value)

    def on_timer(self, when: float) -> Iterable[tuple[str, int]]:
        return self.finish()

    def finish(self) -> Iterable[tuple[str, int]]:
        given, self._waiting = self._waiting, []
        return given

    def snapshot(self) -> list[tuple[str, int]]:
        return self._waiting

    def restore(self, state: list[tuple[str, int]]) -> None:
        self._waiting = state


class _CountKey(KeyedOperator[int, tuple[str, int], tuple[str, int, int]]):
    """Counts the tuples of each key, and repeats the count at the end."""

    def initial(self) -> int:
        return 0

    def process(self, key: KeyContext, state: int, value: tuple[str, int]) -> tuple[int, list[tuple[str, int, int]]]:
        return state + 1, [(value[0], state + 1, 0)]

    def finish(self, key: KeyContext, state: int) -> list[tuple[str, int, int]]:
        return [(key.key, state, -1)]


class _DelayKey(KeyedOperator[list[int], tuple[str, int], tuple[str, int]]):
    """Emits the numbers of a key some time after the first of them, in the same order, then forgets the key."""

    def initial(self) -> list[int]:
        return []

    def process(self, key: KeyContext, state: list[int], value: tuple[str, int]) -> tuple[list[int], None]:
        if not state:
            key.at(key.now() + DELAY_S)
        return [*state, value[1]], None

    def on_timer(self, key: KeyContext, state: list[int]) -> tuple[None, list[tuple[str, int]]]:
        return None, self.finish(key, state)

    def finish(self, key: KeyContext, state: list[int]) -> list[tuple[str, int]]:
        return [(key.key, number) for number in state]


class KnownApplication(NamedTuple):
    """An application and its expected output."""

    name: str
    layout: Layout
    place: Environment
    sources: dict[str, int]  # source task -> total number of tuples that it emits
    expected: Expected
    group: Callable[[Row], Any]  # rows of a group are in order
    prompt: bool = True  # whether tuples are emitted immediately, except those emitted at the end
    resizable: tuple[str, ...] = ()  # components that may have another number of tasks when the run is resumed


def visible_rows(disk: Disk, folder: str, group: Callable[[Row], Any]) -> Rows:
    """Return the visible rows, by group, in the order of the parts."""
    rows: Rows = {}
    path = f"{folder}/{OUTPUT}"
    for name in sorted(disk.listed(path), key=_part_number):
        if not name.startswith("_"):
            for row in decode_msgpack(disk.read(f"{path}/{name}")):
                rows.setdefault(group(tuple(row)), []).append(tuple(row))
    return rows


def _part_number(name: str) -> tuple[str, str]:
    """Return a part's number, which grows when the number of tasks changes, and its task."""
    task, _, number = name.rpartition("-")
    return number, task


def shared_keys(task: int, number: int) -> tuple[str, int]:
    """Return pairs whose keys are used by every task."""
    return f"k{(number * number + 3 * task + number) % 7}", number


def grouped_keys(task: int, number: int) -> tuple[str, int]:
    """Return pairs whose keys are used by every task, each for a while, and are in few key groups."""
    return _few_groups()[(number // 2 + 7 * task) % GROUPED], number


@cache
def _few_groups() -> list[str]:
    """Return keys of `GROUPS` key groups, in turn."""
    found: list[str] = []
    for number in itertools.count():
        wanted = len(found) % GROUPS * (KEY_GROUPS // GROUPS) + 7
        if key_group(f"g{number}") == wanted:
            found.append(f"g{number}")
        if len(found) == GROUPED:
            return found
    raise AssertionError("there are keys of every group")


def own_keys(task: int, number: int) -> tuple[str, int]:
    """Return pairs whose keys are used by one task each, so that their order is known."""
    return f"s{task}-{number * 5 % 3}", number


def plus_one(value: tuple[str, int]) -> tuple[str, int]:
    """Add one to a number."""
    return value[0], value[1] + 1


def is_even(value: tuple[str, int]) -> bool:
    """Return whether a number is even."""
    return value[1] % 2 == 0


def left(value: tuple[str, int]) -> Any:
    """Return the name of the side of a tuple."""
    return "left", value[0]


def right(value: tuple[str, int]) -> Any:
    """Return the name of the side of a tuple."""
    return "right", value[0]


def _key(row: Row) -> Any:
    return row[0]


def _pairs(make: Callable[[int, int], tuple[str, int]], given: Emitted) -> list[tuple[str, int]]:
    """Return the pairs that the source tasks have emitted, those of one task in order."""
    return [make(task, number) for task, count in enumerate(given.values()) for number in range(count)]


def _counted(pairs: Iterable[tuple[str, int]], numbers: bool = True) -> Rows:
    rows: Rows = {}
    for key, number in pairs:
        before = rows.setdefault(key, [])
        before.append((key, len(before) + 1, number if numbers else 0))
    return rows


def _count(flow: Dataflow, place: Environment, numbers: Outlet) -> Expected:
    counts = flow.operator("count", _CountOnly, numbers.fields(0), parallelism=3, emits=tuple[str, int, int])
    flow.sink("out", lambda: Parts(place), counts.fields(0), parallelism=2)
    return lambda given, _: _counted(_pairs(shared_keys, given), numbers=False)


def _ordered(flow: Dataflow, place: Environment, numbers: Outlet) -> Expected:
    more = flow.map("more", plus_one, numbers.forward(), parallelism=2, emits=tuple[str, int])
    counts = flow.operator("count", Count, more.fields(0), parallelism=2, emits=tuple[str, int, int])
    flow.sink("out", lambda: Parts(place), counts.to_first())
    return lambda given, _: _counted(map(plus_one, _pairs(own_keys, given)))


def _sum(flow: Dataflow, place: Environment, numbers: Outlet) -> Expected:
    more = flow.map("more", plus_one, numbers, parallelism=3, emits=tuple[str, int])
    totals = flow.operator("total", _Total, more.fields(0), parallelism=2, emits=tuple[str, int, int])
    flow.sink("out", lambda: Parts(place), totals, parallelism=2)

    def expected(given: Emitted, ended: bool) -> Rows:
        rows: Rows = {}
        for key, number in map(plus_one, _pairs(shared_keys, given)) if ended else ():
            _, count, total = rows.get(key, [(key, 0, 0)])[0]
            rows[key] = [(key, count + 1, total + number)]
        return rows

    return expected


def _fork(flow: Dataflow, place: Environment, numbers: Outlet) -> Expected:
    lefts = flow.map("left", left, numbers, parallelism=2)
    rights = flow.map("right", right, flow.filter("even", is_even, numbers), parallelism=1)
    met = flow.operator("meet", _Meet, lefts.fields(1), rights.fields(1), parallelism=2, emits=tuple[str, int, int])
    flow.sink("out", lambda: Parts(place), met.to_first())

    def expected(given: Emitted, _: bool) -> Rows:
        pairs = _pairs(shared_keys, given)
        sides = [(f"left/{key}/list", 0) for key, _ in pairs]
        return _counted(sides + [(f"right/{pair[0]}/list", 0) for pair in pairs if is_even(pair)], numbers=False)

    return expected


def _all(flow: Dataflow, place: Environment, numbers: Outlet) -> Expected:
    seen = flow.operator("tally", _Tally, numbers.all(), parallelism=3, emits=tuple[str, int, int])
    flow.sink("out", lambda: Parts(place), seen.fields(0), parallelism=2)

    def expected(given: Emitted, _: bool) -> Rows:
        rows: Rows = {}
        for key, number in _pairs(own_keys, given):
            for task in range(3):
                rows.setdefault(f"{key}@{task}", []).append((f"{key}@{task}", number, task))
        return rows

    return expected


def _partial(flow: Dataflow, place: Environment, numbers: Outlet) -> Expected:
    more = flow.map("more", plus_one, numbers.partial_key(0), parallelism=3, emits=tuple[str, int])
    counts = flow.operator("merge", _CountOnly, more.fields(0), parallelism=2, emits=tuple[str, int, int])
    flow.sink("out", lambda: Parts(place), counts.fields(0), parallelism=2)
    return lambda given, _: _counted(_pairs(shared_keys, given), numbers=False)


def _delayed(flow: Dataflow, place: Environment, numbers: Outlet) -> Expected:
    later = flow.operator("delay", _Delay, numbers.fields(0), parallelism=2, emits=tuple[str, int])
    counts = flow.operator("count", Count, later.fields(0), parallelism=2, emits=tuple[str, int, int])
    flow.sink("out", lambda: Parts(place), counts.fields(0), parallelism=2)
    return lambda given, _: _counted(_pairs(own_keys, given))


def _keyed(flow: Dataflow, place: Environment, numbers: Outlet) -> Expected:
    counts = flow.keyed_operator("count", _CountKey, numbers.fields(0), parallelism=3)
    flow.sink("out", lambda: Parts(place), counts.fields(0), parallelism=2)

    def expected(given: Emitted, ended: bool) -> Rows:
        rows = _counted(_pairs(grouped_keys, given), numbers=False)
        for key, counted in rows.items() if ended else ():
            counted.append((key, len(counted), -1))
        return rows

    return expected


def _keyed_delayed(flow: Dataflow, place: Environment, numbers: Outlet) -> Expected:
    later = flow.keyed_operator("delay", _DelayKey, numbers.fields(0), parallelism=2)
    counts = flow.operator("count", Count, later.fields(0), parallelism=2, emits=tuple[str, int, int])
    flow.sink("out", lambda: Parts(place), counts.fields(0), parallelism=2)
    return lambda given, _: _counted(_pairs(own_keys, given))


_MADE = {
    "count": (_count, shared_keys),
    "ordered": (_ordered, own_keys),
    "sum": (_sum, shared_keys),
    "fork": (_fork, shared_keys),
    "all": (_all, own_keys),
    "partial": (_partial, shared_keys),
    "delayed": (_delayed, own_keys),
    "keyed": (_keyed, grouped_keys),
    "keyed-delayed": (_keyed_delayed, own_keys),
}
NAMES = tuple(_MADE)
_RESIZABLE = {
    "count": ("out",),
    "sum": ("more", "out"),
    "fork": ("left", "even"),
    "partial": ("more", "out"),
    "delayed": ("out",),
    "keyed": ("count", "out"),
    "keyed-delayed": ("delay", "out"),
}


@cache
def known_application(name: str, count: int) -> KnownApplication:
    """Return an application whose source tasks emit `count` tuples each; created once and reused."""
    build, make = _MADE[name]
    flow, place = Dataflow(name), Environment()
    numbers = flow.source("numbers", lambda: _Numbers(make, count, place), parallelism=2, emits=tuple[str, int])
    expected = build(flow, place, numbers)
    layout = Layout(flow)
    sources = {layout.names[task]: count for task in layout.tasks("numbers")}
    return KnownApplication(
        name, layout, place, sources, expected, _key, "delayed" not in name, _RESIZABLE.get(name, ())
    )
