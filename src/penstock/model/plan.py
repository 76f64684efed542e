"""A plan: every decision about an application on a cluster, by name, for files and for people.

A `Placement` contains numbers, for policies and estimators. A `Plan` contains the same by name, and the application,
cluster and policy that it is based on. Digests of application and cluster prevent applying it to others by accident.
"""

import hashlib
from collections.abc import Mapping
from typing import NamedTuple

import msgspec
import numpy as np

from penstock.model.cluster import Cluster
from penstock.model.entity import Entity, Name, NonNegative
from penstock.model.errors import InvalidInput, UnknownMachine, UnknownName, nearest
from penstock.model.parallelism import SomeTopology, resized
from penstock.model.placement import Hop, Placement
from penstock.model.routes import hop_bits
from penstock.model.slotgraph import expand_slots
from penstock.model.taskgraph import expand_tasks
from penstock.model.topology import Topology
from penstock.model.tuples import TuplePolicies


class PlannedRoute(Entity, frozen=True):
    """The links on which a stream travels from one machine to another."""

    stream: str  # its label, `source->target`
    source: Name  # machine
    target: Name  # machine
    links: tuple[str, ...]  # their labels, in order of travel


class Plan(Entity, frozen=True):
    """The slot of every task of an application on a cluster, and the predicted performance."""

    application: Name
    cluster: Name
    application_digest: str
    cluster_digest: str
    policy: str
    objective: str
    tasks: dict[Name, tuple[str, ...]]  # component -> the slot of each of its tasks, `machine/number`
    seed: int = 0
    routes: tuple[PlannedRoute, ...] = ()
    expected: dict[str, NonNegative] = {}  # estimates by name, such as throughput_tps
    tuples: TuplePolicies = TuplePolicies()


class Move(NamedTuple):
    """A task whose slot differs between two plans; None if one of them does not contain the task."""

    task: str
    before: str | None
    after: str | None


def digest(what: Entity) -> str:
    """Return a fingerprint of an application or cluster; equal fingerprints mean that a plan for one fits the other.

    It ignores the offered load and the order in which streams are listed.
    """
    fields = msgspec.to_builtins(what)
    fields.pop("rate_tps", None)
    if "streams" in fields:
        fields["streams"] = sorted(fields["streams"], key=lambda stream: (stream["source"], stream["target"]))
    return hashlib.sha256(msgspec.json.encode(fields, order="deterministic")).hexdigest()[:16]


def to_plan(
    topology: Topology,
    cluster: Cluster,
    placement: Placement,
    *,
    policy: str,
    objective: str,
    seed: int = 0,
    expected: Mapping[str, float] | None = None,
) -> Plan:
    """Convert a placement to a plan."""
    slots = iter(placement.slots)
    components = [topology.components[position] for position in topology.order]
    tasks = {c.name: tuple(cluster.slot_names[next(slots)] for _ in range(c.parallelism)) for c in components}
    return Plan(
        application=topology.name,
        cluster=cluster.name,
        application_digest=digest(topology),
        cluster_digest=digest(cluster),
        policy=policy,
        objective=objective,
        seed=seed,
        tasks=tasks,
        routes=tuple(
            PlannedRoute(
                stream=topology.streams[hop.stream].label,
                source=cluster.machines[hop.source].name,
                target=cluster.machines[hop.target].name,
                links=tuple(cluster.links[link].label for link in links),
            )
            for hop, links in placement.routes.items()
        ),
        expected=dict(expected or {}),
    )


def planned_topology(plan: Plan, topology: SomeTopology) -> SomeTopology:
    """Return the topology with the parallelism of a plan for it, which may differ from its own."""
    if plan.application != topology.name or plan.application_digest == digest(topology):
        return topology
    named = {name: len(slots) for name, slots in plan.tasks.items() if slots and name in topology.index}
    try:
        return resized(topology, named)
    except InvalidInput as error:
        raise InvalidInput(error.path.replace("parallelism", "tasks", 1), f"{error.problem}; plan again") from None


