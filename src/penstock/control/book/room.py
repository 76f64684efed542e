"""What the cluster of a book has left for one more path."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from msgspec.structs import replace as changed

from penstock.model.book import BANDWIDTH, CPU, Book
from penstock.model.cluster import Cluster
from penstock.model.remaining import Amounts, add_up, capacities, scaled, with_capacities
from penstock.model.slotgraph import MEGABIT


@dataclass(frozen=True)
class Room:
    """Capacities left, and memory held, of a cluster some of whose elements have failed."""

    cluster: Cluster  # with the capacities of now, nothing taken
    left: Amounts
    held_mb: Mapping[str, float]
    failed: tuple[str, ...]

    def as_cluster(self) -> Cluster:
        """Return what is left as a cluster, for a placement policy."""
        return with_capacities(self.cluster, self.left, self.failed, self.held_mb)

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
        return replace(self, left=left)

    def without(self, element: str) -> "Room":
        """Return what is left without an element, as if it had failed."""
        return replace(self, failed=(*self.failed, element))

    def raised(self, element: str, more: float) -> "Room":
        """Return what is left where a machine has more cpu, or a link more bandwidth, than it has."""
        kind = main_kind(self.cluster, element)
        there_is = capacities(self.cluster)[element][kind] + more
        cluster = _with_capacity(self.cluster, element, there_is)
        return replace(self, cluster=cluster, left=add_up([(self.left, 1.0), ({element: {kind: more}}, 1.0)]))


def main_kind(cluster: Cluster, element: str) -> str:
    """Return the kind of capacity that an element is known for: cpu of a machine, bandwidth of a link."""
    return CPU if element in cluster.machine_index else BANDWIDTH


def _with_capacity(cluster: Cluster, element: str, amount: float) -> Cluster:
    machines = tuple(
        changed(machine, speed=amount / machine.cores) if machine.name == element else machine
        for machine in cluster.machines
    )
    links = tuple(
        changed(link, bandwidth_mbps=amount / MEGABIT) if link.label == element else link for link in cluster.links
    )
    return changed(cluster, machines=machines, links=links)


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
