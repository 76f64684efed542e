"""Explain why a path cannot be placed: which elements are used up and by whom, or have failed.

A policy sees only the free capacity of a cluster. There a fully booked link, a failed one and one without any bandwidth
look the same; so do machines whose memory or other resources are taken. A rejection has to name the cause and the
applications involved.
"""

from collections.abc import Collection, Iterable, Mapping

import numpy as np
from msgspec.structs import replace as changed

from penstock.admission.book.free_capacity import MEMORY, FreeCapacity, Need, find_free_capacity, main_kind
from penstock.admission.book.paths import POLICY, AdmissionRequest, Shortage
from penstock.model.book import BANDWIDTH, CPU, RECEIVING, SENDING, Book, BookedPath
from penstock.model.cluster import Cluster, Link
from penstock.model.objective import Objective
from penstock.model.placement import Constraint, Infeasible, Placement
from penstock.model.remaining import with_capacities
from penstock.model.slotgraph import MEGABIT, capacity_of
from penstock.model.taskgraph import Tasks, expand_tasks, task_names
from penstock.model.topology import Application
from penstock.planning.planner import Planner

MAX_NAMED = 3  # maximum number of applications named per element, and of machines per resource; the rest are counted

UNITS = {
    CPU: (1.0, "cores' worth of cpu"),
    BANDWIDTH: (MEGABIT, "Mbit/s"),
    SENDING: (MEGABIT, "Mbit/s to send"),
    RECEIVING: (MEGABIT, "Mbit/s to receive"),
    MEMORY: (1.0, "MB of memory"),
}


def explain_shortage(request: AdmissionRequest, shortage: Shortage) -> Shortage:
    """Return a shortage with the cause of a policy's refusal if it concerns a route, a resource or memory."""
    if shortage.refusal is None or shortage.room is None:
        return shortage
    if shortage.refusal.constraint is Constraint.ROUTE:
        return _cut_off(request, shortage, shortage.room)
    if shortage.refusal.constraint in (Constraint.RESOURCE, Constraint.MEMORY):
        return _unfit(request.application, shortage, shortage.refusal, shortage.room)
    return shortage


def _cut_off(request: AdmissionRequest, shortage: Shortage, room: FreeCapacity) -> Shortage:
    """Return what disconnects a stream.

    The machines concerned come from a policy that has the whole cluster: what it does with free capacity is meaningless
    if no route exists. Three clusters are tried: without bookings, also without failures, and with the memory free now.
    """
    left, nodes = room.as_cluster(), room.as_cluster().node_index
    wide = _with_all_links(room.cluster)
    for whole in (with_capacities(room.cluster, {}, room.failed), wide, with_capacities(wide, {}, (), room.held_mb)):
        placement = Planner(request.application, whole, Objective.THROUGHPUT, request.seed).decide(POLICY).result
        for hop in placement.routes if isinstance(placement, Placement) else ():
            ends = [whole.machines[machine].name for machine in (hop.source, hop.target)]
            if cut := _blocking_links(left, nodes[ends[0]], nodes[ends[1]], room.failed):
                stream = request.application.streams[hop.stream].label
                needs = tuple(Need(element, main_kind(room.cluster, element)) for element in cut)
                return Shortage(f"stream {stream} has no route from {ends[0]!r} to {ends[1]!r}", needs, exhausted=True)
    return shortage


def _unfit(application: Application, shortage: Shortage, refusal: Infeasible, room: FreeCapacity) -> Shortage:
    """Return the machines that lack what a task needs: a resource, judged by the whole cluster, or memory."""
    tasks = expand_tasks(application)
    pins = [pin for position in tasks.position for pin in application.components[position].pins]
    for task in range(tasks.number) if refusal.constraint is Constraint.RESOURCE else ():
        lacks = {name: _lacked(tasks, task, name, room) for name in _allowed(pins[task], room)}
        if all(lacks.values()):
            return _without_resource(f"task {task_names(application)[task]}", shortage, pins[task], lacks, room)
    left = {machine.name: room.free(Need(machine.name, MEMORY)) for machine in room.cluster.machines}
    if refusal.task is not None:
        able = [name for name in _allowed(pins[refusal.task], room) if not _lacked(tasks, refusal.task, name, room)]
    else:
        pinned = {name: sum(tasks.memory_mb[t] for t, pin in enumerate(pins) if pin == name) for name in left}
        able = [name for name, amount in pinned.items() if amount > left[name]] or list(left)
    machines = sorted((name for name in able if name not in room.failed), key=lambda name: -left[name])
    needs = tuple(Need(name, MEMORY) for name in machines[:MAX_NAMED])
    return Shortage(shortage.reason.partition(";")[0], needs, exhausted=True)  # suggestions replace the policy's advice


def _without_resource(
    task: str, shortage: Shortage, pin: str | None, lacks: Mapping[str, list[Need]], room: FreeCapacity
) -> Shortage:
    """Return why no machine can run a task: its resources are taken, or the machines that have them have failed."""
    had = [name for name, needs in lacks.items() if all(room.whole(need) > 0 for need in needs)]
    if not had:  # no machine ever had it: the policy's own message is right
        return Shortage(shortage.reason, () if pin is None else (lacks[pin][0],))
    had.sort(key=lambda name: (name in room.failed, -room.whole(lacks[name][0])))
    kinds = " and ".join(dict.fromkeys(need.kind for name in had for need in lacks[name]))
    where = f" on any of the {len(had)} machines that have it" if len(had) > MAX_NAMED else ""
    bound = "" if pin is None else f", which is pinned to {pin!r},"
    reason = f"{task}{bound} needs {kinds}, but none is left{where}"
    return Shortage(reason, tuple(lacks[name][0] for name in had[:MAX_NAMED]), exhausted=True)


