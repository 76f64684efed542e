"""A worker's part in checkpoints: it aligns barriers, saves and writes states, and reads them on recovery.

A barrier marks the end of a checkpoint on its channel. A task buffers everything behind the barrier of a channel until
the barriers of all channels have arrived; its state is then that of the checkpoint. The state is encoded in pieces
between turns, while the task is suspended and all others run. The shell writes it.
"""

from collections.abc import Callable, Iterator
from functools import partial
from os.path import join
from typing import NamedTuple, Protocol
from zlib import crc32

import msgspec

from penstock.api.contracts import Source
from penstock.model.decoding import decode_msgpack
from penstock.runtime.protocol import worker_messages
from penstock.runtime.protocol.controller_messages import StateLocation
from penstock.runtime.protocol.frames import BARRIER, MarkerBody
from penstock.runtime.protocol.worker_messages import StatePart, TaskEntry
from penstock.runtime.storage.checkpoints import TaskState, folder_of, pack_state, read, read_part, unpack_state
from penstock.runtime.storage.disk import Disk, StorageJob
from penstock.runtime.worker.input import InChannel
from penstock.runtime.worker.routing import TaskDirectory
from penstock.runtime.worker.running_task import RunningTask
from penstock.runtime.worker.task import Task

Piece = bytes | memoryview

TURN_BYTES = 256 * 1024  # bytes of a task's state encoded per turn


class SavedState(NamedTuple):
    """The state of a task in a checkpoint."""

    runtime: TaskState
    logic: bytes
    parts: list[tuple[StatePart, bytes]]  # of a keyed state: all of its parts, oldest first


States = dict[int, SavedState]


class _Slots(Protocol):
    """The part of `TaskExecution` that checkpoints use."""

    def is_idle(self, task: Task) -> bool: ...
    def wake(self, task: Task) -> None: ...


class Checkpointer:
    """The checkpoint in which a worker takes part, in one epoch; `number` is that of the latest."""

    def __init__(
        self,
        epoch: int,
        folder: str,
        given_up: int,
        directory: TaskDirectory,
        slots: _Slots,
        running: RunningTask,
        report: Callable[[worker_messages.WorkerMessage], None],
        store: Callable[[StorageJob], None],
    ) -> None:
        self.number = 0
        self._epoch = epoch
        self._folder = folder
        self._aborted = given_up  # no checkpoint up to this number will be completed
        self._directory = directory
        self._tasks = directory.here
        self._slots = slots
        self._running = running
        self._report = report
        self._store = store
        self._saved: dict[int, tuple[TaskEntry, list[Piece]]] = {}  # task -> its manifest entry, and its state
        self._encoding: dict[int, Iterator[Piece]] = {}
        self._pieces: dict[int, list[Piece]] = {}
        self._unreported: list[int] = []  # tasks that were saved since the last report
        self._commanded = False
        self._written = False

    def begin(self, number: int) -> None:
        """Start a checkpoint at the local sources, including blocked and ended ones."""
        self._advance_to(number)
        self._commanded = True
        for task in list(self._tasks.values()):
            if task.is_source:
                task.start_saving()
                if self._slots.is_idle(task):
                    self.save(task)
        self._write()

    def take_barrier(self, task: Task, channel: InChannel, number: int) -> None:
        """Process a barrier of a channel: save the task's state once the barriers of all channels have arrived."""
        if number <= self._aborted or number < self.number:
            return
        self._advance_to(number)
        if task.inbox.align(channel):
            task.start_saving()
            self.save(task)

    def save_source(self, task: Task) -> None:
        """Save a source, which is between two tuples now."""
        if task.is_source and task.number not in self._encoding:
            self.save(task)

    def save(self, task: Task) -> None:
        """Start to save a task, which is suspended and between two tuples."""
        self._running.set(task)
        problem = task.prepare_files() or task.unsavable
        if problem:
            failed = worker_messages.CheckpointFailed(self._epoch, self.number, f"task {task.name}: {problem}")
            self._report(failed)
            self._pass_barrier(task)
            return
        self._encoding[task.number] = task.state_pieces(self.number)
        self._pieces[task.number] = []
        self._encode(task)

    @property
    def encoding(self) -> bool:
        """Whether there is more to encode."""
        return bool(self._encoding)

    @property
    def aligning(self) -> bool:
        """Whether tasks that are not saved yet have processed tuples since the last report."""
        waits = self._commanded and not self._written
        return waits and any(task.processed and n not in self._saved for n, task in self._tasks.items())

    def take_saved(self) -> tuple[int, ...]:
        """Return the tasks that were saved since the last call."""
        saved, self._unreported = tuple(self._unreported), []
        return saved

    def encode_more(self) -> None:
        """Encode another piece of the state of every task that is being saved."""
        for number in list(self._encoding):
            self._encode(self._tasks[number])

    def abort(self, number: int) -> None:
        """Abort a checkpoint: release what was buffered for it."""
        self._aborted = max(self._aborted, number)
        if self.number <= number:
            self._reset()

    def complete(self, number: int) -> None:
        """Forget the files that a complete checkpoint publishes."""
        for task in self._tasks.values():
            task.completed(number)

    def _advance_to(self, number: int) -> None:
        if number > self.number:
            self._reset()
            self.number = number

    def _reset(self) -> None:
        self._saved, self._encoding, self._pieces, self._unreported = {}, {}, {}, []
        self._commanded = self._written = False
        for task in self._tasks.values():
            if task.saving or task.inbox.aligning:
                self._resume(task)

    def _resume(self, task: Task) -> None:
        task.resume_from_saving()
        self._slots.wake(task)

    def _pass_barrier(self, task: Task) -> None:
        task.put_marker(MarkerBody(BARRIER, self.number))
        self._resume(task)

    def _encode(self, task: Task) -> None:
        """Encode as much of a state as fits into a turn; this completes most states."""
        self._running.set(task)
        pieces, size = self._pieces[task.number], 0
        for piece in self._encoding[task.number]:
            pieces.append(piece)
            size += len(piece)
            if size > TURN_BYTES:
                return
        del self._encoding[task.number]
        self._finish(task, self._pieces.pop(task.number))

    def _finish(self, task: Task, pieces: list[Piece]) -> None:
        logic, position = task.logic, ""
        if isinstance(logic, Source) and logic.rewinds and not task.closed:
            position = _json(b"".join(pieces))
        packed = pack_state(task.saved_state(sum(map(len, pieces))), pieces)
        size = sum(map(len, packed))
        pending = task.assign_files(self.number)
        earlier = task.earlier_parts()
        entry = TaskEntry(task.number, 0, size, 0, task.ended, task.counted, position, pending, earlier)
        self._saved[task.number] = (entry, packed)
        self._unreported.append(task.number)
        self._pass_barrier(task)
        self._write()

    def _write(self) -> None:
        """Submit the job that writes all states, once the last is saved."""
        number, epoch = self.number, self._epoch
        if self._written or not self._commanded or self._saved.keys() != self._tasks.keys():
            return
        self._written = True
        file = f"w{self._directory.me}.e{epoch}"
        path = join(folder_of(self._folder, number), file)
        states = [state for _, state in sorted(self._saved.items())]
        self._saved = {}

        def do(disk: Disk) -> worker_messages.CheckpointSaved:
            size, entries = _laid_out(states)
            if states:
                disk.write(path, [piece for _, packed in states for piece in packed])
            return worker_messages.CheckpointSaved(epoch, number, file, size, entries)

        def then(saved: worker_messages.CheckpointSaved, problem: str, _: float) -> None:
            if self.number == number and number > self._aborted:
                if not problem:
                    self._note_parts(saved)
                failed = worker_messages.CheckpointFailed(epoch, number, problem)
                self._report(failed if problem else saved)

        self._store(StorageJob(f"checkpoint {number}", do, then))

    def _note_parts(self, saved: worker_messages.CheckpointSaved) -> None:
        """Let keyed tasks know where the parts of their states are."""
        for entry in saved.entries:
            part = StatePart(saved.checkpoint, saved.file, entry.offset, entry.size, entry.checksum)
            if entry.task in self._tasks:  # unless another epoch has started
                self._tasks[entry.task].part_written(part)


