"""Counting: a function that counts a name, and a sink that stores the latest count of each name."""

from collections.abc import Sequence
from pathlib import Path

from penstock.api.contracts import TaskContext
from penstock.api.sinks.json_lines import JsonLines
from penstock.model.decoding import json_lines_decoder

Count = tuple[str, int]
"""A name and its count so far."""


def count_name(count: int, name: str) -> tuple[int, Count]:
    """Return the next count of a name, as its state and as the output."""
    return count + 1, (name, count + 1)


class LatestCounts(JsonLines):
    """Stores the latest count of each name, like a table with one row per name: files of lines `["name", count]`.

    folder: a relative one is inside the run's folder.

    Every checkpoint adds a file with the names whose counts have changed since the previous one. A name's count is its
    maximum in all files (`latest_counts`). So counts may arrive in any order, and those of one name at several tasks.
    """

    def __init__(self, folder: str | Path = "output/counts") -> None:
        super().__init__(folder)

    def open(self, context: TaskContext) -> None:
        """Create the folder."""
        super().open(context)
        self._changed: dict[str, int] = {}

    def write(self, values: Sequence[Count]) -> None:
        """Keep the larger counts."""
        changed = self._changed
        for name, count in values:
            if count > changed.get(name, 0):
                changed[name] = count

    def prepare(self) -> list[tuple[str, str]]:
        """Write the changed counts."""
        super().write(sorted(self._changed.items()))
        self._changed = {}
        return super().prepare()


def latest_counts(folder: str | Path) -> dict[str, int]:
    """Return the counts that the tasks of a `LatestCounts` have written to a folder: the maximum of each name."""
    counts: dict[str, int] = {}
    decode = json_lines_decoder(Count)
    for file in sorted(Path(folder).glob("part-*.jsonl")):
        for name, count in decode(file.read_bytes()):
            counts[name] = max(count, counts.get(name, 0))
    return counts
