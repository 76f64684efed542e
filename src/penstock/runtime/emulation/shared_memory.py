"""What processes of one host have in common: a few numbers in a file, and who has a part in them.

Each change is made under the file's lock and is whole or not at all: the numbers are written beside the old ones, and
one store makes the new ones count, so that a process that is killed in the midst of a change has made none. One that is
stopped there holds up the others until it goes on, or its run finds it silent and has it killed. Who dies or is
replaced is noticed by the others, and what was its own goes with it.
"""

import fcntl
import math
import mmap
import os
import weakref
from array import array
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple, TypeVar

from penstock.model.errors import FileProblem, InvalidInput

FORMAT = 7002.0
OWNERS = 64  # workers that may have a part in one thing
ROOM = 1000  # slots of all of them together
LOOK_S = 0.5  # between two looks at whether the others live

_NUMBERS = 8 + 5 * OWNERS + 8 + 2 * ROOM  # at most: the head, the owners, and what is kept for them
_AREA = 1 + _NUMBERS
_FACTOR, _LOOKED, _HEAD = (
    2,
    4,
    5,
)  # before the owners: two that describe the thing, its factor, the next owner's, when was looked

_FRESH = (1.0, 1.0, -math.inf, 0.0)  # a factor of 1, the first owner's number, never looked, no owners

T = TypeVar("T")


class Displaced(RuntimeError):
    """A process that has no part in it any more: another took its place, or it was taken for dead."""


class Owner(NamedTuple):
    """A worker that has a part."""

    number: int  # that no other has, or had
    role: int  # its run and machine: a newer worker of these takes its place
    pid: int
    born: float  # when its process began, to tell it from a later one of the same pid
    slots: int


class State:
    """The numbers, taken apart: what describes the thing, its owners, and what is kept for them."""

    def __init__(self, numbers: Sequence[float]) -> None:
        self.described = (numbers[0], numbers[1])
        self.factor, self.next, self.looked = numbers[2], int(numbers[3]), numbers[4]
        count, rest = int(numbers[_HEAD]), _HEAD + 1
        rows = (numbers[rest + 5 * row : rest + 5 * row + 5] for row in range(count))
        self.owners = [Owner(int(n), int(role), int(pid), born, int(slots)) for n, role, pid, born, slots in rows]
        self.kept = list(numbers[rest + 5 * count :])

    def numbers(self) -> list[float]:
        """Put them together again."""
        owners = [float(value) for owner in self.owners for value in owner]
        head = [*self.described, self.factor, float(self.next), self.looked, float(len(self.owners))]
        return [*head, *owners, *self.kept]


class Commons:
    """A thing in common, as one owner has it.

    what: how to call it, for people. described: two numbers in which all who have a part must agree. empty: what is
    kept where nobody has a part. without: what is left of what is kept when owners are gone, by their numbers.

    `factor` is how many times what is described it gives, as of the last look or change; `scale` changes that for all.
    """

    def __init__(
        self,
        path: Path,
        what: str,
        role: str,
        slots: int,
        described: tuple[float, float],
        empty: Sequence[float],
        without: Callable[[list[float], set[int]], list[float]] = lambda kept, _: kept,
    ) -> None:
        self.what = what
        self.factor = 1.0
        self._file = _File(path)
        self._empty = list(empty)
        self._without = without
        self._file.lock()
        try:
            self.number = self._join(int(sha256(role.encode()).hexdigest()[:12], 16), slots, described)
        finally:
            self._file.unlock()
        self.close = weakref.finalize(self, _leave, self._file, self.number, self._empty, without, os.getpid())

    @property
    def version(self) -> float:
        """A number that changes with every change."""
        return self._file.version

    def look(self, step: Callable[[list[float]], T]) -> T:
        """Do something with what is kept, which nobody changes meanwhile."""
        self._file.lock()
        try:
            numbers, begin = self._found()
            return step(numbers[begin:])
        finally:
            self._file.unlock()

    def change(self, now: float, step: Callable[[list[float]], T]) -> T:
        """Have what is kept changed, in place; where that raises, it stays as it was."""
        self._file.lock()
        try:
            numbers, begin = self._found()
            if now - numbers[_LOOKED] > LOOK_S:
                state = State(numbers)
                state.looked = now
                self._sweep(state)
                self._file.write(state.numbers())  # whatever comes of the step
                numbers, begin = self._found()
            kept = numbers[begin:]
            result = step(kept)
            self._file.write([*numbers[:begin], *kept])
            return result
        finally:
            self._file.unlock()

    def _found(self) -> tuple[list[float], int]:
        """Return all numbers, and where those begin that are kept."""
        numbers = self._file.read()
        begin = _HEAD + 1 + 5 * int(numbers[_HEAD])
        if self.number not in numbers[_HEAD + 1 : begin : 5]:
            raise Displaced(f"{self.what} has gone on without this worker")
        self.factor = numbers[_FACTOR]
        return numbers, begin

    def _join(self, role: int, slots: int, described: tuple[float, float]) -> int:
        """Take a part; whoever had the same role before, or is dead, has none any more."""
        state = State(self._file.read() or [*described, *_FRESH, *self._empty])
        self.factor = state.factor
        self._sweep(state, role)
        if not state.owners:  # what is left is nobody's, and may be of a time before this host was started
            state.kept, state.described, state.looked = list(self._empty), described, -math.inf
        if state.described != described:
            problem = f"{self.what} is described otherwise by a run that has it too: {state.described}, not {described}"
            raise InvalidInput("share", f"{problem}; use the same cluster for both, or another folder")
        taken = sum(owner.slots for owner in state.owners)
        if len(state.owners) >= OWNERS or taken + slots > ROOM:
            has = f"has {len(state.owners)} workers with {taken} slots of {OWNERS} and {ROOM}, {slots} more are wanted"
            raise InvalidInput("share", f"{self.what} {has}; stop a run, or use another folder")
        pid = os.getpid()
        state.owners.append(Owner(state.next, role, pid, _born(pid), slots))
        state.next += 1
        self._file.write(state.numbers())
        return state.next - 1

    def _sweep(self, state: State, role: int | None = None) -> None:
        """Take those out who are dead, and whoever has a role."""
        gone = {owner.number for owner in state.owners if owner.role == role or _born(owner.pid) != owner.born}
        if gone:
            state.owners = [owner for owner in state.owners if owner.number not in gone]
            state.kept = self._without(state.kept, gone)


