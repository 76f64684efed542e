import logging

import pytest

from penstock.api.sinks.console import Console
from penstock.api.sinks.discard import Discard
from penstock.model.errors import InvalidInput
from tests.api.clock import context


def shown(caplog: pytest.LogCaptureFixture) -> list[str]:
    assert {record.name for record in caplog.records} <= {"penstock.output"}
    return [record.getMessage() for record in caplog.records]


def test_shows_each_value_in_a_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "penstock.output")
    sink = Console()
    sink.open(context(2, 3, component="print"))
    sink.write(["text", ("a", 1), "100 %s"])
    assert shown(caplog) == ["text", "('a', 1)", "100 %s"]


@pytest.mark.parametrize("moved", [False, True])
def test_shows_no_more_than_its_limit(caplog: pytest.LogCaptureFixture, moved: bool) -> None:
    caplog.set_level(logging.INFO, "penstock.output")
    sink = Console(limit=3)
    sink.open(context(component="print"))
    for batch in ([1, 2], [3], [4, 5], [6]):
        sink.write(batch)
        if moved:
            state = sink.snapshot()
            sink.close()
            sink = Console(limit=3)
            sink.open(context(component="print"))
            sink.restore(state)
    last = "… more than 3; the others are not shown"
    assert shown(caplog) == ["1", "2", "3", last]
    assert sink.count == 6


def test_rejects_a_limit_that_is_none() -> None:
    with pytest.raises(InvalidInput, match="limit: expected a whole number ≥ 0 or None, got -1"):
        Console(limit=-1)


def test_discard_counts_through_a_move() -> None:
    sink = Discard()
    sink.open(context())
    sink.write([1, 2, 3])
    moved = Discard()
    moved.open(context())
    moved.restore(sink.snapshot())
    moved.write([4])
    moved.close()
    assert moved.count == 4
