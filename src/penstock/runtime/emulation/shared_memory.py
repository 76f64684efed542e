"""Values that processes of one host share: a few numbers in a memory-mapped file, with their owners.

Each change is made under the file's lock and is atomic: the new numbers are written beside the old ones, and one store
switches to them, so that a process that is killed during a change has made none. A process that is suspended there
blocks the others until it resumes, or its run kills it because it is silent. The others detect an owner that has died
or was replaced, and remove what it owned.
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
MAX_OWNERS = 64  # workers that may share one thing
MAX_SLOTS = 1000  # of all owners
CHECK_S = 0.5  # between two checks whether the other owners are alive

_NUMBERS = 8 + 5 * MAX_OWNERS + 8 + 2 * MAX_SLOTS  # at most: the head, the owners, and the values
_AREA = 1 + _NUMBERS
_FACTOR, _CHECKED, _HEAD = (
    2,
    4,
    5,
)  # before the owners: two of the description, the factor, the next owner's number, the time of the last check

_FRESH = (1.0, 1.0, -math.inf, 0.0)  # a factor of 1, the first owner's number, never checked, no owners

T = TypeVar("T")


class OwnershipLost(RuntimeError):
    """The process is no longer an owner: another has replaced it, or it was considered dead."""


class Owner(NamedTuple):
    """A worker that shares the values."""

    number: int  # unique
    role: int  # its run and machine: a newer worker of the same replaces it
    pid: int
    started: float  # start time of its process: a later one may have the same pid
    slots: int


class Contents:
    """The decoded numbers: the description of the thing, its owners, and the values."""

    def __init__(self, numbers: Sequence[float]) -> None:
        self.described = (numbers[0], numbers[1])
        self.factor, self.next, self.checked = numbers[2], int(numbers[3]), numbers[4]
        count, rest = int(numbers[_HEAD]), _HEAD + 1
        rows = (numbers[rest + 5 * row : rest + 5 * row + 5] for row in range(count))
        self.owners = [Owner(int(n), int(role), int(pid), started, int(slots)) for n, role, pid, started, slots in rows]
        self.kept = list(numbers[rest + 5 * count :])

    def numbers(self) -> list[float]:
        """Return the encoded numbers."""
        owners = [float(value) for owner in self.owners for value in owner]
        head = [*self.described, self.factor, float(self.next), self.checked, float(len(self.owners))]
        return [*head, *owners, *self.kept]


class SharedValues:
    """A shared thing, as one owner sees it.

    what: its name, for people. described: two numbers in which all owners must agree. empty: its values without
    owners. without: returns the values without those of owners, given by number.

    `factor` scales what is described, as of the last read or change; `scale` changes it for all.
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
        """A number that every change increments."""
        return self._file.version

    def read(self, step: Callable[[list[float]], T]) -> T:
        """Call a function with the values, under the lock."""
        self._file.lock()
        try:
            numbers, begin = self._found()
            return step(numbers[begin:])
        finally:
            self._file.unlock()

    def change(self, now: float, step: Callable[[list[float]], T]) -> T:
        """Call a function that changes the values in place; if it raises, they are unchanged."""
        self._file.lock()
        try:
            numbers, begin = self._found()
            if now - numbers[_CHECKED] > CHECK_S:
                state = Contents(numbers)
                state.checked = now
                self._sweep(state)
                self._file.write(state.numbers())  # even if the step raises
                numbers, begin = self._found()
            kept = numbers[begin:]
            result = step(kept)
            self._file.write([*numbers[:begin], *kept])
            return result
        finally:
            self._file.unlock()

    def _found(self) -> tuple[list[float], int]:
        """Return all numbers, and the position of the values."""
        numbers = self._file.read()
        begin = _HEAD + 1 + 5 * int(numbers[_HEAD])
        if self.number not in numbers[_HEAD + 1 : begin : 5]:
            raise OwnershipLost(f"this worker is no longer an owner of {self.what}")
        self.factor = numbers[_FACTOR]
        return numbers, begin

    def _join(self, role: int, slots: int, described: tuple[float, float]) -> int:
        """Become an owner; remove owners that are dead or had the same role."""
        state = Contents(self._file.read() or [*described, *_FRESH, *self._empty])
        self.factor = state.factor
        self._sweep(state, role)
        if not state.owners:  # the values may be older than the last start of this host
            state.kept, state.described, state.checked = list(self._empty), described, -math.inf
        if state.described != described:
            problem = f"{self.what} has another description in a run that shares it: {state.described}, not {described}"
            raise InvalidInput("share", f"{problem}; use the same cluster for both, or another folder")
        taken = sum(owner.slots for owner in state.owners)
        if len(state.owners) >= MAX_OWNERS or taken + slots > MAX_SLOTS:
            limits = f"the limits are {MAX_OWNERS} and {MAX_SLOTS}"
            has = f"has {len(state.owners)} workers with {taken} slots, {slots} more slots are needed, {limits}"
            raise InvalidInput("share", f"{self.what} {has}; stop a run, or use another folder")
        pid = os.getpid()
        state.owners.append(Owner(state.next, role, pid, _start_time(pid), slots))
        state.next += 1
        self._file.write(state.numbers())
        return state.next - 1

    def _sweep(self, state: Contents, role: int | None = None) -> None:
        """Remove owners that are dead, or that have a role."""
        removed = {
            owner.number for owner in state.owners if owner.role == role or _start_time(owner.pid) != owner.started
        }
        if removed:
            state.owners = [owner for owner in state.owners if owner.number not in removed]
            state.kept = self._without(state.kept, removed)