def to_placement(plan: Plan, topology: Topology, cluster: Cluster) -> Placement:
    """Convert a plan to a placement; reject a plan for another application, parallelism or cluster.

    With `planned_topology`, the parallelism is the plan's.
    """
    _refuse_other("application", plan.application, topology.name)
    _refuse_other("cluster", plan.cluster, cluster.name)
    if plan.application_digest not in (digest(topology), digest(planned_topology(plan, topology))):
        raise _changed("application", topology.name)
    if digest(cluster) != plan.cluster_digest:
        raise _changed("cluster", cluster.name)
    number = {name: slot for slot, name in enumerate(cluster.slot_names)}
    slots: list[int] = []
    for position in topology.order:
        component = topology.components[position]
        given = plan.tasks.get(component.name, ())
        if len(given) != component.parallelism:
            problem = f"expected {component.parallelism} slots, one per task, got {len(given)}"
            remedy = f"plan again, or set parallelism = {len(given)} in the application"
            raise InvalidInput(f"tasks.{component.name}", f"{problem}; {remedy}")
        for task, name in enumerate(given):
            if name not in number:
                problem = f"cluster {cluster.name!r} has no slot {name!r}; slots are named machine/number"
                raise UnknownMachine(f"tasks.{component.name}[{task}]", problem)
            slots.append(number[name])
    if unknown := sorted(set(plan.tasks) - set(topology.index)):
        raise UnknownName(f"tasks.{unknown[0]}", f"no such component; {nearest(unknown[0], topology.index)}")
    placement = Placement(tuple(slots), _routes(plan, topology, cluster))
    if cluster.routed:
        _refuse_missing_routes(placement, topology, cluster)
    return placement


def moves(before: Plan, after: Plan) -> list[Move]:
    """List the tasks that are in different slots in two plans."""
    old, new = _by_task(before), _by_task(after)
    return [
        Move(task, old.get(task), new.get(task))
        for task in dict.fromkeys([*old, *new])
        if old.get(task) != new.get(task)
    ]


def _by_task(plan: Plan) -> dict[str, str]:
    return {f"{name}[{task}]": slot for name, slots in plan.tasks.items() for task, slot in enumerate(slots)}


def _refuse_other(kind: str, planned: str, name: str) -> None:
    if planned != name:
        raise InvalidInput(kind, f"the plan is for {planned!r}, not for {name!r}; plan again")


def _changed(kind: str, name: str) -> InvalidInput:
    return InvalidInput(f"{kind}_digest", f"{name!r} has changed since the plan was made; plan again")


def _refuse_missing_routes(placement: Placement, topology: Topology, cluster: Cluster) -> None:
    placed = np.array(placement.slots, dtype=np.int32)
    for hop in hop_bits(expand_tasks(topology), expand_slots(cluster), placed):
        if hop not in placement.routes:
            ends = f"{cluster.machines[hop.source].name!r} to {cluster.machines[hop.target].name!r}"
            problem = f"stream {topology.streams[hop.stream].label} has no route from {ends}; plan again"
            raise InvalidInput("routes", problem)


def _routes(plan: Plan, topology: Topology, cluster: Cluster) -> dict[Hop, tuple[int, ...]]:
    streams = {stream.label: number for number, stream in enumerate(topology.streams)}
    links = {link.label: number for number, link in enumerate(cluster.links)}
    routes: dict[Hop, tuple[int, ...]] = {}
    for position, route in enumerate(plan.routes):
        for field, names, known in (
            ("stream", (route.stream,), streams),
            ("source", (route.source,), cluster.machine_index),
            ("target", (route.target,), cluster.machine_index),
            ("links", route.links, links),
        ):
            for name in names:
                if name not in known:
                    raise UnknownName(f"routes[{position}].{field}", f"{name!r} is unknown; {nearest(name, known)}")
        hop = Hop(streams[route.stream], cluster.machine_index[route.source], cluster.machine_index[route.target])
        routes[hop] = tuple(links[name] for name in route.links)
    return routes
