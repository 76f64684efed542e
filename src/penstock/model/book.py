"""The book of a cluster: its admitted applications, their guarantees, and the paths and rates booked for them.

An *element* is a machine or a switch, identified by its name, or a link, identified by its label. Switches run no tasks
and have no failure probability, but a switch can be marked as failed; its links are then unusable. A *path* is one
placement of all tasks of an application, with the routes of its streams (SPARCLE's task assignment path). An
application may have several paths for redundancy. A book is an immutable value: admitting or releasing an application,
or marking an element as failed, returns a new book whose version is one higher. `penstock.admission.book` does so.
"""

from collections.abc import Mapping
from enum import StrEnum
from functools import cached_property

from penstock.model.cluster import Cluster
from penstock.model.entity import Entity, NonNegative, Positive, Priority, Probability
from penstock.model.errors import DuplicateName, InvalidInput, UnknownName, nearest, refuse_duplicates
from penstock.model.plan import Plan
from penstock.model.topology import Application

FORMAT = 1
"""The format version in a book's file. No other version can be read."""

SAME = 1e-9  # relative; rates that differ by less are equal
ROUNDING = 1e-12  # tolerance by which a probability may fall short of the requested one

CPU = "machine"  # the kinds of capacity, named as in `estimate.bottleneck`; other resources have their own names
BANDWIDTH = "link"
SENDING, RECEIVING = "network (out)", "network (in)"  # a machine's network card, on clusters without links


class Promise(StrEnum):
    """The service class of an admitted application."""

    GUARANTEED = "guaranteed"  # a rate, for a share of the time
    BEST_EFFORT = "best-effort"  # a fair share of what guaranteed applications leave


class BookedPath(Entity, frozen=True):
    """One placement of an application, and the rate of source tuples booked for it."""

    plan: Plan
    rate_tps: NonNegative  # current rate; 0 while one of its elements has failed
    load: dict[str, dict[str, NonNegative]]  # element -> kind -> per source tuple; relays have no entry
    reserved_tps: NonNegative = 0.0  # reserved permanently; 0 for best effort
    kept_share: Probability = 1.0  # fraction of `reserved_tps` with capacity; best effort: 0 without a rate
    slots: dict[str, NonNegative] = {}  # slot -> core-seconds per source tuple, on machines with several threads
    memory_mb: dict[str, NonNegative] = {}  # machine -> memory of its tasks, at any rate

    @property
    def elements(self) -> tuple[str, ...]:
        """The elements that the path depends on: machines, relays and links."""
        return tuple(self.load)


class Booking(Entity, frozen=True):
    """An admitted application."""

    application: Application  # as admitted
    policy: str  # the placement policy that found its paths
    achieved_availability: Probability  # of the rate, or of at least one path, with current capacities
    paths: tuple[BookedPath, ...]
    priority: Priority = 1.0  # current priority among best-effort applications
    seed: int = 0
    given: str = ""  # the application's argument on the command line

    @property
    def name(self) -> str:
        """The application's name, which identifies it in the book."""
        return self.application.name

    @property
    def kind(self) -> Promise:
        """The service class."""
        return Promise.BEST_EFFORT if self.application.guaranteed_tps is None else Promise.GUARANTEED

    @property
    def guaranteed(self) -> bool:
        """Whether it has a guaranteed rate."""
        return self.kind is Promise.GUARANTEED

    @property
    def wanted_tps(self) -> float | None:
        """The guaranteed rate; None for best effort."""
        return self.application.guaranteed_tps

    @property
    def demand_tps(self) -> float | None:
        """The offered rate, an upper bound on its share; None if guaranteed or unknown."""
        return None if self.guaranteed else self.application.offered_tps

    @property
    def sated(self) -> bool:
        """Whether its paths carry all of its offered rate, so that the rest of its share goes to others."""
        return self.demand_tps is not None and self.rate_tps >= self.demand_tps * (1 - SAME)

    @property
    def availability(self) -> float | None:
        """The requested availability, if any."""
        return self.application.availability

    @property
    def short(self) -> bool:
        """Whether its paths currently carry less than the guaranteed rate."""
        return self.wanted_tps is not None and self.rate_tps < self.wanted_tps * (1 - SAME)

    @property
    def seldom(self) -> bool:
        """Whether its achieved availability is lower than requested."""
        return self.availability is not None and self.achieved_availability < self.availability - ROUNDING

    @property
    def rate_tps(self) -> float:
        """The current rate of all its paths together."""
        return sum(path.rate_tps for path in self.paths)


