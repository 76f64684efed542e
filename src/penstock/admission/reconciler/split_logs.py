"""The split logs of an application, one per source component, as the reconciler uses them.

The reconciler weighs and names paths, records the run of each, and returns the unprocessed tuples of a path. Paths
themselves take blocks of tuples from the logs. The methods may be called from any thread.

Tuples are unprocessed if the last complete checkpoint of their path's run does not cover them: output after it was
never published and never will be.
"""

from collections.abc import Mapping, Sequence
from os.path import join
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import msgspec

from penstock.api.dataflow import Dataflow, output_folders
from penstock.api.sources.split_log import NEW, Block, SplitLog, subtract
from penstock.model.decoding import decode_msgpack
from penstock.model.errors import FileProblem
from penstock.model.files import make_folder
from penstock.model.topology import Kind
from penstock.runtime.storage import checkpoints
from penstock.runtime.storage.checkpoints import CheckpointManifest, SavedTask
from penstock.runtime.storage.disk import Posix
from penstock.runtime.storage.run_folder import CHECKPOINTS, RunLock, load, write_info


class CoveredPosition(NamedTuple):
    """Position of a source task."""

    counted: int  # tuples that it emitted
    position: Any = None  # the source's own; None: it was closed


def settle_run(folder: Path, flow: Dataflow | None = None) -> dict[str, CoveredPosition]:
    """Publish the output of a run's last complete checkpoint, and return the positions it covers, by source task.

    The run must have ended and cannot be resumed afterwards. `flow` gives the output folders outside the run's folder.
    Output after the checkpoint is removed, published or not; without a checkpoint nothing is covered. Raises
    `FileProblem` if all checkpoints are damaged, and `RunInUse` if a process drives the run.
    """
    lock = RunLock(load(folder))
    try:
        covered = _settled(folder, flow)
        write_info(msgspec.structs.replace(load(folder), given_up=True))
        return covered
    finally:
        lock.release()


def settle_abandoned(folder: Path, flow: Dataflow | None = None) -> dict[str, CoveredPosition]:
    """Settle a run whose reconciler has ended, if its folder still exists; returns what `settle` does."""
    if not folder.is_dir():
        raise FileProblem(f"{folder}: the run's folder does not exist; restore it or release the application")
    return settle_run(folder, flow)


def _settled(folder: Path, flow: Dataflow | None = None) -> dict[str, CoveredPosition]:
    disk, place = Posix(), str((folder / CHECKPOINTS).absolute())
    outputs = () if flow is None else output_folders(flow, str(folder.absolute()))
    checkpoints.refuse_outside(disk, place, outputs)
    manifest, damaged = checkpoints.find_latest(disk, place)
    if manifest is None and damaged:
        problem = f"{folder}: all checkpoints are damaged, and output was published from some: {'; '.join(damaged)}"
        raise FileProblem(f"{problem}; restore a backup")
    if manifest is None:
        checkpoints.withdraw(disk, place, 0, outputs)
        return {}
    checkpoints.publish(disk, place, manifest)
    checkpoints.withdraw(disk, place, manifest.number, outputs)
    return {
        saved.task: _covered(disk, place, manifest, saved) for saved in manifest.tasks if _is_source(manifest, saved)
    }


def _is_source(manifest: CheckpointManifest, saved: SavedTask) -> bool:
    kind, _ = manifest.shape.components[component_of(saved.task)]
    return kind == Kind.SOURCE.value


def _covered(disk: Posix, place: str, manifest: CheckpointManifest, saved: SavedTask) -> CoveredPosition:
    path = join(checkpoints.folder_of(place, manifest.number), saved.file)
    data = checkpoints.read(disk, path, saved.offset, saved.size, saved.checksum)
    _, logic = checkpoints.unpack_state(data, path)
    return CoveredPosition(saved.counted, decode_msgpack(logic, strict=False) if logic else None)


def component_of(task: str) -> str:
    """Return the component of a task, `component[number]`."""
    return task.rpartition("[")[0]


def number_of(task: str) -> str:
    """Return the number of a task, `component[number]`."""
    return task.rpartition("[")[2].rstrip("]")


class Splits:
    """How the paths of one application share its sources."""

    def __init__(self, folder: Path, sources: Sequence[str], flow: Dataflow | None = None) -> None:
        make_folder(folder, "move the book to another folder")
        self.folder = folder
        self.flow = flow  # its sinks give the output folders
        self._logs = {source: SplitLog(folder / f"{source}.jsonl") for source in sources}
        self._weights: Mapping[str, float] = {}
        self._lock = Lock()
        for log in self._logs.values():
            log.look()

    def name(self, number: int, taken: Sequence[str] = ()) -> str:
        """Return a name that no path has had yet: `p0`, and `p0.2` after that was given up."""
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
        """Give paths tuples in proportion to their rates, if the weights have changed."""
        with self._lock:
            if rates == self._weights:
                return
            for log in self._logs.values():
                log.weigh(rates)
            self._weights = dict(rates)

    def note_run(self, path: str, folder: Path) -> None:
        """Record in all logs which run a path is, before it can take anything."""
        with self._lock:
            for log in self._logs.values():
                log.note_run(path, str(folder.absolute()))

    def run_of(self, path: str) -> str | None:
        """Return the folder of a path's run; None: it was never started and has taken nothing."""
        with self._lock:
            return self._runs().get(path)

    def give_up(self, path: str) -> int:
        """Settle the run of a path that has ended, return its unprocessed tuples to the others; return their number."""
        folder = self.run_of(path)
        with self._lock:
            began = path in self._names()
        if folder is None or not (began or Path(folder).is_dir()):  # the start failed and took nothing
            return self.give_back(path, {})
        return self.give_back(path, settle_abandoned(Path(folder), self.flow))

    def give_back(self, path: str, covered: Mapping[str, CoveredPosition]) -> int:
        """Return to the others the tuples of a path that its last checkpoint does not cover; return their number.

        The path's run must have ended; `covered` is by task, `component[number]`.
        """
        with self._lock:
            return sum(
                log.give_back(path, self._positions(source, path, covered)) for source, log in self._logs.items()
            )

    def unfinished(self) -> list[str]:
        """Return the paths that were started and never given up, in all logs."""
        with self._lock:
            names = self._names() | self._runs().keys()
            return sorted(name for name in names if any(name not in log.given_up for log in self._logs.values()))

    def sources_ended(self) -> bool:
        """Return whether all sources have ended and none of their tuples waits to be taken."""
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

    def _positions(self, source: str, path: str, covered: Mapping[str, CoveredPosition]) -> dict[str, Any]:
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
    """Return whether numbers below the source's end are assigned to no path."""
    left = [[(start, min(stop, ended)) for start, stop in returned.spans] for returned in log.returns]
    for blocks in log.blocks.values():
        for block in blocks:
            if block.of != NEW:
                left[block.of] = subtract(left[block.of], block.start, block.stop)
    return log.next < ended or any(start < stop for spans in left for start, stop in spans)


def _after(counted: int, blocks: Sequence[Block], ended: int | None) -> dict[str, Any]:
    """Return the position of a closed task that has emitted a number of tuples of its blocks.

    Blocks are emitted in the order in which they were taken, so the number determines the tuples.
    """
    for number, block in enumerate(blocks):
        stop = block.stop if ended is None else max(block.start, min(block.stop, ended))
        if counted < stop - block.start:
            return {"done": number, "within": counted, "readers": {}}
        counted -= stop - block.start
    return {"done": len(blocks), "within": 0, "readers": {}}
