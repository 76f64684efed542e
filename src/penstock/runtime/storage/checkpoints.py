"""Checkpoints on disk: one folder each, with a file of every worker and a manifest that makes it complete.

    checkpoints/
      000012/
        w0.e3          the states of the tasks of worker w0, saved in epoch 3
        w1.e3
        manifest.json  written last, atomically: names, sizes, checksums, positions, placement; it completes the rest
        published      the sinks' files have their final names
      journal.json     the last epoch, and the desired placement

On disk, a manifest has the names of sinks' files relative to the run's folder (the parent of `checkpoints`), if they
are below it: a run's folder can be moved, and a copy does not touch the original's files. Other names are absolute, and
must be in a folder that a sink of the application declares: a forged manifest must not move or remove files elsewhere.

A manifest of an earlier format, of another application, or with another number of key groups is rejected with the
reason. A damaged one is skipped for the one before.
"""

import contextlib
import os
from collections.abc import Callable, Sequence
from os.path import join
from typing import Annotated
from zlib import crc32

import msgspec
from msgspec import Meta

from penstock.api.dataflow import Dataflow
from penstock.api.keys import KEY_GROUPS
from penstock.model.decoding import Undecodable, decode_json, json_decoder, msgpack_decoder
from penstock.model.errors import FileProblem
from penstock.model.topology import Application
from penstock.model.tuples import TuplePolicies
from penstock.runtime.protocol import Wire
from penstock.runtime.protocol.controller_messages import StateLocation
from penstock.runtime.protocol.frames import Pending
from penstock.runtime.protocol.worker_messages import FileName, StatePart, TaskEntry
from penstock.runtime.storage.disk import Disk

FORMAT = 2
READ = (1, FORMAT)  # format 1 has no keyed states
MANIFEST = "manifest.json"
PUBLISHED = "published"
JOURNAL = "journal.json"
KEEP = 2
LINE = b"\n"


class UnknownFormat(FileProblem):
    """A manifest of another format version; older checkpoints are not tried instead."""


class Outside(FileProblem):
    """A manifest that names files outside the run's folder and its sinks' folders: it must not be used."""


class TaskState(Wire):
    """What a checkpoint has of a task, except its logic's state, which follows in the file."""

    ended: bool
    counted: int
    timers: tuple[float, ...]  # seconds from the checkpoint
    ended_inputs: tuple[tuple[int, int], ...]  # channels that have ended: stream, source task
    turns: tuple[int, ...]  # of each out-queue: the next lane
    logic: int  # bytes
    letters: bytes = b""  # state of its dead-letter sink


class SavedTask(msgspec.Struct, frozen=True):
    """A task in a manifest."""

    task: str
    file: FileName
    offset: Annotated[int, Meta(ge=0)]
    size: Annotated[int, Meta(ge=0)]
    checksum: int
    ended: bool
    counted: int
    position: str = ""  # of a source, as JSON
    pending: tuple[Pending, ...] = ()  # files of a sink: temporary and final name
    earlier: tuple[StatePart, ...] = ()  # of a keyed state: its parts in earlier checkpoints, oldest first


class Shape(msgspec.Struct, frozen=True):
    """The properties of an application that its states depend on."""

    components: dict[str, tuple[str, int]]  # kind and parallelism
    streams: tuple[str, ...]  # label and grouping
    keyed: tuple[str, ...] = ()  # components with a state per key


class CheckpointManifest(msgspec.Struct, frozen=True, kw_only=True):
    """A complete checkpoint."""

    format: int = FORMAT
    run: str
    number: int
    epoch: int
    at: float  # seconds since 1970
    seconds: float  # its duration
    version: str  # of Penstock
    key_groups: int = KEY_GROUPS
    shape: Shape
    placement: dict[str, str]  # task -> slot
    files: dict[str, int]  # sizes
    tasks: tuple[SavedTask, ...]
    last: bool = False  # all sources have ended: none follows

    @property
    def size(self) -> int:
        """Bytes that it wrote."""
        return sum(self.files.values())

    @property
    def pending(self) -> list[Pending]:
        """The files that are published with it."""
        return [pair for task in self.tasks for pair in task.pending]

    def kept(self, task: str, number: int) -> StateLocation:
        """Return where the state of a task is, as workers receive it."""
        saved = next(saved for saved in self.tasks if saved.task == task)
        return StateLocation(number, saved.file, saved.offset, saved.size, saved.checksum, saved.counted, saved.earlier)

    @property
    def files_used(self) -> set[tuple[int, str]]:
        """The files that its states are in, with the checkpoints that wrote them."""
        return {(part.checkpoint, part.file) for task in self.tasks for part in task.earlier} | {
            (self.number, name) for name in self.files
        }


