"""Samplers trace about the requested rate of tuples, evenly."""

import pytest

from penstock.runtime.worker.tracing import Sampler


def picked(rate: float, wanted: float, seconds: float, batch: int = 1) -> list[int]:
    """Run a source at a rate in tuples per second, with a number per poll; return the numbers of traced tuples."""
    sampler, first, found = Sampler(wanted), 0, []
    while first < rate * seconds:
        found += [first + place for place in sampler.pick(first, batch, first / rate)]
        first += batch
    return found


@pytest.mark.parametrize(("rate", "batch"), [(5.0, 1), (100.0, 1), (100.0, 10), (20_000.0, 10), (20_000.0, 1000)])
def test_traces_about_the_wanted_number_per_second(rate: float, batch: int) -> None:
    found = picked(rate, 20.0, 10.0, batch)
    late = [number for number in found if number >= rate * 2.0]
    assert len(late) / 8.0 == pytest.approx(min(rate, 20.0), rel=0.1)
    assert len(set(found)) == len(found)


def test_does_not_trace_every_tuple_of_a_fast_source_while_its_rate_is_unknown() -> None:
    assert len(picked(100_000.0, 20.0, 0.25, batch=500)) <= 60


def test_traces_all_or_no_tuples() -> None:
    assert picked(10.0, -1.0, 1.0, batch=5) == list(range(10))
    assert picked(10.0, 0.0, 1.0, batch=5) == []


def test_adapts_to_a_source_that_has_become_slow() -> None:
    sampler, found = Sampler(20.0), 0
    for step in range(100):
        sampler.pick(step * 1000, 1000, step * 0.01)
    for step in range(100):
        found += len(sampler.pick(100_000 + step, 1, 1.0 + step * 0.1))
    assert found >= 90
