"""The split log: which numbers of a source's tuples went to which path, and which were given back.

Several runs of one application, its *paths*, share one source. Each takes the next tuples in *blocks* of consecutive
numbers, as it needs them, by appending to a file under a lock; what is in the file is what was decided, whoever dies. A
path that is given up has its unfinished numbers returned by whoever gave it up, and the others take those first.

The file is text, an entry a line. A line that was torn by a crash is no entry, and is cut off by who writes next. All
paths must see the same file.
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

NEW = -1  # where a block is from that nobody had before

Place = tuple[int, Any]
"""A place in a source: how many tuples come before it, and its position; None: its beginning."""

BEGINNING: Place = (0, None)


class Begun(msgspec.Struct, frozen=True, tag="begun"):
    """When the source's first tuple was due."""

    at: float  # seconds of the day's clock, which paths on other hosts share


class Block(msgspec.Struct, frozen=True, tag="block"):
    """Numbers that went to a task of a path; now and then with a place from which others may begin to read."""

    taker: str  # `path/task`
    start: int
    stop: int
    of: int = NEW  # the return that they are from
    place: Place | None = None


class Returned(msgspec.Struct, frozen=True):
    """Numbers that were given back, and where a reader finds them: the source's position before the first of them."""

    spans: list[tuple[int, int]]
    offset: int = 0  # tuples before the position
    position: Any = None  # None: the source's beginning


class GivenUp(msgspec.Struct, frozen=True, tag="given up"):
    """A path that may take no more, with what it did not finish: one entry, there as a whole or not at all."""

    path: str
    returned: list[Returned] = []


class Ran(msgspec.Struct, frozen=True, tag="ran"):
    """Which run a path is; noted before it can take anything."""

    path: str
    folder: str


class Weights(msgspec.Struct, frozen=True, tag="weights"):
    """How much of the tuples each path is to get, relative to the others."""

    of: dict[str, float]


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """The source has so many tuples and no more."""

    at: int


Entry = Begun | Block | Ended | GivenUp | Ran | Weights

_decode: Callable[[bytes], Entry] = json_decoder(Entry)


class SplitLog:
    """A split log as one process sees it; `look` or any change reads what others have appended."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.begun: float | None = None
        self.next = 0  # the first number that nobody has taken
        self.ended: int | None = None
        self.weights: Mapping[str, float] = {}
        self.place = BEGINNING  # the furthest that is known
        self.blocks: dict[str, list[Block]] = {}  # by taker
        self.returns: list[Returned] = []
        self.given_up: set[str] = set()
        self.runs: dict[str, str] = {}  # path -> folder of its run
        self._left: list[list[tuple[int, int]]] = []  # of each return, what nobody has taken again
        self._read = 0  # bytes

    def look(self) -> None:
        """Read what has been appended."""
        if self.path.exists():
            with self.path.open("rb") as file:
                self._catch_up(file.fileno())

    def begin(self, at: float) -> float:
        """Return when the source began: now, where nobody has begun before."""
        with self._locked() as file:
            if self.begun is None:
                self._append(file, Begun(at))
            assert self.begun is not None, "it was appended"
            return self.begun

    def take(self, taker: str, size: int, have: int, place: Place | None = None) -> Block | None:
        """Take the next block of at most so many numbers, returned ones first; None where none are left.

        have: blocks that the taker has had. Where the log has more of them, taken by a worker that is gone or about to
        go, the next of these is its block. place: where it reads, which is not beyond the block, for others that begin
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
        """Raise `InvalidInput` where a path was given up, so far as has been read."""
        if path in self.given_up:
            raise InvalidInput("path", f"{path!r} was given up, others have its tuples; begin it by another name")

    def note_run(self, path: str, folder: str) -> None:
        """Note which run a path is, before it takes anything."""
        with self._locked() as file:
            self._append(file, Ran(path, folder))

    def end(self, at: int) -> None:
        """Note that the source has no more than so many tuples."""
        with self._locked() as file:
            if self.ended is None:
                self._append(file, Ended(at))

    def weigh(self, weights: Mapping[str, float]) -> None:
        """Say how much each path is to get."""
        for path, weight in weights.items():
            if not 0 <= weight < float("inf"):
                raise InvalidInput(f"weights.{path}", f"expected a number ≥ 0, got {weight!r}")
        with self._locked() as file:
            self._append(file, Weights(dict(weights)))

    def give_back(self, path: str, positions: Mapping[str, Any]) -> int:
        """Return what a path took and did not finish, for others to take, and say how many tuples that is.

        The path must have ended, and may not take any more, whatever becomes of it.
        positions: of each of its takers (`path/task`) the position of its last complete checkpoint; without one, all
        that it took is returned.
        """
        with self._locked() as file:
            if path in self.given_up:
                return 0
            returned: list[Returned] = []
            for taker in [name for name in self.blocks if name.rpartition("/")[0] == path]:
                returned += unfinished(self.blocks[taker], self.returns, positions.get(taker), self.place)
            self._append(file, GivenUp(path, returned))
            return sum(stop - start for one in returned for start, stop in one.spans)

    def share(self, path: str) -> float:
        """Return how much of the tuples a path is to get, from 0 to 1."""
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
        try:
            file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            problem = (error.strerror or str(error)).lower()
            raise FileProblem(f"{self.path}: the split log cannot be opened, {problem}; check the path") from None
        try:
            fcntl.flock(file, fcntl.LOCK_EX)  # until the file is closed, also by a crash
            self._catch_up(file)
            yield file
        finally:
            os.close(file)

    def _append(self, file: int, entry: Entry) -> None:
        line = msgspec.json.encode(entry) + b"\n"
        os.ftruncate(file, self._read)  # what a crash has torn was never acted on
        try:
            written = os.write(file, line)
            os.fdatasync(file)  # before anybody acts on it
        except OSError as error:
            problem = (error.strerror or str(error)).lower()
            raise FileProblem(f"{self.path}: the split log cannot be written, {problem}; make room") from None
        if written < len(line):  # what is torn is no entry
            raise FileProblem(f"{self.path}: the split log cannot be written whole; make room")
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
                continue  # torn by a crash, and never acted on

    def _note(self, entry: Entry) -> None:
        match entry:
            case Begun(at):
                self.begun = at
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
                    self._left[of] = without(self._left[of], start, stop)
            case GivenUp(path, returned):
                self.given_up.add(path)
                self.returns += returned
                self._left += [[(start, stop) for start, stop in one.spans] for one in returned]
            case Ran(path, folder):
                self.runs[path] = folder
            case Weights(of):
                self.weights = of
            case Ended(at):
                self.ended = at


def without(spans: list[tuple[int, int]], start: int, stop: int) -> list[tuple[int, int]]:
    """Return spans of numbers without those from `start` to before `stop`."""
    left: list[tuple[int, int]] = []
    for first, last in spans:
        left += [(a, b) for a, b in ((first, min(last, start)), (max(first, stop), last)) if a < b]
    return left


def unfinished(
    taken: list[Block],
    returns: list[Returned],
    position: Mapping[str, Any] | None,
    known: Place = BEGINNING,
) -> list[Returned]:
    """Return what of a taker's blocks is not covered by a position, one return for each reader that is needed.

    known: a place in the source from which to read where the position tells of none and it is not too far on.
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
        if at is None:  # it had not begun to read there
            near = known if known[0] <= min(own)[0] else BEGINNING
            at = near if of == NEW else (returns[of].offset, returns[of].position)
        found.append(Returned(sorted(own), *at))
    return found
