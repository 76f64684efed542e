"""Files in parts: the common part of sinks that write files, with each tuple in them exactly once.

    _part-count-0-000002.monday.e3         written by epoch 3 of the run `monday`, and only by it
    part-count-0-000002-d618fb.jsonl       its final name, once its checkpoint is complete

    epochs/part-count-0.monday.e3          in the run's folder: the task has started epoch 3; earlier epochs must not
                                           modify anything any more

A part is written under a name that starts with `_`, which Spark and other readers ignore, and that no other epoch uses.
`prepare` completes it; the controller of checkpoints renames it. Names contain component, task, number and run. Numbers
continue through `snapshot` and `restore`, from 0 in every run, so a part that is rewritten after a failure gets the
same name, and runs that share a folder keep each other's files.

Data is buffered in memory until the disk has accepted it: a full disk delays a sink, but loses no tuple. So a batch is
accepted or rejected as a whole, and a part that could not be completed can be completed later.
"""

import errno
import logging
import os
import re
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import sha256
from io import FileIO
from pathlib import Path
from typing import Any

from penstock.api.contracts import Sink, TaskContext
from penstock.model.errors import FileProblem, InvalidInput

_LOG = logging.getLogger(__name__)

FIRST_EPOCH = 1
EPOCHS = "epochs"  # a folder of the run
PATIENCE = 1 << 26  # maximum bytes that a task buffers in memory while the disk is full
KEPT = 1 << 16  # bytes in memory, beyond which they are written to disk
BLOCK = 1 << 16  # bytes per write
FULL = (errno.ENOSPC, errno.EDQUOT)  # errors of a full disk


class PartFile:
    """A file to which a part is written, buffered in memory; it is created at the first write to disk."""

    closed = False  # required by Arrow

    def __init__(self, path: Path, final: Path) -> None:
        self.path = path
        self.final = final  # its final name
        self.kept = 0  # bytes in memory
        self._pieces: deque[bytes] = deque()
        self._file: FileIO | None = None
        self._problem: OSError | None = None

    def write(self, data: bytes) -> int:
        """Buffer data; this never fails."""
        self._pieces.append(bytes(data))
        self.kept += len(data)
        return len(data)

    def flush(self) -> None:
        """Do nothing, for Arrow: the sink decides when to write to disk."""

    def drain(self, most: int) -> None:
        """Write the buffer to disk if it exceeds `most` bytes; after an error, the unwritten rest is kept."""
        if self.kept <= most:
            return
        file = self._opened()
        while self._pieces:
            block = self._next_block()
            try:
                written = file.write(block)
            except OSError:
                self._pieces.appendleft(block)
                raise
            self.kept -= written
            if written < len(block):
                self._pieces.appendleft(block[written:])

    def complete(self) -> None:
        """Write and sync everything to disk, and close the file."""
        if self._problem is not None:  # after a failed sync, the next one would succeed without having synced anything
            raise self._problem
        self.drain(0)
        file = self._opened()
        try:
            os.fsync(file.fileno())
        except OSError as problem:
            self._problem = problem
            raise
        file.close()

    def drop(self) -> None:
        """Close and delete the file."""
        if self._file is not None:
            self._file.close()
            self.path.unlink(missing_ok=True)

    def _opened(self) -> FileIO:
        if self._file is None:
            self._file = self.path.open("wb", buffering=0)
        return self._file

    def _next_block(self) -> bytes:
        """Remove pieces from the front of the buffer, enough for one write."""
        pieces, size = [], 0
        while self._pieces and size < BLOCK:
            pieces.append(self._pieces.popleft())
            size += len(pieces[-1])
        return b"".join(pieces)