class Journal(msgspec.Struct, frozen=True):
    """What a driver needs that resumes a run: written before an epoch is used, and when a move is committed."""

    epoch: int
    placement: dict[str, str]  # task -> slot: the desired placement
    policy: str = ""
    tuples: TuplePolicies = TuplePolicies()
    limits: dict[str, float] = {}  # source component -> tuples per second


def write_journal(disk: Disk, folder: str, journal: Journal) -> None:
    """Write the journal."""
    disk.replace(join(folder, JOURNAL), msgspec.json.encode(journal))


def read_journal(disk: Disk, folder: str) -> Journal | None:
    """Return the journal of the previous driver; None if there is none."""
    path = join(folder, JOURNAL)
    try:
        return _decode_journal(disk.read(path))
    except FileNotFoundError:
        return None
    except Undecodable as error:
        raise FileProblem(f"{path}: damaged, {error}; it is needed to resume") from None


def shape_of(flow: Dataflow | Application) -> Shape:
    """Return the shape of an application."""
    application = flow.application if isinstance(flow, Dataflow) else flow
    keyed = [name for name, part in flow.parts.items() if part.keyed] if isinstance(flow, Dataflow) else []
    return Shape(
        {part.name: (part.kind.value, part.parallelism) for part in application.components},
        tuple(sorted(f"{stream.label} {stream.grouping.value}" for stream in application.streams)),
        tuple(sorted(keyed)),
    )


def folder_of(folder: str, number: int) -> str:
    """Return the folder of a checkpoint."""
    return join(folder, f"{number:06}")


_encode = msgspec.msgpack.Encoder().encode
_decode: Callable[[bytes], TaskState] = msgpack_decoder(TaskState)
_decode_journal: Callable[[bytes], Journal] = json_decoder(Journal)
_decode_manifest: Callable[[bytes], CheckpointManifest] = json_decoder(CheckpointManifest)


def pack_state(state: TaskState, logic: Sequence[bytes | memoryview]) -> list[bytes | memoryview]:
    """Return a task's part of a file: the size of the runtime's state, that state, the logic's state."""
    head = _encode(state)
    return [len(head).to_bytes(4, "big") + head, *logic]


def unpack_state(data: bytes, path: str) -> tuple[TaskState, bytes]:
    """Return the runtime's and the logic's state from a task's part of a file."""
    size = int.from_bytes(data[:4], "big")
    try:
        state = _decode(data[4 : 4 + size])
    except Undecodable as error:
        raise FileProblem(f"{path}: not the state of a task, {error}") from None
    return state, data[4 + size :]


def manifest_entry(entry: TaskEntry, name: str, file: str) -> SavedTask:
    """Return a task's entry in the manifest."""
    figures = (entry.offset, entry.size, entry.checksum, entry.ended, entry.counted)
    return SavedTask(name, file, *figures, entry.position, entry.pending, entry.earlier)


def write_manifest(disk: Disk, folder: str, manifest: CheckpointManifest) -> None:
    """Write a manifest, which completes its checkpoint."""
    run = _run_folder(folder)

    def shorten(path: str) -> str:
        path = os.path.abspath(path)
        return os.path.relpath(path, run) if path.startswith(join(run, "")) else path

    text = msgspec.json.format(msgspec.json.encode(_renamed(manifest, shorten)), indent=1) + b"\n"
    body = text + f"{crc32(text):08x}\n".encode()
    disk.replace(join(folder_of(folder, manifest.number), MANIFEST), body)


