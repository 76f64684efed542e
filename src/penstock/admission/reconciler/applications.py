"""An application that is being run: its dataflow, its paths, and how they share its sources."""

from contextlib import suppress
from pathlib import Path

from penstock.admission.reconciler.launch import booked_limits
from penstock.admission.reconciler.live_path import Goal, LivePath, describe_error
from penstock.admission.reconciler.split_logs import Splits
from penstock.admission.reconciler.state import Key, PathPhase, SharedSources
from penstock.api.dataflow import Dataflow
from penstock.model.book import Book, BookedPath, Booking
from penstock.model.errors import PenstockError

IDLE = 1e-3  # of an application's rate: a path that gets less does not justify its workers


class LiveApplication:
    """One application; only the reconciler's thread changes it."""

    def __init__(self, booking: Booking, digest: str, flow: Dataflow, folder: Path) -> None:
        self.booking = booking
        self.digest = digest
        self.flow = flow
        self.splits = Splits(folder, [source.name for source in booking.application.sources], flow)
        self.paths: list[LivePath] = []

    @property
    def name(self) -> str:
        """Its name in the book."""
        return self.booking.name

    @property
    def key(self) -> Key:
        """Key of its split logs."""
        return self.name, self.digest

    @property
    def finished(self) -> bool:
        """Whether nothing remains to be done for it."""
        return not self.paths

    def follow(self, book: Book, booking: Booking | None) -> None:
        """Update its paths and their rates from a booking; None: it was released.

        A path is identified by its plan. One that is no longer in the booking is drained, whatever its number was.
        """
        left = list(self.paths)
        for each in left:
            each.goal = Goal.REMOVED
        if booking is None:
            return
        self.booking = booking
        for number, booked in enumerate(booking.paths):
            rates = booked_limits(booking, booked)
            path = next((each for each in left if each.booked.plan == booked.plan), None)
            if path is None:
                path = LivePath(self.name, number, booked, rates)
                self.paths.append(path)
            else:
                left.remove(path)
            path.number, path.booked, path.rates = number, booked, rates
            path.goal = desired_goal(book, booking, booked)

    def weigh(self) -> None:
        """Split the sources in proportion to the rates of the paths that run or soon will."""
        there = [
            path
            for path in self.paths
            if path.goal is Goal.RUN and path.phase in (PathPhase.STARTING, PathPhase.RUNNING)
        ]
        if there:
            self.splits.weigh({path.name: path.booked.rate_tps for path in there})

    def new_name(self, path: LivePath) -> str:
        """Return a name for the next run of a path."""
        return self.splits.name(path.number, [each.name for each in self.paths if each.run is not None or each.busy])

    def sources_ended(self) -> bool:
        """Return whether its sources have ended and no tuples of them are left; False if unknown."""
        with suppress(OSError, PenstockError):
            return self.splits.sources_ended()
        return False

    def revive(self) -> None:
        """Start paths again that had read everything, because tuples were returned."""
        for path in self.paths:
            if path.phase is PathPhase.ENDED:
                path.phase = PathPhase.WAITING

    def take_over(self) -> list[str]:
        """Return the unprocessed tuples of a previous reconciler's paths; return messages about them.

        The split logs record which run each path was, before it took any tuple.
        """
        messages = []
        for name in self.splits.unfinished():
            try:
                returned = self.splits.give_up(name)
            except Exception as problem:  # whatever its folder contains, the other paths must not suffer
                why = describe_error(problem)
                messages.append(
                    f"warning: {self.name}: path {name} of the previous reconciler returns no tuples: {why}"
                )
                continue
            messages.append(
                f"{self.name}: path {name} of the previous reconciler has ended; tuples returned: {returned:,}"
            )
        return messages

    def shared(self) -> SharedSources:
        """Return where its paths share its sources, for the next reconciler."""
        return SharedSources(application=self.name, digest=self.digest, folder=str(self.splits.folder.absolute()))


def desired_goal(book: Book, booking: Booking, path: BookedPath) -> Goal:
    """Return the desired state of a path according to a book."""
    if not book.works(path):
        return Goal.DOWN
    return Goal.RUN if path.rate_tps > IDLE * booking.rate_tps else Goal.STANDBY
