"""The book of a cluster: which applications were let in, what each was promised, where it runs and at which rate.

An *element* is a machine or a switch, by its name, or a link, by its label. Nothing is placed on a switch and none is
said to fail by chance; but it may have failed, and then its links cannot be used. A *path* is one placement of all of
an application's tasks with the routes of its streams (SPARCLE's task assignment path); an application may have several,
to be there when one of them is not. A book is a value: letting an application in, releasing it or marking an element as
failed gives another book, whose version is one higher. `control.book` makes them.
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
"""What this version of Penstock writes into a book's file, and the only one that it reads."""

SAME = 1e-9  # relative; rates that differ by less are the same
ROUNDING = 1e-12  # by which a probability may fall short of what was asked

CPU = "machine"  # the kinds of capacity, named as in `estimate.bottleneck`; other resources go by their own names
BANDWIDTH = "link"
SENDING, RECEIVING = "network (out)", "network (in)"  # a machine's card, where there are no links


class Promise(StrEnum):
    """What an application was let in for."""

    GUARANTEED = "guaranteed"  # a rate, for a share of the time
    BEST_EFFORT = "best-effort"  # a fair share of what guaranteed ones leave


class BookedPath(Entity, frozen=True):
    """One placement of an application, and the rate at which it may take source tuples."""

    plan: Plan
    rate_tps: NonNegative  # now: 0 while one of its elements has failed
    load: dict[str, dict[str, NonNegative]]  # element -> kind -> a source tuple; a machine that only relays takes none
    reserved_tps: NonNegative = 0.0  # kept for it, whatever happens; only a guaranteed application has any
    kept_share: Probability = 1.0  # of that, what there is capacity for when all works; best effort: 0 without any rate
    slots: dict[str, NonNegative] = {}  # slot -> core-seconds a source tuple, on machines that have several threads
    memory_mb: dict[str, NonNegative] = {}  # machine -> what its tasks hold at any rate

    @property
    def elements(self) -> tuple[str, ...]:
        """Everything that must work for the path to work: machines, relays and links."""
        return tuple(self.load)


class Booking(Entity, frozen=True):
    """An application that was let in."""

    application: Application  # as it was let in
    policy: str  # of placement, that found its paths
    achieved_availability: Probability  # of the rate, or of at least one path, by the capacities of now
    paths: tuple[BookedPath, ...]
    priority: Priority = 1.0  # among best-effort applications, now
    seed: int = 0
    given: str = ""  # how the command line named it

    @property
    def name(self) -> str:
        """The application's name, by which the book knows it."""
        return self.application.name

    @property
    def kind(self) -> Promise:
        """What it was let in for."""
        return Promise.BEST_EFFORT if self.application.guaranteed_tps is None else Promise.GUARANTEED

    @property
    def guaranteed(self) -> bool:
        """Whether it was promised a rate."""
        return self.kind is Promise.GUARANTEED

    @property
    def wanted_tps(self) -> float | None:
        """The rate that it was promised; None for best effort."""
        return self.application.guaranteed_tps

    @property
    def demand_tps(self) -> float | None:
        """The rate that it offers, beyond which a share is of no use to it; None: guaranteed, or not stated."""
        return None if self.guaranteed else self.application.offered_tps

    @property
    def sated(self) -> bool:
        """Whether its paths carry all that it offers, now: it leaves the rest of its share to others."""
        return self.demand_tps is not None and self.rate_tps >= self.demand_tps * (1 - SAME)

    @property
    def availability(self) -> float | None:
        """The share of the time for which it asked to be served, where it did."""
        return self.application.availability

    @property
    def short(self) -> bool:
        """Whether its paths carry less than the rate that it was promised, now."""
        return self.wanted_tps is not None and self.rate_tps < self.wanted_tps * (1 - SAME)

    @property
    def seldom(self) -> bool:
        """Whether it is served for less of the time than it asked for."""
        return self.availability is not None and self.achieved_availability < self.availability - ROUNDING

    @property
    def rate_tps(self) -> float:
        """The rate of all its paths together, now."""
        return sum(path.rate_tps for path in self.paths)


class Book(Entity, frozen=True, dict=True):
    """All that was let into a cluster, which of its elements have failed, and which have changed their capacity."""

    cluster: Cluster  # as described
    version: int = 0  # counts every change
    bookings: tuple[Booking, ...] = ()  # in the order in which they were let in
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
        """How likely each element is to have failed at any time, by name: all machines, then all links."""
        machines = {machine.name: machine.failure_probability for machine in self.cluster.machines}
        return machines | {link.label: link.failure_probability for link in self.cluster.links}

    @cached_property
    def ends(self) -> Mapping[str, tuple[str, str]]:
        """The two ends of every link, by its label."""
        return {link.label: (link.source, link.target) for link in self.cluster.links}

    @cached_property
    def unusable(self) -> frozenset[str]:
        """What nothing can use now: what has failed, and all links of machines and switches that have."""
        cut = (label for label, ends in self.ends.items() if any(end in self.failed for end in ends))
        return frozenset((*self.failed, *cut))

    def works(self, path: BookedPath) -> bool:
        """Return whether all that a path needs works: its elements, and the switches that its links lead to."""
        return self.unusable.isdisjoint(path.load)

    def failed_ends(self, link: str) -> tuple[str, ...]:
        """Return which ends of a link have failed; none of what is no link."""
        return tuple(end for end in self.ends.get(link, ()) if end in self.failed)

    def failed_of(self, path: BookedPath) -> tuple[str, ...]:
        """Return what has failed of all that a path needs."""
        needed = dict.fromkeys(part for name in path.elements for part in (name, *self.ends.get(name, ())))
        return tuple(name for name in needed if name in self.failed)

    def refuse_unknown(self, field: str, element: str) -> None:
        """Raise `UnknownName` for a name that is no machine, switch or link of the cluster."""
        if element not in self.cluster.node_index and element not in self.ends:
            there = nearest(element, [*self.cluster.node_index, *self.ends])
            raise UnknownName(field, f"{self.cluster.name!r} has no machine, switch or link {element!r}; {there}")

    def refuse_incapable(self, field: str, element: str) -> None:
        """Raise for what is not there, and `InvalidInput` for a switch, which has no capacity of its own."""
        self.refuse_unknown(field, element)
        if element in self.cluster.switches:
            problem = f"{element!r} is a switch and has no capacity of its own; name one of its links"
            raise InvalidInput(field, problem)

    def refuse_booked(self, name: str) -> None:
        """Raise `DuplicateName` for an application that is in the book already."""
        if name in self.index:
            problem = f"{name!r} is in the book already; release it first, or rename the new one"
            raise DuplicateName("application", problem)
