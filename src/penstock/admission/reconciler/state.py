"""What an operator says of itself: a small file beside the book, for people, other commands and the next operator."""

import os
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path

import msgspec

from penstock.model.decoding import Undecodable, json_decoder
from penstock.model.errors import FileProblem
from penstock.model.files import write_whole


class Phase(StrEnum):
    """What a path is about."""

    WAITING = "waiting"  # to be started
    STARTING = "starting"
    RUNNING = "running"
    DRAINING = "draining"
    STOPPING = "stopping"
    STANDBY = "standby"  # the book gives it no rate now
    DOWN = "down"  # one of its elements has failed
    RESTING = "resting"  # its run has failed or was ended by others, it is started again in a while
    STUCK = "stuck"  # its run does not end, which is tried again
    ENDED = "ended"  # there is nothing more to read
    IMPOSSIBLE = "impossible"  # it cannot be run


class PathState(msgspec.Struct, frozen=True, kw_only=True):
    """One path, now."""

    application: str
    number: int  # of the application's paths in the book, from 0
    path: str = ""  # its name in the split logs; another one each time that it is started
    phase: Phase
    machines: tuple[str, ...] = ()
    run: str = ""  # folder; empty where none runs
    booked_tps: float  # by the book
    sources: dict[str, float] = {}  # of that, by source
    given_tps: float = 0.0  # by its sources, over the last seconds
    written_tps: float = 0.0  # tuples that its sinks took
    emitted: int = 0  # by its sources so far
    written: int = 0
    note: str = ""  # what is wrong with it, or with how it is emulated

    @property
    def standing(self) -> tuple[object, ...]:
        """What of it is no figure."""
        return self.application, self.path, self.phase, self.run, self.booked_tps


class SharedSources(msgspec.Struct, frozen=True, kw_only=True):
    """Where the paths of an application share its sources."""

    application: str
    digest: str
    folder: str  # of its split logs


class OperatorState(msgspec.Struct, frozen=True, kw_only=True):
    """All that an operator runs."""

    pid: int
    at: float  # seconds since 1970
    version: int  # of the book that it follows
    paths: tuple[PathState, ...] = ()
    sources: tuple[SharedSources, ...] = ()
    problem: str = ""  # why it does not follow the book at the moment

    @property
    def alive(self) -> bool:
        """Whether its process runs, on this machine."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True

    @property
    def standing(self) -> tuple[object, ...]:
        """What of it is no figure: whoever reads it should know of a change at once."""
        return self.version, self.problem, *(path.standing for path in self.paths)

    def of(self, application: str) -> tuple[PathState, ...]:
        """Return the paths of an application."""
        return tuple(path for path in self.paths if path.application == application)


def state_file(book: Path | str) -> Path:
    """Return where the operator of a book keeps its state: `book.operator.json` beside `book.json`."""
    return _beside(book, ".operator.json")


_decode: Callable[[bytes], OperatorState] = json_decoder(OperatorState)


def logs_folder(book: Path | str) -> Path:
    """Return the folder of the split logs of all that is in a book, and of what else its operator needs."""
    return _beside(book, ".operator")


def _beside(book: Path | str, ending: str) -> Path:
    """Return a file of a book's own: several books may be in one folder."""
    return Path(book).with_name(Path(book).name.removesuffix(".json") + ending)


def read_state(book: Path | str) -> OperatorState | None:
    """Return what the operator of a book has written last; None where there was none."""
    path = state_file(book)
    try:
        return _decode(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise FileProblem(f"{path}: cannot be read, {(error.strerror or str(error)).lower()}; check the path") from None
    except Undecodable as error:
        meaning = "without it all sources begin anew, and what was published is published again"
        raise FileProblem(f"{path}: not what an operator writes, {error}; restore a copy of it: {meaning}") from None


def path_of(run: Path, machines: str | None) -> PathState | None:
    """Return the path that a run belongs to, where an operator runs it; `machines` is the folder that it shares."""
    if machines is None:
        return None
    folder = Path(machines).parent
    try:
        state = _decode(folder.with_name(f"{folder.name}.json").read_bytes())
    except (OSError, Undecodable):  # the machines are shared by others than an operator
        return None
    mine = (path for path in state.paths if path.run and Path(path.run).absolute() == run.absolute())
    return next(mine, None) if state.alive else None


def is_kept(run: Path, machines: str | None) -> bool:
    """Whether an operator has a run, or will go on from it when it is started again."""
    if machines is None:
        return False
    folder = Path(machines).parent
    try:
        state = _decode(folder.with_name(f"{folder.name}.json").read_bytes())
    except (OSError, Undecodable):
        return False
    return any(path.run and Path(path.run).absolute() == run.absolute() for path in state.paths)


def write_state(book: Path | str, state: OperatorState) -> None:
    """Keep a state, as a whole or not at all."""
    write_whole(state_file(book), msgspec.json.format(msgspec.json.encode(state), indent=1) + b"\n")
