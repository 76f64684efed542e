import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.api.contracts import Timed
from penstock.api.dataflow import Dataflow
from penstock.api.sources.generated import Generated
from penstock.model.errors import InvalidInput
from penstock.workloads.arrivals import Poisson
from tests.api.clock import Clock, context
from tests.api.sources.polling import poll_at, poll_to_end


def square(number: int) -> int:
    return number * number


class Sentences:
    """Makes tuples by being called."""

    def __call__(self, number: int) -> str:
        return f"sentence {number}"

    def word(self, number: int) -> bytes:
        return b"word"


@given(count=st.integers(0, 60), tasks=st.integers(1, 5), limit=st.integers(1, 20), paced=st.booleans())
def test_every_number_is_used_once_whatever_the_tasks(count: int, tasks: int, limit: int, paced: bool) -> None:
    found = []
    for task in range(tasks):
        source = Generated(square, rate=100.0 if paced else None, count=count)
        source.open(context(task, tasks))
        found.append(poll_to_end(source, Clock(5.0), limit).values)
    assert found == [[square(i) for i in range(task, count, tasks)] for task in range(tasks)]


def test_dues_are_those_of_the_pace() -> None:
    source = Generated(square, rate=4.0, count=10)
    source.open(context(1, 2))
    got = poll_to_end(source, Clock(100.0))
    assert got.values == [1, 9, 25, 49, 81]
    assert got.dues == [100.25, 100.75, 101.25, 101.75, 102.25]


def test_without_a_pace_no_times_are_made() -> None:
    source = Generated(square)
    source.open(context())
    assert source.poll(3.0, 4) == [0, 1, 4, 9]
    paced = Generated(square, rate=1.0)
    paced.open(context())
    assert paced.poll(3.0, 4) == Timed([0], [3.0])


@given(
    steps=st.lists(st.tuples(st.floats(0, 0.5), st.integers(1, 40)), min_size=2, max_size=20),
    at=st.integers(0, 19),
    arrivals=st.booleans(),
)
def test_a_moved_source_continues_exactly(steps: list[tuple[float, int]], at: int, arrivals: bool) -> None:
    how: dict[str, Any] = {"arrivals": Poisson(rate=80.0)} if arrivals else {"rate": 64.0}
    clock = Clock(0.0)
    stays, moves = (Generated(square, count=100, **how) for _ in range(2))
    for source in (stays, moves):
        source.open(context(1, 3, clock=clock))
        source.poll(0.0, 0)
    expected, got = [], []
    for number, (wait, limit) in enumerate(steps):
        if number == at:
            position = moves.position()
            moves = Generated(square, count=100, **how)
            moves.open(context(1, 3, clock=clock))
            moves.seek(position)
            moves.poll(clock.time, 0)
        clock.time += wait
        expected.append(poll_at(stays, clock, [clock.time], limit))
        got.append(poll_at(moves, clock, [clock.time], limit))
    wanted = [pair for each in expected for pair in zip(each.values, each.dues, strict=True)]
    found = [pair for each in got for pair in zip(each.values, each.dues, strict=True)]
    assert abs(len(found) - len(wanted)) <= 1  # rounding decides what is due just now
    for (value, due), (wanted_value, wanted_due) in zip(found, wanted, strict=False):
        assert value == wanted_value
        assert due == pytest.approx(wanted_due, abs=1e-9)


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (square, int),
        (partial(square), int),
        (Sentences(), str),
        (Sentences().word, bytes),
        (str, str),
        (lambda i: i, None),
    ],
)
def test_its_type_is_the_functions_annotation(make: Callable[[int], Any], kind: Any) -> None:
    assert Generated(make).emits is kind


def test_the_dataflow_takes_its_type_and_rate() -> None:
    flow = Dataflow("squares")
    squares = flow.source("squares", Generated(square, rate=12.0))
    assert flow.stream_type(squares) is int
    assert flow.parts["squares"].logic().rate_tps == 12.0  # type: ignore[union-attr]


def test_copies_are_independent() -> None:
    first = Generated(square)
    second = copy.deepcopy(first)
    for source in (first, second):
        source.open(context())
    assert first.poll(0.0, 3) == second.poll(0.0, 3) == [0, 1, 4]


def test_rejects_what_it_cannot_make() -> None:
    with pytest.raises(InvalidInput, match="make: expected a function"):
        Generated(7)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="count: expected a whole number ≥ 0 or None, got -1"):
        Generated(square, count=-1)


@given(
    count=st.integers(0, 80),
    tasks=st.lists(st.integers(1, 5), min_size=2, max_size=4),
    polls=st.lists(st.integers(0, 6), min_size=20, max_size=20),
    paced=st.booleans(),
)
def test_no_number_is_lost_or_repeated_when_the_number_of_tasks_changes(
    count: int, tasks: list[int], polls: list[int], paced: bool
) -> None:
    clock = Clock(5.0)
    sources: list[Generated[int]] = []
    found: list[int] = []
    for number in tasks:
        positions = [source.position() for source in sources]
        places = Generated(int, count=count).rescale(positions, number) if sources else [None] * number
        sources = [Generated(int, rate=100.0 if paced else None, count=count) for _ in range(number)]
        for task, (source, place) in enumerate(zip(sources, places, strict=True)):
            source.open(context(task, number))
            if place is not None:
                source.seek(place)
            for limit in polls[task::number]:
                clock.time += 0.01
                found += poll_at(source, clock, [clock.time], limit).values if limit else []
    for source in sources:
        found += poll_to_end(source, clock).values
    assert sorted(found) == list(range(count))
