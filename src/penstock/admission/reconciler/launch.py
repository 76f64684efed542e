"""From a booked path to a run: the dataflow that the booking means, on the part of the cluster that the path uses."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from dataclasses import replace as with_parts
from functools import partial
from pathlib import Path
from typing import Protocol

from msgspec.structs import replace

from penstock.admission.reconciler.split_logs import Splits
from penstock.api.dataflow import Dataflow
from penstock.api.sources.split import split
from penstock.model.book import Book, BookedPath, Booking
from penstock.model.cluster import Cluster, machine_of
from penstock.model.errors import InvalidInput, UnknownName
from penstock.model.limits import Limits, changed_limits
from penstock.model.part import part_of
from penstock.model.plan import Plan, digest
from penstock.model.status import Status
from penstock.model.topology import Application

Flows = Mapping[str, Dataflow] | Callable[[Booking], Dataflow]
"""Dataflows by the name of the application, or a function that finds that of a booking."""


@dataclass(frozen=True)
class Launch:
    """Everything that a run of a path is started with."""

    flow: Dataflow  # its sources are the path's part of them
    cluster: Cluster  # the part that the path uses
    plan: Plan
    limits: Mapping[str, float]  # tuples a second, by source
    noted: Callable[[Path], None]  # to be called with the run's folder before anything of it can run


class PathRun(Protocol):
    """What the operator asks of a run; `runtime.handle.Handle` says what that means."""

    @property
    def folder(self) -> Path:
        """The run's folder."""
        ...

    def status(self) -> Status:
        """Return how it is going."""
        ...

    def limit(self, limits: Limits) -> dict[str, float]:
        """Let sources give so many tuples a second from now on."""
        ...

    def drain(self, timeout: float | None = None) -> None:
        """Process everything in flight and end."""
        ...

    def stop(self) -> None:
        """End at once."""
        ...

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end; return whether it has come."""
        ...


Start = Callable[[Launch], PathRun]


def find_flow(booking: Booking, flows: Flows) -> Dataflow:
    """Return the dataflow of a booking under the name that the book has for it; refuse one of another shape."""
    if callable(flows):
        found = flows(booking)
    elif booking.name in flows:
        found = flows[booking.name]
    else:
        raise UnknownName("flows", f"there is no dataflow for {booking.name!r}; give one by that name")
    flow = _pinned(Dataflow(booking.name, found.parts), booking.application)
    if shape(flow.application) != shape(booking.application):
        problem = f"the components, streams or costs of {booking.name!r} are not those that were admitted"
        raise InvalidInput("application", f"{problem}; release it and admit it again")
    return flow


def _pinned(flow: Dataflow, application: Application) -> Dataflow:
    """Return a dataflow whose components are pinned where they were when it was admitted."""
    parts = dict(flow.parts)
    for component in application.components:
        if (part := parts.get(component.name)) is not None:
            parts[component.name] = with_parts(part, component=replace(part.component, pinned=component.pinned))
    return Dataflow(flow.name, parts)


def shape(application: Application) -> str:
    """Return a fingerprint of an application that what it was promised and how it is offered do not change."""
    return digest(replace(application, priority=1.0, guaranteed_tps=None, availability=None))


def launch(book: Book, booking: Booking, path: BookedPath, flow: Dataflow, splits: Splits, name: str) -> Launch:
    """Return how a path is started: by which name it takes its part of the sources.

    The cluster is as described: what the book says of its capacities now, all runs that share it are told at once.
    """
    cluster, plan = part_of(book.cluster, booking.application, path.plan)
    plan = replace(plan, application_digest=digest(flow.application))  # the plan was made with what it is promised
    noted = partial(splits.note_run, name)
    return Launch(split(flow, splits.folder, name), cluster, plan, limits_of(booking, path), noted)


def limits_of(booking: Booking, path: BookedPath) -> dict[str, float]:
    """Return the booked rate of a path by source, in proportion to what the sources are offered."""
    return changed_limits({}, path.rate_tps, booking.application)


def machines_of(path: BookedPath) -> tuple[str, ...]:
    """Return the machines that a path has tasks on."""
    return tuple(dict.fromkeys(machine_of(slot) for slots in path.plan.tasks.values() for slot in slots))


def workers_of(book: Book) -> int:
    """Return how many worker processes all paths of a book need at once, a machine of a path each."""
    return sum(len(machines_of(path)) for booking in book.bookings for path in booking.paths)
