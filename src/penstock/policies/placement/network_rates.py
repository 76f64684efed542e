"""The rate that the network would allow if a task were put on each machine: the second half of SPARCLE's eq. (2).

On a routed cluster a transport takes the widest path and is charged to every link of it; on a full mesh it is charged
to the network card it leaves by and the one it arrives by. Every transport is rated alone, as in eq. (2).
"""

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from penstock.model.kernel import kernel, part
from penstock.model.placement import Hop
from penstock.model.routes import fewest_links, widest_path, widest_tree
from penstock.model.slotgraph import Links
from penstock.model.taskgraph import Floats
from penstock.policies.api import PlacementView
from penstock.policies.placement.transports import ALL_TASKS, Reach, Transports


class Network(Protocol):
    """What the transports of the tasks placed so far leave of the network."""

    def rates(self, task: int) -> Floats:
        """Return the rate that the network allows with a task on each machine; 0: no way leads there. [M]"""
        ...

    def put(self, task: int, machine: int) -> None:
        """Charge what a task on a machine exchanges with its placed neighbours; call before `Transports.put`."""
        ...

    def detour(self, task: int) -> Floats:
        """Return what its neighbours' transports would take of the network with a task on each machine. [M]"""
        ...

    def routes(self) -> Mapping[Hop, tuple[int, ...]] | None:
        """Return the route of every hop so far, or none where a hop has no way."""
        ...


def network_of(view: PlacementView, transports: Transports) -> Network:
    """Return the network of a view's cluster, with nothing on it yet."""
    return Routed(view, transports) if view.cluster.routed else Mesh(view, transports)


class Mesh:
    """Network cards around a core that never limits; cards of unknown speed never limit either."""

    def __init__(self, view: PlacementView, transports: Transports) -> None:
        self._sends, self._receives = view.slots.machine_network
        self._carded = bool(np.isfinite(self._sends).any())
        self._transports = transports
        self._machines = view.slots.machines
        self.sent = np.zeros(self._machines)  # bits a source tuple, so far
        self.received = np.zeros(self._machines)

    def rates(self, task: int) -> Floats:
        """Return the rate that the cards allow with a task on each machine. [M]"""
        if not self._carded:
            return np.full(self._machines, np.inf)
        down, up = self._transports.downstream(task), self._transports.upstream(task)
        leaving = card_rates(down, self._sends, self._receives, self.sent, self.received)
        arriving = card_rates(up, self._receives, self._sends, self.received, self.sent)
        return np.asarray(np.minimum(leaving, arriving))

    def put(self, task: int, machine: int) -> None:
        """Charge the cards of both ends."""
        if not self._carded:
            return
        for near, far, exchanged in (
            (self.sent, self.received, self._transports.sent(task)),
            (self.received, self.sent, self._transports.received(task)),
        ):
            for _, bits in exchanged:
                near[machine] += bits.sum() - bits[machine]
                far += bits
                far[machine] -= bits[machine]

    def detour(self, task: int) -> Floats:
        """Return the bits that would leave or reach each machine over the network. [M]"""
        exchanged = self._transports.sent(task) + self._transports.received(task)
        bits = sum((bits for _, bits in exchanged), np.zeros(self._machines))
        return np.asarray(bits.sum() - bits)

    def routes(self) -> Mapping[Hop, tuple[int, ...]]:
        """Return no routes: a mesh needs none."""
        return {}


class Routed:
    """Links, and the routes taken so far: a hop keeps the route that it was given when it first carried something."""

    def __init__(self, view: PlacementView, transports: Transports) -> None:
        self._machines = view.slots.machines
        self._links = view.links
        self.back = reverse(view.links)
        self._transports = transports
        self.load = np.zeros(len(view.links.bandwidth))  # bits a source tuple, so far
        self._routes: dict[Hop, tuple[int, ...]] = {}
        self._cut_off = False
        self._steps: dict[tuple[int, bool], Floats] = {}

    def rates(self, task: int) -> Floats:
        """Return the rate that the widest paths allow with a task on each machine. [M]"""
        leaving = path_rates(self._transports.downstream(task), self.back, self.load)
        arriving = path_rates(self._transports.upstream(task), self._links, self.load)
        return np.asarray(np.minimum(leaving, arriving))

    def put(self, task: int, machine: int) -> None:
        """Route the hops to and from the placed neighbours, stream by stream, and charge their links."""
        out = [(stream, True, bits) for stream, bits in self._transports.sent(task)]
        into = [(stream, False, bits) for stream, bits in self._transports.received(task)]
        for stream, leaves, bits in sorted(out + into, key=lambda transport: transport[0]):
            for other in np.flatnonzero(bits > 0).tolist():
                if other != machine:
                    hop = Hop(stream, machine, other) if leaves else Hop(stream, other, machine)
                    self._charge(hop, float(bits[other]))

    def _charge(self, hop: Hop, bits: float) -> None:
        if hop not in self._routes:
            _, path = widest_path(self._links, self.load, bits, hop.source, hop.target)
            self._cut_off |= not len(path)
            self._routes[hop] = tuple(int(link) for link in path)
        self.load[list(self._routes[hop])] += bits

    def detour(self, task: int) -> Floats:
        """Return bits × links that transports to and from each machine would take by the fewest links. [M]"""
        total = np.zeros(self._machines)
        for leaves, exchanged in ((True, self._transports.sent(task)), (False, self._transports.received(task))):
            for _, bits in exchanged:
                for other in np.flatnonzero(bits > 0).tolist():
                    total += bits[other] * self._links_from(other, leaves)
        return total

    def routes(self) -> Mapping[Hop, tuple[int, ...]] | None:
        """Return the route of every hop so far, or none where a hop has no way."""
        return None if self._cut_off else self._routes

    def _links_from(self, machine: int, backwards: bool) -> Floats:
        if (machine, backwards) not in self._steps:
            steps = fewest_links(self.back if backwards else self._links, machine)
            self._steps[machine, backwards] = steps[: self._machines]
        return self._steps[machine, backwards]


