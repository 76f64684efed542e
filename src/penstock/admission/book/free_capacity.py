"""What the cluster of a book has left for one more path."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from msgspec.structs import replace as changed

from penstock.model.book import BANDWIDTH, CPU, RECEIVING, SENDING, Book
from penstock.model.cluster import Cluster, Link, Machine
from penstock.model.remaining import EXHAUSTED, Amounts, add_up, capacities, scaled, with_capacities
from penstock.model.slotgraph import MEGABIT

MEMORY = "memory (MB)"
"""What a machine has beside what it does in a second; named so that no resource is taken for it."""


class Need(NamedTuple):
    """Something that an element has to give: one of its capacities, or a machine's memory."""

    element: str
    kind: str


@dataclass(frozen=True)
class Room:
    """Capacities left, and memory held, of a cluster some of whose elements have failed."""

    cluster: Cluster  # with the capacities of now, nothing taken
    left: Amounts
    held_mb: Mapping[str, float]
    failed: tuple[str, ...]
    shares: Mapping[str, float] = field(default_factory=dict)  # how much of an element can be had; absent: all of it

    @property
    def works(self) -> bool:
        """Whether any machine does."""
        return any(machine.name not in self.failed for machine in self.cluster.machines)

    def as_cluster(self) -> Cluster:
        """Return what is left as a cluster, for a placement policy."""
        return with_capacities(self.cluster, self.left, self.failed, self.held_mb, self.shares)

    def whole(self, need: Need) -> float:
        """Return what there is of something when none of it is taken: in bits, core-seconds, … a second, or in MB."""
        if need.kind == MEMORY:
            return self.cluster.machines[self.cluster.machine_index[need.element]].memory_mb
        return capacities(self.cluster)[need.element].get(need.kind, 0.0)

    def free(self, need: Need) -> float:
        """Return what is left of something."""
        if need.kind == MEMORY:
            return self.whole(need) - self.held_mb.get(need.element, 0.0)
        return self.left[need.element].get(need.kind, 0.0)

    def used_up(self, need: Need) -> bool:
        """Return whether there is something of the kind, and but for rounding nothing of it is left."""
        there_is = self.whole(need) * self.shares.get(need.element, 1.0)
        return there_is > 0 and self.free(need) <= EXHAUSTED * there_is

    def less(self, load: Amounts, rate_tps: float, memory_mb: Mapping[str, float]) -> "Room":
        """Return what a path leaves at a rate."""
        left = add_up([(self.left, 1.0), (load, -rate_tps)])
        return replace(self, left=left, held_mb=_memory([self.held_mb, memory_mb]))

    def times(self, shares: Mapping[str, float]) -> "Room":
        """Return a share of everything, by element; all of what is not named."""
        left = {
            element: {kind: amount * shares.get(element, 1.0) for kind, amount in kinds.items()}
            for element, kinds in self.left.items()
        }
        both = {element: share * shares.get(element, 1.0) for element, share in self.shares.items()}
        return replace(self, left=left, shares={**shares, **both})

    def without(self, element: str) -> "Room":
        """Return what is left without an element, as if it had failed."""
        return replace(self, failed=(*self.failed, element))

    def having(self, need: Need, amount: float) -> "Room":
        """Return what is left where an element has so much of something in all."""
        cluster = _with_capacity(self.cluster, need, amount)
        if need.kind == MEMORY:
            return replace(self, cluster=cluster)
        more = {need.element: {need.kind: amount - self.whole(need)}}
        return replace(self, cluster=cluster, left=add_up([(self.left, 1.0), (more, 1.0)]))


def main_kind(cluster: Cluster, element: str) -> str:
    """Return the kind of capacity that an element is known for: cpu of a machine, bandwidth of a link."""
    return CPU if element in cluster.machine_index else BANDWIDTH


def _with_capacity(cluster: Cluster, need: Need, amount: float) -> Cluster:
    def link_of(link: Link) -> Link:
        return changed(link, bandwidth_mbps=amount / MEGABIT) if link.label == need.element else link

    machines = tuple(_machine_with(m, need.kind, amount) if m.name == need.element else m for m in cluster.machines)
    return changed(cluster, machines=machines, links=tuple(link_of(link) for link in cluster.links))


def _machine_with(machine: Machine, kind: str, amount: float) -> Machine:
    if kind == CPU:
        return changed(machine, speed=amount / machine.cores)
    if kind == MEMORY:
        return changed(machine, memory_mb=amount)
    if kind == SENDING:
        return changed(
            machine, network_mbps=amount / MEGABIT, receive_mbps=machine.receive_mbps or machine.network_mbps
        )
    if kind == RECEIVING:
        return changed(machine, receive_mbps=amount / MEGABIT)
    return changed(machine, resources={**machine.resources, kind: amount})


def room_of(book: Book) -> Room:
    """Return what guaranteed applications leave of a book's cluster; best-effort ones hold their memory only.

    What is kept for a path that does not work now is not free: its elements may return at any time.
    """
    cluster = scaled(book.cluster, book.capacities)
    paths = [path for booking in book.bookings for path in booking.paths]
    taken = add_up((path.load, -path.reserved_tps) for path in paths)
    return Room(
        cluster=cluster,
        left=add_up([(capacities(cluster), 1.0), (taken, 1.0)]),
        held_mb=_memory(path.memory_mb for path in paths),
        failed=book.failed,
    )


def _memory(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for held in parts:
        for machine, amount in held.items():
            total[machine] = total.get(machine, 0.0) + amount
    return total
