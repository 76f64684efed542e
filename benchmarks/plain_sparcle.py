"""SPARCLE's Algorithms 1 and 2 written directly on networkx graphs: the baseline of `benchmarks/sparcle.py`.

There are two versions: in `PlainSparcle` ranking a task runs Algorithm 1 once per placed task that it can reach, which
gives the widest paths to all machines at once; `LiteralSparcle` runs it once per machine, like the pseudocode
(Algorithm 2, lines 9 to 13). Components have one task each, machines one slot, and sources and sinks are pinned.
"""

from collections.abc import Iterator
from heapq import heappop, heappush
from math import inf

import networkx as nx

from penstock.model.placement import Hop, Placement
from penstock.policies.api import PlacementView

Widest = tuple[dict[int, float], dict[int, tuple[int, int]]]
"""Rate of every node, and the node and link from which it is reached."""


class PlainSparcle:
    """One application on one network, and its partial placement."""

    def __init__(self, view: PlacementView) -> None:
        self._tasks, self._network = nx.DiGraph(), nx.MultiDiGraph()
        tasks, index = view.tasks, view.cluster.node_index
        for task in range(tasks.number):
            self._tasks.add_node(task, work=float(view.work[task]), pin=int(view.pins[task]))
        for flow in tasks.flows:
            bits = float(tasks.gain[flow.source] * flow.share * flow.tuple_bytes * 8)
            self._tasks.add_edge(flow.source, flow.target, bits=bits, stream=flow.stream)
        for name, node in index.items():
            cpu = float(view.slots.machine_cpu[node]) if node < view.slots.machines else 0.0
            self._network.add_node(node, name=name, cpu=cpu, load=0.0)
        for number, link in enumerate(view.cluster.links):
            ends = index[link.source], index[link.target]
            for tail, head in (ends,) if link.directed else (ends, ends[::-1]):
                self._network.add_edge(tail, head, key=number)
        self._bandwidth = view.links.bandwidth.tolist()
        self._carried = [0.0] * len(self._bandwidth)
        self._reversed = self._network.reverse()
        self._machines = range(view.slots.machines)
        self._host: dict[int, int] = {}
        self._routes: dict[Hop, tuple[int, ...]] = {}

    def place(self) -> Placement:
        """Place all tasks: Algorithm 2, lines 3 to 18."""
        for task, pin in self._tasks.nodes(data="pin"):
            if pin >= 0:
                self._put(task, pin)
        while len(self._host) < len(self._tasks):
            ranked = []
            for task in self._tasks:
                if task not in self._host:
                    gamma = self._gamma(task)
                    best = max(self._machines, key=lambda machine: gamma[machine])
                    ranked.append((gamma[best], task, best))
            _, task, machine = min(ranked)
            self._put(task, machine)
        return Placement(tuple(self._host[task] for task in sorted(self._tasks)), self._routes)

    def _gamma(self, task: int) -> list[float]:
        """Return eq. (2) for every machine."""
        work, nodes = self._tasks.nodes[task]["work"], self._network.nodes
        gamma = [nodes[m]["cpu"] / (nodes[m]["load"] + work) for m in self._machines]
        for other, bits, leaves in self._reached(task):
            width, _ = self._widest(self._reversed if leaves else self._network, self._host[other], bits)
            gamma = [min(rate, width.get(m, 0.0)) for m, rate in enumerate(gamma)]
        return gamma

    def _reached(self, task: int) -> Iterator[tuple[int, float, bool]]:
        """Return the placed tasks that a task reaches with the smallest transport between them."""
        below, above = nx.descendants(self._tasks, task), nx.ancestors(self._tasks, task)
        for reached, leaves in ((below, True), (above, False)):
            for other in reached & self._host.keys():
                first, last = (task, other) if leaves else (other, task)
                inside = (nx.descendants(self._tasks, first) | {first}) & (nx.ancestors(self._tasks, last) | {last})
                edges = self._tasks.subgraph(inside).edges(data="bits")
                yield other, min(bits for _, _, bits in edges), leaves

    def _widest(self, network: nx.MultiDiGraph, root: int, bits: float, last: int | None = None) -> Widest:
        """Return the widest paths from a root up to the `last` node: Algorithm 1, with a heap."""
        width, came, settled = {root: inf}, {}, set()
        heap = [(-inf, root)]
        while heap:
            rate, node = heappop(heap)
            if node == last:
                break
            if node in settled:
                continue
            settled.add(node)
            for _, head, link in network.edges(node, keys=True):
                further = min(-rate, self._bandwidth[link] / (bits + self._carried[link]))
                if head not in settled and further > width.get(head, 0.0):
                    width[head], came[head] = further, (node, link)
                    heappush(heap, (-further, head))
        return width, came

    def _put(self, task: int, machine: int) -> None:
        """Place a task and route its transports to placed neighbours."""
        self._host[task] = machine
        self._network.nodes[machine]["load"] += self._tasks.nodes[task]["work"]
        out = [(edge["stream"], edge["bits"], task, other) for _, other, edge in self._tasks.out_edges(task, data=True)]
        into = [(edge["stream"], edge["bits"], other, task) for other, _, edge in self._tasks.in_edges(task, data=True)]
        for stream, bits, sender, receiver in sorted(out + into):
            if sender in self._host and receiver in self._host and self._host[sender] != self._host[receiver]:
                self._route(Hop(stream, self._host[sender], self._host[receiver]), bits)

    def _route(self, hop: Hop, bits: float) -> None:
        _, came = self._widest(self._network, hop.source, bits, hop.target)
        links, node = [], hop.target
        while node != hop.source:
            node, link = came[node]
            links.append(link)
            self._carried[link] += bits
        self._routes[hop] = tuple(reversed(links))


class LiteralSparcle(PlainSparcle):
    """The same with Algorithm 1 from every machine to every placed task, or in reverse."""

    def _gamma(self, task: int) -> list[float]:
        """Return eq. (2) for every machine."""
        work, nodes, reached = self._tasks.nodes[task]["work"], self._network.nodes, list(self._reached(task))
        gamma = []
        for machine in self._machines:
            rate = nodes[machine]["cpu"] / (nodes[machine]["load"] + work)
            for other, bits, leaves in reached:
                ends = machine, self._host[other]
                source, target = ends if leaves else ends[::-1]
                width, _ = self._widest(self._network, source, bits, target)
                rate = min(rate, width.get(target, 0.0))
            gamma.append(rate)
        return gamma