@kernel
def reverse(links: Links) -> Links:
    """Return the same links with every arc turned round, so that a tree from a node tells who reaches it best."""
    start = np.zeros(links.nodes + 1, dtype=np.int32)
    head, link = np.empty_like(links.head), np.empty_like(links.link)
    for arc in range(len(head)):
        start[links.head[arc] + 1] += 1
    for node in range(links.nodes):
        start[node + 1] += start[node]
    filled = start.copy()
    for node in range(links.nodes):
        for arc in range(links.start[node], links.start[node + 1]):
            place = filled[links.head[arc]]
            head[place], link[place] = node, links.link[arc]
            filled[links.head[arc]] += 1
    return Links(links.nodes, links.bandwidth, links.latency_ms, start, head, link)


@kernel
def path_rates(reach: Reach, links: Links, load: Floats) -> Floats:
    """Return the lowest rate of the widest paths between each machine and those of the tasks reached. [M]"""
    machines = reach.tasks_on.shape[1]
    rate = np.full(machines, np.inf)
    for component in range(len(reach.bits)):
        for other in range(machines):
            tasks = reach.tasks_on[component, other]
            if reach.partner[component] != ALL_TASKS:
                tasks = 1.0 if reach.partner[component] == other else 0.0
            bits = reach.bits[component] * tasks
            if bits > 0.0:
                width, _, _ = widest_tree(links, load, bits, other)
                for machine in range(machines):
                    rate[machine] = min(rate[machine], width[machine])
    return rate


@kernel
def card_rates(reach: Reach, near_card: Floats, far_card: Floats, near_load: Floats, far_load: Floats) -> Floats:
    """Return the rate that the cards on both ends allow for the tasks reached from each machine. [M]

    `near_card` and `near_load` are what the cards can carry, and do, in the direction in which the tuples pass the
    task's own card, `far_card` and `far_load` in the direction in which they pass the others'.
    """
    machines = len(near_card)
    near, far = np.zeros(machines), np.zeros(machines)  # most bits that a component adds to the card
    for component in range(len(reach.bits)):
        bits, partner = reach.bits[component], reach.partner[component]
        if bits > 0.0 and partner == ALL_TASKS:
            tasks_on = reach.tasks_on[component]
            everywhere = tasks_on.sum()
            if everywhere > 0.0:
                for machine in range(machines):
                    near[machine] = max(near[machine], bits * (everywhere - tasks_on[machine]))
                    far[machine] = max(far[machine], bits * tasks_on[machine])
        elif bits > 0.0 and partner >= 0:
            far[partner] = max(far[partner], bits)
            for machine in range(machines):
                if machine != partner:
                    near[machine] = max(near[machine], bits)
    rates = np.full(machines, np.inf)
    lower_by_cards(rates, near_card, far_card, near, far, near_load, far_load)
    return rates


@part
def lower_by_cards(
    rates: Floats, near_card: Floats, far_card: Floats, near: Floats, far: Floats, near_load: Floats, far_load: Floats
) -> None:
    """Lower rates to what cards allow with a task on each machine that adds `near` there and `far` to all others'."""
    machines = len(rates)
    lowest, second, where = np.inf, np.inf, -1  # of the others' cards; a machine's own does not count
    for machine in range(machines):
        if far[machine] > 0.0:
            rate = far_card[machine] / (far_load[machine] + far[machine])
            if rate < lowest:
                lowest, second, where = rate, lowest, machine
            else:
                second = min(second, rate)
    for machine in range(machines):
        own = near_card[machine] / (near_load[machine] + near[machine]) if near[machine] > 0.0 else np.inf
        rates[machine] = min(rates[machine], own, second if machine == where else lowest)
