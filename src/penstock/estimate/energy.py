"""The energy per source tuple of a placement (SPARCLE, §V-B2): processors by utilisation, radios by traffic.

The power of a processor is proportional to its utilisation (Chen et al. 2015, the paper's [11]); that of a radio to its
send and receive rates, with a factor for each (Huang et al. 2012, its [19]). Everything is proportional to the rate of
source tuples, so the energy per tuple does not depend on it. A machine that relays a stream receives and sends it like
any other; switches have no radio and are not counted. Idle power is not counted either.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from penstock.model.cluster import Cluster
from penstock.model.entity import Entity, NonNegative
from penstock.model.placement import Placement
from penstock.model.routes import card_bits, hop_bits
from penstock.model.slotgraph import MEGABIT, Slots
from penstock.model.taskgraph import Floats, Tasks, sum_by


class Power(Entity, frozen=True):
    """The power of the machines of a cluster.

    The radio's defaults are those of Wi-Fi in Huang et al. 2012. The paper specifies no power of its processors; the
    default of 2 W, about that of a phone with all cores busy, is our choice.
    """

    cpu_watts: NonNegative = 2.0  # of a machine with all of its cores busy, above its idle power
    send_joules_a_megabit: NonNegative = 0.28317
    receive_joules_a_megabit: NonNegative = 0.13701


RADIOS: Mapping[str, Power] = {
    "wi-fi": Power(),
    "lte": Power(send_joules_a_megabit=0.43839, receive_joules_a_megabit=0.05197),
}
"""The power of machines by their kind of radio (Huang et al. 2012)."""


class Energy(NamedTuple):
    """Joules per source tuple on each machine; M machines."""

    processing: Floats  # [M]
    sending: Floats  # [M]
    receiving: Floats  # [M]

    @property
    def joules(self) -> float:
        """Total joules per source tuple."""
        return float(sum(part.sum() for part in self))

    @property
    def tuples_a_joule(self) -> float:
        """The number of source tuples processed per joule: the paper's energy efficiency."""
        return 1.0 / self.joules if self.joules > 0 else np.inf


def energy(tasks: Tasks, slots: Slots, cluster: Cluster, placement: Placement, power: Power | None = None) -> Energy:
    """Return the energy per source tuple of a complete placement."""
    drawn = power or Power()
    placed = np.asarray(placement.slots, dtype=np.int32)
    load = sum_by(slots.machine[placed], tasks.cpu * tasks.gain, slots.machines)
    sent, received = radio_bits(tasks, slots, cluster, placement)
    return Energy(
        processing=drawn.cpu_watts * load / slots.machine_cpu,
        sending=drawn.send_joules_a_megabit * sent / MEGABIT,
        receiving=drawn.receive_joules_a_megabit * received / MEGABIT,
    )


def radio_bits(tasks: Tasks, slots: Slots, cluster: Cluster, placement: Placement) -> tuple[Floats, Floats]:
    """Return the bits per source tuple that every machine sends and receives, including relayed ones: [M] each."""
    placed = np.asarray(placement.slots, dtype=np.int32)
    if not cluster.routed:
        return card_bits(tasks, slots, placed)
    sent, received = np.zeros(len(cluster.node_index)), np.zeros(len(cluster.node_index))
    for hop, bits in hop_bits(tasks, slots, placed).items():
        nodes = _nodes(cluster, hop.source, placement.routes[hop])
        sent[nodes[:-1]] += bits  # no node occurs twice on a path
        received[nodes[1:]] += bits
    return sent[: slots.machines], received[: slots.machines]


def _nodes(cluster: Cluster, source: int, links: Sequence[int]) -> list[int]:
    """Return the nodes of a route, including its ends."""
    nodes = [source]
    for number in links:
        link = cluster.links[number]
        ends = cluster.node_index[link.source], cluster.node_index[link.target]
        nodes.append(ends[1] if ends[0] == nodes[-1] else ends[0])
    return nodes
