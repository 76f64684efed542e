"""Small applications and clusters for the tests of policies, and the authors' cases of TATA."""

import json
from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.estimate.evaluator import Evaluator
from penstock.model.cluster import Cluster, Machine
from penstock.model.placement import MEMORY_SLACK, Constraint, Hop, Infeasible, Placement
from penstock.model.routes import route_hops
from penstock.model.topology import Component, Grouping, Kind, Stream, Topology
from penstock.policies import checks, registry
from penstock.policies.api import PlacementPolicy, PlacementView
from tests.shared_data import SHARED


def chain(*widths: int, grouping: Grouping = Grouping.SHUFFLE, **settings: Any) -> Topology:
    """Components c0, c1, … of these widths, one after another, all with the same settings."""
    kinds = [Kind.SOURCE, *[Kind.OPERATOR] * (len(widths) - 2), Kind.SINK]
    return Topology(
        name="chain",
        components=tuple(
            Component(name=f"c{i}", kind=kind, parallelism=width, **settings)
            for i, (kind, width) in enumerate(zip(kinds, widths, strict=True))
        ),
        streams=tuple(Stream(source=f"c{i}", target=f"c{i + 1}", grouping=grouping) for i in range(len(widths) - 1)),
    )


def cluster(*machines: Machine) -> Cluster:
    return Cluster(name="cluster", machines=machines)


def equal_machines(number: int, **settings: Any) -> Cluster:
    return cluster(*(Machine(name=f"m{i}", **settings) for i in range(number)))


def answer(spec: str, view: PlacementView, seed: int = 0) -> Placement | Infeasible:
    """Return the result of a policy; a placement must be valid, the reason of a refusal true."""
    result = registry.placement_policy(spec).place(view, np.random.default_rng(seed))
    wrong = checks.violations(view, result) if isinstance(result, Placement) else false_statements(view, result)
    assert wrong == [], wrong
    return result


def rate_of(view: PlacementView, policy: PlacementPolicy, seed: int = 0) -> float:
    """Return the estimated rate of a policy's placement."""
    placement = policy.place(view, np.random.default_rng(seed))
    assert isinstance(placement, Placement)
    return Evaluator(view.topology, view.cluster).evaluate(placement).throughput_tps


def placed(spec: str, view: PlacementView, seed: int = 0) -> list[int]:
    """The slots of a case that the policy must be able to place."""
    result = answer(spec, view, seed)
    assert isinstance(result, Placement), result
    return list(result.slots)


def refused(spec: str, view: PlacementView) -> Infeasible:
    """The refusal of a case that the policy cannot place."""
    result = answer(spec, view)
    assert isinstance(result, Infeasible), result
    return result


def machines_of(view: PlacementView, slots: Iterable[int]) -> NDArray[np.int32]:
    machine: NDArray[np.int32] = view.slots.machine[np.asarray(list(slots))]
    return machine


@cache
def tata_cases() -> tuple[tuple[PlacementView, dict[str, list[int]]], ...]:
    """The 600 cases of the authors: a view, and the placements of their `storm` and `flink` baselines."""
    folder = SHARED / "tata"
    graphs = json.loads((folder / "task_graphs.json").read_text())["train"]
    slot_graphs = json.loads((folder / "slot_graphs.json").read_text())
    cases = json.loads((folder / "estimator_cases.json").read_text())["cases"]
    return tuple(
        (
            PlacementView(_tata_topology(graphs[case["task_graph"]]), _tata_cluster(slot_graphs[case["slot_graph"]])),
            {name: case[name]["placement"] for name in ("storm", "flink")},
        )
        for case in cases
    )


def _tata_topology(graph: dict[str, Any]) -> Topology:
    vertices: dict[int, list[dict[str, Any]]] = {}
    for operator in graph["operators"]:
        vertices.setdefault(operator["vertex_id"], []).append(operator)
    vertex = [operator["vertex_id"] for operator in graph["operators"]]
    ends = [(vertex[edge["from_id"]], vertex[edge["to_id"]]) for edge in graph["edges"]]
    components = tuple(
        Component(
            name=f"v{number}",
            kind=Kind.SOURCE if tasks[0]["is_source"] else Kind.SINK if tasks[0]["is_sink"] else Kind.OPERATOR,
            parallelism=len(tasks),
            cpu=tasks[0]["cpu"],
            memory_mb=tasks[0]["memory"],
        )
        for number, tasks in vertices.items()
    )
    streams = tuple(
        Stream(source=f"v{a}", target=f"v{b}", grouping=_tata_grouping(ends.count((a, b)), vertices[a], vertices[b]))
        for a, b in dict.fromkeys(ends)
    )
    return Topology(name="tata", components=components, streams=streams)


def _tata_grouping(edges: int, senders: list[Any], receivers: list[Any]) -> Grouping:
    """As many edges as tasks on either side: task k is joined to task k alone."""
    return Grouping.FORWARD if edges == len(senders) == len(receivers) > 1 else Grouping.SHUFFLE


def _tata_cluster(slots: list[dict[str, Any]]) -> Cluster:
    processes: dict[int, list[dict[str, Any]]] = {}
    for slot in slots:
        processes.setdefault(slot["process"], []).append(slot)
    return cluster(
        *(
            Machine(
                name=f"p{number}",
                cores=len(own),
                slots=len(own),
                speed=own[0]["cpu"],
                memory_mb=sum(slot["memory"] for slot in own),
                slot_memory_mb=own[0]["memory"],
                host=f"d{own[0]['device']}",
            )
            for number, own in processes.items()
        )
    )


def false_statements(view: PlacementView, refusal: Infeasible) -> list[str]:
    """Return the false statements of a refusal, one sentence each."""
    found = [] if refusal.needed > refusal.available else [f"needs {refusal.needed:g}, has {refusal.available:g}"]
    if refusal.constraint is Constraint.MEMORY and refusal.task is not None:
        found += _free_room(view, refusal, refusal.task)
    if refusal.constraint is Constraint.ROUTE and len(refusal.placed) == view.tasks.number:
        slots = [refusal.placed[task] for task in range(view.tasks.number)]
        if not isinstance(route_hops(view.tasks, view.slots, view.links, slots), Hop):
            found.append("every stream has a route")
    if refusal.constraint is Constraint.RESOURCE and not view.tasks.resources:
        found.append("no task needs a resource")
    return found


def _free_room(view: PlacementView, refusal: Infeasible, task: int) -> list[str]:
    slots = view.slots
    slot_free, machine_free = slots.memory_mb.copy(), slots.machine_memory_mb.copy()
    able, component = view.machines_with_resources(task), view.tasks.component
    for other, slot in refusal.placed.items():
        slot_free[slot] -= view.tasks.memory_mb[other]
        machine_free[slots.machine[slot]] -= view.tasks.memory_mb[other]
        if view.conflicts is not None and view.conflicts[component[task], component[other]]:
            able[slots.machine[slot]] = False
    allowed = able[slots.machine] & ((view.pins[task] < 0) | (slots.machine == view.pins[task]))
    room = np.minimum(slot_free, machine_free[slots.machine])[allowed].max(initial=-np.inf)
    return [f"task {task} fits into {room:g} MB"] if view.tasks.memory_mb[task] <= room * (1 - MEMORY_SLACK) else []
