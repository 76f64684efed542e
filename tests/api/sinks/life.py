"""The life of a sink's task as the runtime leads it: checkpoints, crashes, moves, and zombies that write on."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import msgspec

from penstock.api.contracts import TaskContext
from penstock.api.sinks.parts import PartFiles
from penstock.model.errors import FileProblem
from penstock.runtime.storage.disk import Posix


class Checkpoint(NamedTuple):
    """What a checkpoint keeps of the sink, and where the source was."""

    state: bytes | None  # None: the very beginning
    pairs: tuple[tuple[str, str], ...]
    given: int


class Life:
    """Feeds the numbers from 0 on to a sink, and again whatever a crash has undone."""

    def __init__(self, make: Callable[[], PartFiles], folder: Path, run: str = "monday") -> None:
        self.make = make
        self.folder = folder
        self.run = run
        self.epoch = 1
        self.given = 0  # numbers fed so far, on the way to the output
        self.pending: list[tuple[str, str]] = []  # prepared, of checkpoints that did not come to their end
        self.checkpoints = [Checkpoint(None, (), 0)]
        self.zombies: list[PartFiles] = []
        self.sink = self.opened()

    def opened(self) -> PartFiles:
        sink = self.make()
        sink.open(TaskContext("save", 3, 4, folder=str(self.folder), run=self.run, epoch=self.epoch))
        return sink

    def feed(self, count: int) -> None:
        self.sink.write(range(self.given, self.given + count))
        self.given += count

    def checkpoint(self, *, complete: bool = True, publish: bool = True) -> None:
        self.pending += self.sink.prepare()
        state = saved(self.sink)
        if not complete:
            return
        self.checkpoints.append(Checkpoint(state, tuple(self.pending), self.given))
        self.pending = []
        if publish:
            self.publish()

    def publish(self) -> None:
        for temporary, final in self.checkpoints[-1].pairs:
            Posix().publish(temporary, final)

    def recover(self, *, damaged: bool = False, published_late: bool = False) -> None:
        """Begin a new epoch from the last checkpoint, or from the one before; the old object stays as a zombie."""
        if damaged and len(self.checkpoints) > 1:
            self.checkpoints.pop()
        self.zombies.append(self.sink)
        self.epoch += 1
        self.pending = []
        if not published_late:
            self.publish()
        self.sink = self.opened()
        restore(self.sink, self.checkpoints[-1].state)
        self.given = self.checkpoints[-1].given
        if published_late:
            self.publish()

    def move(self) -> None:
        """Go on elsewhere in the same epoch."""
        self.pending += self.sink.prepare()
        state = saved(self.sink)
        self.sink.close()
        self.sink = self.opened()
        restore(self.sink, state)

    def haunt(self) -> None:
        """Let every zombie do what it was about to do; nobody publishes what it prepares."""
        for zombie in self.zombies:
            with suppress(FileProblem):  # one that has not yet begun sees that it must not
                zombie.write([-1])
                zombie.prepare()
                zombie.write([-2])
                zombie.flush(0.0)
                zombie.snapshot()

    def end(self) -> None:
        self.checkpoint()
        self.sink.close()
        for zombie in self.zombies:
            zombie.close()


def saved(sink: PartFiles) -> bytes:
    return msgspec.msgpack.encode(sink.snapshot())


def restore(sink: PartFiles, state: bytes | None) -> None:
    if state is not None:
        kind = get_type_hints(type(sink).snapshot)["return"]  # as the runtime reads it
        sink.restore(msgspec.msgpack.decode(state, type=kind))


def visible(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if not path.name.startswith("_"))


def hidden(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name.startswith("_"))


def published(sink: PartFiles) -> Sequence[Any]:
    """Complete a checkpoint of a sink, and return what was published."""
    pairs = sink.prepare()
    for temporary, final in pairs:
        Posix().publish(temporary, final)
    return [Path(final).name for _, final in pairs]
