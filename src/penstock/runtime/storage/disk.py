"""What is written to disk, and when it counts as written.

The worker and the controller do no I/O themselves: they leave *jobs*, which a shell runs in order, off the loop that
moves tuples, and tell what came of each when it is done. So a simulated disk can be slow, full or torn in a test.
"""

import contextlib
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.model.errors import FileProblem


class Disk(Protocol):
    """What jobs do to files. Paths are absolute. A method that fails raises OSError; absence is FileNotFoundError."""

    def write(self, path: str, pieces: Sequence[bytes | memoryview]) -> None:
        """Write a file and its folder, and return when it would outlast a power cut; it may be torn where it fails."""
        ...

    def replace(self, path: str, data: bytes) -> None:
        """Write a file so that it is there as a whole, or as it was before."""
        ...

    def read(self, path: str, offset: int = 0, size: int = -1) -> bytes:
        """Read a part of a file; below 0: to its end."""
        ...

    def publish(self, temporary: str, final: str) -> None:
        """Give a file its name; one that has it already keeps it."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file, or a folder with all that is in it; what is not there is as good as removed."""
        ...

    def listed(self, folder: str) -> list[str]:
        """Return the names in a folder, in order; none where there is no such folder."""
        ...


@dataclass
class Job:
    """Something for the disk to do, and what follows: `then(result, problem, now)`, in the loop's own thread."""

    about: str
    do: Callable[[Disk], Any]
    then: Callable[[Any, str, float], None]

    def run(self, disk: Disk) -> tuple[Any, str]:
        """Do it; return the result, and what went wrong where something did."""
        try:
            return self.do(disk), ""
        except FileProblem as problem:
            return None, str(problem)
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            return None, f"{where}{(error.strerror or str(error)).lower()}"


class Posix:
    """A local or shared POSIX file system."""

    def write(self, path: str, pieces: Sequence[bytes | memoryview]) -> None:
        """Write a file and its folder, and sync it."""
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())

    def replace(self, path: str, data: bytes) -> None:
        """Write a file beside it, sync it, and let it take the name."""
        folder, name = os.path.split(path)
        temporary = os.path.join(folder, f"_{name}.{os.getpid()}")
        try:
            self.write(temporary, [data])
            os.replace(temporary, path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        _sync_folder(folder)
        _sync_folder(os.path.dirname(folder))  # which may be new itself

    def read(self, path: str, offset: int = 0, size: int = -1) -> bytes:
        """Read a part of a file."""
        with open(path, "rb") as file:
            file.seek(offset)
            return file.read(size)

    def publish(self, temporary: str, final: str) -> None:
        """Give a file its name by a link, which never replaces another file; then let go of the old name."""
        try:
            os.link(temporary, final)
        except FileNotFoundError:
            if not os.path.exists(final):
                raise FileProblem(f"{final}: cannot be published, {temporary} is missing") from None
            return  # it was published before
        except FileExistsError:
            if not os.path.samefile(temporary, final):
                raise _taken(final) from None
        except OSError:  # a file system without links
            _rename(temporary, final)
        else:
            self.remove(temporary)
        _sync_folder(os.path.dirname(final))

    def remove(self, path: str) -> None:
        """Remove a file or a folder."""
        try:
            os.unlink(path)
        except FileNotFoundError:
            return
        except (IsADirectoryError, PermissionError):
            shutil.rmtree(path)

    def listed(self, folder: str) -> list[str]:
        """Return the names in a folder."""
        try:
            return sorted(os.listdir(folder))
        except FileNotFoundError:
            return []


def _rename(temporary: str, final: str) -> None:
    """Give a file its name where it has not got it yet, and no other has."""
    if not os.path.exists(final):
        os.rename(temporary, final)
    elif os.path.exists(temporary):
        raise _taken(final) from None


def _taken(final: str) -> FileProblem:
    return FileProblem(f"{final}: already exists and differs; use separate folders for two runs")


def _sync_folder(folder: str) -> None:
    handle = os.open(folder or os.curdir, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def below(folder: str, *names: str) -> str:
    """Return a path below a folder."""
    return os.path.join(folder, *names)
