"""State of a reconciler: a small file beside the book, for people, other commands and the next reconciler.

The next one needs to know where the split logs of the booked applications are: otherwise their sources would start from
the beginning. So that is on disk before a path may start, and stays as long as the application is booked.
"""

import re
from collections.abc import Callable, Collection
from enum import StrEnum
from pathlib import Path

import msgspec

from penstock.model.decoding import Undecodable, json_decoder
from penstock.model.errors import FileProblem
from penstock.model.files import write_whole
from penstock.runtime.storage.run_folder import alive

Key = tuple[str, str]  # an application's name and fingerprint


class PathPhase(StrEnum):
    """What a path is doing."""

    WAITING = "waiting"  # to be started
    STARTING = "starting"
    RUNNING = "running"
    DRAINING = "draining"
    STOPPING = "stopping"
    STANDBY = "standby"  # it has no rate in the book now
    DOWN = "down"  # one of its elements has failed
    BACKOFF = "backoff"  # its run failed or was ended by others; it is started again after a delay
    STUCK = "stuck"  # its run does not end; stopping is tried again
    ENDED = "ended"  # its sources have ended
    IMPOSSIBLE = "impossible"  # it cannot be run


class PathState(msgspec.Struct, frozen=True, kw_only=True):
    """State of one path."""

    application: str
    number: int  # of the application's path in the book, from 0
    path: str = ""  # its name in the split logs; new at each start
    phase: PathPhase
    machines: tuple[str, ...] = ()
    run: str = ""  # folder; empty if none is active
    booked_tps: float  # in the book
    sources: dict[str, float] = {}  # of that, by source
    emitted_tps: float = 0.0  # emitted by its sources, over the last seconds
    written_tps: float = 0.0  # tuples written by its sinks
    emitted: int = 0  # by its sources so far
    written: int = 0
    note: str = ""  # a problem of the path or of its emulation

    @property
    def status_key(self) -> tuple[object, ...]:
        """Everything but measured figures."""
        return self.application, self.path, self.phase, self.run, self.booked_tps


class SharedSources(msgspec.Struct, frozen=True, kw_only=True):
    """Where the paths of an application share its sources."""

    application: str
    digest: str
    folder: str  # of its split logs


class ReconcilerState(msgspec.Struct, frozen=True, kw_only=True):
    """State of a reconciler and all its paths."""

    pid: int
    at: float  # seconds since 1970
    version: int  # of the book that it applies
    paths: tuple[PathState, ...] = ()
    sources: tuple[SharedSources, ...] = ()
    problem: str = ""  # why it cannot apply the book at the moment

    @property
    def alive(self) -> bool:
        """Whether its process runs on this machine."""
        return alive(self.pid)

    @property
    def status_key(self) -> tuple[object, ...]:
        """Everything but measured figures: readers should learn of changes at once."""
        return self.version, self.problem, *(path.status_key for path in self.paths)

    def of(self, application: str) -> tuple[PathState, ...]:
        """Return the paths of an application."""
        return tuple(path for path in self.paths if path.application == application)


def state_file(book: Path | str) -> Path:
    """Return the file with the state of a book's reconciler: `book.operator.json` beside `book.json`."""
    return _beside(book, ".operator.json")


_decode: Callable[[bytes], ReconcilerState] = json_decoder(ReconcilerState)


def logs_folder(book: Path | str) -> Path:
    """Return the folder of a book's split logs and other files of its reconciler."""
    return _beside(book, ".operator")


def _beside(book: Path | str, ending: str) -> Path:
    """Return a path named after the book, because several books may share a folder."""
    return Path(book).with_name(Path(book).name.removesuffix(".json") + ending)


def read_state(book: Path | str) -> ReconcilerState | None:
    """Return the last state that the book's reconciler has written; None if there was none."""
    path = state_file(book)
    try:
        return _decode(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise FileProblem.of(error, path, "cannot be read", "check the path") from None
    except Undecodable as error:
        meaning = "without it all sources start again and output is published twice"
        raise FileProblem(f"{path}: not a reconciler's state, {error}; restore a backup: {meaning}") from None


def path_of(run: Path, machines: str | None) -> PathState | None:
    """Return the path that a run belongs to if a reconciler drives it; `machines` is the folder that it shares."""
    found = _path_and_reconciler(run, machines)
    return found[0] if found is not None and found[1].alive else None


def is_kept(run: Path, machines: str | None) -> bool:
    """Whether a reconciler drives a run, or will continue from it at its next start."""
    return _path_and_reconciler(run, machines) is not None


def _path_and_reconciler(run: Path, machines: str | None) -> tuple[PathState, ReconcilerState] | None:
    if machines is None:
        return None
    folder = Path(machines).parent
    try:
        state = _decode(folder.with_name(f"{folder.name}.json").read_bytes())
    except (OSError, Undecodable):  # the machines are not shared by a reconciler
        return None
    mine = (path for path in state.paths if path.run and Path(path.run).absolute() == run.absolute())
    return next(((path, state) for path in mine), None)


def write_state(book: Path | str, state: ReconcilerState) -> None:
    """Write a state atomically."""
    write_whole(state_file(book), msgspec.json.format(msgspec.json.encode(state), indent=1) + b"\n")


class SplitLogRegistry:
    """The part of a reconciler's state that outlives its process."""

    def __init__(self, book: Path) -> None:
        self._book = book
        before = read_state(book)
        self._sources = {} if before is None else {_key(each): each for each in before.sources}
        self._on_disk = set(self._sources)

    @property
    def sources(self) -> tuple[SharedSources, ...]:
        """All entries."""
        return tuple(self._sources.values())

    def folder(self, key: Key) -> Path:
        """Return the folder of an application's split logs: the previous reconciler's, or a new one."""
        if key in self._sources:
            return Path(self._sources[key].folder)
        plain = re.sub(r"[^\w.-]+", "-", key[0]).strip("-.") or "application"
        number = 1
        while (folder := logs_folder(self._book) / f"{plain}-{number}").exists():
            number += 1
        return folder

    def add(self, sources: SharedSources) -> None:
        """Add an application's split logs; they are safe after the next `write`."""
        self._sources[_key(sources)] = sources

    def forget(self, wanted: Collection[Key]) -> None:
        """Remove all entries but those wanted."""
        self._sources = {key: each for key, each in self._sources.items() if key in wanted}

    def write(self, state: ReconcilerState) -> None:
        """Write a state together with all entries."""
        write_state(self._book, state)
        self._on_disk = {_key(each) for each in state.sources}

    def safe(self, key: Key) -> bool:
        """Return whether another reconciler would find an application's split logs."""
        return key in self._on_disk


def _key(sources: SharedSources) -> Key:
    return sources.application, sources.digest
