"""An application while it is operated: its dataflow, its paths, and how they share its sources."""

from contextlib import suppress
from pathlib import Path

from penstock.admission.reconciler.launch import limits_of
from penstock.admission.reconciler.live_path import Goal, LivePath, in_a_line
from penstock.admission.reconciler.split_log_registry import Key
from penstock.admission.reconciler.split_logs import Splits
from penstock.admission.reconciler.state import Phase, SharedSources
from penstock.api.dataflow import Dataflow
from penstock.model.book import Book, BookedPath, Booking
from penstock.model.errors import PenstockError

IDLE = 1e-3  # of an application's rate: a path that gets less is not worth its workers


class LiveApplication:
    """One application; only the operator's thread changes it."""

    def __init__(self, booking: Booking, digest: str, flow: Dataflow, folder: Path) -> None:
        self.booking = booking
        self.digest = digest
        self.flow = flow
        self.splits = Splits(folder, [source.name for source in booking.application.sources], flow)
        self.paths: list[LivePath] = []

    @property
    def name(self) -> str:
        """Its name."""
        return self.booking.name

    @property
    def key(self) -> Key:
        """What its split logs are found by."""
        return self.name, self.digest

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
            rates = limits_of(booking, booked)
            path = next((each for each in left if each.booked.plan == booked.plan), None)
            if path is None:
                path = LivePath(self.name, number, booked, rates)
                self.paths.append(path)
            else:
                left.remove(path)
            path.number, path.booked, path.rates = number, booked, rates
            path.goal = goal(book, booking, booked)

    def weigh(self) -> None:
        """Have the sources split as the rates of those paths that run, or soon will."""
        there = [path for path in self.paths if path.goal is Goal.RUN and path.phase in (Phase.STARTING, Phase.RUNNING)]
        if there:
            self.splits.weigh({path.name: path.booked.rate_tps for path in there})

    def new_name(self, path: LivePath) -> str:
        """Return a name for the next run of a path."""
        return self.splits.name(path.number, [each.name for each in self.paths if each.run is not None or each.busy])

    def exhausted(self) -> bool:
        """Return whether its sources have come to their end and nothing of them is left; False where nobody knows."""
        with suppress(OSError, PenstockError):
            return self.splits.exhausted()
        return False

    def revive(self) -> None:
        """Have paths that had read all there was start again: something has come back."""
        for path in self.paths:
            if path.phase is Phase.ENDED:
                path.phase = Phase.WAITING

    def take_over(self) -> list[str]:
        """Give back what the paths of an operator before left undone; return what to tell of that.

        Which run each of them was is in the split logs, from before it took anything.
        """
        told = []
        for name in self.splits.unfinished():
            try:
                returned = self.splits.give_up(name)
            except Exception as problem:  # whatever its folder holds, the other paths must not suffer
                why = in_a_line(problem)
                told.append(f"warning: {self.name}: path {name} of the operator before gives nothing back: {why}")
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
