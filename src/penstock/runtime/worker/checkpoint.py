"""A worker's part in checkpoints: barriers are lined up, states saved and written.

A barrier says that everything before it on its channel belongs to a checkpoint. A task holds back what comes on a
channel after its barrier until every channel has had its own: then its state is that of the checkpoint. It is encoded
in pieces between turns, while the task stands still and all others go on, and written by the shell.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from penstock.api.contracts import Source
from penstock.model.decoding import decode_msgpack
from penstock.runtime.protocol import worker_messages
from penstock.runtime.protocol.frames import BARRIER
from penstock.runtime.protocol.worker_messages import TaskEntry
from penstock.runtime.storage.checkpoints import checksum, folder_of, pack
from penstock.runtime.storage.disk import Disk, Job, below
from penstock.runtime.worker.input import InChannel
from penstock.runtime.worker.lane import MarkerOf
from penstock.runtime.worker.task import Task

if TYPE_CHECKING:
    from penstock.runtime.worker.state_machine import Worker

Piece = bytes | memoryview
TURN_BYTES = 256 * 1024  # of a task's state that are encoded a turn


class Saving:
    """The checkpoint that a worker takes part in, in one epoch; `number` is that of the latest it has heard of."""

    def __init__(self, worker: "Worker") -> None:
        self.worker = worker
        self.number = 0
        self._given_up = worker.assigned.given_up  # no checkpoint up to this number will come to its end
        self._saved: dict[int, tuple[TaskEntry, list[Piece]]] = {}  # task -> what the manifest says, and its state
        self._encoding: dict[int, Iterator[Piece]] = {}
        self._pieces: dict[int, list[Piece]] = {}
        self._commanded = False
        self._written = False

    def begin(self, number: int) -> None:
        """Begin a checkpoint at the sources that are here, whatever keeps them from giving tuples."""
        self._hear(number)
        self._commanded = True
        for task in list(self.worker.tasks.values()):
            if task.is_source:
                task.saving = True
                if self.worker.execution.idle(task):
                    self.save(task)
        self._write()

    def barrier(self, task: Task, channel: InChannel, number: int) -> None:
        """Take a barrier that has come on a channel: save the task's state once all have."""
        if number <= self._given_up or number < self.number:
            return
        self._hear(number)
        channel.barred = True
        task.set_aside(channel)
        if all(each.barred for each in task.inputs.values()):
            task.saving = True
            self.save(task)

    def save(self, task: Task) -> None:
        """Begin to save a task, which stands still and is between two tuples."""
        worker = self.worker
        worker.current = task
        problem = task.unwritten() or task.unsavable
        if problem:
            worker.told.append(
                worker_messages.CheckpointFailed(worker.epoch, self.number, f"task {task.name}: {problem}")
            )
            self._pass_on(task)
            return
        self._encoding[task.number] = task.state_pieces()
        self._pieces[task.number] = []
        self._encode(task)

    def idle(self, task: Task) -> None:
        """Note that a task is between two tuples now."""
        if task.saving and task.is_source and task.number not in self._encoding:
            self.save(task)

    @property
    def busy(self) -> bool:
        """Whether there is more to encode."""
        return bool(self._encoding)

    @property
    def aligning(self) -> bool:
        """Whether tasks that are still to be saved have processed tuples since the last report."""
        waits = self._commanded and not self._written
        return waits and any(task.processed and n not in self._saved for n, task in self.worker.tasks.items())

    def turn(self) -> None:
        """Encode one more piece of every task that is being saved."""
        for number in list(self._encoding):
            self._encode(self.worker.tasks[number])

    def abort(self, number: int) -> None:
        """Forget a checkpoint; what was held back for it goes on."""
        self._given_up = max(self._given_up, number)
        if self.number <= number:
            self._forget()

    def complete(self, number: int) -> None:
        """Forget the files that a complete checkpoint publishes."""
        for task in self.worker.tasks.values():
            task.pending = [(held, pair) for held, pair in task.pending if held == 0 or held > number]

    def _hear(self, number: int) -> None:
        if number > self.number:
            self._forget()
            self.number = number

    def _forget(self) -> None:
        self._saved, self._encoding, self._pieces = {}, {}, {}
        self._commanded = self._written = False
        for task in self.worker.tasks.values():
            if task.saving or task.aside or any(channel.barred for channel in task.inputs.values()):
                task.go_on()
                self.worker.execution.relieved(task)

    def _encode(self, task: Task) -> None:
        """Encode as much as a turn has room for; most states are done with it."""
        self.worker.current = task
        pieces, size = self._pieces[task.number], 0
        for piece in self._encoding[task.number]:
            pieces.append(piece)
            size += len(piece)
            if size > TURN_BYTES:
                return
        del self._encoding[task.number]
        self._finish(task, self._pieces.pop(task.number))

    def _finish(self, task: Task, pieces: list[Piece]) -> None:
        """Keep a state that is encoded, and let the barrier go on behind all that the task gave before."""
        logic = task.logic
        position = ""
        if isinstance(logic, Source) and logic.rewinds and not task.closed:
            position = _shown(b"".join(pieces))
        packed = pack(task.saved_state(sum(map(len, pieces))), pieces)
        size = sum(map(len, packed))
        task.pending = [(held or self.number, pair) for held, pair in task.pending]
        pending = tuple(pair for _, pair in task.pending)
        entry = TaskEntry(task.number, 0, size, 0, task.ended, task.counted, position, pending)
        self._saved[task.number] = (entry, packed)
        self._pass_on(task)
        self._write()

    def _pass_on(self, task: Task) -> None:
        task.put_marker(MarkerOf(BARRIER, self.number, 0))
        task.go_on()
        self.worker.execution.relieved(task)

    def _write(self) -> None:
        """Have all states written once the last has been saved."""
        worker, number, epoch = self.worker, self.number, self.worker.epoch
        if self._written or not self._commanded or self._saved.keys() != worker.tasks.keys():
            return
        self._written = True
        file = f"w{worker.me}.e{epoch}"
        path = below(folder_of(worker.assigned.checkpoints, number), file)
        states = [state for _, state in sorted(self._saved.items())]
        self._saved = {}

        def do(disk: Disk) -> worker_messages.CheckpointSaved:
            size = _summed(states)
            if states:
                disk.write(path, [piece for _, packed in states for piece in packed])
            return worker_messages.CheckpointSaved(epoch, number, file, size, tuple(entry for entry, _ in states))

        def then(saved: worker_messages.CheckpointSaved, problem: str, _: float) -> None:
            if worker.saving is self and self.number == number and number > self._given_up:
                worker.told.append(worker_messages.CheckpointFailed(epoch, number, problem) if problem else saved)

        worker.storing.append(Job(f"checkpoint {number}", do, then))


def _summed(states: list[tuple[TaskEntry, list[Piece]]]) -> int:
    """Put states one after another, with the checksum of each; return how long they are together."""
    size = 0
    for entry, packed in states:
        entry.offset, entry.checksum = size, 0
        size += entry.size
        for piece in packed:
            entry.checksum = checksum(piece, entry.checksum)
    return size


def _shown(position: bytes) -> str:
    """Return a source's position for people to read: as JSON, or else as Python shows it."""
    decoded = decode_msgpack(position, strict=False)
    try:
        return msgspec.json.encode(decoded).decode()
    except (TypeError, ValueError):
        return repr(decoded)
