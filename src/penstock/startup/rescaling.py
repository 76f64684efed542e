"""Rewrites a checkpoint for another number of tasks, so that a run is resumed with it.

The key groups of a keyed component go to their new owners: its tasks name the parts of the old ones, and read the
groups that they own. A component without state is free to have any number of tasks. Sources and sinks divide their
states themselves (`rescale`). Anything else is refused.
"""

from collections.abc import Callable, Sequence
from os.path import join
from typing import Any, NamedTuple
from zlib import crc32

import msgspec
from msgspec.structs import replace

from penstock.api.contracts import Sink, Source
from penstock.api.dataflow import Dataflow, Part
from penstock.api.keys import KEY_GROUPS, owner
from penstock.model.decoding import decode_msgpack, msgpack_decoder
from penstock.model.errors import InvalidInput, with_type
from penstock.model.topology import Kind
from penstock.runtime.layout import Layout
from penstock.runtime.protocol.worker_messages import StatePart
from penstock.runtime.storage import checkpoints
from penstock.runtime.storage.checkpoints import CheckpointManifest, SavedTask, TaskState
from penstock.runtime.storage.disk import Disk
from penstock.runtime.worker.logic import return_type

NONE = msgspec.msgpack.encode(None)
NOTHING = (b"", NONE)  # states of logic that is closed, or has none

PATH = "execution.parallelism"
KEEP = "keep the number of tasks"


class RescaledCheckpoint(NamedTuple):
    """A checkpoint that is not on disk yet."""

    before: CheckpointManifest
    manifest: CheckpointManifest
    data: list[bytes | memoryview]

    def write(self, disk: Disk, folder: str) -> CheckpointManifest:
        """Write it, once the checkpoint before is published; from then on the run has the new number of tasks."""
        checkpoints.publish(disk, folder, self.before)
        (file,) = self.manifest.files
        disk.write(join(checkpoints.folder_of(folder, self.manifest.number), file), self.data)
        checkpoints.write_manifest(disk, folder, self.manifest)
        return self.manifest


class _Task(NamedTuple):
    """A task of the new checkpoint."""

    head: TaskState
    logic: bytes
    saved: SavedTask  # without its place


def changed_counts(manifest: CheckpointManifest, flow: Dataflow) -> dict[str, tuple[int, int]]:
    """Return the components with another number of tasks than in a checkpoint: the old and the new number."""
    before = {name: count for name, (_, count) in manifest.shape.components.items()}
    counts = {name: part.component.parallelism for name, part in flow.parts.items()}
    return {name: (before[name], count) for name, count in counts.items() if before.get(name, count) != count}


def rescale(disk: Disk, folder: str, manifest: CheckpointManifest, flow: Dataflow) -> RescaledCheckpoint:
    """Return a checkpoint as the next one, for the tasks of a dataflow; refuse what cannot be divided."""
    layout, old = Layout(flow), _Saved(disk, folder, manifest)
    tasks: list[_Task] = []
    for name in layout.first:
        before, after = manifest.shape.components[name][1], flow.parts[name].component.parallelism
        tasks += old.tasks(flow.parts[name]) if before == after else _rescaled(old, flow.parts[name], before, after)
    return _laid_out(manifest, layout, tasks)


class _Saved:
    """The states of a checkpoint."""

    def __init__(self, disk: Disk, folder: str, manifest: CheckpointManifest) -> None:
        self._disk = disk
        self._folder = folder
        self._manifest = manifest
        self._by_name = {saved.task: saved for saved in manifest.tasks}

    def tasks(self, part: Part) -> list[_Task]:
        """Return the tasks of a component; a keyed one's own state becomes an earlier part."""
        name = part.component.name
        return [self._task(f"{name}[{task}]", part.keyed) for task in range(self._manifest.shape.components[name][1])]

    def _task(self, name: str, keyed: bool) -> _Task:
        saved = self._by_name[name]
        place = StatePart(self._manifest.number, saved.file, saved.offset, saved.size, saved.checksum)
        head, logic = checkpoints.unpack_state(checkpoints.read_part(self._disk, self._folder, place), saved.file)
        if keyed:
            return _Task(head, b"", replace(saved, earlier=(*saved.earlier, place)))
        return _Task(head, logic, saved)


def _rescaled(old: _Saved, part: Part, before: int, after: int) -> list[_Task]:
    """Return the tasks of a component with another number of them."""
    tasks, name = old.tasks(part), part.component.name
    ended = [task.head.ended for task in tasks]
    if any(ended) and not all(ended):
        raise _refused(name, before, after, "some of its tasks have ended", KEEP)
    logic = part.make()
    letters = [b""] * after
    if part.letters is not None:
        kept = [task.head.letters for task in tasks if task.head.letters]
        letters = _divided(name, part.letters(), kept, after) if kept else letters
    if part.keyed:
        states, earlier = [b""] * after, _parts_of_owners(tasks, after)
    else:
        states, earlier = [NONE] * after, [()] * after
        rewinds = isinstance(logic, Source) and logic.rewinds
        if rewinds or any(task.logic not in NOTHING or task.head.timers for task in tasks):
            if part.component.kind is Kind.OPERATOR or not isinstance(logic, Source | Sink):
                why = "it keeps its state itself, as one value per task"
                remedy = "keep its state by key, with stateful_map or keyed_operator"
                raise _refused(name, before, after, why, f"{KEEP}, or {remedy}")
            states = _divided(name, logic, [task.logic for task in tasks], after)
    return [
        _Task(
            TaskState(all(ended), _count(tasks, task, after), (), (), (), 0, letters[task]),
            states[task],
            SavedTask(
                f"{name}[{task}]",
                *("", 0, 0, 0, all(ended), _count(tasks, task, after)),
                position=_position(states[task]) if isinstance(logic, Source) else "",
                pending=_pending(tasks, task, after),
                earlier=earlier[task],
            ),
        )
        for task in range(after)
    ]


