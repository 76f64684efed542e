"""Routes as a program: every hop has one route through the network, chosen together with the placement.

A stream between two single tasks is a unit of flow between their machines. A stream between many tasks has one route
for every two machines, as in a placement: it carries what the pairs of tasks on those two exchange, and every node
forwards it over one arc at most. In a forest there is no choice.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from penstock.model.placement import Hop
from penstock.model.routes import hop_bits
from penstock.model.slotgraph import Links
from penstock.model.taskgraph import Floats, Ints
from penstock.policies.placement.exact.assignment import Assignment, Terms
from penstock.policies.placement.exact.program import Columns
from penstock.policies.placement.exact.task_groups import Exchange


class Arc(NamedTuple):
    """One direction of a link that has bandwidth."""

    tail: int  # node
    head: int  # node
    link: int


class Routing:
    """The routes of all streams, added to an assignment."""

    def __init__(self, assignment: Assignment, exchanged: Sequence[Exchange]) -> None:
        self._assignment = assignment
        self._machines = range(assignment.view.slots.machines)
        self._nodes = assignment.view.links.nodes
        self._arcs = usable_arcs(assignment.view.links)
        self._forest = is_forest(self._arcs, self._nodes)
        self._load: dict[int, Terms] = {arc.link: [] for arc in self._arcs}  # bits per source tuple
        self._alone: dict[int, Columns] = {}  # stream -> whether it uses an arc: [arcs]
        self._between: dict[Hop, Columns] = {}  # the same for a stream between two machines
        for stream, exchanges in groupby(sorted(exchanged), key=lambda exchange: exchange.stream):
            carried = tuple(exchanges)
            ends = [len(assignment.groups[group].tasks) for group in (carried[0].source, carried[0].target)]
            if len(carried) == 1 and ends == [1, 1]:
                self._route_alone(carried[0])
            else:
                self._route_between(stream, carried)

    def limit_links(self, stress: int) -> None:
        """Keep the load of every link below the stress."""
        for link, load in self._load.items():
            self._assignment.stay_below(stress, load, float(self._assignment.view.links.bandwidth[link]))

    def routes(self, placed: Ints, values: Floats) -> Mapping[Hop, tuple[int, ...]]:
        """Return the links of every hop of a placement, given the values of all columns."""
        view = self._assignment.view
        found = {}
        for hop in hop_bits(view.tasks, view.slots, placed):
            taken = self._alone.get(hop.stream, self._between.get(hop))
            arcs = (
                self._arcs if taken is None else [a for a, v in zip(self._arcs, values[taken], strict=True) if v > 0.5]
            )
            found[hop] = find_path(arcs, hop.source, hop.target) or find_path(self._arcs, hop.source, hop.target) or ()
        return found

    def _route_alone(self, exchange: Exchange) -> None:
        assignment = self._assignment
        taken = assignment.program.columns(np.ones(len(self._arcs)), whole=not self._forest)
        flow: list[Terms] = [[] for _ in range(self._nodes)]  # out of a node minus into it
        for machine in self._machines:
            flow[machine] = assignment.on(exchange.source, machine, -1.0) + assignment.on(exchange.target, machine)
        self._conserve(flow, taken)
        self._alone[exchange.stream] = taken
        for arc, column in zip(self._arcs, taken, strict=True):
            self._load[arc.link].append((int(column), exchange.bits))

    def _route_between(self, stream: int, carried: Sequence[Exchange]) -> None:
        pairs = [self._add_pairs(exchange) for exchange in carried]
        for source in self._machines:
            for target in self._machines:
                terms = [
                    (int(column), exchange.bits)
                    for exchange, columns in zip(carried, pairs, strict=True)
                    for column in columns.get((source, target), ())
                ]
                if source == target or not terms:
                    continue
                only = find_path(self._arcs, source, target) if self._forest else None
                if only is not None:
                    for link in only:
                        self._load[link] += terms
                elif self._forest:
                    self._assignment.program.row([(column, 1.0) for column, _ in terms], high=0.0)
                else:
                    self._choose(Hop(stream, source, target), terms, self._most_bits(carried, source, target))

    def _choose(self, hop: Hop, bits: Terms, most: float) -> None:
        """Add the route of a hop: its arcs, at most one out of every node, and the share of `most` on each."""
        program = self._assignment.program
        taken = program.columns(np.ones(len(self._arcs)), whole=True)
        carried = program.columns(np.ones(len(self._arcs)))
        flow: list[Terms] = [[] for _ in range(self._nodes)]
        flow[hop.source] = [(column, -amount / most) for column, amount in bits]
        flow[hop.target] = [(column, amount / most) for column, amount in bits]
        self._conserve(flow, carried)
        for node in range(self._nodes):
            leaving = [(int(column), 1.0) for arc, column in zip(self._arcs, taken, strict=True) if arc.tail == node]
            program.row(leaving, high=1.0)
        for arc, is_taken, share in zip(self._arcs, taken, carried, strict=True):
            program.row([(int(share), 1.0), (int(is_taken), -1.0)], high=0.0)
            self._load[arc.link].append((int(share), most))
        self._between[hop] = taken

    def _conserve(self, flow: Sequence[Terms], on_arcs: Columns) -> None:
        """Constrain the flow on arcs out of every node, minus that into it, to cancel with `flow`."""
        balance = [list(terms) for terms in flow]
        for arc, column in zip(self._arcs, on_arcs, strict=True):
            balance[arc.tail].append((int(column), 1.0))
            balance[arc.head].append((int(column), -1.0))
        for terms in balance:
            self._assignment.program.row(terms, 0.0, 0.0)

    def _add_pairs(self, exchange: Exchange) -> dict[tuple[int, int], list[int]]:
        """Add columns that sum to the number of an exchange's pairs from one machine to another, for every two."""
        assignment = self._assignment
        few, many = sorted((exchange.source, exchange.target), key=lambda g: len(assignment.groups[g].tasks))
        size = len(assignment.groups[many].tasks)
        found: dict[tuple[int, int], list[int]] = {}
        for here in self._machines:
            for one in assignment.unary(few, here) if assignment.most_on(few, here) else ():
                partners: Terms = []
                for there in self._machines:
                    most = assignment.most_on(many, there)
                    if most:
                        pairs = int(assignment.program.columns([float(most)])[0])
                        assignment.program.row([(pairs, 1.0), *assignment.on(many, there, -1.0)], high=0.0)
                        found.setdefault((here, there) if few == exchange.source else (there, here), []).append(pairs)
                        partners.append((pairs, 1.0))
                assignment.program.row([*partners, (int(one), -float(size))], 0.0, 0.0)
        return found

    def _most_bits(self, carried: Iterable[Exchange], source: int, target: int) -> float:
        most = self._assignment.most_on
        return sum(e.bits * most(e.source, source) * most(e.target, target) for e in carried)