def _allowed(pin: str | None, room: FreeCapacity) -> list[str]:
    return [machine.name for machine in room.cluster.machines] if pin is None else [pin]


def _lacked(tasks: Tasks, task: int, machine: str, room: FreeCapacity) -> list[Need]:
    """Return the resources and labels that a task needs and a machine lacks."""
    takes = zip(tasks.resources, tasks.needs[task] * tasks.gain[task], strict=True)
    needs = [Need(machine, kind) for kind, amount in takes if amount > 0]
    there = room.cluster.machines[room.cluster.machine_index[machine]]
    return [
        need
        for need in needs
        if machine in room.failed
        or capacity_of(there, need.kind) <= 0
        or (need.kind in there.resources and room.used_up(need))
    ]


def _with_all_links(cluster: Cluster) -> Cluster:
    """Return a cluster in which every link has some bandwidth."""
    links = tuple(changed(link, bandwidth_mbps=link.bandwidth_mbps or 1.0) for link in cluster.links)
    return changed(cluster, links=links)


def _blocking_links(left: Cluster, source: int, target: int, failed: Collection[str]) -> tuple[str, ...]:
    """Return the elements that disconnect two nodes, on the route with the fewest links without bandwidth.

    If such a link has failed or ends at a failed node, return the failed elements; return none if no links lead there.
    """
    cut = dict.fromkeys(
        part
        for link in _fewest_empty(left, source, target)
        for part in [name for name in (link.label, link.source, link.target) if name in failed] or [link.label]
    )
    return tuple(cut)


def _fewest_empty(left: Cluster, source: int, target: int) -> list[Link]:
    """Return the links without bandwidth on the route that has the fewest of them, in order."""
    from scipy.sparse import csr_array  # needed only for rejections, slow to import
    from scipy.sparse.csgraph import dijkstra

    nodes = len(left.node_index)
    best: dict[tuple[int, int], tuple[float, Link]] = {}  # tail, head -> cost, link
    for link in left.links:
        cost = 1.0 if link.bandwidth_mbps > 0 else float(nodes)  # an empty link costs more than any route of others
        a, b = left.node_index[link.source], left.node_index[link.target]
        for arc in [(a, b)] if link.directed else [(a, b), (b, a)]:
            if arc not in best or cost < best[arc][0]:
                best[arc] = (cost, link)
    tails, heads = np.array(list(best), dtype=np.int32).T
    graph = csr_array(([cost for cost, _ in best.values()], (tails, heads)), shape=(nodes, nodes))
    _, (before,) = dijkstra(graph, indices=[source], return_predecessors=True)
    way, node = [], target
    while node != source:
        if before[node] < 0:
            return []
        way.append(best[int(before[node]), node][1])
        node = int(before[node])
    return [link for link in reversed(way) if link.bandwidth_mbps == 0]


def describe_needs(book: Book, needs: Iterable[Need]) -> str:
    """Describe why elements have no free capacity: they have failed, never had any, or others use it."""
    return ", ".join(_one(book, need) for need in needs)


def describe_limit(need: Need) -> str:
    """Name what limits a path: an element, or one of its capacities."""
    if need.kind in (SENDING, RECEIVING):
        return f"the {'sending' if need.kind == SENDING else 'receiving'} bandwidth of {need.element}"
    if need.kind == MEMORY:
        return f"the memory of {need.element}"
    return need.element if need.kind in (CPU, BANDWIDTH) else f"the {need.kind} of {need.element}"


def describe_users(book: Book, need: Need) -> str:
    """Return who uses all of a capacity; empty if some is free."""
    room = find_free_capacity(book)
    return _who(book, need, room.whole(need)) if room.used_up(need) else ""


def _one(book: Book, need: Need) -> str:
    element = need.element
    thing = (
        "machine" if element in book.cluster.machine_index else "switch" if element in book.cluster.switches else "link"
    )
    if element in book.failed:
        return f"{thing} {element} has failed"
    if need.kind == MEMORY:
        return _memory(book, need)
    who = describe_users(book, need)
    if who:
        return f"{thing} {element} is fully booked ({who})"
    return f"{thing} {element} has no {'bandwidth' if thing == 'link' else 'free capacity'}"


def _memory(book: Book, need: Need) -> str:
    room = find_free_capacity(book)
    left, there_is = room.free(need), room.whole(need)
    taken = f" left ({_who(book, need, there_is)})" if left < there_is else ""
    return f"machine {need.element} has {max(left, 0.0):.4g} MB{taken}"


def _takes(path: BookedPath, need: Need) -> float:
    """Return how much of a capacity a path takes; memory is held at any rate."""
    if need.kind == MEMORY:
        return path.memory_mb.get(need.element, 0.0)
    return path.reserved_tps * path.load.get(need.element, {}).get(need.kind, 0.0)


def _who(book: Book, need: Need, there_is: float) -> str:
    """List how much of a capacity each application has, the largest first."""
    unit, measure = UNITS.get(need.kind, (1.0, need.kind))
    has = {booking.name: sum(_takes(path, need) for path in booking.paths) for booking in book.bookings}
    most = sorted((name for name, amount in has.items() if amount > 0), key=lambda name: -has[name])
    parts = [f"{name} has {has[name] / unit:.4g}" for name in most[:MAX_NAMED]]
    if others := most[MAX_NAMED:]:
        parts.append(f"{len(others)} more have {sum(has[name] for name in others) / unit:.4g}")
    return f"{', '.join(parts)} of {there_is / unit:.4g} {measure}"
