"""Polling a source as a worker does, at times that a test chooses."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from penstock.api.contracts import Source, Timed
from tests.api.clock import Clock


class Got(NamedTuple):
    """What polls gave, and whether the source ended."""

    values: list[Any]
    dues: list[float]
    ended: bool


def poll_at(source: Source[Any], clock: Clock, times: Iterable[float], limit: int = 1000) -> Got:
    """Poll once at each time; what has no due time counts as due then."""
    values: list[Any] = []
    dues: list[float] = []
    for time in times:
        clock.time = time
        polled = source.poll(time, limit)
        if polled is None:
            return Got(values, dues, True)
        got = polled.values if isinstance(polled, Timed) else polled
        assert len(got) <= limit
        values += got
        dues += polled.dues if isinstance(polled, Timed) else [time] * len(got)
    return Got(values, dues, False)


def poll_to_end(source: Source[Any], clock: Clock, limit: int = 1000, most: int = 100_000) -> Got:
    """Poll when the source asks for it, until it ends."""
    values: list[Any] = []
    dues: list[float] = []
    for _ in range(most):
        got = poll_at(source, clock, [clock.time], limit)
        values += got.values
        dues += got.dues
        if got.ended:
            return Got(values, dues, True)
        if not got.values:
            clock.time = max(clock.time, source.next_due(clock.time))
    raise AssertionError("the source does not end")
