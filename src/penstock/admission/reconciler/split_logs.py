"""The split logs of an application, one a source component, as its operator uses them.

The operator weighs paths, gives names to paths, notes which run each is and gives back what a path left undone; the
blocks in between are taken by the paths themselves. Its methods may be called from any thread.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

from penstock.admission.reconciler.covered_positions import Covered, component_of, left_by, number_of
from penstock.api.dataflow import Dataflow
from penstock.api.sources.split_log import NEW, Block, SplitLog, without
from penstock.model.errors import FileProblem


class Splits:
    """How the paths of one application share its sources."""

    def __init__(self, folder: Path, sources: Sequence[str], flow: Dataflow | None = None) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise FileProblem(f"{folder}: cannot be made, {why}; keep the book elsewhere") from None
        self.folder = folder
        self.flow = flow  # whose sinks say where files may be published
        self._logs = {source: SplitLog(folder / f"{source}.jsonl") for source in sources}
        self._weights: Mapping[str, float] = {}
        self._lock = Lock()
        for log in self._logs.values():
            log.look()

    def name(self, number: int, taken: Sequence[str] = ()) -> str:
        """Return a name that no path has had yet: `p0`, and when that was given up, `p0.2`."""
        with self._lock:
            used = {*taken, *self._names(), *(path for path, folder in self._runs().items() if Path(folder).is_dir())}
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

    def note_run(self, path: str, folder: Path) -> None:
        """Note in all logs which run a path is, before it can take anything."""
        with self._lock:
            for log in self._logs.values():
                log.note_run(path, str(folder.absolute()))

    def run_of(self, path: str) -> str | None:
        """Return the folder of a path's run; None: it was never begun, and has taken nothing."""
        with self._lock:
            return self._runs().get(path)

    def give_up(self, path: str) -> int:
        """Settle the run of a path that has ended, and return what it left undone; say how many tuples that is."""
        folder = self.run_of(path)
        with self._lock:
            began = path in self._names()
        if folder is None or not (began or Path(folder).is_dir()):  # such a start failed, and left nothing behind
            return self.give_back(path, {})
        return self.give_back(path, left_by(Path(folder), self.flow))

    def give_back(self, path: str, covered: Mapping[str, Covered]) -> int:
        """Return to the others what a path took and its last checkpoint does not cover; say how many tuples that is.

        The path's run must have ended; `covered` is by task, `component[number]`.
        """
        with self._lock:
            return sum(
                log.give_back(path, self._positions(source, path, covered)) for source, log in self._logs.items()
            )

    def unfinished(self) -> list[str]:
        """Return the paths that were begun and never given up, in all logs."""
        with self._lock:
            names = self._names() | self._runs().keys()
            return sorted(name for name in names if any(name not in log.given_up for log in self._logs.values()))

    def exhausted(self) -> bool:
        """Return whether all sources have come to their end, and nothing of them waits to be taken."""
        with self._lock:
            for log in self._logs.values():
                log.look()
            return all(log.ended is not None and not _waiting(log, log.ended) for log in self._logs.values())

    def _names(self) -> set[str]:
        return {name for log in self._logs.values() for name in _takers(log)}

    def _runs(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for log in self._logs.values():
            log.look()
            found |= log.runs
        return found

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


def _waiting(log: SplitLog, ended: int) -> bool:
    """Return whether a log has numbers below the source's end that are with nobody."""
    left = [[(start, min(stop, ended)) for start, stop in returned.spans] for returned in log.returns]
    for blocks in log.blocks.values():
        for block in blocks:
            if block.of != NEW:
                left[block.of] = without(left[block.of], block.start, block.stop)
    return log.next < ended or any(start < stop for spans in left for start, stop in spans)


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
