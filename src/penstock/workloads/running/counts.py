"""Counting: an operator's running counts, and a sink that keeps the latest of each."""

import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from penstock.api.contracts import Operator, Sink, TaskContext
from penstock.model.errors import FileProblem

T = TypeVar("T")

Count = tuple[str, int]
"""What is counted, and how often it has come so far."""


class RunningCounts(Operator[T, Count]):
    """Counts names and gives each new count; a subclass says by `process` what it counts."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def add(self, name: str) -> tuple[Count]:
        """Count a name once more."""
        count = self.counts.get(name, 0) + 1
        self.counts[name] = count
        return ((name, count),)

    def snapshot(self) -> dict[str, int]:
        """Return all counts."""
        return dict(self.counts)

    def restore(self, state: dict[str, int]) -> None:
        """Go on from counts."""
        self.counts = state


class LatestCounts(Sink[Count]):
    """Keeps the latest count of each name, as a table with one row a name would, in a file `counts-<task>.json`.

    folder: a relative one is below the run's folder.
    every: seconds between two versions of the file, and one more at the end; each replaces the one before as a whole.

    Counts may come in any order, and those of one name to several tasks: a task keeps the largest that it has seen, and
    the largest of all tasks (`latest_counts`) is the count.
    """

    def __init__(self, folder: str | Path = "output", every: float = 2.0) -> None:
        self.folder = Path(folder)
        self.every = every
        self.counts: dict[str, int] = {}

    def open(self, context: TaskContext) -> None:
        """Make the folder."""
        place = Path(context.folder) / self.folder
        self._file = place / f"counts-{context.task}.json"
        self._written, self._changed = context.now(), True
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _unwritable(place, error) from None

    def write(self, values: Sequence[Count]) -> None:
        """Keep the larger counts."""
        counts = self.counts
        for name, count in values:
            if count > counts.get(name, 0):
                counts[name] = count
        self._changed = True

    def flush(self, now: float) -> None:
        """Write the file where it is old and something has changed."""
        if self._changed and now - self._written >= self.every:
            self._save()
            self._written = now

    def snapshot(self) -> dict[str, int]:
        """Return all counts."""
        return dict(self.counts)

    def restore(self, state: dict[str, int]) -> None:
        """Go on from counts."""
        self.counts, self._changed = state, True

    def close(self) -> None:
        """Write the file."""
        if self._changed:
            self._save()

    def _save(self) -> None:
        temporary = self._file.with_name(f"_{self._file.name}.{secrets.token_hex(4)}")
        try:
            temporary.write_bytes(msgspec.json.encode(self.counts, order="sorted"))
            os.replace(temporary, self._file)
        except OSError as error:
            raise _unwritable(self._file.parent, error) from None
        self._changed = False


def latest_counts(folder: str | Path) -> dict[str, int]:
    """Return the counts that the tasks of a `LatestCounts` have left in a folder: the largest of each name."""
    counts: dict[str, int] = {}
    for file in sorted(Path(folder).glob("counts-*.json")):
        for name, count in msgspec.json.decode(file.read_bytes(), type=dict[str, int]).items():
            counts[name] = max(count, counts.get(name, 0))
    return counts


def _unwritable(path: Path, error: OSError) -> FileProblem:
    return FileProblem(f"{path}: cannot be written, {(error.strerror or str(error)).lower()}; choose another place")
