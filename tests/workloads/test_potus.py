"""POTUS's systems are those of the paper, with the given utilisation."""

from pathlib import Path

import numpy as np
import pytest

from penstock.estimate.communication import Overload, communication_bound
from penstock.model.errors import FileProblem, InvalidInput, UnknownName
from penstock.model.taskgraph import Floats, expand_tasks
from penstock.workloads.potus import PotusWorkload, arrival_counts, look_ahead, potus_workload, random_potus_workload
from tests.shared_data import SHARED, needs_shared

SLOTS = 4000


def loads(setting: PotusWorkload) -> list[Floats]:
    """Return the utilisation of every operator's tasks, by application, if streams split evenly."""
    found, first = [], 0
    for placed in setting.applications:
        tasks = expand_tasks(placed.topology)
        own = slice(first, first + tasks.number)
        total = setting.rates[own].sum()
        found.append((tasks.gain * total / setting.system.service[own])[~tasks.source])
        first += tasks.number
    return found


@pytest.mark.parametrize("fabric", ["jellyfish", "fat-tree"])
@pytest.mark.parametrize("utilisation", [0.5, 0.8])
def test_the_busiest_component_of_every_application_has_the_given_utilisation(fabric: str, utilisation: float) -> None:
    setting = potus_workload(fabric, seed=3, utilisation=utilisation)  # type: ignore[arg-type]
    assert [load.max() for load in loads(setting)] == pytest.approx([utilisation] * 5)
    assert min(load.min() for load in loads(setting)) < utilisation


def test_a_balanced_system_has_equal_utilisation_everywhere() -> None:
    for load in loads(potus_workload(seed=4, utilisation=0.9, balanced=True)):
        assert load == pytest.approx(0.9)


def test_systems_stay_within_the_papers_ranges() -> None:
    for seed in range(8):
        setting = potus_workload("fat-tree", seed)
        system = setting.system
        assert len(setting.applications) == 5
        assert len(setting.cluster.machines) == 16
        assert len(setting.cluster.switches) == 24
        assert np.bincount(system.machine).max() <= 10
        served = system.service[~system.source]
        assert set(served) <= {3.0, 4.0, 5.0}
        for placed in setting.applications:
            assert 3 <= len(placed.topology.components) <= 6
            assert {component.parallelism for component in placed.topology.components} <= {2, 3, 4}
            assert {stream.selectivity for stream in placed.topology.streams} == {1.0}
        outputs = np.diff(system.queues)
        assert system.limit.min() >= 2 * served.max()
        assert (system.limit >= np.where(system.source, 0.0, system.service) * outputs)[~system.source].all()
        assert (system.limit >= 2 * setting.rates * outputs).all()


def test_tasks_of_a_component_are_equally_fast_and_a_seed_is_repeatable() -> None:
    one, two, other = (potus_workload(seed=seed).system for seed in (5, 5, 6))
    for component in np.unique(one.component):
        assert len(set(one.service[one.component == component])) == 1
    assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))
    assert one.tasks != other.tasks or not np.array_equal(one.machine, other.machine)


def test_sources_have_the_given_number_of_tasks() -> None:
    setting = potus_workload(seed=1, spouts=1)
    for placed in setting.applications:
        assert {source.parallelism for source in placed.topology.sources} == {1}


def test_a_system_can_carry_its_load() -> None:
    for seed in range(4):
        setting = potus_workload("jellyfish", seed, utilisation=0.95)
        assert not isinstance(communication_bound(setting.system, setting.rates), Overload)


def test_twenty_random_systems_have_every_depth_on_both_fabrics_with_both_arrivals() -> None:
    drawn = [random_potus_workload(seed) for seed in range(20)]
    assert len({(one.hops, one.fabric, one.kind) for one in drawn}) == 20
    assert {one.hops for one in drawn} == {1, 2, 3, 4, 5}
    for one in drawn:
        assert 0.5 <= one.setting.utilisation <= 0.95
        assert max(_depth(placed.topology) for placed in one.setting.applications) == one.hops + 1


def _depth(topology: object) -> int:
    from penstock.model.topology import Topology

    assert isinstance(topology, Topology)
    level = {component.name: 1 for component in topology.components}
    for position in topology.order:
        name = topology.components[position].name
        for stream in topology.streams:
            if stream.source == name:
                level[stream.target] = max(level[stream.target], level[name] + 1)
    return max(level.values())


def test_arrivals_have_the_given_rates_and_only_at_sources() -> None:
    setting = potus_workload(seed=2)
    for kind in ("poisson", "self-similar"):
        counts = arrival_counts(setting, kind, SLOTS, np.random.default_rng(0))
        assert counts.shape == (setting.system.tasks, SLOTS)
        assert not counts[~setting.system.source].any()
        assert counts.sum() / SLOTS == pytest.approx(setting.rates.sum(), rel=0.1)


def test_longer_poisson_arrivals_start_like_shorter_ones() -> None:
    setting = potus_workload(seed=2)
    long, short = (arrival_counts(setting, "poisson", n, np.random.default_rng(7)) for n in (500, 200))
    assert np.array_equal(long[:, :200], short)


@needs_shared
def test_a_trace_has_the_rate_of_every_source_and_starts_elsewhere_for_each() -> None:
    setting = potus_workload(seed=2)
    counts = arrival_counts(setting, "trace", SLOTS, np.random.default_rng(0), SHARED / "arrivals")
    fed = setting.rates > 0
    assert counts.mean(axis=1)[fed] == pytest.approx(setting.rates[fed], abs=1 / SLOTS)
    assert len({row.tobytes() for row in counts[fed]}) == fed.sum()
    named = arrival_counts(setting, "trace:nasa", SLOTS, np.random.default_rng(0), SHARED / "arrivals")
    assert named.mean(axis=1)[fed] == pytest.approx(setting.rates[fed], abs=1 / SLOTS)


def test_look_ahead_grows_with_its_mean_and_is_equal_within_an_application() -> None:
    setting = potus_workload(seed=2)
    short, long = (look_ahead(setting, mean, np.random.default_rng(1)) for mean in (2, 10))
    source, application = setting.system.source, setting.system.application
    assert not short[~source].any()
    assert short.max() <= 4
    assert long.max() <= 20
    assert (long >= short).all()
    assert not look_ahead(setting, 0, np.random.default_rng(1)).any()
    for number in range(5):
        assert len(set(long[source & (application == number)])) == 1


def test_errors_list_the_choices(tmp_path: Path) -> None:
    setting = potus_workload(seed=0)
    rng = np.random.default_rng(0)
    with pytest.raises(UnknownName, match="no arrivals are named 'tides'; there are poisson"):
        arrival_counts(setting, "tides", 10, rng)
    with pytest.raises(InvalidInput, match="folder: expected a folder of traces"):
        arrival_counts(setting, "trace", 10, rng)
    with pytest.raises(FileProblem, match="is not a folder"):
        arrival_counts(setting, "trace", 10, rng, tmp_path / "absent")
    with pytest.raises(FileProblem, match="is empty; name a folder with traces"):
        arrival_counts(setting, "trace", 10, rng, tmp_path)
    (tmp_path / "bellcore.TL").write_text("0.0 64\n0.5 64\n")
    with pytest.raises(FileProblem, match="no file has 'nasa' in its name; there are bellcore"):
        arrival_counts(setting, "trace:nasa", 10, rng, tmp_path)
    with pytest.raises(UnknownName, match="none is named 'torus'; there are fat-tree, jellyfish"):
        potus_workload("torus")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="they do not fit"):
        potus_workload(container=2)
