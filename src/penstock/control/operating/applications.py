"""An application while it is operated: its dataflow, its paths, and how they share its sources."""

from collections.abc import Sequence
from pathlib import Path

from penstock.api.dataflow import Dataflow
from penstock.control.operating.covered import Covered, settle
from penstock.control.operating.paths import Goal, LivePath
from penstock.control.operating.splits import Splits
from penstock.control.operating.state import PathState, Phase, SharedSources
from penstock.model.book import Book, BookedPath, Booking
from penstock.model.errors import FileProblem, PenstockError

IDLE = 1e-3  # of an application's rate: a path that gets less is not worth its workers


class LiveApplication:
    """One application; only the operator's thread changes it."""

    def __init__(self, booking: Booking, digest: str, flow: Dataflow, folder: Path) -> None:
        self.booking = booking
        self.digest = digest
        self.flow = flow
        self.splits = Splits(folder, [source.name for source in booking.application.sources])
        self.paths: list[LivePath] = []

    @property
    def name(self) -> str:
        """Its name."""
        return self.booking.name

    @property
    def gone(self) -> bool:
        """Whether nothing of it is left to be done."""
        return not self.paths

    def follow(self, book: Book, booking: Booking | None) -> None:
        """Have its paths be those of a booking, each with the rate that it has there; None: it was released.

        A path is known by its plan: one that the booking has no more is drained, whatever its number was.
        """
        left = list(self.paths)
        for each in left:
            each.goal = Goal.GONE
        if booking is None:
            return
        self.booking = booking
        for number, booked in enumerate(booking.paths):
            path = next((each for each in left if each.booked.plan == booked.plan), None)
            if path is None:
                path = LivePath(self.name, number, booked)
                self.paths.append(path)
            else:
                left.remove(path)
            path.number, path.booked, path.goal = number, booked, goal(book, booking, booked)

    def weigh(self) -> None:
        """Have the sources split as the rates of those paths that run, or soon will."""
        there = [path for path in self.paths if path.goal is Goal.RUN and path.phase in (Phase.STARTING, Phase.RUNNING)]
        if there:
            self.splits.weigh({path.name: path.booked.rate_tps for path in there})

    def new_name(self, path: LivePath) -> str:
        """Return a name for the next run of a path."""
        return self.splits.name(path.number, [each.name for each in self.paths if each.run is not None or each.busy])

    def revive(self) -> None:
        """Have paths that had read all there was start again: something has come back."""
        for path in self.paths:
            if path.phase is Phase.ENDED:
                path.phase = Phase.WAITING

    def take_over(self, before: Sequence[PathState]) -> list[str]:
        """Give back what the paths of an operator that has died left undone; return what to tell of that."""
        told = []
        runs = {path.path: path.run for path in before if path.run}
        for name in self.splits.unfinished():
            try:
                returned = self.splits.give_back(name, _left(runs.get(name)))
            except (PenstockError, OSError) as problem:
                told.append(f"{self.name}: path {name} of the operator before gives nothing back: {problem}")
                continue
            told.append(f"{self.name}: path {name} of the operator before has ended; tuples given back: {returned:,}")
        return told

    def shared(self) -> SharedSources:
        """Return where its paths share its sources, for the next operator."""
        return SharedSources(application=self.name, digest=self.digest, folder=str(self.splits.folder.absolute()))


def goal(book: Book, booking: Booking, path: BookedPath) -> Goal:
    """Return what a book wants of a path."""
    if not book.works(path):
        return Goal.DOWN
    return Goal.RUN if path.rate_tps > IDLE * booking.rate_tps else Goal.STANDBY


def _left(run: str | None) -> dict[str, Covered]:
    if run is None:  # it had only just been started: nothing of it can have been published
        return {}
    if not Path(run).is_dir():
        raise FileProblem(f"{run}: the run's folder is gone; put it back, or release the application")
    return settle(Path(run))