def _laid_out(states: list[tuple[TaskEntry, list[Piece]]]) -> tuple[int, tuple[TaskEntry, ...]]:
    """Return the total size of consecutive states, and their entries with offsets and checksums."""
    size, entries = 0, []
    for entry, packed in states:
        total = 0
        for piece in packed:
            total = crc32(piece, total)
        entries.append(msgspec.structs.replace(entry, offset=size, checksum=total))
        size += entry.size
    return size, tuple(entries)


def _json(position: bytes) -> str:
    """Return a source's position as readable JSON, or its `repr` if JSON cannot represent it."""
    decoded = decode_msgpack(position, strict=False)
    try:
        return msgspec.json.encode(decoded).decode()
    except (TypeError, ValueError):
        return repr(decoded)


def reading_job(
    folder: str, checkpoint: int, locations: tuple[StateLocation, ...], then: Callable[[States, str, float], None]
) -> StorageJob:
    """Return the job that reads the states of tasks from a checkpoint; `then` receives them, or the problem."""
    do = partial(_read_states, folder=folder, checkpoint=checkpoint, locations=locations)
    return StorageJob(f"states of checkpoint {checkpoint}", do, then)


def _read_states(disk: Disk, folder: str, checkpoint: int, locations: tuple[StateLocation, ...]) -> States:
    """Read the states of tasks; reject damaged ones."""
    states: States = {}
    for at in locations:
        path = join(folder_of(folder, checkpoint), at.file)
        runtime, logic = unpack_state(read(disk, path, at.offset, at.size, at.checksum), path)
        parts = [(part, unpack_state(read_part(disk, folder, part), part.file)[1]) for part in at.earlier]
        parts.append((StatePart(checkpoint, at.file, at.offset, at.size, at.checksum), logic))
        states[at.task] = SavedState(runtime, logic, parts)
    return states