def _parts_of_owners(tasks: Sequence[_Task], after: int) -> list[tuple[StatePart, ...]]:
    """Return, for each new task, the parts of the old tasks that owned its key groups, oldest first."""
    owners: list[set[int]] = [set() for _ in range(after)]
    for group in range(KEY_GROUPS):
        owners[owner(group, after)].add(owner(group, len(tasks)))
    found = []
    for old in owners:
        parts = dict.fromkeys(part for task in sorted(old) for part in map(_frozen, tasks[task].saved.earlier))
        found.append(tuple(StatePart(*part) for part in sorted(parts, key=lambda part: part[0])))
    return found


def _frozen(part: StatePart) -> tuple[Any, ...]:
    return msgspec.structs.astuple(part)


def _divided(name: str, logic: Any, states: Sequence[bytes], after: int) -> list[bytes]:
    """Return the states of the new tasks of a source or sink, as the author's class divides them."""
    getter = logic.position if isinstance(logic, Source) else logic.snapshot
    decode: Callable[[bytes], Any] = msgpack_decoder(return_type(getter))
    before, kind = len(states), type(logic).__name__
    try:
        divided = logic.rescale([decode(state) if state else None for state in states], after)
        encoded = [msgspec.msgpack.encode(state) for state in divided]
    except NotImplementedError as error:
        why = str(error) or f"{kind} cannot divide its state among another number of tasks"
        raise _refused(name, before, after, why, f"{KEEP}, or give {kind} a method rescale") from None
    except Exception as error:
        raise _refused(name, before, after, f"its rescale raised {with_type(error)}", KEEP) from error
    if len(encoded) != after:
        problem = f"its rescale returned {len(encoded)} states for {after} tasks"
        raise _refused(name, before, after, problem, KEEP)
    return encoded


def _refused(name: str, before: int, after: int, why: str, remedy: str) -> InvalidInput:
    return InvalidInput(PATH, f"{name!r} cannot have {after} tasks instead of {before}, {why}; {remedy}")


def _count(tasks: Sequence[_Task], task: int, after: int) -> int:
    """Return the number of processed tuples of a new task; those of tasks that are gone count for the first."""
    own = tasks[task].head.counted if task < len(tasks) else 0
    return own + sum(old.head.counted for old in tasks[after:]) if task == 0 else own


def _pending(tasks: Sequence[_Task], task: int, after: int) -> tuple[tuple[str, str], ...]:
    """Return the files of a new task; those of tasks that are gone belong to the first."""
    own = tasks[task].saved.pending if task < len(tasks) else ()
    return (*own, *(pair for old in tasks[after:] for pair in old.saved.pending)) if task == 0 else own


def _position(state: bytes) -> str:
    decoded = decode_msgpack(state, strict=False)
    try:
        return msgspec.json.encode(decoded).decode()
    except (TypeError, ValueError):
        return repr(decoded)


def _laid_out(manifest: CheckpointManifest, layout: Layout, tasks: Sequence[_Task]) -> RescaledCheckpoint:
    """Return the checkpoint of tasks: one file, with the inputs that have ended and the turns of the new layout."""
    file, offset = f"rescaled.e{manifest.epoch}", 0
    data: list[bytes | memoryview] = []
    entries = []
    for number, (task, name) in enumerate(zip(tasks, layout.names, strict=True)):
        ended = tuple(channel for channel in layout.channels_in(number) if tasks[channel[1]].head.ended)
        lanes = [len(layout.targets(stream, number)) for stream in layout.outputs(number)]
        turns = task.head.turns or [layout.numbers[number]] * len(lanes)
        head = replace(
            task.head,
            ended_inputs=ended,
            turns=tuple(turn % count for turn, count in zip(turns, lanes, strict=True)),
            logic=len(task.logic),
        )
        packed = b"".join(checkpoints.pack_state(head, [task.logic]))
        place = {"task": name, "file": file, "offset": offset, "size": len(packed), "checksum": crc32(packed)}
        entries.append(replace(task.saved, **place))
        data.append(packed)
        offset += len(packed)
    rescaled = replace(
        manifest,
        format=checkpoints.FORMAT,
        number=manifest.number + 1,
        shape=checkpoints.shape_of(layout.flow),
        placement={name: slot for name, slot in manifest.placement.items() if name in layout.by_name},
        files={file: offset},
        tasks=tuple(entries),
    )
    return RescaledCheckpoint(manifest, rescaled, data)
