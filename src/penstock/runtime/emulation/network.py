"""The virtual network between emulated machines: its links, the path of a frame, and the owner of each link.

A link transmits frames one after another, each followed by the link's latency. Every virtual link has one owner, a
machine, as a queue must be kept in one place. A frame visits the owners of its path's links one after another; each
adds the time of its links, and the destination handles the frame when that time has passed. Delays agree with the
model's: on a mesh by the distance of two slots, plus the network cards; on a routed network by the links of the route,
with the mesh's delays inside a machine.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from heapq import heappop, heappush
from typing import NamedTuple

from penstock.model.cluster import Cluster, Link
from penstock.model.errors import InvalidInput, UnknownMachine, UnknownName, nearest
from penstock.model.slotgraph import expand_links, expand_slots

Route = tuple[str, str, str]  # stream, source machine, target machine
MEGABIT = 1e6
MILLISECOND = 1e-3
BITS = 8.0  # a byte


class VirtualLink:
    """A link that serves frames first come, first served: in the order of calls, which must be that of `at`.

    bandwidth_mbps: None: unlimited.
    """

    def __init__(self, bandwidth_mbps: float | None, latency_ms: float) -> None:
        self._byte_s = 0.0 if bandwidth_mbps is None else BITS / (bandwidth_mbps * MEGABIT)
        self._latency = latency_ms * MILLISECOND
        self._free = -math.inf  # when the last frame has left
        self._taken = 0.0  # seconds of transmission of all frames so far

    def transmit(self, size_bytes: float, at: float) -> float:
        """Return when a frame that is ready at `at` arrives at the other end."""
        duration = size_bytes * self._byte_s
        self._taken += duration
        self._free = max(at, self._free) + duration
        return self._free + self._latency

    def leeway(self, now: float, seconds: float) -> tuple[float, float]:
        """Return how many more bytes it could send within some seconds, and when half of that will be free again."""
        if self._byte_s == 0.0:
            return math.inf, now
        return (seconds - max(0.0, self._free - now)) / self._byte_s, max(now, self._free - seconds / 2)

    def used(self, now: float) -> float:
        """Return for how many seconds up to `now` it has transmitted, if no frame waits for its time."""
        return max(0.0, self._taken - max(0.0, self._free - now))


MakeLink = Callable[[str, float | None, float], VirtualLink]  # from its label, bandwidth (Mbit/s) and latency (ms)


class Path(NamedTuple):
    """The path of a frame between two slots."""

    links: tuple[int, ...]  # in order, by numbers that are the same on every machine
    latency: float  # s, besides that of the links; added after the links that the sender owns


class VirtualNetwork:
    """The network as one machine sees it: all paths, all owners, and the state of the links that it owns.

    Links are numbered as in the cluster; on a mesh, machine m's card has 2m for what it sends and 2m + 1 for what it
    receives. `routes` has the labels of links by stream, source and target machine; a hop without a route takes the
    widest path of an empty network. `make` creates the links that the machine owns; None: unshared ones.
    """

    def __init__(
        self, cluster: Cluster, machine: str, routes: Mapping[Route, tuple[str, ...]], make: MakeLink | None = None
    ) -> None:
        if machine not in cluster.machine_index:
            problem = f"cluster {cluster.name!r} has no {machine!r}; {nearest(machine, cluster.machine_index)}"
            raise UnknownMachine("machine", problem)
        self._cluster = cluster
        self._slots = expand_slots(cluster)
        self._slot_number = {name: number for number, name in enumerate(cluster.slot_names)}
        self._widest: dict[str, dict[str, tuple[int, ...]]] = {}  # source machine -> target machine -> links
        self._owners = _owners(cluster) if cluster.routed else [m.name for m in cluster.machines for _ in range(2)]
        made = make or (lambda _, bandwidth, latency: VirtualLink(bandwidth, latency))
        self._own = {
            link: made(self.label(link), *figures) for link, figures in _links(cluster) if self._owners[link] == machine
        }
        self._card = [it for link, it in self._own.items() if _leaves(cluster, link, machine)]
        self.reroute(routes)

    def reroute(self, routes: Mapping[Route, tuple[str, ...]]) -> None:
        """Switch to the routes of another plan; frames in flight keep their paths, and links their state."""
        self._planned = {route: _numbers(self._cluster, route, labels) for route, labels in routes.items()}
        self._paths: dict[Route, Path] = {}  # by stream, source slot, target slot

    def path(self, stream: str, source_slot: str, target_slot: str) -> Path:
        """Return the path of a stream's frames between two slots, `machine/number`."""
        found = self._paths.get((stream, source_slot, target_slot))
        if found is None:
            found = self._find_path(stream, source_slot, target_slot)
            self._paths[stream, source_slot, target_slot] = found
        return found

    def owner(self, link: int) -> str:
        """Return the machine that owns a link."""
        return self._owners[link]

    def cross(self, links: tuple[int, ...], size: int, at: float) -> tuple[float, tuple[int, ...]]:
        """Charge the leading links that this machine owns with a frame of `size` bytes that reaches them at `at`.

        Returns when the frame leaves them, and the remaining links. Links serve frames in the order of calls, so a
        frame that comes early is held until `at`.
        """
        for position, link in enumerate(links):
            own = self._own.get(link)
            if own is None:
                return at, links[position:]
            at = own.transmit(size, at)
        return at, ()

    def leeway(self, now: float, seconds: float) -> tuple[float, float]:
        """Return how many more bytes this machine may send within some seconds, and when to ask again.

        The fullest of its links decides: on a mesh its card, on most networks its only link.
        """
        return min((link.leeway(now, seconds) for link in self._card), default=(math.inf, now))

    def used(self, now: float) -> dict[str, float]:
        """Return the seconds of transmission up to `now` of the links that this machine owns, by label."""
        return {self.label(number): link.used(now) for number, link in self._own.items()}

    def label(self, link: int) -> str:
        """Return a link's name, for people."""
        if self._cluster.routed:
            return self._cluster.links[link].label
        return f"{self._owners[link]} {'in' if link % 2 else 'out'}"

    def _find_path(self, stream: str, source_slot: str, target_slot: str) -> Path:
        here, there = self._slot(source_slot), self._slot(target_slot)
        a, b = int(self._slots.machine[here]), int(self._slots.machine[there])
        if a != b and self._cluster.routed:
            source, target = self._cluster.machines[a].name, self._cluster.machines[b].name
            planned = self._planned.get((stream, source, target))
            return Path(self._default(source, target) if planned is None else planned, 0.0)
        cards = ((2 * a, a), (2 * b + 1, b)) if a != b else ()
        links = tuple(link for link, m in cards if self._cluster.machines[m].network_mbps is not None)
        return Path(links, self._delay_ms(here, there) * MILLISECOND)

    def _slot(self, name: str) -> int:
        if name not in self._slot_number:
            raise UnknownName("slot", f"cluster {self._cluster.name!r} has no slot {name!r}; they are machine/number")
        return self._slot_number[name]

    def _delay_ms(self, here: int, there: int) -> float:
        """Return the delay by the distance of two slots, as `estimate.hops.slot_delays` does for many."""
        distances, slots = self._cluster.distances, self._slots
        if here == there:
            return distances.same_slot_ms
        if slots.process[here] == slots.process[there]:
            return distances.same_process_ms
        return distances.same_host_ms if slots.host[here] == slots.host[there] else distances.other_host_ms

    def _default(self, source: str, target: str) -> tuple[int, ...]:
        if source not in self._widest:
            self._widest[source] = _widest_paths(self._cluster, source)
        if target not in self._widest[source]:
            problem = f"cluster {self._cluster.name!r} has no path from {source!r} to {target!r}; add a link"
            raise InvalidInput("links", problem)
        return self._widest[source][target]


