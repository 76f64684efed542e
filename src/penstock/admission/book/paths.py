"""One more path for an application on what is left of a cluster, or why there is none."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from penstock.admission.book.free_capacity import Need, Room
from penstock.admission.book.reliable_routes import surest
from penstock.estimate.bottleneck import Element
from penstock.model.book import CPU, RECEIVING, SENDING, BookedPath
from penstock.model.cluster import Cluster, machine_of
from penstock.model.errors import InvalidInput
from penstock.model.objective import Objective
from penstock.model.placement import Infeasible, Placement
from penstock.model.plan import Plan, digest
from penstock.model.remaining import EXHAUSTED
from penstock.model.taskgraph import sum_by
from penstock.model.topology import Application
from penstock.planning.planner import Decision, Planner

POLICY = "sparcle"
"""The policy by which paths are found where none is named."""


class Request(NamedTuple):
    """What is to be let in, and how its paths are found."""

    application: Application
    policy: str  # of placement
    paths: int = 8  # at most
    seed: int = 0
    priority: float = 1.0
    surest: bool = False  # whether routes that make no difference to the rate are the surest, not the policy's own


class Found(NamedTuple):
    """A path, the rate that it could have on what is left, and the element that limits it."""

    plan: Plan
    load: dict[str, dict[str, float]]
    slots: dict[str, float]
    memory_mb: dict[str, float]
    rate_tps: float
    limit: Need

    def booked(self, rate_tps: float, reserved_tps: float = 0.0) -> BookedPath:
        """Return the path for a booking."""
        return BookedPath(
            plan=self.plan,
            rate_tps=rate_tps,
            reserved_tps=reserved_tps,
            load=self.load,
            slots=self.slots,
            memory_mb=self.memory_mb,
        )


class Shortage(NamedTuple):
    """Why there is no further path: one line, and of what more would help, or what has failed.

    What stands in the way of a placement takes a while to find: `obstacles.explained` does.
    """

    reason: str
    needs: tuple[Need, ...] = ()
    gone: bool = False  # nothing is left of these, or too little; the reason goes on with what became of it
    refusal: Infeasible | None = None  # what a policy said of
    room: Room | None = None  # what was left


def paths_in_turn(request: Request, room: Room, described: Cluster) -> Iterator[Found]:
    """Yield paths for an application, each at its full rate on what the earlier ones left, until there is none.

    `described` is the cluster for which plans are made.
    """
    while True:
        found = next_path(request, room, described)
        if isinstance(found, Shortage):
            return
        yield found
        room = room.less(found.load, found.rate_tps, found.memory_mb)


def next_path(request: Request, room: Room, described: Cluster) -> Found | Shortage:
    """Ask the placement policy for a path on what is left."""
    if not room.works:
        return Shortage("no machine is left")
    left = room.as_cluster()
    planner = Planner(request.application, left, Objective.THROUGHPUT, request.seed)
    decision = planner.decide(request.policy)
    if request.surest:
        decision = surest(planner, decision)
    if other := planner.another(decision):
        return Shortage(f"no placement was found by {request.policy}; {other} finds one")
    if isinstance(decision.result, Infeasible):
        return Shortage(decision.result.reason, refusal=decision.result, room=room)
    assert decision.evaluation is not None, "a placement has been evaluated"
    limit = decision.evaluation.bottleneck
    if limit is None:
        problem = f"nothing that {request.application.name!r} does costs anything; state cpu or tuple_bytes"
        raise InvalidInput("components", problem)
    need = element_of(limit)
    if limit.capacity <= EXHAUSTED * room.whole(need) * room.shares.get(need.element, 1.0):
        return Shortage("every path would need what is gone", (need,), gone=True)
    plan = replace(planner.plan(decision), cluster_digest=digest(described))
    return Found(plan, *_needs(planner, decision, decision.result, room.cluster), limit.rate_tps, need)


def element_of(limit: Element) -> Need:
    """Return the element and the kind of capacity by which the book knows what limits a placement."""
    if limit.kind == "slot":
        return Need(machine_of(limit.name), CPU)
    if limit.kind == "network":
        machine, _, way = limit.name.rpartition(" ")
        return Need(machine, SENDING if way == "(out)" else RECEIVING)
    return Need(limit.name, limit.kind)


def _needs(
    planner: Planner, decision: Decision, placement: Placement, whole: Cluster
) -> tuple[dict[str, dict[str, float]], dict[str, float], dict[str, float]]:
    """Return what a placement takes: of elements, of slots, of memory."""
    cluster, placed = planner.cluster, np.asarray(placement.slots, dtype=np.int32)
    tasks = planner.evaluator.tasks.placed(planner.evaluator.slots.process[placed])
    load: dict[str, dict[str, float]] = {cluster.machines[m].name: {} for m in planner.evaluator.slots.machine[placed]}
    memory = dict.fromkeys(load, 0.0)
    for slot, amount in zip(placement.slots, tasks.memory_mb, strict=True):
        memory[machine_of(cluster.slot_names[slot])] += float(amount)
    for route in placement.routes.values():
        for link in (cluster.links[number] for number in route):
            load.setdefault(link.label, {})
            for end in (link.source, link.target):
                if end in cluster.machine_index:
                    load.setdefault(end, {})  # a relay must work, too
    assert decision.evaluation is not None, "a placement has been evaluated"
    for limit in decision.evaluation.limits:
        if limit.kind != "slot":
            element, kind = element_of(limit)
            load[element][kind] = limit.load
    work = sum_by(placed, tasks.cpu * tasks.gain, len(cluster.slot_names))
    # Where a machine has one core, what limits its slots limits the machine as well.
    wide = {machine.name for machine in whole.machines if machine.cores > 1}
    threads = {
        name: float(w) for name, w in zip(cluster.slot_names, work, strict=True) if w and machine_of(name) in wide
    }
    return load, threads, {name: amount for name, amount in memory.items() if amount}
