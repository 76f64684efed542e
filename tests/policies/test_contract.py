"""The contract of placement policies, tested on all that are registered."""

from dataclasses import fields, is_dataclass
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.estimate.evaluator import Evaluator
from penstock.model.cluster import Cluster, Link, Machine
from penstock.model.objective import Objective
from penstock.model.placement import Infeasible, Placement
from penstock.model.topology import Component, Grouping, Kind, Stream, Topology
from penstock.policies import checks, registry
from penstock.policies.api import PlacementPolicy, PlacementView
from penstock.policies.registry import PolicyKind
from tests.policies.cases import answer, chain, equal_machines, false_statements, machines_of

NAMES = registry.names(PolicyKind.PLACEMENT)
SPECS = {  # a limit in seconds is not repeatable
    "local-search": "local-search:steps=200,seconds=none",
    "neural-search": "neural-search:steps=200,seconds=none",
    "sparcle-refined": "sparcle-refined:seconds=none",
}
FEWER_MACHINES = {  # placed on thirty machines instead of a thousand, and why
    "optimal": "it solves an integer program with a variable for every task and machine",
    "predictive": "it scores every task on every machine",
    "predictive-search": "it scores every task on every machine, several times",
}
EVERY = pytest.mark.parametrize("name", NAMES)


def spec(name: str) -> str:
    return SPECS.get(name, name)


def view_of(topology: Topology, cluster: Cluster) -> PlacementView:
    """A view with a goal, for the policies that search."""
    return PlacementView(topology, cluster, "throughput", Evaluator(topology, cluster).scorer(Objective.THROUGHPUT))


def placement(name: str, view: PlacementView, seed: int = 0) -> Placement:
    result = answer(spec(name), view, seed)
    assert isinstance(result, Placement), result
    return result


def diamond(width: int = 2, **settings: Any) -> Topology:
    kinds = {"in": Kind.SOURCE, "left": Kind.OPERATOR, "right": Kind.OPERATOR, "out": Kind.SINK}
    return Topology(
        name="diamond",
        components=tuple(
            Component(
                name=name, kind=kind, parallelism=width, cpu=0.001 * (i + 1), memory_mb=10.0 * (i + 1), **settings
            )
            for i, (name, kind) in enumerate(kinds.items())
        ),
        streams=(
            Stream(source="in", target="left", tuple_bytes=200.0),
            Stream(source="in", target="right", grouping=Grouping.FORWARD),
            Stream(source="left", target="out", grouping=Grouping.FIELDS, selectivity=0.5),
            Stream(source="right", target="out", grouping=Grouping.GLOBAL),
        ),
    )


UNEQUAL = Cluster(
    name="unequal",
    machines=(
        Machine(name="small", memory_mb=100.0),
        Machine(name="large", cores=4, speed=2.0, slots=4, processes=2, memory_mb=500.0, network_mbps=100.0),
        Machine(name="twin-a", cores=2, slots=2, host="twins", slot_memory_mb=60.0),
        Machine(name="twin-b", cores=2, slots=2, host="twins", slot_memory_mb=60.0),
    ),
)


def a_line() -> Cluster:
    names = ["m0", "m1", "m2", "m3"]
    links = tuple(Link(source=a, target=b, bandwidth_mbps=10.0) for a, b in pairwise(names))
    return Cluster(name="line", machines=tuple(Machine(name=name, slots=2) for name in names), links=links)


@EVERY
def test_is_a_frozen_slotted_dataclass_that_needs_no_arguments(name: str) -> None:
    kind = registry.policy_class(name)
    assert is_dataclass(kind)
    assert kind.__dataclass_params__.frozen  # type: ignore[attr-defined]
    assert "__slots__" in vars(kind)
    policy = kind()
    assert isinstance(policy, PlacementPolicy)
    assert registry.placement_policy(name) == policy
    assert not hasattr(policy, "__dict__")
    assert all(hasattr(policy, field.name) for field in fields(kind))


@EVERY
def test_places_every_task_validly(name: str) -> None:
    assert len(placement(name, view_of(diamond(), UNEQUAL)).slots) == 8


@EVERY
def test_equal_seeds_give_equal_placements(name: str) -> None:
    first, again = (answer(spec(name), view_of(diamond(), UNEQUAL), seed=7) for _ in range(2))
    assert first == again


