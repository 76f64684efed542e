from pathlib import Path

import msgspec
import pytest

from penstock.model.cluster import Cluster, Link, Machine
from penstock.model.errors import InvalidInput, UnknownMachine, UnknownName
from penstock.model.files import load_plan, save
from penstock.model.parallelism import resized
from penstock.model.placement import Hop, Placement
from penstock.model.plan import Plan, moves, planned_topology, to_placement, to_plan
from penstock.model.topology import Application, Component, Kind, Stream
from penstock.model.tuples import TuplePolicies

APPLICATION = Application(
    name="app",
    components=(Component(name="out", kind=Kind.SINK, parallelism=2), Component(name="in", kind=Kind.SOURCE)),
    streams=(Stream(source="in", target="out"),),
)
CLUSTER = Cluster(
    name="pair",
    machines=(Machine(name="a", slots=2), Machine(name="b")),
    links=(Link(source="a", target="b", bandwidth_mbps=1.0),),
)
PLACEMENT = Placement((2, 0, 2), {Hop(0, 1, 0): (0,)})


def planned(placement: Placement = PLACEMENT) -> Plan:
    return to_plan(
        APPLICATION, CLUSTER, placement, policy="by-hand", objective="throughput", expected={"rate_tps": 3.0}
    )


def test_a_plan_contains_the_placement_by_name() -> None:
    plan = planned()
    assert plan.tasks == {"in": ("b/0",), "out": ("a/0", "b/0")}
    assert [(route.stream, route.source, route.target, route.links) for route in plan.routes] == [
        ("in->out", "b", "a", ("a--b",))
    ]
    assert to_placement(plan, APPLICATION, CLUSTER) == PLACEMENT


def test_moves_lists_only_the_tasks_that_differ() -> None:
    after = planned(Placement((2, 0, 1), {Hop(0, 1, 0): (0,)}))
    assert [tuple(move) for move in moves(planned(), after)] == [("out[1]", "b/0", "a/1")]
    assert moves(after, after) == []


def test_tuple_policies_in_a_file_are_optional(tmp_path: Path) -> None:
    tuples = TuplePolicies(routing="potus:v=2", streams={"in->out": "least-loaded"}, sending="random", slot_ms=2.5)
    for plan in (planned(), msgspec.structs.replace(planned(), tuples=tuples)):
        for file in (tmp_path / "plan.toml", tmp_path / "plan.json"):
            save(plan, file)
            assert ("tuples" in file.read_text()) == (plan.tuples == tuples)
            assert load_plan(file) == plan
            assert to_placement(load_plan(file), APPLICATION, CLUSTER) == PLACEMENT


def test_rejects_a_plan_for_another_application_or_a_changed_cluster() -> None:
    other = msgspec.structs.replace(APPLICATION, name="other")
    with pytest.raises(InvalidInput, match="the plan is for 'app', not for 'other'"):
        to_placement(planned(), other, CLUSTER)
    grown = msgspec.structs.replace(CLUSTER, machines=(*CLUSTER.machines, Machine(name="c")))
    with pytest.raises(InvalidInput, match="'pair' has changed since the plan was made"):
        to_placement(planned(), APPLICATION, grown)


@pytest.mark.parametrize(
    ("changes", "error", "path"),
    [
        ({"tasks": {"in": ("b/0",), "out": ("a/0",)}}, InvalidInput, "tasks.out"),
        ({"tasks": {"in": ("z/0",), "out": ("a/0", "a/1")}}, UnknownMachine, "tasks.in[0]"),
        ({"tasks": {"in": ("b/0",), "out": ("a/0", "a/1"), "more": ()}}, UnknownName, "tasks.more"),
    ],
)
def test_rejects_a_plan_that_does_not_fit(changes: dict[str, object], error: type[InvalidInput], path: str) -> None:
    with pytest.raises(error) as refused:
        to_placement(msgspec.structs.replace(planned(), **changes), APPLICATION, CLUSTER)
    assert refused.value.path == path


def test_a_plan_may_have_another_parallelism_than_its_application() -> None:
    grown = resized(APPLICATION, {"out": 3})
    plan = to_plan(
        grown, CLUSTER, Placement((2, 0, 1, 2), {Hop(0, 1, 0): (0,)}), policy="by-hand", objective="throughput"
    )
    assert planned_topology(plan, APPLICATION) == grown
    assert to_placement(plan, planned_topology(plan, APPLICATION), CLUSTER).slots == (2, 0, 1, 2)
    remedy = "expected 2 slots, one per task, got 3; plan again, or set parallelism = 3 in the application"
    with pytest.raises(InvalidInput, match=remedy):
        to_placement(plan, APPLICATION, CLUSTER)
    assert [tuple(move) for move in moves(planned(), plan)] == [("out[1]", "b/0", "a/1"), ("out[2]", None, "b/0")]


def test_a_plan_of_another_parallelism_is_rejected_if_the_application_has_changed() -> None:
    grown = resized(APPLICATION, {"out": 3})
    plan = to_plan(grown, CLUSTER, Placement((2, 0, 1, 2), {}), policy="by-hand", objective="throughput")
    out, source = APPLICATION.components
    heavier = msgspec.structs.replace(APPLICATION, components=(msgspec.structs.replace(out, cpu=1.0), source))
    with pytest.raises(InvalidInput, match="'app' has changed since the plan was made; plan again"):
        to_placement(plan, planned_topology(plan, heavier), CLUSTER)
    limited = msgspec.structs.replace(APPLICATION, components=(msgspec.structs.replace(out, max_parallelism=2), source))
    with pytest.raises(InvalidInput, match=r"tasks.out: expected ≤ max_parallelism 2, got 3; plan again"):
        planned_topology(plan, limited)