class Book(Entity, frozen=True, dict=True):
    """The applications admitted to a cluster, its failed elements, and its changed capacities."""

    cluster: Cluster  # as described
    version: int = 0  # counts every change
    bookings: tuple[Booking, ...] = ()  # in order of admission
    failed: tuple[str, ...] = ()  # elements
    capacities: dict[str, Positive] = {}  # element -> factor on a machine's speed or a link's bandwidth; absent: 1

    def _check(self) -> None:
        refuse_duplicates("bookings", [booking.name for booking in self.bookings])
        if both := sorted(self.cluster.node_index.keys() & {link.label for link in self.cluster.links}):
            thing = "machine" if both[0] in self.cluster.machine_index else "switch"
            raise InvalidInput("cluster", f"{both[0]!r} is a {thing} and a link; rename the {thing}")
        for position, element in enumerate(self.failed):
            self.refuse_unknown(f"failed[{position}]", element)
        for element in self.capacities:
            self.refuse_incapable(f"capacities.{element}", element)

    def __getitem__(self, name: str) -> Booking:
        """Return an application's booking; raises `UnknownName`."""
        if name not in self.index:
            there = nearest(name, self.index) if self.index else "it has none"
            raise UnknownName("application", f"the book has none named {name!r}; {there}")
        return self.bookings[self.index[name]]

    @cached_property
    def index(self) -> Mapping[str, int]:
        """The position of each booking, by the application's name."""
        return {booking.name: position for position, booking in enumerate(self.bookings)}

    @cached_property
    def failure_probabilities(self) -> Mapping[str, float]:
        """The failure probability of each element, by name: all machines, then all links."""
        machines = {machine.name: machine.failure_probability for machine in self.cluster.machines}
        return machines | {link.label: link.failure_probability for link in self.cluster.links}

    @cached_property
    def ends(self) -> Mapping[str, tuple[str, str]]:
        """The two ends of every link, by its label."""
        return {link.label: (link.source, link.target) for link in self.cluster.links}

    @cached_property
    def unusable(self) -> frozenset[str]:
        """Elements that cannot be used: failed ones, and all links of failed machines and switches."""
        cut = (label for label, ends in self.ends.items() if any(end in self.failed for end in ends))
        return frozenset((*self.failed, *cut))

    def works(self, path: BookedPath) -> bool:
        """Return whether a path's elements work, and the switches at the ends of its links."""
        return self.unusable.isdisjoint(path.load)

    def failed_ends(self, link: str) -> tuple[str, ...]:
        """Return which ends of a link have failed; empty for anything that is not a link."""
        return tuple(end for end in self.ends.get(link, ()) if end in self.failed)

    def failed_of(self, path: BookedPath) -> tuple[str, ...]:
        """Return the failed elements among those that a path depends on."""
        needed = dict.fromkeys(part for name in path.elements for part in (name, *self.ends.get(name, ())))
        return tuple(name for name in needed if name in self.failed)

    def refuse_unknown(self, field: str, element: str) -> None:
        """Raise `UnknownName` unless the name is a machine, switch or link of the cluster."""
        if element not in self.cluster.node_index and element not in self.ends:
            there = nearest(element, [*self.cluster.node_index, *self.ends])
            raise UnknownName(field, f"{self.cluster.name!r} has no machine, switch or link {element!r}; {there}")

    def refuse_incapable(self, field: str, element: str) -> None:
        """Raise `UnknownName` for an unknown element, and `InvalidInput` for a switch, which has no capacity."""
        self.refuse_unknown(field, element)
        if element in self.cluster.switches:
            problem = f"{element!r} is a switch and has no capacity of its own; name one of its links"
            raise InvalidInput(field, problem)

    def refuse_booked(self, name: str) -> None:
        """Raise `DuplicateName` for an application that is already in the book."""
        if name in self.index:
            problem = f"{name!r} is already in the book; release it first, or rename the new one"
            raise DuplicateName("application", problem)