def load_manifest(disk: Disk, folder: str, number: int) -> CheckpointManifest:
    """Read a manifest; raise `FileProblem` if it is damaged or of an unknown format."""
    path = join(folder_of(folder, number), MANIFEST)
    data = disk.read(path)
    text, _, summed = data.rstrip(b"\n").rpartition(b"\n")
    if f"{crc32(text + LINE):08x}".encode() != summed:
        raise FileProblem(f"{path}: damaged, its checksum does not match")
    try:
        form = decode_json(text, dict).get("format")
        if form not in READ:
            problem = f"format {form} is not known to this version of Penstock, which reads {READ[0]} and {READ[1]}"
            raise UnknownFormat(f"{path}: {problem}; resume with the version that wrote it")
        manifest = _decode_manifest(text)
    except Undecodable as error:
        raise FileProblem(f"{path}: not a manifest, {error}") from None
    return _renamed(manifest, lambda name: join(_run_folder(folder), name))  # an absolute name is unchanged


def _run_folder(folder: str) -> str:
    """Return the folder of the run whose checkpoints are in a folder."""
    return os.path.dirname(os.path.abspath(folder))


def _renamed(manifest: CheckpointManifest, rename: Callable[[str], str]) -> CheckpointManifest:
    """Return a manifest with other names of the sinks' files."""
    tasks = []
    for task in manifest.tasks:
        pending = tuple((rename(temporary), rename(final)) for temporary, final in task.pending)
        tasks.append(msgspec.structs.replace(task, pending=pending))
    return msgspec.structs.replace(manifest, tasks=tuple(tasks))


def numbers(disk: Disk, folder: str) -> list[int]:
    """Return the checkpoints that have a manifest, latest first."""
    found = [int(name) for name in disk.listed(folder) if name.isdecimal()]
    return [number for number in sorted(found, reverse=True) if MANIFEST in disk.listed(folder_of(folder, number))]


def find_latest(disk: Disk, folder: str, damaged: Sequence[int] = ()) -> tuple[CheckpointManifest | None, list[str]]:
    """Return the latest whole checkpoint, and the problems of those that were skipped."""
    problems = []
    for number in numbers(disk, folder):
        if number in damaged:
            continue
        try:
            manifest = load_manifest(disk, folder, number)
            verify(disk, folder, manifest)
        except UnknownFormat:
            raise
        except (FileProblem, OSError) as problem:
            problems.append(f"checkpoint {number} cannot be used: {problem}")
            continue
        return manifest, problems
    return None, problems


def verify(disk: Disk, folder: str, manifest: CheckpointManifest) -> None:
    """Raise `FileProblem` if files of a checkpoint are missing, truncated or damaged."""
    for saved in manifest.tasks:
        path = join(folder_of(folder, manifest.number), saved.file)
        read(disk, path, saved.offset, saved.size, saved.checksum)
        for part in saved.earlier:
            read_part(disk, folder, part)


def read(disk: Disk, path: str, offset: int, size: int, expected: int) -> bytes:
    """Read a task's part of a file; raise `FileProblem` if it is not what was written."""
    try:
        data = disk.read(path, offset, size)
    except FileNotFoundError:
        raise FileProblem(f"{path}: is missing") from None
    if len(data) != size:
        raise FileProblem(f"{path}: truncated, {len(data)} of {size} bytes from {offset} are there")
    if crc32(data) != expected:
        raise FileProblem(f"{path}: damaged, the checksum of {size} bytes from {offset} does not match")
    return data


def read_part(disk: Disk, folder: str, part: StatePart) -> bytes:
    """Read a part of a keyed state."""
    path = join(folder_of(folder, part.checkpoint), part.file)
    return read(disk, path, part.offset, part.size, part.checksum)


def publish(disk: Disk, folder: str, manifest: CheckpointManifest) -> None:
    """Give the files of a complete checkpoint their final names, if they lack them, and record that all have."""
    marker = join(folder_of(folder, manifest.number), PUBLISHED)
    if PUBLISHED in disk.listed(folder_of(folder, manifest.number)):
        return
    for temporary, final in manifest.pending:
        disk.publish(temporary, final)
    disk.replace(marker, b"")


