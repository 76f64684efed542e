"""A source shared by several runs of one application: each emits the tuples of the blocks that it takes.

Every path reads the whole source and skips the blocks of other paths, so any source that rewinds can be shared. The due
times of all paths are measured by one clock, which starts with the first path.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from penstock.api.contracts import Source, TaskContext, Timed
from penstock.api.dataflow import Dataflow
from penstock.api.sources.split_log import BEGINNING, NEW, Block, Place, SplitLog
from penstock.model.errors import InvalidInput

BLOCK_S = 0.2  # time span of the tuples in a block
LARGEST = 4096  # maximum tuples per block
UNPACED = 1024  # tuples per block if the source's rate is unknown
SKIPPED = 65_536  # maximum tuples of others skipped per poll
PLACED = 16  # one in this many blocks of a task records where it reads
AGAIN_S = 0.05  # until it asks again for a block that is not yet available


class Split(Source[Any]):
    """One path's part of a source.

    source: creates the shared source, which must rewind. log: the file that all paths share. path: the path's name.
    wall: a clock that all paths share.

    The length of blocks is proportional to the path's weight in the log (`SplitLog.weigh`), so paths that keep up get
    tuples in proportion to their weights; a path that cannot keep up takes fewer.
    """

    rewinds = True

    def __init__(
        self, source: Callable[[], Source[Any]], log: Path | str, path: str, wall: Callable[[], float] = time.time
    ) -> None:
        self._make = source
        self._file = str(log)
        self._path = path
        self._wall = wall
        shared = source()
        if not shared.rewinds:
            problem = f"expected a source that rewinds, to be split over paths; {type(shared).__name__} cannot"
            raise InvalidInput("source", f"{problem}; store its input in files and read them with Lines")
        self._rate_tps = shared.rate_tps

    @property
    def rate_tps(self) -> float | None:
        """The tuples per second that the source offers to all paths together, if known."""
        return self._rate_tps

    def check(self) -> None:
        """Raise for whatever the source itself rejects."""
        self._make().check()

    def open(self, context: TaskContext) -> None:
        """Open the log without reading the source."""
        self._log = SplitLog(self._file)
        self._taker = f"{self._path}/{context.task}"
        started_at = self._log.begin(self._wall())
        self._context = _alone(context, origin=context.now() - (self._wall() - started_at))
        self._tasks = context.tasks
        self._readers: dict[int, _Reader] = {}  # by the return that they read
        self._done = 0  # number of blocks fully emitted
        self._block: Block | None = None
        self._within = 0  # number of tuples emitted from the block
        self._ended = False

    def poll(self, now: float, limit: int) -> Timed[Any] | None:
        """Return the due tuples of its blocks; take new blocks when they are exhausted."""
        values: list[Any] = []
        dues: list[float] = []
        while len(values) < limit and not self._ended:
            block = self._current()
            if block is None:
                break
            reader = self._reader(block)
            given = reader.read(block.start + self._within, block.stop, now, limit - len(values))
            values += given.values
            dues += given.dues
            self._within += len(given.values)
            if reader.ended:
                self._log.end(reader.offset)
            if block.start + self._within == block.stop or reader.ended:
                self._done, self._block, self._within = self._done + 1, None, 0
            elif not given.values:
                break
        if self._ended and not values:
            return None
        return Timed(values, dues)

    def next_due(self, now: float) -> float:
        """Return when the next tuple of its block is due."""
        if self._block is None:
            return now if self._ended else now + AGAIN_S
        return self._reader(self._block).source.next_due(now)

    def position(self) -> dict[str, Any]:
        """Return the number of emitted blocks, the offset in the next, and the positions of its readers."""
        readers = {str(of): reader.place for of, reader in self._readers.items()}
        return {"done": self._done, "within": self._within, "readers": readers}

    def seek(self, position: Mapping[str, Any]) -> None:
        """Continue after a position, with the blocks that were taken since."""
        self._log.look()
        self._log.refuse_given_up(self._path)
        self._done, self._within = position["done"], position["within"]
        for of, (offset, place) in position["readers"].items():
            self._readers[int(of)] = _Reader(self._opened(), (offset, place))

    def close(self) -> None:
        """Close the source."""
        for reader in self._readers.values():
            reader.source.close()

    def _current(self) -> Block | None:
        """Return the block to emit: one that was taken before a failure, or a new one."""
        if self._block is None:
            reader = self._readers.get(NEW)
            records = reader is not None and self._done % PLACED == PLACED - 1
            place = reader.place if reader is not None and records else None
            self._block = self._log.take(self._taker, self._size(), self._done, place)
            self._ended = self._block is None and self._log.ended is not None
        return self._block

    def _size(self) -> int:
        self._log.look()
        share = self._log.share(self._path) / self._tasks
        whole = UNPACED if self._rate_tps is None else self._rate_tps * BLOCK_S
        return min(LARGEST, max(1, round(whole * share)))

    def _reader(self, block: Block) -> "_Reader":
        if block.of not in self._readers:
            if block.of == NEW:
                place = self._log.place if self._log.place[0] <= block.start else BEGINNING
            else:
                returned = self._log.returns[block.of]
                place = (returned.offset, returned.position)
            self._readers[block.of] = _Reader(self._opened(), place)
        return self._readers[block.of]

    def _opened(self) -> Source[Any]:
        source = self._make()
        source.open(self._context)
        return source


class _Reader:
    """Reads a source from a position, and knows the number of its next tuple.

    A source may return more tuples than requested, if one of its tuples stands for many. The excess is kept, and until
    it is used up the reader's position is the previous one.
    """

    def __init__(self, source: Source[Any], place: Place) -> None:
        self.source = source
        self.offset = place[0]
        self.ended = False
        self._ahead: list[tuple[Any, float]] = []
        self._before = place  # position from which the tuples ahead were read, or an earlier one
        self._generous = False  # whether it returns more than requested
        if place[1] is not None:
            source.seek(place[1])

    @property
    def place(self) -> Place:
        """The position from which another reader would emit the same tuples."""
        return self._before if self._ahead else (self.offset, self.source.position())

    def read(self, start: int, stop: int, now: float, limit: int) -> Timed[Any]:
        """Return the due tuples from number `start` to before `stop`, and skip those before."""
        skipped = 0
        while self.offset < start and skipped < SKIPPED:
            found = self._some(now, min(start - self.offset, SKIPPED))
            if not found.values:
                return found
            skipped += len(found.values)
        return self._some(now, min(limit, stop - self.offset)) if self.offset == start else Timed([], [])

    def _some(self, now: float, limit: int) -> Timed[Any]:
        if not self._ahead:
            self._poll(now, limit)
        taken, self._ahead = self._ahead[:limit], self._ahead[limit:]
        self.offset += len(taken)
        return Timed([value for value, _ in taken], [due for _, due in taken])

    def _poll(self, now: float, limit: int) -> None:
        if self._generous:
            self._before = (self.offset, self.source.position())
        found = self.source.poll(now, limit)
        if found is None:
            self.ended = True
            return
        values, dues = found if isinstance(found, Timed) else (found, [now] * len(found))
        self._ahead = list(zip(values, dues, strict=True))
        self._generous |= len(values) > limit


def split_sources(flow: Dataflow, folder: Path | str, path: str) -> Dataflow:
    """Return a dataflow as one of its paths: its sources are shared with the other paths through logs in a folder."""
    parts = dict(flow.parts)
    for name, part in flow.parts.items():
        if isinstance(part.make(), Source):
            make = cast(Callable[[], Source[Any]], part.logic)
            logic = partial(Split, make, Path(folder) / f"{name}.jsonl", path)
            logic()  # raises for a source that cannot be split
            parts[name] = replace(part, logic=logic)
    return Dataflow(flow.name, parts)


def _alone(context: TaskContext, origin: float) -> TaskContext:
    """Return the context of the only task of a source whose first tuple was due at a time."""
    return TaskContext(
        context.component,
        0,
        1,
        folder=context.folder,
        run=context.run,
        epoch=context.epoch,
        seed=context.seed,
        clock=context.now,
        wake=context.wake,
        origin=origin,
    )
