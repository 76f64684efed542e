"""A disk in memory, which can be full, and on which what is being written can be torn.

What it promises is what a POSIX file system promises that syncs: a file that was written is there, one that was being
written when its writer died is there up to some byte, and a name is given as a whole or not at all.
"""

import errno
from collections.abc import Sequence

from penstock.model.errors import FileProblem

THERE = 0.7  # share from which on a file that was to replace another does, though that is not known


class Torn(Exception):
    """The process that was writing is no more."""


class _File:
    """The bytes of a file, which may have two names for a moment."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data


class MemoryDisk:
    """A `Disk`: files by their paths.

    full: the folder on which nothing more can be written, with all below it; empty: none.
    torn_after: how many more changes come to their end before one is cut off in the middle; below 0: all do.
    """

    def __init__(self) -> None:
        self.full = ""
        self.torn_after = -1
        self.torn_share = 0.5  # of the file that is cut off: how much of it is there
        self._folders: dict[str, dict[str, _File]] = {}

    @property
    def files(self) -> dict[str, bytes]:
        """All files by their paths."""
        return {
            f"{folder}/{name}": file.data for folder, files in self._folders.items() for name, file in files.items()
        }

    def write(self, path: str, pieces: Sequence[bytes | memoryview]) -> None:
        """Write a file and its folder."""
        data = b"".join(pieces)
        torn = self._is_torn()
        if torn or self._is_full(path):
            self._put(path, data[: int(len(data) * self.torn_share)])
            self._refuse(path, torn)
        self._put(path, data)

    def replace(self, path: str, data: bytes) -> None:
        """Write a file so that it is there as a whole, or as it was before; it may be there where this fails, too."""
        torn = self._is_torn()
        if torn or self._is_full(path):
            if self.torn_share > THERE:
                self._put(path, data)
            self._refuse(path, torn)
        self._put(path, data)

    def read(self, path: str, offset: int = 0, size: int = -1) -> bytes:
        """Read a part of a file."""
        data = self._file(path).data
        return data[offset:] if size < 0 else data[offset : offset + size]

    def publish(self, temporary: str, final: str) -> None:
        """Give a file its name; one that has it already keeps it. Cut off, it has both."""
        torn = self._is_torn()
        there = self._find(final)
        file = self._find(temporary)
        if file is None:
            if there is None:
                raise FileNotFoundError(errno.ENOENT, "No such file or directory", temporary)
            return
        if there is None:
            self._set(final, file)
        elif there is not file:
            raise FileProblem(f"{final}: is there already and is another's; have two runs write to two folders")
        if torn:
            raise Torn
        self._drop(temporary)

    def remove(self, path: str) -> None:
        """Remove a file, or a folder with all that is in it; cut off, half of a folder."""
        torn = self._is_torn()
        self._drop(path)
        for folder in [name for name in self._folders if name == path or name.startswith(path + "/")]:
            if torn:
                files = sorted(self._folders[folder])
                for name in files[: int(len(files) * self.torn_share)]:
                    del self._folders[folder][name]
                raise Torn
            del self._folders[folder]
        if torn:
            raise Torn

    def listed(self, folder: str) -> list[str]:
        """Return the names in a folder, in order."""
        names = set(self._folders.get(folder, ()))
        begin = folder + "/"
        names.update(name[len(begin) :].partition("/")[0] for name in self._folders if name.startswith(begin))
        return sorted(names)

    def damage(self, path: str, data: bytes) -> None:
        """Change a file as nobody asked for."""
        self._put(path, data)

    def _is_torn(self) -> bool:
        if self.torn_after < 0:
            return False
        self.torn_after -= 1
        return self.torn_after < 0

    def _is_full(self, path: str) -> bool:
        return bool(self.full) and path.startswith(self.full)

    def _refuse(self, path: str, torn: bool) -> None:
        if torn:
            raise Torn
        raise OSError(errno.ENOSPC, "No space left on device", path)

    def _file(self, path: str) -> _File:
        file = self._find(path)
        if file is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        return file

    def _find(self, path: str) -> _File | None:
        folder, _, name = path.rpartition("/")
        return self._folders.get(folder, {}).get(name)

    def _put(self, path: str, data: bytes) -> None:
        self._set(path, _File(data))

    def _set(self, path: str, file: _File) -> None:
        folder, _, name = path.rpartition("/")
        files = self._folders.get(folder)
        if files is None:
            files = self._folders[folder] = {}
        files[name] = file

    def _drop(self, path: str) -> None:
        folder, _, name = path.rpartition("/")
        self._folders.get(folder, {}).pop(name, None)
