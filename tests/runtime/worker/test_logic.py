"""An author's code is called, its exceptions are attributed to it, and its state is saved and restored."""

from collections.abc import Iterable, Iterator

import pytest

from penstock.api.contracts import Operator, Source, TaskContext
from penstock.api.logic import FlatMapOperator, MapOperator
from penstock.runtime.worker.logic import LogicState, UserError, call_author, list_results


def test_an_exception_of_a_generator_is_the_authors_too() -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise KeyError("x")

    with pytest.raises(UserError):
        list_results(broken)
    with pytest.raises(UserError):
        call_author(lambda: 1 // 0)
    assert list_results(lambda: None) == []


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
    """Holds something whose changes cannot be detected."""

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


def test_an_operator_whose_changes_cannot_be_detected_stays() -> None:
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


def test_a_source_resumes_at_its_position() -> None:
    there = Rewinding()
    LogicState(there).load(LogicState(Rewinding(17)).save())
    assert there.at == 17
    assert LogicState(Rewinding()).problem() == ""
    assert LogicState(Source[int]()).problem() == "Source cannot rewind, so it stays where it is"


def test_state_that_cannot_be_encoded_is_the_authors_error() -> None:
    keeper = Keeper()
    keeper.seen = [2**70]
    with pytest.raises(UserError) as raised:
        LogicState(keeper).save()
    assert isinstance(raised.value.__cause__, OverflowError)