@EVERY
def test_leaves_the_view_unchanged(name: str) -> None:
    view = view_of(diamond(), a_line())
    before = msgspec.json.encode(view.topology), msgspec.json.encode(view.cluster)
    arrays = [
        array
        for group in (view.tasks, view.slots, view.links, (view.pins, view.work))
        for array in group
        if isinstance(array, np.ndarray)
    ]
    copies = [array.copy() for array in arrays]
    answer(spec(name), view)
    assert before == (msgspec.json.encode(view.topology), msgspec.json.encode(view.cluster))
    assert all(np.array_equal(array, copy) for array, copy in zip(arrays, copies, strict=True))


@EVERY
def test_places_all_tasks_on_a_single_machine(name: str) -> None:
    placed = placement(name, view_of(diamond(), equal_machines(1, slots=2)))
    assert len(placed.slots) == 8


@EVERY
def test_places_components_of_one_task(name: str) -> None:
    placed = placement(name, view_of(diamond(width=1), UNEQUAL))
    assert len(placed.slots) == 4


@EVERY
@pytest.mark.parametrize("cluster", [UNEQUAL, a_line()], ids=["mesh", "line"])
def test_puts_pinned_components_on_their_machines(name: str, cluster: Cluster) -> None:
    source, *middle, sink = diamond().components
    first, last = cluster.machines[3].name, cluster.machines[2].name
    pinned = (msgspec.structs.replace(source, pinned=first), *middle, msgspec.structs.replace(sink, pinned=last))
    view = view_of(Topology(name="pinned", components=pinned, streams=diamond().streams), cluster)
    machine = machines_of(view, placement(name, view).slots)
    assert machine[:2].tolist() == [3, 3]
    assert machine[-2:].tolist() == [2, 2]


@EVERY
@pytest.mark.parametrize("cluster", [UNEQUAL, a_line()], ids=["mesh", "line"])
def test_puts_each_task_on_the_machine_to_which_it_is_pinned(name: str, cluster: Cluster) -> None:
    source, *others = diamond().components
    pins = (cluster.machines[3].name, cluster.machines[1].name)
    parts = (msgspec.structs.replace(source, pinned=pins), *others)
    view = view_of(Topology(name="pinned", components=parts, streams=diamond().streams), cluster)
    assert machines_of(view, placement(name, view).slots)[:2].tolist() == [3, 1]


def labelled(cluster: Cluster, *machines: int) -> Cluster:
    """Return the cluster with the label `camera` on some of its machines."""
    named = [
        msgspec.structs.replace(machine, labels=("camera",) if number in machines else ())
        for number, machine in enumerate(cluster.machines)
    ]
    return msgspec.structs.replace(cluster, machines=tuple(named))


@EVERY
@pytest.mark.parametrize("cluster", [UNEQUAL, a_line()], ids=["mesh", "line"])
def test_puts_tasks_on_machines_with_the_required_label(name: str, cluster: Cluster) -> None:
    source, left, *others = diamond().components
    parts = (msgspec.structs.replace(source, on="camera"), msgspec.structs.replace(left, on="camera"), *others)
    view = view_of(Topology(name="on", components=parts, streams=diamond().streams), labelled(cluster, 1, 3))
    machine = machines_of(view, placement(name, view).slots)
    assert set(machine[:4].tolist()) <= {1, 3}


@EVERY
@pytest.mark.parametrize("cluster", [UNEQUAL, a_line()], ids=["mesh", "line"])
def test_respects_anti_affinity(name: str, cluster: Cluster) -> None:
    source, left, right, sink = diamond().components
    parts = (
        msgspec.structs.replace(source, anti_affinity=("in",)),
        left,
        msgspec.structs.replace(right, anti_affinity=("out",)),
        sink,
    )
    view = view_of(Topology(name="apart", components=parts, streams=diamond().streams), cluster)
    result = answer(spec(name), view)
    if name == "cloud-only":  # all on one machine is its rule
        assert isinstance(result, Infeasible)
        assert "anti_affinity" in result.reason
        return
    assert isinstance(result, Placement), result
    machine = machines_of(view, result.slots)
    assert machine[0] != machine[1]
    assert not set(machine[4:6].tolist()) & set(machine[6:].tolist())


@pytest.mark.slow
@EVERY
def test_places_on_a_thousand_machines(name: str) -> None:
    machines, width = (30, 2) if name in FEWER_MACHINES else (1000, 100)
    view = view_of(diamond(width), equal_machines(machines, cores=2, slots=2, memory_mb=20_000.0))
    assert len(placement(name, view).slots) == 4 * width


@EVERY
def test_refuses_a_task_that_no_machine_can_hold(name: str) -> None:
    result = answer(spec(name), view_of(chain(1, 2, cpu=0.1, memory_mb=101.0), equal_machines(3, memory_mb=100.0)))
    assert isinstance(result, Infeasible)
    assert result.needed > result.available
    assert result.reason


