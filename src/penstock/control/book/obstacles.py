"""What stands in the way of a path: which elements have nothing left, and who has all of it, or that they have failed.

A policy only sees what is left of a cluster, and there a link that is fully booked, one that has failed and one that
never had any bandwidth look the same. Who is refused wants to know which of them it is, and whom to ask.
"""

from collections.abc import Collection, Iterable

import numpy as np
from msgspec.structs import replace as changed

from penstock.control.book.paths import POLICY, Request, Shortage
from penstock.control.book.room import Room, room_of
from penstock.control.planner import Planner
from penstock.estimate.evaluator import Objective
from penstock.model.book import BANDWIDTH, CPU, RECEIVING, SENDING, Book
from penstock.model.cluster import Cluster, Link
from penstock.model.placement import Placement
from penstock.model.remaining import EXHAUSTED, capacities, with_capacities
from penstock.model.slotgraph import MEGABIT

NAMED = 3  # applications that a refusal names for an element; the others are counted

_UNITS = {
    CPU: (1.0, "cores' worth of cpu"),
    BANDWIDTH: (MEGABIT, "Mbit/s"),
    SENDING: (MEGABIT, "Mbit/s to send"),
    RECEIVING: (MEGABIT, "Mbit/s to receive"),
}


def explained(request: Request, shortage: Shortage) -> Shortage:
    """Return a shortage with what cuts a stream off, where one has no way; others as they are.

    Which machines are meant is asked of a policy that has the whole cluster to itself: what it does with what is left,
    where there is no way at all, means nothing. So first as if nobody had booked, then as if nothing had failed either.
    """
    if shortage.cut_off is None:
        return shortage
    room = shortage.cut_off
    left, nodes = room.as_cluster(), room.as_cluster().node_index
    for whole in (with_capacities(room.cluster, {}, room.failed), _with_all_links(room.cluster)):
        placement = Planner(request.application, whole, Objective.RATE, request.seed).decide(POLICY).result
        for hop in placement.routes if isinstance(placement, Placement) else ():
            ends = [whole.machines[machine].name for machine in (hop.source, hop.target)]
            if cut := _in_the_way(left, nodes[ends[0]], nodes[ends[1]], room.failed):
                stream = request.application.streams[hop.stream].label
                return Shortage(f"stream {stream} has no way from {ends[0]!r} to {ends[1]!r}", cut, gone=True)
    return shortage


def _with_all_links(cluster: Cluster) -> Cluster:
    """Return a cluster whose links all have some bandwidth."""
    links = tuple(changed(link, bandwidth_mbps=link.bandwidth_mbps or 1.0) for link in cluster.links)
    return changed(cluster, links=links)


def _in_the_way(left: Cluster, source: int, target: int, failed: Collection[str]) -> tuple[str, ...]:
    """Return the elements that cut one node off from another on the way that has the fewest links without bandwidth.

    Of a link that has failed, or leads to what has, whatever has failed; none where no links lead there at all.
    """
    cut = dict.fromkeys(
        part
        for link in _fewest_empty(left, source, target)
        for part in [name for name in (link.label, link.source, link.target) if name in failed] or [link.label]
    )
    return tuple(cut)


def _fewest_empty(left: Cluster, source: int, target: int) -> list[Link]:
    """Return the links without bandwidth on the way that has the fewest of them, in its order."""
    from scipy.sparse import csr_array  # only who is refused has to wait for it
    from scipy.sparse.csgraph import dijkstra

    nodes = len(left.node_index)
    best: dict[tuple[int, int], tuple[float, Link]] = {}  # tail, head -> cost, link
    for link in left.links:
        cost = 1.0 if link.bandwidth_mbps > 0 else float(nodes)  # an empty one costs more than a way of others
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


def told(book: Book, elements: Iterable[str]) -> str:
    """Say of elements why nothing of them can be had: they have failed, never had any, or others have it."""
    return ", ".join(_one(book, element) for element in elements)


def fully_booked(book: Book, element: str) -> str:
    """Say who has all of an element; empty where something of it is left."""
    room = room_of(book)
    there_is = capacities(room.cluster).get(element, {})
    kind = next((kind for kind, all_of_it in there_is.items() if _gone(room, element, kind, all_of_it)), None)
    return "" if kind is None else _who(book, element, kind, there_is[kind])


def _gone(room: Room, element: str, kind: str, there_is: float) -> bool:
    return there_is > 0 and room.left[element][kind] <= EXHAUSTED * there_is


def _one(book: Book, element: str) -> str:
    thing = (
        "machine" if element in book.cluster.machine_index else "switch" if element in book.cluster.switches else "link"
    )
    if element in book.failed:
        return f"{thing} {element} has failed"
    who = fully_booked(book, element)
    if who:
        return f"{thing} {element} is fully booked ({who})"
    return f"{thing} {element} has no bandwidth" if thing == "link" else f"nothing is left of {thing} {element}"


def _who(book: Book, element: str, kind: str, there_is: float) -> str:
    """Say how much of an element each application has, the greatest first."""
    unit, measure = _UNITS.get(kind, (1.0, kind))
    has = {
        booking.name: sum(path.reserved_tps * path.load.get(element, {}).get(kind, 0.0) for path in booking.paths)
        for booking in book.bookings
    }
    most = sorted((name for name, amount in has.items() if amount > 0), key=lambda name: -has[name])
    parts = [f"{name} has {has[name] / unit:.4g}" for name in most[:NAMED]]
    if others := most[NAMED:]:
        parts.append(f"{len(others)} more have {sum(has[name] for name in others) / unit:.4g}")
    return f"{', '.join(parts)} of {there_is / unit:.4g} {measure}"
