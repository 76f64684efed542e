"""A disk in memory, which can be full, and on which an interrupted write leaves an incomplete file.

Its guarantees are those of a POSIX file system with syncs: a written file exists; a file whose writer died is complete
up to some byte; renaming is atomic.
"""

import errno
from collections.abc import Sequence

from penstock.model.errors import FileProblem

THERE = 0.7  # share written above which an interrupted replacement has taken effect, unknown to the writer


class Torn(Exception):
    """The writing process has died."""


class _File:
    """The bytes of a file, which may temporarily have two names."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data


class MemoryDisk:
    """A `Disk`: files by their paths.

    full: the folder below which nothing can be written; empty: none.
    torn_after: how many more changes succeed before one is interrupted in the middle; negative: all.
    """

    def __init__(self) -> None:
        self.full = ""
        self.torn_after = -1
        self.torn_share = 0.5  # the fraction of the interrupted write that is on disk
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
        """Replace a file atomically; the new one may exist even if this fails."""
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
        """Rename a file; an existing file of that name is kept. If interrupted, it has both names."""
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
            raise FileProblem(f"{final}: already exists and differs; use separate folders for two runs")
        if torn:
            raise Torn
        self._drop(temporary)

    def remove(self, path: str) -> None:
        """Remove a file, or a folder with its content; if interrupted, half of a folder."""
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
        """Corrupt a file."""
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