def usable_arcs(links: Links) -> tuple[Arc, ...]:
    """Return the arcs of links with bandwidth."""
    tails = np.repeat(np.arange(links.nodes), np.diff(links.start))
    every = zip(tails.tolist(), links.head.tolist(), links.link.tolist(), strict=True)
    return tuple(Arc(*arc) for arc in every if links.bandwidth[arc[2]] > 0)


def is_forest(arcs: Sequence[Arc], nodes: int) -> bool:
    """Return whether there is at most one path between any two nodes."""
    directed = {(arc.tail, arc.head) for arc in arcs}
    joined = {(min(ends), max(ends)) for ends in directed}
    ends = np.array(sorted(joined), dtype=np.int32).reshape(-1, 2)
    graph = coo_array((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(nodes, nodes))
    parts, _ = connected_components(graph, directed=False)
    return len(directed) == len(arcs) and len(joined) == nodes - parts


def find_path(arcs: Sequence[Arc], source: int, target: int) -> tuple[int, ...] | None:
    """Return the links of a path with the minimum number of arcs; None if there is none."""
    came: dict[int, Arc | None] = {source: None}
    waiting = deque([source])
    while waiting and target not in came:
        node = waiting.popleft()
        for arc in arcs:
            if arc.tail == node and arc.head not in came:
                came[arc.head] = arc
                waiting.append(arc.head)
    if target not in came:
        return None
    links = []
    while (last := came[target]) is not None:
        links.append(last.link)
        target = last.tail
    return tuple(reversed(links))