def _links(cluster: Cluster) -> Iterable[tuple[int, tuple[float, float]]]:
    """Yield the bandwidth and latency of usable links: those with bandwidth, and the limited cards of a mesh."""
    for number, link in enumerate(cluster.links):
        if link.bandwidth_mbps > 0:
            yield number, (link.bandwidth_mbps, link.latency_ms)
    for number, machine in enumerate(cluster.machines):
        for direction, mbps in enumerate(machine.card_mbps or ()):
            yield 2 * number + direction, (mbps, 0.0)


def _leaves(cluster: Cluster, link: int, machine: str) -> bool:
    """Return whether frames leave a machine by a link."""
    if not cluster.routed:
        return link == 2 * cluster.machine_index[machine]
    ends = cluster.links[link]
    return ends.source == machine or (ends.target == machine and not ends.directed)


def _owners(cluster: Cluster) -> list[str]:
    """Return the owner of every link: the nearest machine; of several, the first in the cluster's order."""
    names = list(cluster.node_index)
    nearest = {node: (0, node) for node in range(len(cluster.machines))}  # node -> links between, machine
    for _ in cluster.links:  # at most one round per link
        before = dict(nearest)
        for link in cluster.links:
            for end, other in _both_directions(cluster, link):
                if end in before:
                    steps, machine = before[end]
                    nearest[other] = min(nearest.get(other, (steps + 1, machine)), (steps + 1, machine))
        if nearest == before:
            break
    alone = (0, 0)  # a link that no machine can reach
    return [
        names[min(nearest.get(end, alone) for end, _ in _both_directions(cluster, link))[1]] for link in cluster.links
    ]


