"""Placements to try: every number of machines, enough for the load, the same for a seed."""

import msgspec
import pytest

import penstock as ps
from penstock.exploration.random_placements import Drawing, at_load, machines_used, named
from penstock.model.errors import InvalidInput
from penstock.model.topology import Application

CLUSTER = ps.cluster("homogeneous-8:machines=4,cores=2")


def application(rate: float = 200.0) -> Application:
    made = ps.application("word-count")
    return msgspec.structs.replace(made, rate_tps={"source": rate})


def test_covers_crowded_and_spread_out_placements() -> None:
    drawing = Drawing(application(), CLUSTER, margin=0.1, seed=1)
    used = [machines_used(CLUSTER, drawing.draw()) for _ in range(16)]
    assert sorted(set(used)) == [1, 2, 3, 4]
    assert min(used.count(number) for number in (1, 2, 3, 4)) >= 2


def test_draws_the_same_for_a_seed_and_others_for_another() -> None:
    drawn = [[Drawing(application(), CLUSTER, margin=0.1, seed=seed).draw().slots] for seed in (5, 5, 6)]
    assert drawn[0] == drawn[1]
    assert drawn[0] != drawn[2]


def test_leaves_out_what_does_not_carry_the_load_with_the_margin() -> None:
    drawing = Drawing(application(3000.0), CLUSTER, margin=0.2, seed=0)
    placed = [drawing.draw() for _ in range(8)]
    assert all(drawing.instance.evaluate(one).throughput_tps >= 3000.0 * 1.2 * (1 - 1e-9) for one in placed)
    assert min(machines_used(CLUSTER, one) for one in placed) > 1


def test_refuses_a_load_that_nothing_carries() -> None:
    with pytest.raises(InvalidInput, match=r"rates: none of 200 random placements .* sustains 1e\+06 tuples/s"):
        Drawing(application(1e6), CLUSTER, margin=0.0, seed=0).draw()


def test_refuses_an_application_without_a_load() -> None:
    with pytest.raises(InvalidInput, match="rate_tps: 'word-count' declares no load"):
        Drawing(msgspec.structs.replace(application(), rate_tps={}), CLUSTER, margin=0.0, seed=0)


def test_names_tasks_and_slots() -> None:
    placement = Drawing(application(), CLUSTER, margin=0.1, seed=1).draw()
    slots = named(application(), CLUSTER, placement)
    assert len(slots) == application().task_count
    assert set(slots.values()) <= set(CLUSTER.slot_names)
    assert at_load(application(), 0.5).rate_tps == {"source": 100.0}
