"""What a book leaves of its cluster for one more path."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from msgspec.structs import replace as changed

from penstock.model.book import BANDWIDTH, CPU, RECEIVING, SENDING, Book
from penstock.model.cluster import Cluster, Link, Machine
from penstock.model.remaining import EXHAUSTED, Amounts, add_up, capacities, scaled, with_capacities
from penstock.model.slotgraph import MEGABIT

MEMORY = "memory (MB)"
"""Key of a machine's memory, which is held and not used per second; no resource can have this name."""


class Need(NamedTuple):
    """A capacity of an element, or a machine's memory."""

    element: str
    kind: str


@dataclass(frozen=True)
class FreeCapacity:
    """Free capacities and held memory of a cluster, some of whose elements have failed."""

    cluster: Cluster  # with current capacities, nothing subtracted
    left: Amounts
    held_mb: Mapping[str, float]
    failed: tuple[str, ...]
    shares: Mapping[str, float] = field(default_factory=dict)  # usable share of an element; default: all of it

    @property
    def works(self) -> bool:
        """Whether any machine works."""
        return any(machine.name not in self.failed for machine in self.cluster.machines)

    def as_cluster(self) -> Cluster:
        """Return the free capacity as a cluster, for a placement policy."""
        return with_capacities(self.cluster, self.left, self.failed, self.held_mb, self.shares)

    def whole(self, need: Need) -> float:
        """Return the total of a capacity: in bits, core-seconds, … per second, or in MB."""
        if need.kind == MEMORY:
            return self.cluster.machines[self.cluster.machine_index[need.element]].memory_mb
        return capacities(self.cluster)[need.element].get(need.kind, 0.0)

    def free(self, need: Need) -> float:
        """Return what is free of a capacity."""
        if need.kind == MEMORY:
            return self.whole(need) - self.held_mb.get(need.element, 0.0)
        return self.left[need.element].get(need.kind, 0.0)

    def used_up(self, need: Need) -> bool:
        """Return whether the capacity exists and, but for rounding, nothing of it is free."""
        there_is = self.whole(need) * self.shares.get(need.element, 1.0)
        return there_is > 0 and self.free(need) <= EXHAUSTED * there_is

    def less(self, load: Amounts, rate_tps: float, memory_mb: Mapping[str, float]) -> "FreeCapacity":
        """Return what a path at a rate leaves."""
        left = add_up([(self.left, 1.0), (load, -rate_tps)])
        return replace(self, left=left, held_mb=_memory([self.held_mb, memory_mb]))

    def times(self, shares: Mapping[str, float]) -> "FreeCapacity":
        """Return a share of every capacity, by element; elements that are not named keep all."""
        left = {
            element: {kind: amount * shares.get(element, 1.0) for kind, amount in kinds.items()}
            for element, kinds in self.left.items()
        }
        both = {element: share * shares.get(element, 1.0) for element, share in self.shares.items()}
        return replace(self, left=left, shares={**shares, **both})

    def without(self, element: str) -> "FreeCapacity":
        """Return what is free without an element, as if it had failed."""
        return replace(self, failed=(*self.failed, element))

    def having(self, need: Need, amount: float) -> "FreeCapacity":
        """Return what is free if a capacity has the given total."""
        cluster = _with_capacity(self.cluster, need, amount)
        if need.kind == MEMORY:
            return replace(self, cluster=cluster)
        more = {need.element: {need.kind: amount - self.whole(need)}}
        return replace(self, cluster=cluster, left=add_up([(self.left, 1.0), (more, 1.0)]))


def main_kind(cluster: Cluster, element: str) -> str:
    """Return an element's main capacity: cpu of a machine, bandwidth of a link."""
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


def find_free_capacity(book: Book) -> FreeCapacity:
    """Return what guaranteed applications leave of a book's cluster; best-effort ones hold only their memory.

    The reservation of a path that does not work now is not free: its elements may recover at any time.
    """
    cluster = scaled(book.cluster, book.capacities)
    paths = [path for booking in book.bookings for path in booking.paths]
    taken = add_up((path.load, -path.reserved_tps) for path in paths)
    return FreeCapacity(
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