def _both_directions(cluster: Cluster, link: Link) -> list[tuple[int, int]]:
    a, b = cluster.node_index[link.source], cluster.node_index[link.target]
    return [(a, b), (b, a)]


def _numbers(cluster: Cluster, route: Route, labels: tuple[str, ...]) -> tuple[int, ...]:
    """Return the numbers of a route's links; raise if it does not lead from its source to its target."""
    stream, source, target = route
    known = {link.label: number for number, link in enumerate(cluster.links)}
    where = f"the route of {stream} from {source!r} to {target!r}"
    node = source
    for label in labels:
        if label not in known:
            raise UnknownName("routes", f"{where} takes link {label!r}, which is unknown; {nearest(label, known)}")
        link = cluster.links[known[label]]
        if node != link.source and (link.directed or node != link.target):
            raise InvalidInput("routes", f"{where} takes link {label} at {node!r}, where it does not start; plan again")
        if link.bandwidth_mbps == 0:
            raise InvalidInput("routes", f"{where} takes link {label}, which has no bandwidth; plan again")
        node = link.target if node == link.source else link.source
    if node != target:
        raise InvalidInput("routes", f"{where} ends at {node!r}; plan again")
    return tuple(known[label] for label in labels)


def _widest_paths(cluster: Cluster, source: str) -> dict[str, tuple[int, ...]]:
    """Return the widest path from a machine to every node, by name.

    These are the paths of `model.routes.widest_path` on an empty network, found without its compiler, which would take
    longer to load than a worker takes to start.
    """
    links, names, start = expand_links(cluster), list(cluster.node_index), cluster.node_index[source]
    width = {start: float("inf")}
    path: dict[int, tuple[int, ...]] = {start: ()}
    settled: set[int] = set()
    waiting = [(-width[start], start)]
    while waiting:
        _, node = heappop(waiting)
        if node in settled:
            continue
        settled.add(node)
        for arc in range(links.start[node], links.start[node + 1]):
            link, head = int(links.link[arc]), int(links.head[arc])
            rate = min(width[node], float(links.bandwidth[link]))
            if rate > width.get(head, 0.0) and head not in settled:
                width[head], path[head] = rate, (*path[node], link)
                heappush(waiting, (-rate, head))
    return {names[node]: links for node, links in path.items()}