class PartFiles(Sink[Any]):
    """A sink that writes `part-<component>-<task>-<number>-<run>` files to a folder; subclasses define their content.

    Parts become visible when a checkpoint is complete, and at the end. `close` drops everything after the last
    checkpoint; those tuples are replayed.
    """

    exactly_once = True
    prefix = "part"
    ending = ""

    def __init__(self, folder: str | Path, roll_rows: int) -> None:
        if isinstance(roll_rows, bool) or not isinstance(roll_rows, int) or roll_rows < 1:
            raise InvalidInput("roll_rows", f"expected a whole number ≥ 1, got {roll_rows!r}")
        self.folder = Path(folder).expanduser()
        self.roll_rows = roll_rows

    def check(self) -> None:
        """Reject a folder that cannot be written; a relative one is checked with the run's folder."""
        if not self.folder.is_absolute():
            return
        nearest = next(path for path in (self.folder, *self.folder.parents) if path.exists())
        if not nearest.is_dir():
            raise FileProblem(f"{nearest}: expected a folder, this is a file; choose another path")
        if not os.access(nearest, os.W_OK | os.X_OK):
            raise FileProblem(f"{nearest}: cannot be written, permission denied; choose another path")

    def folders(self) -> list[Path]:
        """Return its folder."""
        return [self.folder]

    def open(self, context: TaskContext) -> None:
        """Create the folder. The position in it is determined by `restore`, or else by the first other call."""
        self._context = context
        self._names = _Names(context, self.folder, self.prefix, self.ending)
        self._number = 0  # of the current or next part
        self._begun = False  # whether the position is determined
        self._part: PartFile | None = None
        self._rows = 0  # rows in that part
        self._finished: list[PartFile] = []  # parts that may not be fully on disk
        self._ready: list[tuple[str, str]] = []  # complete, for `prepare`
        self._waiting = False  # for free space on the disk
        try:
            self._names.place.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise unwritable(self._names.place, error) from None

    def write(self, values: Sequence[Any]) -> None:
        """Add a batch to the part, or start one with it; a rejected batch leaves nothing behind."""
        if not values:
            return
        self._ensure_position()
        self._store(self._drain)
        if self._part is None:
            self._part = PartFile(self._names.temporary(self._number), self._names.final(self._number))
            self.begin(self._part)
        self.add(values)
        self._rows += len(values)

    def flush(self, now: float) -> None:
        """Finish the part if it is long enough; it becomes visible with the others."""
        if self._rows >= self.roll_rows:
            self._finish()
            self._store(self._complete)

    def prepare(self) -> list[tuple[str, str]]:
        """Complete the part; return all parts completed since the last call.

        If the disk does not accept them, it raises `FileProblem`. Nothing is lost: a later call returns them.
        """
        self._ensure_position()
        self._finish()
        try:
            self._complete()
            if self._ready:
                _sync_folder(self._names.place)
        except OSError as error:
            raise unwritable(self._names.place, error) from None
        ready, self._ready = self._ready, []
        return ready

    def snapshot(self) -> int:
        """Return the number of the next part."""
        self._ensure_position()
        return self._number

    def restore(self, state: int) -> None:
        """Continue with a number; parts with later ones are withdrawn, because their tuples are replayed."""
        self._continue_from(state)

    def rescale(self, states: Sequence[Any], tasks: int) -> Sequence[Any]:
        """Return the greatest number for every task: a task that existed before must not use a name again."""
        return [max(states)] * tasks

    def close(self) -> None:
        """Drop what `prepare` has not returned."""
        parts = self._finished if self._part is None else [*self._finished, self._part]
        with suppress(OSError):  # their names start with `_`; the next epoch removes them
            for part in parts:
                part.drop()
            for temporary, _ in self._ready:
                os.unlink(temporary)
        self._part, self._finished, self._ready, self._rows = None, [], [], 0

    def begin(self, file: PartFile) -> None:
        """Start a new part; `file.write` takes bytes."""
        raise NotImplementedError

    def add(self, values: Sequence[Any]) -> None:
        """Write tuples to the part, or raise `PenstockError` and write none of them."""
        raise NotImplementedError

    def finish(self) -> None:
        """Write the end of the part."""
        raise NotImplementedError

    def _drain(self) -> None:
        """Write the buffer to disk if it is large."""
        if self._part is not None:
            self._part.drain(KEPT)

    def _finish(self) -> None:
        """Finish the part, unless it is empty because tuples were rejected."""
        if self._part is not None and self._rows:
            self.finish()
            self._finished.append(self._part)
            self._part, self._rows, self._number = None, 0, self._number + 1

    def _complete(self) -> None:
        """Write finished parts to disk; if it is full, this can be repeated."""
        while self._finished:
            self._finished[0].complete()
            part = self._finished.pop(0)
            self._ready.append((str(part.path), str(part.final)))
        self._waiting = False

    def _store(self, what: Callable[[], None]) -> None:
        """Perform a disk operation that can be postponed while the disk is full and memory suffices."""
        try:
            what()
        except OSError as error:
            kept = sum(part.kept for part in self._finished) + (0 if self._part is None else self._part.kept)
            if error.errno not in FULL or kept > PATIENCE:
                raise unwritable(self._names.place, error) from None
            if not self._waiting:
                self._waiting = True
                message = "%s: no space left; %s buffers up to %d MiB in memory meanwhile"
                _LOG.warning(message, self._names.place, self._context.name, PATIENCE >> 20)

    def _ensure_position(self) -> None:
        """Start the run's files, unless `restore` has determined where to continue."""
        if not self._begun:
            self._continue_from(0)

    def _continue_from(self, number: int) -> None:
        try:
            withdrawn = self._names.take_over(number)
        except OSError as error:
            raise unwritable(self._names.place, error) from None
        if withdrawn:
            message = (
                "%s: withdrew %d of the files of %s, resuming from an earlier checkpoint; their tuples are replayed"
            )
            _LOG.warning(message, self._names.place, withdrawn, self._context.name)
        self._number, self._begun = number, True


