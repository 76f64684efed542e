"""What the last complete checkpoint of a run that has ended covers: how far each task of its sources had come.

Nothing that came after that checkpoint was published, or ever will be: the rest may be given to others.
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
from penstock.runtime.storage.run_folder import CHECKPOINTS, RunLock, keep, load


class Covered(NamedTuple):
    """How far a task of a source had come."""

    counted: int  # tuples that it gave
    position: Any = None  # the source's own; None: it had been closed


def settle(folder: Path, flow: Dataflow | None = None) -> dict[str, Covered]:
    """Publish what the last complete checkpoint of a run has ready, and return what it covers, by source task.

    `flow` says by its sinks where, outside the run's folder.
    The run must have ended, and cannot be resumed after that. What comes after the checkpoint is removed, published or
    not; without any checkpoint nothing is covered. Raises `FileProblem` where there were checkpoints and none is whole,
    and `Taken` where a process drives the run: nobody else may while this goes on.
    """
    lock = RunLock(load(folder))
    try:
        covered = _settled(folder, flow)
        keep(msgspec.structs.replace(load(folder), given_up=True))
        return covered
    finally:
        lock.release()


def left_by(folder: Path, flow: Dataflow | None = None) -> dict[str, Covered]:
    """Settle a run whose operator is gone, where its folder is still there; `settle` says what that returns."""
    if not folder.is_dir():
        raise FileProblem(f"{folder}: the run's folder is gone; put it back, or release the application")
    return settle(folder, flow)


def _settled(folder: Path, flow: Dataflow | None = None) -> dict[str, Covered]:
    disk, place = Posix(), str((folder / CHECKPOINTS).absolute())
    outputs = () if flow is None else output_folders(flow, str(folder.absolute()))
    checkpoints.refuse_outside(disk, place, outputs)
    manifest, damaged = checkpoints.find_latest(disk, place)
    if manifest is None and damaged:
        problem = f"{folder}: no checkpoint is whole, and some were published from: {'; '.join(damaged)}"
        raise FileProblem(f"{problem}; put back a copy")
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
