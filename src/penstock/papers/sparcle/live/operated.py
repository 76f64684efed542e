"""A reconciler whose book changes while it runs, with rates measured at the sinks."""

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

import msgspec

from penstock.admission import Admitted, BookFile, admit
from penstock.admission.reconciler.launch import PathRun
from penstock.admission.reconciler.service import BookService, serve
from penstock.admission.reconciler.state import PathPhase, PathState
from penstock.api.dataflow import Dataflow
from penstock.experiments.live_cases import Tell
from penstock.model.book import Book
from penstock.model.errors import PenstockError

LOOK_S = 0.5  # between two checks of the emulation's lag
START_S = 300.0  # timeout for paths to run on a busy host
CHECKPOINT_S = 2.0


def booked(book: Book, flow: Dataflow, paths: int = 1, **asked: float) -> Book:
    """Return a book with one more application; `asked` are fields of it."""
    result = admit(book, msgspec.structs.replace(flow.application, **asked), paths=paths)
    if not isinstance(result, Admitted):
        raise PenstockError(f"admit: {flow.name!r} was refused, {result.reason}")
    return result.book


class Watched:
    """A reconciler whose book is changed and whose rates are measured."""

    def __init__(self, service: BookService, file: BookFile) -> None:
        self._service = service
        self._file = file
        self._late: list[bool] = []
        self._counts: dict[tuple[str, str], int] = {}  # tuples at the sinks, by application and run

    @property
    def book(self) -> Book:
        """The current book."""
        return self._file.load()

    @property
    def late(self) -> float:
        """The share of checks so far at which the emulation lagged."""
        return sum(self._late) / max(1, len(self._late))

    @property
    def paths(self) -> tuple[PathState, ...]:
        """The paths, according to the reconciler."""
        return self._service.state().paths

    def change(self, to: Book) -> None:
        """Save a new version of the book."""
        self._file.save(to, self.book.version)

    def until_running(self, paths: int) -> None:
        """Wait until a number of paths run."""
        deadline = monotonic() + START_S
        while sum(path.phase is PathPhase.RUNNING for path in self.paths) < paths:
            if monotonic() > deadline:
                raise PenstockError(f"operate: {paths} paths do not run after {START_S:g} s; is the host busy?")
            sleep(0.05)

    def rates(self, seconds: float) -> dict[str, float]:
        """Return the tuples per second at the sinks of every application, over some seconds from now."""
        began, before = monotonic(), self._written()
        self.wait(seconds)
        after, took = self._written(), monotonic() - began
        return {name: (after[name] - before.get(name, 0)) / took for name in after}

    def wait(self, seconds: float) -> None:
        """Wait, checking the emulation periodically."""
        until = monotonic() + seconds
        while (left := until - monotonic()) > 0:
            sleep(min(left, LOOK_S))
            self._late.append(any("emulation" in path.note for path in self.paths))

    def kill(self, application: str, machine: str) -> None:
        """Kill the process of an application's machine."""
        for run in self._runs().get(application, ()):
            for worker in run.status().machines:
                if worker.name == machine:
                    os.kill(worker.pid, signal.SIGKILL)

    def _written(self) -> dict[str, int]:
        for name, runs in self._runs().items():
            for run in runs:
                self._counts[name, str(run.folder)] = run.status().written
        found: dict[str, int] = {}
        for (name, _), count in self._counts.items():
            found[name] = found.get(name, 0) + count
        return found

    def _runs(self) -> dict[str, list[PathRun]]:
        running = list(self._service.reconciler.applications.values())
        return {one.name: [path.run for path in one.paths if path.run is not None] for one in running}


@contextmanager
def operated(book: Book, flows: Mapping[str, Dataflow], folder: Path, tell: Tell) -> Iterator[Watched]:
    """Run a book in a folder; everything is drained at the end."""
    file = BookFile(folder / "book.json")
    file.save(book, None)
    say: Callable[[str], None] = tell
    with serve(
        file.path, dict(flows), runs=folder / "runs", checkpoint_s=CHECKPOINT_S, telemetry=False, report=say
    ) as service:
        yield Watched(service, file)
