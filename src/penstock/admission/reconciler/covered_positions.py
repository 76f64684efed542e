"""Source positions covered by the last complete checkpoint of a run that has ended.

Output after that checkpoint was never published and never will be: other paths may process those tuples.
"""

from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from penstock.api.dataflow import Dataflow
from penstock.api.outputs import output_folders
from penstock.model.decoding import decode_msgpack
from penstock.model.errors import FileProblem
from penstock.model.topology import Kind
from penstock.runtime.storage import checkpoints
from penstock.runtime.storage.checkpoints import Manifest, Saved
from penstock.runtime.storage.disk import Posix, below
from penstock.runtime.storage.run_folder import CHECKPOINTS, RunLock, load, write_info


class Covered(NamedTuple):
    """Position of a source task."""

    counted: int  # tuples that it emitted
    position: Any = None  # the source's own; None: it was closed


def settle_run(folder: Path, flow: Dataflow | None = None) -> dict[str, Covered]:
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


def settle_abandoned(folder: Path, flow: Dataflow | None = None) -> dict[str, Covered]:
    """Settle a run whose reconciler has ended, if its folder still exists; returns what `settle` does."""
    if not folder.is_dir():
        raise FileProblem(f"{folder}: the run's folder does not exist; restore it or release the application")
    return settle_run(folder, flow)


def _settled(folder: Path, flow: Dataflow | None = None) -> dict[str, Covered]:
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


def _is_source(manifest: Manifest, saved: Saved) -> bool:
    kind, _ = manifest.shape.components[component_of(saved.task)]
    return kind == Kind.SOURCE.value


def _covered(disk: Posix, place: str, manifest: Manifest, saved: Saved) -> Covered:
    path = below(checkpoints.folder_of(place, manifest.number), saved.file)
    data = checkpoints.read(disk, path, saved.offset, saved.size, saved.checksum)
    _, logic = checkpoints.unpack(data, path)
    return Covered(saved.counted, decode_msgpack(logic, strict=False) if logic else None)


def component_of(task: str) -> str:
    """Return the component of a task, `component[number]`."""
    return task.rpartition("[")[0]


def number_of(task: str) -> str:
    """Return the number of a task, `component[number]`."""
    return task.rpartition("[")[2].rstrip("]")
