"""Small applications whose output is known for every number of tuples that their sources have emitted.

The expected output is computed here without any runtime, from the positions of the source tasks; tuples of one group
must appear in the computed order.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, NamedTuple

from penstock.api.dataflow import Dataflow, Outlet
from penstock.model.decoding import decode_msgpack
from penstock.runtime.layout import Layout
from penstock.runtime.storage.disk import Disk
from penstock.testing.parts import OUTPUT, Count, CountOnly, Delay, Meet, Numbers, Parts, Place, Tally, Total

Row = tuple[Any, ...]
Rows = dict[Any, list[Row]]  # by group
Given = Mapping[str, int]  # source task -> tuples that it has emitted
Expected = Callable[[Given, bool], Rows]  # bool: whether all tasks have ended


class Known(NamedTuple):
    """An application and its expected output."""

    name: str
    layout: Layout
    place: Place
    sources: dict[str, int]  # source task -> total number of tuples that it emits
    expected: Expected
    group: Callable[[Row], Any]  # rows of a group are in order
    prompt: bool = True  # whether tuples are emitted immediately, except those emitted at the end


def published(disk: Disk, folder: str, group: Callable[[Row], Any]) -> Rows:
    """Return the visible rows, by group, in the order of each sink task's parts."""
    rows: Rows = {}
    path = f"{folder}/{OUTPUT}"
    for name in disk.listed(path):
        if not name.startswith("_"):
            for row in decode_msgpack(disk.read(f"{path}/{name}")):
                rows.setdefault(group(tuple(row)), []).append(tuple(row))
    return rows


def shared_keys(task: int, number: int) -> tuple[str, int]:
    """Return pairs whose keys are used by every task."""
    return f"k{(number * number + 3 * task + number) % 7}", number


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


def _pairs(make: Callable[[int, int], tuple[str, int]], given: Given) -> list[tuple[str, int]]:
    """Return the pairs that the source tasks have emitted, those of one task in order."""
    return [make(task, number) for task, count in enumerate(given.values()) for number in range(count)]


def _counted(pairs: Iterable[tuple[str, int]], numbers: bool = True) -> Rows:
    rows: Rows = {}
    for key, number in pairs:
        before = rows.setdefault(key, [])
        before.append((key, len(before) + 1, number if numbers else 0))
    return rows


def _count(flow: Dataflow, place: Place, numbers: Outlet) -> Expected:
    counts = flow.operator("count", CountOnly, numbers.fields(0), parallelism=3, emits=tuple[str, int, int])
    flow.sink("out", lambda: Parts(place), counts.fields(0), parallelism=2)
    return lambda given, _: _counted(_pairs(shared_keys, given), numbers=False)


def _ordered(flow: Dataflow, place: Place, numbers: Outlet) -> Expected:
    more = flow.map("more", plus_one, numbers.forward(), parallelism=2, emits=tuple[str, int])
    counts = flow.operator("count", Count, more.fields(0), parallelism=2, emits=tuple[str, int, int])
    flow.sink("out", lambda: Parts(place), counts.to_first())
    return lambda given, _: _counted(map(plus_one, _pairs(own_keys, given)))


def _sum(flow: Dataflow, place: Place, numbers: Outlet) -> Expected:
    more = flow.map("more", plus_one, numbers, parallelism=3, emits=tuple[str, int])
    totals = flow.operator("total", Total, more.fields(0), parallelism=2, emits=tuple[str, int, int])
    flow.sink("out", lambda: Parts(place), totals, parallelism=2)

    def expected(given: Given, ended: bool) -> Rows:
        rows: Rows = {}
        for key, number in map(plus_one, _pairs(shared_keys, given)) if ended else ():
            _, count, total = rows.get(key, [(key, 0, 0)])[0]
            rows[key] = [(key, count + 1, total + number)]
        return rows

    return expected


def _fork(flow: Dataflow, place: Place, numbers: Outlet) -> Expected:
    lefts = flow.map("left", left, numbers, parallelism=2)
    rights = flow.map("right", right, flow.filter("even", is_even, numbers), parallelism=1)
    met = flow.operator("meet", Meet, lefts.fields(1), rights.fields(1), parallelism=2, emits=tuple[str, int, int])
    flow.sink("out", lambda: Parts(place), met.to_first())

    def expected(given: Given, _: bool) -> Rows:
        pairs = _pairs(shared_keys, given)
        sides = [(f"left/{key}/list", 0) for key, _ in pairs]
        return _counted(sides + [(f"right/{pair[0]}/list", 0) for pair in pairs if is_even(pair)], numbers=False)

    return expected


def _all(flow: Dataflow, place: Place, numbers: Outlet) -> Expected:
    seen = flow.operator("tally", Tally, numbers.all(), parallelism=3, emits=tuple[str, int, int])
    flow.sink("out", lambda: Parts(place), seen.fields(0), parallelism=2)

    def expected(given: Given, _: bool) -> Rows:
        rows: Rows = {}
        for key, number in _pairs(own_keys, given):
            for task in range(3):
                rows.setdefault(f"{key}@{task}", []).append((f"{key}@{task}", number, task))
        return rows

    return expected


def _partial(flow: Dataflow, place: Place, numbers: Outlet) -> Expected:
    more = flow.map("more", plus_one, numbers.partial_key(0), parallelism=3, emits=tuple[str, int])
    counts = flow.operator("merge", CountOnly, more.fields(0), parallelism=2, emits=tuple[str, int, int])
    flow.sink("out", lambda: Parts(place), counts.fields(0), parallelism=2)
    return lambda given, _: _counted(_pairs(shared_keys, given), numbers=False)


def _delayed(flow: Dataflow, place: Place, numbers: Outlet) -> Expected:
    later = flow.operator("delay", Delay, numbers.fields(0), parallelism=2, emits=tuple[str, int])
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
}
NAMES = tuple(_MADE)


@cache
def known_application(name: str, count: int) -> Known:
    """Return an application whose source tasks emit `count` tuples each; created once and reused."""
    rest, make = _MADE[name]
    flow, place = Dataflow(name), Place()
    numbers = flow.source("numbers", lambda: Numbers(make, count, place), parallelism=2, emits=tuple[str, int])
    expected = rest(flow, place, numbers)
    layout = Layout(flow)
    sources = {layout.names[task]: count for task in layout.tasks("numbers")}
    return Known(name, layout, place, sources, expected, _key, prompt=name != "delayed")
