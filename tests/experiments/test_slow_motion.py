"""Slow motion, and arrivals in phases."""

import numpy as np
import pytest

from penstock.experiments.slow_motion import Phases, Raised, slowed, slowed_cluster
from penstock.workloads.clusters import li
from penstock.workloads.storm_applications import word_count


def test_slow_motion_makes_services_distances_and_bytes_take_as_many_times_as_long() -> None:
    slow, machines = slowed(word_count(), 10.0), slowed_cluster(li(2), 10.0)
    assert slow["database"].cpu == pytest.approx(10.0 * word_count()["database"].cpu)
    assert slow["database"].service == word_count()["database"].service
    assert machines.distances.other_host_ms == pytest.approx(10.0 * li(2).distances.other_host_ms)
    assert machines.machines[0].network_mbps == pytest.approx(100.0)
    assert machines.machines[0].cores == li(2).machines[0].cores


def test_phases_raise_the_rate_when_they_are_said_to_and_keep_their_beginning() -> None:
    phases = Phases(rate=100.0, raised=(Raised(50.0, 75.0, 400.0), Raised(90.0, 1000.0, 0.0)))
    counts = phases.counts(2000, np.random.default_rng(3))
    assert counts[:1000].sum() == pytest.approx(5000, rel=0.06)
    assert counts[1000:1500].sum() == pytest.approx(10000, rel=0.04)
    assert counts[1500:1800].sum() == pytest.approx(1500, rel=0.1)
    assert counts[1800:].sum() == 0
    assert (phases.counts(500, np.random.default_rng(3)) == counts[:500]).all()