def retire(disk: Disk, folder: str, kept: Sequence[CheckpointManifest]) -> None:
    """Remove all checkpoints before those that are kept, except for files with parts of their states."""
    first = min(manifest.number for manifest in kept)
    used = set().union(*(manifest.files_used for manifest in kept))
    numbers_used = {number for number, _ in used}
    for name in disk.listed(folder):
        if not name.isdecimal() or int(name) >= first:
            continue
        place, number = join(folder, name), int(name)
        if number not in numbers_used:
            disk.remove(place)
            continue
        if MANIFEST in disk.listed(place):
            forget_manifest(disk, folder, number)
        for file in disk.listed(place):
            if (number, file) not in used:
                disk.remove(join(place, file))


def refuse_outside(disk: Disk, folder: str, outputs: Sequence[str]) -> None:
    """Raise `Outside` if a manifest names a file that is neither below the run's folder nor below one of `outputs`.

    Symbolic links are resolved. Manifests that cannot be read are ignored here.
    """
    inside = [os.path.realpath(place) for place in (_run_folder(folder), *outputs)]
    for number in numbers(disk, folder):
        try:
            tasks = load_manifest(disk, folder, number).tasks
        except (FileProblem, OSError):
            continue
        for name, path in ((task.task, path) for task in tasks for pair in task.pending for path in pair):
            if problem := _why_outside(path, inside):
                remedy = "the run's folder was tampered with, or a sink does not declare its `folders`"
                where = join(folder_of(folder, number), MANIFEST)
                raise Outside(f"{where}: {name} names {path!r}, {problem}; {remedy}")


def _why_outside(path: str, inside: Sequence[str]) -> str:
    """Return why a file must not be moved or removed; empty: it may be."""
    real = os.path.realpath(path)
    if not any(real.startswith(os.path.join(place, "")) for place in inside):
        return "which is outside the run's folder and its sinks' folders"
    return "which is a folder" if os.path.isdir(real) else ""


def withdraw(disk: Disk, folder: str, last: int, outputs: Sequence[str]) -> None:
    """Remove all checkpoints after one, and the files that they have published and it has not.

    A sink that does not know yet that a checkpoint is complete adds its files to the next one as well. `outputs` are
    the folders of sinks, besides the run's, in which files may be removed.
    """
    refuse_outside(disk, folder, outputs)
    kept = set(load_manifest(disk, folder, last).pending) if last else set()
    withdrawn: set[Pending] = set()
    for number in numbers(disk, folder):
        if number > last:
            with contextlib.suppress(FileProblem, OSError):
                withdrawn.update(load_manifest(disk, folder, number).pending)
            forget_manifest(disk, folder, number)  # before its files: a complete checkpoint must have them
    for pair in withdrawn - kept:
        for path in pair:
            disk.remove(path)
    for name in disk.listed(folder):
        if name.isdecimal() and int(name) > last:
            disk.remove(join(folder, name))


def damage(disk: Disk, folder: str, number: int) -> str:
    """Return the damage to a checkpoint; empty if it is whole."""
    try:
        verify(disk, folder, load_manifest(disk, folder, number))
    except (FileProblem, FileNotFoundError) as problem:
        return str(problem)
    return ""


def forget_manifest(disk: Disk, folder: str, number: int) -> None:
    """Remove a manifest: its checkpoint is no longer complete."""
    disk.remove(join(folder_of(folder, number), MANIFEST))


def mismatch(manifest: CheckpointManifest, shape: Shape) -> list[str]:
    """Return the differences between an application and that of a checkpoint."""
    before, now = manifest.shape, shape
    found = [f"component {name!r} was removed" for name in before.components if name not in now.components]
    found += [f"component {name!r} is new" for name in now.components if name not in before.components]
    for name, (kind, parallelism) in before.components.items():
        if name in now.components and now.components[name] != (kind, parallelism):
            other, count = now.components[name]
            found.append(f"component {name!r} was {kind} × {parallelism} and is {other} × {count}")
    found += [
        f"component {name!r} {'had' if name in before.keyed else 'has now'} a state per key"
        for name in sorted({*before.keyed} ^ {*now.keyed})
        if name in before.components and name in now.components
    ]
    found += [f"stream {label} was removed" for label in before.streams if label not in now.streams]
    found += [f"stream {label} is new" for label in now.streams if label not in before.streams]
    if manifest.key_groups != KEY_GROUPS:
        found.append(f"its keys are in {manifest.key_groups} groups, this version has {KEY_GROUPS}")
    return found
