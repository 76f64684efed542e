"""What runs live: slow motion, arrivals in phases, placements that sustain the load."""

import numpy as np
import pytest

from penstock.estimate.evaluator import Evaluator
from penstock.exploration.random_placements import machines_used
from penstock.model.errors import UnknownName
from penstock.papers.predictive.live.settings import (
    APPLICATIONS,
    DEFAULT,
    LOAD,
    SLOWER,
    Phases,
    Raised,
    SlowedApplication,
    slowed,
    slowed_cluster,
)
from penstock.papers.predictive.live.visits import named_placements
from penstock.papers.predictive.settings import li_cluster
from penstock.workloads.storm_applications import word_count


@pytest.mark.parametrize("name", APPLICATIONS)
def test_slow_motion_divides_what_the_default_placement_carries_by_how_much_slower_it_is(name: str) -> None:
    setting = SlowedApplication(name)
    fast = Evaluator(APPLICATIONS[name].model(), li_cluster()).evaluate(setting.default)
    assert setting.maximum_tps == pytest.approx(fast.even_tps / SLOWER)
    assert setting.application.offered_tps == pytest.approx(LOAD * setting.maximum_tps)


def test_slow_motion_makes_services_distances_and_bytes_take_as_many_times_as_long() -> None:
    slow, machines = slowed(word_count(), 10.0), slowed_cluster(li_cluster(2), 10.0)
    assert slow["database"].cpu == pytest.approx(10.0 * word_count()["database"].cpu)
    assert slow["database"].service == word_count()["database"].service
    assert machines.distances.other_host_ms == pytest.approx(10.0 * li_cluster(2).distances.other_host_ms)
    assert machines.machines[0].network_mbps == pytest.approx(100.0)
    assert machines.machines[0].cores == li_cluster(2).machines[0].cores


@pytest.mark.parametrize("name", APPLICATIONS)
def test_what_runs_has_the_shape_of_the_model(name: str) -> None:
    ours, model = SlowedApplication(name).application, APPLICATIONS[name].model()
    assert [(c.name, c.parallelism) for c in ours.components] == [(c.name, c.parallelism) for c in model.components]
    assert [stream.label for stream in ours.streams] == [stream.label for stream in model.streams]


def test_an_unknown_application_is_refused_with_the_choices() -> None:
    with pytest.raises(UnknownName, match="word-count"):
        _ = SlowedApplication("no-such").maximum_tps


def test_phases_raise_the_rate_when_they_are_said_to_and_keep_their_beginning() -> None:
    phases = Phases(rate=100.0, raised=(Raised(50.0, 75.0, 400.0), Raised(90.0, 1000.0, 0.0)))
    counts = phases.counts(2000, np.random.default_rng(3))
    assert counts[:1000].sum() == pytest.approx(5000, rel=0.06)
    assert counts[1000:1500].sum() == pytest.approx(10000, rel=0.04)
    assert counts[1500:1800].sum() == pytest.approx(1500, rel=0.1)
    assert counts[1800:].sum() == 0
    assert (phases.counts(500, np.random.default_rng(3)) == counts[:500]).all()


@pytest.mark.parametrize("name", APPLICATIONS)
def test_placements_begin_with_the_default_and_all_sustain_the_load(name: str) -> None:
    setting = SlowedApplication(name)
    found = named_placements(setting, 12, seed=1)
    evaluator = Evaluator(setting.application, setting.cluster)
    assert found[0].name == DEFAULT
    assert len({place.name for place in found}) == 12
    assert all(evaluator.evaluate(place.placement).throughput_tps > setting.rate_tps for place in found)
    assert len({machines_used(setting.cluster, place.placement) for place in found}) > 3
