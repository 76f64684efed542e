"""Loads measured on the twin, against what the application declares."""

import numpy as np
import pytest

from penstock.policies.api import TaskLoads
from penstock.sim.events import Twin
from penstock.sim.events.measured import selectivities, task_loads
from tests.sim.events.cases import machines, word_count

APPLICATION, CLUSTER = word_count(60.0), machines((10, 10))
SLOTS = list(range(APPLICATION.task_count))


def measured(rate: float, seconds: float = 60.0) -> tuple[Twin, TaskLoads, dict[str, float]]:
    twin = Twin(APPLICATION, CLUSTER)
    run = twin.start(SLOTS, rates={"source": rate})
    before = run.advance(seconds / 10).queue
    span = run.advance(seconds)
    return twin, task_loads(span, before), selectivities(twin.instance, span)


def test_rates_of_an_underloaded_application_are_the_declared_ones() -> None:
    twin, loads, selectivity = measured(60.0)
    tasks = twin.instance.tasks
    expected = tasks.gain * 60.0
    np.testing.assert_allclose(loads.arrival_tps, expected, rtol=0.1)
    np.testing.assert_allclose(loads.processed_tps, expected, rtol=0.1)
    np.testing.assert_allclose(loads.true_tps, 1.0 / tasks.cpu, rtol=1e-9)
    np.testing.assert_allclose(loads.busy, loads.processed_tps * tasks.cpu, rtol=1e-9)
    assert not loads.blocked.any()
    for stream in APPLICATION.streams:
        assert selectivity[stream.label] == pytest.approx(stream.selectivity, rel=0.01)


def test_an_overload_shows_as_back_pressure_and_leaves_true_rates_as_they_are() -> None:
    twin, loads, selectivity = measured(4000.0)
    tasks = twin.instance.tasks
    np.testing.assert_allclose(loads.true_tps, 1.0 / tasks.cpu, rtol=1e-6)
    assert loads.blocked[:2].min() > 0.5  # the sources
    assert loads.busy.max() == pytest.approx(1.0, abs=0.02)
    assert selectivity["source->split"] == pytest.approx(1.0, rel=0.01)


def test_an_idle_task_has_no_true_rate() -> None:
    twin = Twin(APPLICATION, CLUSTER)
    run = twin.start(SLOTS, rates={"source": 1e-6})
    loads = task_loads(run.advance(1.0), np.zeros(len(SLOTS), dtype=np.int64))
    assert np.isnan(loads.true_tps).all()
    assert not loads.busy.any()
