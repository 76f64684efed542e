"""The split log: which paths took which numbers of a source's tuples, and which were returned.

Several runs of one application, its *paths*, share one source. Each takes the next tuples in *blocks* of consecutive
numbers, as it needs them, by appending to a file under a lock; the file determines who has which block, whatever fails.
Unfinished numbers of an abandoned path are returned by the process that abandons it, and the others take those first.

The file is text, one entry per line. A line that was left incomplete by a crash is not an entry, and the next writer
removes it. All paths must access the same file.
"""

import fcntl
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from penstock.model.decoding import Undecodable, json_decoder
from penstock.model.errors import FileProblem, InvalidInput

NEW = -1  # marks a block that no path had before

Place = tuple[int, Any]
"""A position in a source: the number of tuples before it, and its state; None: the beginning."""

BEGINNING: Place = (0, None)


class SourceStarted(msgspec.Struct, frozen=True, tag="begun"):
    """When the source's first tuple was due."""

    at: float  # seconds of the wall clock, which paths on other hosts share


class Block(msgspec.Struct, frozen=True, tag="block"):
    """Numbers taken by a task of a path; some blocks record a position from which others may start to read."""

    taker: str  # `path/task`
    start: int
    stop: int
    of: int = NEW  # the return from which they are taken
    place: Place | None = None


class ReturnedNumbers(msgspec.Struct, frozen=True):
    """Numbers that were returned, and the source's position before the first of them."""

    spans: list[tuple[int, int]]
    offset: int = 0  # tuples before the position
    position: Any = None  # None: the source's beginning


class PathAbandoned(msgspec.Struct, frozen=True, tag="given up"):
    """An abandoned path, which must take no more, with its unfinished numbers, in one atomic entry."""

    path: str
    returned: list[ReturnedNumbers] = []


class PathStarted(msgspec.Struct, frozen=True, tag="ran"):
    """The run of a path; noted before it can take anything."""

    path: str
    folder: str


class Weights(msgspec.Struct, frozen=True, tag="weights"):
    """The relative weights of the paths, in proportion to which they get tuples."""

    of: dict[str, float]


class SourceEnded(msgspec.Struct, frozen=True, tag="ended"):
    """The source has ended after this number of tuples."""

    at: int


Entry = SourceStarted | Block | SourceEnded | PathAbandoned | PathStarted | Weights

_decode: Callable[[bytes], Entry] = json_decoder(Entry)


