"""A task runs an author's code in batches, and names the tuple that it raised on."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.api.contracts import Operator, Sink
from penstock.api.logic import FilterOperator, FlatMapOperator, MapOperator
from penstock.runtime.worker.logic import UserError
from penstock.runtime.worker.task import batch_process, run_batch, write_batch


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


class Picky(Sink[int]):
    def write(self, values: Any) -> None:
        raise RuntimeError("full")


def test_shows_the_first_tuple_of_a_batch_that_a_sink_raised_on() -> None:
    with pytest.raises(UserError, match=r"^7$"):
        write_batch(Picky(), [7])
    with pytest.raises(UserError, match="7 or one of the 2 after it"):
        write_batch(Picky(), [7, 8, 9])
