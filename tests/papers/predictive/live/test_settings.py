"""What runs live: in slow motion, from placements that sustain the load."""

import pytest

from penstock.estimate.evaluator import Evaluator
from penstock.exploration.random_placements import machines_used
from penstock.model.errors import UnknownName
from penstock.papers.predictive.live.settings import (
    APPLICATIONS,
    DEFAULT,
    LOAD,
    SLOWER,
    SlowedApplication,
)
from penstock.papers.predictive.live.visits import named_placements
from penstock.papers.predictive.settings import li_cluster


@pytest.mark.parametrize("name", APPLICATIONS)
def test_slow_motion_divides_what_the_default_placement_carries_by_how_much_slower_it_is(name: str) -> None:
    setting = SlowedApplication(name)
    fast = Evaluator(APPLICATIONS[name].model(), li_cluster()).evaluate(setting.default)
    assert setting.maximum_tps == pytest.approx(fast.even_tps / SLOWER)
    assert setting.application.offered_tps == pytest.approx(LOAD * setting.maximum_tps)


@pytest.mark.parametrize("name", APPLICATIONS)
def test_what_runs_has_the_shape_of_the_model(name: str) -> None:
    ours, model = SlowedApplication(name).application, APPLICATIONS[name].model()
    assert [(c.name, c.parallelism) for c in ours.components] == [(c.name, c.parallelism) for c in model.components]
    assert [stream.label for stream in ours.streams] == [stream.label for stream in model.streams]


def test_an_unknown_application_is_refused_with_the_choices() -> None:
    with pytest.raises(UnknownName, match="word-count"):
        _ = SlowedApplication("no-such").maximum_tps


@pytest.mark.parametrize("name", APPLICATIONS)
def test_placements_begin_with_the_default_and_all_sustain_the_load(name: str) -> None:
    setting = SlowedApplication(name)
    found = named_placements(setting, 12, seed=1)
    evaluator = Evaluator(setting.application, setting.cluster)
    assert found[0].name == DEFAULT
    assert len({place.name for place in found}) == 12
    assert all(evaluator.evaluate(place.placement).throughput_tps > setting.rate_tps for place in found)
    assert len({machines_used(setting.cluster, place.placement) for place in found}) > 3
