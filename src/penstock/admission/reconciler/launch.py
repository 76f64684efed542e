"""From a booked path to a run: the application's dataflow on the part of the cluster that the path uses."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from dataclasses import replace as with_parts
from functools import partial
from pathlib import Path
from typing import Protocol

from msgspec.structs import replace

from penstock.admission.reconciler.split_logs import Splits
from penstock.api.dataflow import Dataflow
from penstock.api.sources.split import split_sources
from penstock.model.book import Book, BookedPath, Booking
from penstock.model.cluster import Cluster, machine_of
from penstock.model.errors import InvalidInput, UnknownName
from penstock.model.limits import Limits, update_limits
from penstock.model.part import part_of
from penstock.model.plan import Plan, digest
from penstock.model.status import Status
from penstock.model.topology import Application

Flows = Mapping[str, Dataflow] | Callable[[Booking], Dataflow]
"""Dataflows by application name, or a function that returns the dataflow of a booking."""


@dataclass(frozen=True)
class Launch:
    """Everything needed to start the run of a path."""

    flow: Dataflow  # its sources emit the path's part of the tuples
    cluster: Cluster  # the part that the path uses
    plan: Plan
    limits: Mapping[str, float]  # tuples per second, by source
    note_folder: Callable[[Path], None]  # called with the run's folder before any task starts


class PathRun(Protocol):
    """The operations on a run that the reconciler needs; see `runtime.handle.Handle`."""

    @property
    def folder(self) -> Path:
        """The run's folder."""

    def status(self) -> Status:
        """Return its current status."""

    def limit(self, limits: Limits) -> dict[str, float]:
        """Limit the rates of its sources, in tuples per second."""

    def drain(self, timeout: float | None = None) -> None:
        """Process everything in flight and end."""

    def stop(self) -> None:
        """End at once."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end; return whether the run has ended."""


Start = Callable[[Launch], PathRun]


def flow_of_booking(booking: Booking, flows: Flows) -> Dataflow:
    """Return the dataflow of a booking by its name in the book; reject one of another shape."""
    if callable(flows):
        found = flows(booking)
    elif booking.name in flows:
        found = flows[booking.name]
    else:
        raise UnknownName("flows", f"there is no dataflow for {booking.name!r}; add one with that name")
    flow = _pinned(Dataflow(booking.name, found.parts), booking.application)
    if shape(flow.application) != shape(booking.application):
        problem = f"the components, streams or costs of {booking.name!r} differ from those admitted"
        raise InvalidInput("application", f"{problem}; release it and admit it again")
    return flow


def _pinned(flow: Dataflow, application: Application) -> Dataflow:
    """Return a dataflow whose components are pinned as in the admitted application."""
    parts = dict(flow.parts)
    for component in application.components:
        if (part := parts.get(component.name)) is not None:
            parts[component.name] = with_parts(part, component=replace(part.component, pinned=component.pinned))
    return Dataflow(flow.name, parts)


def shape(application: Application) -> str:
    """Return a fingerprint of an application that does not depend on its guarantees or offered rates."""
    return digest(replace(application, priority=1.0, guaranteed_tps=None, availability=None))


def prepare_launch(book: Book, booking: Booking, path: BookedPath, flow: Dataflow, splits: Splits, name: str) -> Launch:
    """Return how to start a path; `name` identifies it in the split logs.

    The cluster is as described: current capacities are set for all runs that share it at once.
    """
    cluster, plan = part_of(book.cluster, booking.application, path.plan)
    plan = replace(plan, application_digest=digest(flow.application))  # the plan's digest includes the guarantees
    note_folder = partial(splits.note_run, name)
    return Launch(split_sources(flow, splits.folder, name), cluster, plan, booked_limits(booking, path), note_folder)


def booked_limits(booking: Booking, path: BookedPath) -> dict[str, float]:
    """Return the booked rate of a path by source, in proportion to the sources' offered rates."""
    return update_limits({}, path.rate_tps, booking.application)


def used_machines(path: BookedPath) -> tuple[str, ...]:
    """Return the machines that a path has tasks on."""
    return tuple(dict.fromkeys(machine_of(slot) for slots in path.plan.tasks.values() for slot in slots))


def count_workers(book: Book) -> int:
    """Return the number of worker processes that all paths of a book need at once, one per machine of a path."""
    return sum(len(used_machines(path)) for booking in book.bookings for path in booking.paths)