class _Names:
    """The names of a task's files, and which existing files belong to it."""

    def __init__(self, context: TaskContext, folder: Path, prefix: str, ending: str) -> None:
        self.place = Path(os.path.abspath(Path(context.folder) / folder))
        self.epochs = Path(os.path.abspath(Path(context.folder) / EPOCHS))
        self.run, self.epoch, self.ending = context.run, context.epoch, ending
        self.prefix = prefix
        self.name = f"{prefix}-{context.component}-{context.task}"
        self.tag = sha256(context.run.encode()).hexdigest()[:6]
        name, run = re.escape(self.name), re.escape(self.run)
        self._final = re.compile(rf"{name}-(\d+)-{self.tag}{re.escape(ending)}")
        self._temporary = re.compile(rf"_{name}-(\d+)\.{run}\.e(\d+)")
        self._mark = re.compile(rf"{name}\.{run}\.e(\d+)")

    def temporary(self, number: int) -> Path:
        """Return the name under which a part is written."""
        return self.place / f"_{self.name}-{number:06}.{self.run}.e{self.epoch}"

    def final(self, number: int) -> Path:
        """Return its final name."""
        return self.place / f"{self.name}-{number:06}-{self.tag}{self.ending}"

    def take_over(self, number: int) -> int:
        """Remove the files of earlier epochs from a number on, and return how many of them had final names.

        A process that was considered dead may resume here while files of a later epoch are renamed. Therefore files are
        listed first, and then it is checked that no later epoch has started: if none has, none of the files belongs to
        it.
        """
        later = [path for path, found in _listed(self.place, self._final) if found[0] >= number]
        left = _listed(self.place, self._temporary)
        self._begin_epoch()
        if later and self.epoch == FIRST_EPOCH:  # according to the checkpoints, none of them is of this run
            whose = f"of an earlier run named {self.run!r}, or of this one before its checkpoints were removed"
            remedy = f"remove all {self.prefix}-*-{self.tag}{self.ending} there, or choose another folder"
            raise FileProblem(f"{later[0]}: already exists, {whose}; {remedy}")
        for path in later:
            path.unlink(missing_ok=True)
        for path, (part, epoch) in left:
            if epoch < self.epoch and (part >= number or self._superseded(path, part)):
                path.unlink(missing_ok=True)
        if later:
            _sync_folder(self.place)
        return len(later)

    def _begin_epoch(self) -> None:
        """Record that this epoch has started, or raise if a later one has; no epoch precedes the first.

        The record stays when the run ends: a process that was considered dead may resume after that.
        """
        if self.epoch > FIRST_EPOCH:
            self.epochs.mkdir(parents=True, exist_ok=True)
            (self.epochs / f"{self.name}.{self.run}.e{self.epoch}").touch()
        for path, (epoch,) in _listed(self.epochs, self._mark):
            if epoch > self.epoch:
                raise FileProblem(f"{path}: epoch {epoch} of the run has started; epoch {self.epoch} must not continue")
            if epoch < self.epoch:
                path.unlink(missing_ok=True)

    def _superseded(self, path: Path, number: int) -> bool:
        """Return whether a part got its name elsewhere; its final name, or a rename in progress, does not count."""
        try:
            return not os.path.samefile(path, self.final(number))
        except FileNotFoundError:
            return False


def _listed(folder: Path, pattern: re.Pattern[str]) -> list[tuple[Path, tuple[int, ...]]]:
    """Return the files whose names match, with the numbers in them; none if the folder does not exist."""
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return []
    matches = ((name, pattern.fullmatch(name)) for name in names)
    return [(folder / name, tuple(map(int, match.groups()))) for name, match in matches if match]


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def unwritable(path: Path, error: OSError) -> FileProblem:
    """Return the error about a folder that cannot be written."""
    remedy = "free some space" if error.errno in FULL else "choose another path"
    return FileProblem.of(error, path, "cannot be written", remedy)