@EVERY
def test_refuses_more_memory_than_all_machines_have(name: str) -> None:
    cluster = equal_machines(3, slots=2, memory_mb=100.0, slot_memory_mb=60.0)
    result = answer(spec(name), view_of(chain(2, 3, 2, cpu=0.1, memory_mb=50.0), cluster))
    assert isinstance(result, Infeasible)
    assert result.needed > result.available


@EVERY
def test_routes_every_stream_that_leaves_a_machine(name: str) -> None:
    source, *middle, sink = diamond(width=1).components
    ends = msgspec.structs.replace(source, pinned="m0"), msgspec.structs.replace(sink, pinned="m3")
    topology = Topology(name="ends", components=(ends[0], *middle, ends[1]), streams=diamond().streams)
    routes = placement(name, view_of(topology, a_line())).routes
    used = {link for route in routes.values() for link in route}
    assert used == {0, 1, 2}


@st.composite
def small_cases(draw: st.DrawFn) -> PlacementView:
    """An application of two to five components on one to four machines whose memory may not suffice."""
    cluster = draw(small_clusters())
    number = draw(st.integers(2, 5))
    kinds = [Kind.SOURCE, *[Kind.OPERATOR] * (number - 2), Kind.SINK]
    names = st.sampled_from([machine.name for machine in cluster.machines])
    labels = sorted({label for machine in cluster.machines for label in machine.labels})
    widths = [draw(st.integers(1, 3)) for _ in kinds]
    pins = [draw(st.one_of(st.none(), st.none(), names, st.tuples(*[names] * width))) for width in widths]
    components = tuple(
        Component(
            name=f"c{i}",
            kind=kind,
            parallelism=widths[i],
            cpu=draw(st.sampled_from([0.0, 0.001, 0.01])),
            memory_mb=draw(st.sampled_from([0.0, 10.0, 30.0, 0.1])),
            pinned=pins[i],
            on=draw(st.sampled_from([None, None, *labels])) if pins[i] is None else None,
            anti_affinity=draw(st.sampled_from([(), (), (), ("c0",), (f"c{i}",), (f"c{i}", "c1")])),
        )
        for i, kind in enumerate(kinds)
    )
    pairs = {(draw(st.integers(0, i - 1)), i) for i in range(1, number)}
    pairs |= {(i, number - 1) for i in range(number - 1) if all(sender != i for sender, _ in pairs)}
    streams = []
    for a, b in sorted(pairs):
        equal = components[a].parallelism == components[b].parallelism
        kind = draw(st.sampled_from([g for g in Grouping if equal or g is not Grouping.FORWARD]))
        streams.append(Stream(source=f"c{a}", target=f"c{b}", grouping=kind, tuple_bytes=draw(st.floats(0.0, 1e3))))
    return view_of(Topology(name="small", components=components, streams=tuple(streams)), cluster)


@st.composite
def small_clusters(draw: st.DrawFn) -> Cluster:
    slots = st.integers(1, 3)
    machines = tuple(
        Machine(
            name=f"m{i}",
            cores=draw(st.integers(1, 4)),
            speed=draw(st.sampled_from([0.5, 1.0, 2.0])),
            slots=(number := draw(slots)),
            processes=draw(st.integers(1, number)),
            memory_mb=draw(st.sampled_from([20.0, 45.0, 120.0, 0.3])),
            slot_memory_mb=draw(st.sampled_from([None, None, 15.0, 40.0, 0.3])),
            host=draw(st.sampled_from([None, "shared"])),
            labels=draw(st.sampled_from([(), ("fast",), ("fast", "near")])),
        )
        for i in range(draw(st.integers(1, 4)))
    )
    if len(machines) == 1 or draw(st.booleans()):
        return Cluster(name="mesh", machines=machines)
    links = tuple(
        Link(source=a.name, target=b.name, bandwidth_mbps=draw(st.sampled_from([0.0, 1.0, 10.0])))
        for a, b in pairwise(machines)
    )
    return Cluster(name="line", machines=machines, links=links)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=30, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(view=small_cases())
def test_is_valid_or_refuses_with_a_true_reason(name: str, view: PlacementView) -> None:
    result = registry.placement_policy(spec(name)).place(view, np.random.default_rng(0))
    if isinstance(result, Placement):
        assert checks.violations(view, result) == []
    else:
        assert false_statements(view, result) == []
        assert result.reason
