"""SPARCLE's random instances: what is drawn, how it scales, and the instances with independent answers."""

import numpy as np
import pytest

from penstock.model.errors import UnknownName
from penstock.model.objective import Objective
from penstock.model.topology import Kind
from penstock.planning.planner import Planner
from penstock.workloads.sparcle import (
    GRAPHS,
    MEGABIT_BYTES,
    MEMORY,
    SHAPES,
    Scarcity,
    draw_instance,
    full_duplex,
    random_application,
    random_network,
    references,
)
from tests.shared_data import needs_shared


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("shape", SHAPES)
def test_ends_are_pinned_apart_and_cost_nothing(shape: str, graph: str) -> None:
    for seed in range(5):
        drawn = draw_instance(shape, graph, Scarcity(), seed).application
        ends = [drawn["source"], drawn["sink"]]
        assert [end.kind for end in ends] == [Kind.SOURCE, Kind.SINK]
        assert ends[0].pinned != ends[1].pinned
        assert ends[0].cpu == ends[1].cpu == 0.0


def test_the_diamond_has_more_tasks_and_streams_than_the_linear_graph() -> None:
    linear, diamond = (draw_instance("star", graph, Scarcity(), 0).application for graph in ("linear", "diamond"))
    assert len(linear.components) == 4 + 2
    assert len(diamond.components) > len(linear.components)
    assert len(diamond.streams) > len(linear.streams)


def test_every_task_processes_one_tuple_per_data_unit_and_streams_carry_their_bits() -> None:
    setting = draw_instance("star", "diamond", Scarcity(), 3)
    gain = Planner(*setting).view.tasks.gain
    assert gain.tolist() == [1.0] * len(gain)
    megabits = [stream.selectivity * stream.tuple_bytes / MEGABIT_BYTES for stream in setting.application.streams]
    assert min(megabits) >= 0.5
    assert max(megabits) <= 1.5


def test_a_seed_produces_the_same_draws_for_any_scarcity() -> None:
    bare, rich = (
        draw_instance("line", "linear", Scarcity(), 7),
        draw_instance("line", "linear", Scarcity(2.0, 10.0, 3.0), 7),
    )
    assert [m.speed * 2 for m in bare.cluster.machines] == pytest.approx([m.speed for m in rich.cluster.machines])
    assert [k.bandwidth_mbps * 10 for k in bare.cluster.links] == pytest.approx(
        [k.bandwidth_mbps for k in rich.cluster.links]
    )
    assert bare.application.streams == rich.application.streams
    assert [c.cpu for c in bare.application.components] == [c.cpu for c in rich.application.components]
    assert all(MEMORY in machine.resources for machine in rich.cluster.machines)
    assert not any(machine.resources for machine in bare.cluster.machines)
    assert draw_instance("line", "linear", Scarcity(), 8) != bare


def test_full_duplex_links_have_full_bandwidth_in_each_direction() -> None:
    shared = random_network("star", Scarcity(), np.random.default_rng(1))
    both = full_duplex(shared)
    assert len(both.links) == 2 * len(shared.links)
    assert all(link.directed for link in both.links)
    assert {link.bandwidth_mbps for link in both.links} == {link.bandwidth_mbps for link in shared.links}


def test_each_application_has_its_own_guarantee() -> None:
    cluster = random_network("star", Scarcity(), np.random.default_rng(1))
    made = random_application("linear", cluster, np.random.default_rng(2), name="a", guaranteed_tps=0.5)
    assert (made.name, made.guaranteed_tps) == ("a", 0.5)


def test_unknown_shapes_and_graphs_are_named_with_the_choices() -> None:
    with pytest.raises(UnknownName, match="none is named 'ring'; there are complete, line, star"):
        draw_instance("ring", "linear", Scarcity(), 0)
    with pytest.raises(UnknownName, match="none is named 'tree'; there are diamond, linear"):
        draw_instance("star", "tree", Scarcity(), 0)


@needs_shared
def test_given_instances_have_the_given_optimum() -> None:
    assert len(references()) == 100
    for answer in references()[::25]:
        planner = Planner(*answer.setting, Objective.THROUGHPUT)
        evaluation = planner.decide("optimal").evaluation
        assert evaluation is not None
        assert evaluation.throughput_tps == pytest.approx(answer.optimum, rel=1e-6)
        assert answer.rate <= answer.optimum * (1 + 1e-9)