def scale(path: Path, factor: float, step: Callable[[list[float], tuple[float, float], float], None]) -> None:
    """Have a thing give so many times what it is described to have, from now on and for all who have a part in it.

    step: brings what is kept to the present, in place; it has the description and the factor up to now.
    """
    file = _File(path)
    file.lock()
    try:
        state = State(file.read() or [math.nan, math.nan, *_FRESH])
        if state.owners:
            step(state.kept, state.described, state.factor)
        state.factor = factor
        file.write(state.numbers())
    finally:
        file.unlock()
        file.close()


def _leave(
    file: "_File",
    number: int,
    empty: list[float],
    without: Callable[[list[float], set[int]], list[float]],
    pid: int,
) -> None:
    if os.getpid() != pid:  # a copy of the process that has the part
        return
    file.lock()
    try:
        state = State(file.read())
        state.owners = [owner for owner in state.owners if owner.number != number]
        state.kept = without(state.kept, {number}) if state.owners else empty
        file.write(state.numbers())
    finally:
        file.unlock()
        file.close()


class _File:
    """Numbers in a file in memory: its format, how often they were changed, and two areas, of which one counts."""

    def __init__(self, path: Path) -> None:
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise FileProblem(f"{path}: cannot be opened, {why}; choose another folder to share") from None
        size = 8 * (2 + 2 * _AREA)
        self.lock()
        try:
            fresh = os.fstat(self._fd).st_size != size
            if fresh:
                os.ftruncate(self._fd, 0)
                os.ftruncate(self._fd, size)
            self._map = mmap.mmap(self._fd, size)
            self._numbers = memoryview(self._map).cast("d")
            if fresh or self._numbers[0] != FORMAT:
                self._numbers[1] = 0.0
                self._numbers[2] = self._numbers[2 + _AREA] = 0.0
                self._numbers[0] = FORMAT
        finally:
            self.unlock()

    def lock(self) -> None:
        """Have it alone."""
        fcntl.flock(self._fd, fcntl.LOCK_EX)

    def unlock(self) -> None:
        """Let others have it."""
        fcntl.flock(self._fd, fcntl.LOCK_UN)

    @property
    def version(self) -> float:
        """How often it was changed."""
        return self._numbers[1]

    def read(self) -> list[float]:
        """Return the numbers that count."""
        begin = self._area(self._numbers[1])
        count = int(self._numbers[begin])
        return array("d", self._numbers[begin + 1 : begin + 1 + count].tobytes()).tolist()

    def write(self, numbers: Sequence[float]) -> None:
        """Have other numbers count."""
        version = self._numbers[1] + 1.0
        begin, count = self._area(version), len(numbers)
        self._numbers[begin + 1 : begin + 1 + count] = memoryview(array("d", numbers))
        self._numbers[begin] = float(count)
        self._numbers[1] = version  # from now on

    def close(self) -> None:
        """Let go of the file."""
        self._numbers.release()
        self._map.close()
        os.close(self._fd)

    @staticmethod
    def _area(version: float) -> int:
        return 2 + _AREA * (int(version) % 2)


def _born(pid: int) -> float:
    """Return when a process began, in the system's own count; -1 where there is none, or it has only to be buried."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except FileNotFoundError:
        return 0.0 if not os.path.isdir("/proc/self") and _answers(pid) else -1.0
    except OSError:
        return -1.0
    return -1.0 if fields[0] in (b"Z", b"X") else float(fields[19])


def _answers(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
