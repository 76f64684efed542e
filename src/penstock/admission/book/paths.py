"""Search for one more path of an application on the free capacity of a cluster."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from penstock.admission.book.free_capacity import FreeCapacity, Need
from penstock.admission.book.reliable_routes import improve_routes
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
"""Default placement policy for paths."""


class AdmissionRequest(NamedTuple):
    """An application to admit, and how to search for its paths."""

    application: Application
    policy: str  # of placement
    paths: int = 8  # maximum
    seed: int = 0
    priority: float = 1.0
    reliable_routes: bool = False  # use the most reliable of equivalent routes instead of the policy's own


class FoundPath(NamedTuple):
    """A path, its maximum rate on the free capacity, and the element that limits it."""

    plan: Plan
    load: dict[str, dict[str, float]]
    slots: dict[str, float]
    memory_mb: dict[str, float]
    rate_tps: float
    limit: Need

    def booked(self, rate_tps: float, reserved_tps: float = 0.0) -> BookedPath:
        """Return the path as part of a booking."""
        return BookedPath(
            plan=self.plan,
            rate_tps=rate_tps,
            reserved_tps=reserved_tps,
            load=self.load,
            slots=self.slots,
            memory_mb=self.memory_mb,
        )


class Shortage(NamedTuple):
    """Why there is no further path: one line, and the capacities or failed elements concerned.

    Finding the cause takes a while, so it is left to `explain_shortage`, which is called for rejections only.
    """

    reason: str
    needs: tuple[Need, ...] = ()
    exhausted: bool = False  # too little of these is free; the message continues with the reason for each
    refusal: Infeasible | None = None  # the policy's result
    room: FreeCapacity | None = None  # the free capacity that it had


def paths_in_turn(request: AdmissionRequest, room: FreeCapacity, described: Cluster) -> Iterator[FoundPath]:
    """Yield paths for an application, each at its full rate on what the earlier ones leave, until none is found.

    `described` is the cluster for which plans are made.
    """
    while True:
        found = next_path(request, room, described)
        if isinstance(found, Shortage):
            return
        yield found
        room = room.less(found.load, found.rate_tps, found.memory_mb)


def next_path(request: AdmissionRequest, room: FreeCapacity, described: Cluster) -> FoundPath | Shortage:
    """Search for a path on the free capacity with the placement policy."""
    if not room.works:
        return Shortage("no machine works")
    left = room.as_cluster()
    planner = Planner(request.application, left, Objective.THROUGHPUT, request.seed)
    decision = planner.decide(request.policy)
    if request.reliable_routes:
        decision = improve_routes(planner, decision)
    if other := planner.another(decision):
        return Shortage(f"{request.policy} found no placement; {other} finds one")
    if isinstance(decision.result, Infeasible):
        return Shortage(decision.result.reason, refusal=decision.result, room=room)
    assert decision.evaluation is not None, "a placement has been evaluated"
    limit = decision.evaluation.bottleneck
    if limit is None:
        problem = f"{request.application.name!r} uses no capacity at all; set cpu or tuple_bytes"
        raise InvalidInput("components", problem)
    need = limiting_need(limit)
    if limit.capacity <= EXHAUSTED * room.whole(need) * room.shares.get(need.element, 1.0):
        return Shortage("every path needs an element without free capacity", (need,), exhausted=True)
    plan = replace(planner.plan(decision), cluster_digest=digest(described))
    return FoundPath(plan, *_needs(planner, decision, decision.result, room.cluster), limit.rate_tps, need)


def limiting_need(limit: Element) -> Need:
    """Return the book's key for the element that limits a placement."""
    if limit.kind == "slot":
        return Need(machine_of(limit.name), CPU)
    if limit.kind == "network":
        machine, _, direction = limit.name.rpartition(" ")
        return Need(machine, SENDING if direction == "(out)" else RECEIVING)
    return Need(limit.name, limit.kind)


def _needs(
    planner: Planner, decision: Decision, placement: Placement, whole: Cluster
) -> tuple[dict[str, dict[str, float]], dict[str, float], dict[str, float]]:
    """Return what a placement takes of elements, slots and memory."""
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
            element, kind = limiting_need(limit)
            load[element][kind] = limit.load
    work = sum_by(placed, tasks.cpu * tasks.gain, len(cluster.slot_names))
    # On a machine with one core, the limit of its slots is the machine's limit as well.
    wide = {machine.name for machine in whole.machines if machine.cores > 1}
    threads = {
        name: float(w) for name, w in zip(cluster.slot_names, work, strict=True) if w and machine_of(name) in wide
    }
    return load, threads, {name: amount for name, amount in memory.items() if amount}