class SplitLog:
    """A split log as seen by one process; `look` and every change read the entries of other processes."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.started_at: float | None = None
        self.next = 0  # the first number that no path has taken
        self.ended: int | None = None
        self.weights: Mapping[str, float] = {}
        self.place = BEGINNING  # the furthest known position
        self.blocks: dict[str, list[Block]] = {}  # by taker
        self.returns: list[ReturnedNumbers] = []
        self.given_up: set[str] = set()  # number of tuples, once known
        self.runs: dict[str, str] = {}  # path -> folder of its run
        self._left: list[list[tuple[int, int]]] = []  # of each return, the ranges not yet taken again
        self._read = 0  # bytes

    def look(self) -> None:
        """Read new entries."""
        if self.path.exists():
            with self.path.open("rb") as file:
                self._catch_up(file.fileno())

    def begin(self, at: float) -> float:
        """Return when the source started: now, if it has not started before."""
        with self._locked() as file:
            if self.started_at is None:
                self._append(file, SourceStarted(at))
            assert self.started_at is not None, "the entry was appended"
            return self.started_at

    def take(self, taker: str, size: int, have: int, place: Place | None = None) -> Block | None:
        """Take the next block of at most `size` numbers, returned ones first; None if none are left.

        have: number of blocks that the taker has had. If the log has more, taken by a worker that has failed or is
        being replaced, the next of these is the result. place: a position at or before the block, for others that start
        later.
        """
        with self._locked() as file:
            self.refuse_given_up(taker.rpartition("/")[0])
            if len(self.blocks.get(taker, ())) == have:
                block = self._returned(taker, size) or self._fresh(taker, size, place)
                if block is None:
                    return None
                self._append(file, block)
            return self.blocks[taker][have]

    def refuse_given_up(self, path: str) -> None:
        """Raise `InvalidInput` if the entries read so far abandon a path."""
        if path in self.given_up:
            raise InvalidInput("path", f"{path!r} was abandoned, others have its tuples; start it under another name")

    def note_run(self, path: str, folder: str) -> None:
        """Record the run of a path, before it takes anything."""
        with self._locked() as file:
            self._append(file, PathStarted(path, folder))

    def end(self, at: int) -> None:
        """Record the number of the source's tuples."""
        with self._locked() as file:
            if self.ended is None:
                self._append(file, SourceEnded(at))

    def weigh(self, weights: Mapping[str, float]) -> None:
        """Set the weight of each path."""
        for path, weight in weights.items():
            if not 0 <= weight < float("inf"):
                raise InvalidInput(f"weights.{path}", f"expected a number ≥ 0, got {weight!r}")
        with self._locked() as file:
            self._append(file, Weights(dict(weights)))

    def give_back(self, path: str, positions: Mapping[str, Any]) -> int:
        """Return the unfinished tuples of a path, for others to take, and report their number.

        The path must have ended, and can never take tuples again.
        positions: of each of its takers (`path/task`), the
        position of its last complete checkpoint; without one, all that it took is returned.
        """
        with self._locked() as file:
            if path in self.given_up:
                return 0
            returned: list[ReturnedNumbers] = []
            for taker in [name for name in self.blocks if name.rpartition("/")[0] == path]:
                returned += unfinished(self.blocks[taker], self.returns, positions.get(taker), self.place)
            self._append(file, PathAbandoned(path, returned))
            return sum(stop - start for one in returned for start, stop in one.spans)

    def share(self, path: str) -> float:
        """Return the fraction of the tuples that a path should get."""
        total = sum(self.weights.values())
        return self.weights.get(path, 0.0) / total if total else 1.0

    def _returned(self, taker: str, size: int) -> Block | None:
        for number, left in enumerate(self._left):
            if left:
                start, stop = left[0]
                return Block(taker, start, min(stop, start + size), number)
        return None

    def _fresh(self, taker: str, size: int, place: Place | None) -> Block | None:
        stop = self.next + size if self.ended is None else min(self.next + size, self.ended)
        return Block(taker, self.next, stop, NEW, place) if stop > self.next else None

    @contextmanager
    def _locked(self) -> Iterator[int]:
        with FileProblem.on(self.path, "the split log cannot be opened", "check the path"):
            file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)  # until the file is closed, also by a crash
            self._catch_up(file)
            yield file
        finally:
            os.close(file)

    def _append(self, file: int, entry: Entry) -> None:
        line = msgspec.json.encode(entry) + b"\n"
        os.ftruncate(file, self._read)  # an incomplete entry had no effect
        with FileProblem.on(self.path, "the split log cannot be written", "free some space"):
            written = os.write(file, line)
            os.fdatasync(file)  # before the entry takes effect
        if written < len(line):  # an incomplete line is not an entry
            raise FileProblem(f"{self.path}: the split log cannot be written completely; free some space")
        self._catch_up(file)

    def _catch_up(self, file: int) -> None:
        size = os.fstat(file).st_size
        data = os.pread(file, size - self._read, self._read)
        whole = data.rfind(b"\n") + 1
        self._read += whole
        for line in data[:whole].splitlines():
            try:
                self._note(_decode(line))
            except Undecodable:
                continue  # left incomplete by a crash, without effect

    def _note(self, entry: Entry) -> None:
        match entry:
            case SourceStarted(at):
                self.started_at = at
            case Block(taker, start, stop, of, place):
                self.blocks.setdefault(taker, []).append(entry)
                if place is not None and place[0] > self.place[0]:
                    self.place = place
                if of == NEW:
                    self.next = max(self.next, stop)
                elif not 0 <= of < len(self._left):
                    problem = f"a block is of return {of}, there are {len(self._left)}"
                    raise FileProblem(f"{self.path}: the split log is damaged, {problem}; restore a copy of it")
                else:
                    self._left[of] = subtract(self._left[of], start, stop)
            case PathAbandoned(path, returned):
                self.given_up.add(path)
                self.returns += returned
                self._left += [[(start, stop) for start, stop in one.spans] for one in returned]
            case PathStarted(path, folder):
                self.runs[path] = folder
            case Weights(of):
                self.weights = of
            case SourceEnded(at):
                self.ended = at


def subtract(spans: list[tuple[int, int]], start: int, stop: int) -> list[tuple[int, int]]:
    """Return ranges of numbers without those from `start` to before `stop`."""
    left: list[tuple[int, int]] = []
    for first, last in spans:
        left += [(a, b) for a, b in ((first, min(last, start)), (max(first, stop), last)) if a < b]
    return left


def unfinished(
    taken: list[Block], returns: list[ReturnedNumbers], position: Mapping[str, Any] | None, known: Place = BEGINNING
) -> list[ReturnedNumbers]:
    """Return the parts of a taker's blocks that a position does not cover, one return for each reader needed.

    known: a position in the source from which to read if the taker's position has none and `known` is not too late.
    """
    done, within = (0, 0) if position is None else (position["done"], position["within"])
    spans: dict[int, list[tuple[int, int]]] = {}
    for number, block in enumerate(taken[done:]):
        start = block.start + within if number == 0 else block.start
        if start < block.stop:
            spans.setdefault(block.of, []).append((start, block.stop))
    readers = {} if position is None else position["readers"]
    found = []
    for of, own in spans.items():
        at = readers.get(str(of))
        if at is None:  # it had not started to read there
            near = known if known[0] <= min(own)[0] else BEGINNING
            at = near if of == NEW else (returns[of].offset, returns[of].position)
        found.append(ReturnedNumbers(sorted(own), *at))
    return found
