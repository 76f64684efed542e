"""An author's code: run in batches, its errors named, its state packed up; and how its tuples travel."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec
import pytest

from penstock.api.contracts import Operator, Sink, Source, TaskContext
from penstock.api.logic import FilterOperator, FlatMapOperator, MapOperator
from penstock.model.errors import InvalidInput, shown
from penstock.runtime.protocol.codec import Codec
from penstock.runtime.worker.logic import LogicState, UserError, call, listed
from penstock.runtime.worker.task import batch_process, run_batch, write_batch
from penstock.runtime.worker.tracing import Sampler


class Doubling(Operator[int, int]):
    def process(self, value: int) -> Iterator[int] | None:
        return iter((value, value)) if value else None


def fails_on(culprit: int) -> Callable[[int], int]:
    def function(value: int) -> int:
        if value == culprit:
            raise ValueError("no")
        return value

    return function


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        (MapOperator(lambda value: value + 1), [2, 1, 3]),
        (FilterOperator(lambda value: value > 0), [1, 2]),
        (FlatMapOperator(lambda value: [value] * value), [1, 2, 2]),
        (Doubling(), [1, 1, 2, 2]),
    ],
)
def test_runs_a_batch(operator: Operator[int, int], expected: list[int]) -> None:
    assert run_batch(batch_process(operator), [1, 0, 2]) == expected


@pytest.mark.parametrize("culprit", [0, 3, 6])
def test_shows_the_tuple_that_an_operator_raised_on(culprit: int) -> None:
    function = fails_on(culprit)
    operators: list[Operator[int, Any]] = [
        MapOperator(function),
        FilterOperator(lambda value: bool(function(value))),
        FlatMapOperator(lambda value: (function(value) for _ in range(2))),
    ]
    for operator in operators:
        with pytest.raises(UserError) as raised:
            run_batch(batch_process(operator), list(range(7)))
        assert raised.value.value == str(culprit)
        assert isinstance(raised.value.__cause__, ValueError)


def test_shows_long_tuples_in_short() -> None:
    assert len(shown("x" * 1000)) == 200
    assert shown("short") == "'short'"


class Picky(Sink[int]):
    def write(self, values: Any) -> None:
        raise RuntimeError("full")


def test_shows_the_first_tuple_of_a_batch_that_a_sink_raised_on() -> None:
    with pytest.raises(UserError, match=r"^7$"):
        write_batch(Picky(), [7])
    with pytest.raises(UserError, match="7 or one of the 2 after it"):
        write_batch(Picky(), [7, 8, 9])


def test_an_exception_of_a_generator_is_the_authors_too() -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise KeyError("x")

    with pytest.raises(UserError):
        listed(broken)
    with pytest.raises(UserError):
        call(lambda: 1 // 0)
    assert listed(lambda: None) == []


class Plain(Operator[int, int]):
    def __init__(self) -> None:
        self.seen: list[int] = []
        self.name = "plain"

    def process(self, value: int) -> Iterable[int]:
        self.seen.append(value)
        return ()


class Keeper(Plain):
    def snapshot(self) -> dict[int, list[int]]:
        return {1: self.seen}

    def restore(self, state: dict[int, list[int]]) -> None:
        self.seen = state[1]


class Rewinding(Source[int]):
    rewinds = True

    def __init__(self, at: int = 0) -> None:
        self.at = at

    def position(self) -> dict[str, int]:
        return {"at": self.at}

    def seek(self, position: dict[str, int]) -> None:
        self.at = position["at"]


class Connected(Operator[int, int]):
    """Holds something of which nobody can tell whether it has changed."""

    def open(self, context: TaskContext) -> None:
        self.connection = (number for number in range(3))


class Contextual(Operator[int, int]):
    def open(self, context: TaskContext) -> None:
        self.context, self.now, self.note = context, context.now, len


def opened(logic: Operator[int, int]) -> LogicState:
    logic.open(TaskContext("c", 0, 1, wake=lambda: None))
    return LogicState(logic)


def test_an_operator_without_snapshot_moves_until_it_has_changed() -> None:
    plain = Plain()
    state = opened(plain)
    assert state.problem() == ""
    plain.process(1)
    assert state.problem() == "Plain has state but no snapshot; give it snapshot and restore"


def test_an_operator_of_which_it_cannot_be_told_stays() -> None:
    assert opened(Connected()).problem().startswith("Connected may have state but no snapshot")


def test_context_and_functions_are_no_state() -> None:
    logic = Contextual()
    state = opened(logic)
    logic.context.at(5.0)
    assert state.problem() == ""


def test_functions_move() -> None:
    assert LogicState(MapOperator(lambda value: value)).problem() == ""
    assert LogicState(FlatMapOperator(lambda value: [value])).problem() == ""


def test_state_arrives_as_the_snapshot_is_annotated() -> None:
    here, there = Keeper(), Keeper()
    here.seen = [4, 5]
    LogicState(there).load(LogicState(here).save())
    assert there.seen == [4, 5]


def test_a_source_goes_on_at_its_position() -> None:
    there = Rewinding()
    LogicState(there).load(LogicState(Rewinding(17)).save())
    assert there.at == 17
    assert LogicState(Rewinding()).problem() == ""
    assert LogicState(Source[int]()).problem() == "Source cannot rewind, so it stays where it is"


def test_state_that_cannot_travel_is_the_authors_error() -> None:
    keeper = Keeper()
    keeper.seen = [2**70]
    with pytest.raises(UserError) as raised:
        LogicState(keeper).save()
    assert isinstance(raised.value.__cause__, OverflowError)


class Point(msgspec.Struct):
    x: int
    y: float


def test_declared_types_arrive_as_they_were_sent() -> None:
    for kind, value in [(Point, Point(1, 2.0)), (tuple[str, int], ("a", 1)), (bytes, b"x"), (int, -(2**63))]:
        codec = Codec("a->b", kind)
        assert codec.decode(codec.encode([value])) == [value]
        values = [value]
        assert codec.hand_over(values) is values


def test_undeclared_types_arrive_as_messagepack_has_them_within_a_process_too() -> None:
    codec = Codec("a->b", Any)
    assert codec.hand_over([("a", 1), Point(1, 2.0)]) == [["a", 1], {"x": 1, "y": 2.0}]


@pytest.mark.parametrize("value", [2**70, object(), {1, object()}])
def test_names_a_tuple_that_cannot_be_sent(value: Any) -> None:
    with pytest.raises(InvalidInput) as raised:
        Codec("a->b", Any).encode([1, value, 3])
    assert str(raised.value).startswith(f"a->b: tuple {shown(value)} cannot be sent")
    assert "emit numbers (64 bits)" in str(raised.value)


def test_names_a_tuple_that_is_not_of_the_declared_type() -> None:
    sent = Codec("a->b", Any).encode([1, "two", 3])
    with pytest.raises(InvalidInput, match=r"a->b\.gives: tuple 'two' is not of the declared type"):
        Codec("a->b", int).decode(sent)


def picked(rate: float, wanted: float, seconds: float, batch: int = 1) -> list[int]:
    """Run a source of so many tuples a second, so many a poll, and return the numbers of those followed."""
    sampler, first, found = Sampler(wanted), 0, []
    while first < rate * seconds:
        found += [first + place for place in sampler.pick(first, batch, first / rate)]
        first += batch
    return found


@pytest.mark.parametrize(("rate", "batch"), [(5.0, 1), (100.0, 1), (100.0, 10), (20_000.0, 10), (20_000.0, 1000)])
def test_follows_about_the_wanted_number_a_second(rate: float, batch: int) -> None:
    found = picked(rate, 20.0, 10.0, batch)
    late = [number for number in found if number >= rate * 2.0]
    assert len(late) / 8.0 == pytest.approx(min(rate, 20.0), rel=0.1)
    assert len(set(found)) == len(found)


def test_does_not_follow_every_tuple_of_a_quick_source_while_it_gets_to_know_it() -> None:
    assert len(picked(100_000.0, 20.0, 0.25, batch=500)) <= 60


def test_follows_all_or_none_where_that_is_asked() -> None:
    assert picked(10.0, -1.0, 1.0, batch=5) == list(range(10))
    assert picked(10.0, 0.0, 1.0, batch=5) == []


def test_follows_a_source_that_has_become_slow() -> None:
    sampler, found = Sampler(20.0), 0
    for step in range(100):
        sampler.pick(step * 1000, 1000, step * 0.01)
    for step in range(100):
        found += len(sampler.pick(100_000 + step, 1, 1.0 + step * 0.1))
    assert found >= 90