def scale(path: Path, factor: float, step: Callable[[list[float], tuple[float, float], float], None]) -> None:
    """Scale a thing by a factor of its description, from now on and for all owners.

    step: updates the values to the present, in place, given the description and the old factor.
    """
    file = _File(path)
    file.lock()
    try:
        state = Contents(file.read() or [math.nan, math.nan, *_FRESH])
        if state.owners:
            step(state.kept, state.described, state.factor)
        state.factor = factor
        file.write(state.numbers())
    finally:
        file.unlock()
        file.close()


def _leave(
    file: "_File", number: int, empty: list[float], without: Callable[[list[float], set[int]], list[float]], pid: int
) -> None:
    if os.getpid() != pid:  # a fork of the owner
        return
    file.lock()
    try:
        state = Contents(file.read())
        state.owners = [owner for owner in state.owners if owner.number != number]
        state.kept = without(state.kept, {number}) if state.owners else empty
        file.write(state.numbers())
    finally:
        file.unlock()
        file.close()


class _File:
    """Numbers in a memory-mapped file: format, number of changes, and two areas, one of which is valid."""

    def __init__(self, path: Path) -> None:
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise FileProblem.of(error, path, "cannot be opened", "choose another folder to share") from None
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
        """Acquire the lock."""
        fcntl.flock(self._fd, fcntl.LOCK_EX)

    def unlock(self) -> None:
        """Release the lock."""
        fcntl.flock(self._fd, fcntl.LOCK_UN)

    @property
    def version(self) -> float:
        """The number of changes."""
        return self._numbers[1]

    def read(self) -> list[float]:
        """Return the valid numbers."""
        begin = self._area(self._numbers[1])
        count = int(self._numbers[begin])
        return array("d", self._numbers[begin + 1 : begin + 1 + count].tobytes()).tolist()

    def write(self, numbers: Sequence[float]) -> None:
        """Replace the numbers."""
        version = self._numbers[1] + 1.0
        begin, count = self._area(version), len(numbers)
        self._numbers[begin + 1 : begin + 1 + count] = memoryview(array("d", numbers))
        self._numbers[begin] = float(count)
        self._numbers[1] = version  # switches the valid area

    def close(self) -> None:
        """Close the file."""
        self._numbers.release()
        self._map.close()
        os.close(self._fd)

    @staticmethod
    def _area(version: float) -> int:
        return 2 + _AREA * (int(version) % 2)


def _start_time(pid: int) -> float:
    """Return the start time of a process, in the system's clock; -1 if there is none, or it is a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except FileNotFoundError:
        return 0.0 if not os.path.isdir("/proc/self") and _exists(pid) else -1.0
    except OSError:
        return -1.0
    return -1.0 if fields[0] in (b"Z", b"X") else float(fields[19])


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
