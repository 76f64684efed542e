"""Counting: an operator's running counts, and a sink that keeps the latest of each."""

from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from penstock.api.contracts import Operator, TaskContext
from penstock.api.sinks.json_lines import JsonLines
from penstock.model.decoding import json_lines_decoder

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


class LatestCounts(JsonLines):
    """Keeps the latest count of each name, as a table with one row a name would: files of lines `["name", count]`.

    folder: a relative one is below the run's folder.

    Every checkpoint adds a file with the names whose count has changed since the one before, and no other: it is the
    largest count of a name in all files (`latest_counts`) that is its count. So counts may come in any order, and those
    of one name to several tasks.
    """

    def __init__(self, folder: str | Path = "output/counts") -> None:
        super().__init__(folder)

    def open(self, context: TaskContext) -> None:
        """Make the folder."""
        super().open(context)
        self._changed: dict[str, int] = {}

    def write(self, values: Sequence[Count]) -> None:
        """Keep the larger counts."""
        changed = self._changed
        for name, count in values:
            if count > changed.get(name, 0):
                changed[name] = count

    def prepare(self) -> list[tuple[str, str]]:
        """Write the counts that have changed."""
        super().write(sorted(self._changed.items()))
        self._changed = {}
        return super().prepare()


def latest_counts(folder: str | Path) -> dict[str, int]:
    """Return the counts that the tasks of a `LatestCounts` have left in a folder: the largest of each name."""
    counts: dict[str, int] = {}
    decode = json_lines_decoder(Count)
    for file in sorted(Path(folder).glob("part-*.jsonl")):
        for name, count in decode(file.read_bytes()):
            counts[name] = max(count, counts.get(name, 0))
    return counts
