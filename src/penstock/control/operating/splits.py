"""The split logs of an application, one a source component, as its operator uses them.

The operator weighs paths, gives names to paths and gives back what a path left undone; the blocks in between are taken
by the paths themselves. Its methods may be called from any thread.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

from penstock.api.sources.split_log import Block, SplitLog
from penstock.control.operating.covered import Covered, component_of, number_of
from penstock.model.errors import FileProblem


class Splits:
    """How the paths of one application share its sources."""

    def __init__(self, folder: Path, sources: Sequence[str]) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise FileProblem(f"{folder}: cannot be made, {why}; keep the book elsewhere") from None
        self.folder = folder
        self._logs = {source: SplitLog(folder / f"{source}.jsonl") for source in sources}
        self._weights: Mapping[str, float] = {}
        self._lock = Lock()
        for log in self._logs.values():
            log.look()

    def name(self, number: int, taken: Sequence[str] = ()) -> str:
        """Return a name that no path has had yet: `p0`, and when that was given up, `p0.2`."""
        with self._lock:
            used = {*taken, *self._names()}
            for log in self._logs.values():
                used |= log.given_up
        life, name = 1, f"p{number}"
        while name in used:
            life += 1
            name = f"p{number}.{life}"
        return name

    def weigh(self, rates: Mapping[str, float]) -> None:
        """Have paths get tuples in proportion to their rates, where that is not so already."""
        with self._lock:
            if rates == self._weights:
                return
            for log in self._logs.values():
                log.weigh(rates)
            self._weights = dict(rates)

    def give_back(self, path: str, covered: Mapping[str, Covered]) -> int:
        """Return to the others what a path took and its last checkpoint does not cover; say how many tuples that is.

        The path's run must have ended; `covered` is by task, `component[number]`.
        """
        with self._lock:
            return sum(
                log.give_back(path, self._positions(source, path, covered)) for source, log in self._logs.items()
            )

    def unfinished(self) -> list[str]:
        """Return the paths that have taken tuples and were never given up."""
        with self._lock:
            return sorted({name for log in self._logs.values() for name in _takers(log) if name not in log.given_up})

    def _names(self) -> set[str]:
        return {name for log in self._logs.values() for name in _takers(log)}

    def _positions(self, source: str, path: str, covered: Mapping[str, Covered]) -> dict[str, Any]:
        log = self._logs[source]
        log.look()
        found = {}
        for task, (counted, position) in covered.items():
            if component_of(task) == source:
                taker = f"{path}/{number_of(task)}"
                found[taker] = position or _after(counted, log.blocks.get(taker, []), log.ended)
        return found


def _takers(log: SplitLog) -> set[str]:
    log.look()
    return {taker.rpartition("/")[0] for taker in log.blocks}


def _after(counted: int, blocks: Sequence[Block], ended: int | None) -> dict[str, Any]:
    """Return the position of a task that has given so many tuples of its blocks, and was closed then.

    Which tuples those are follows from their number alone, as blocks are given in the order in which they were taken.
    """
    for number, block in enumerate(blocks):
        stop = block.stop if ended is None else max(block.start, min(block.stop, ended))
        if counted < stop - block.start:
            return {"done": number, "within": counted, "readers": {}}
        counted -= stop - block.start
    return {"done": len(blocks), "within": 0, "readers": {}}
