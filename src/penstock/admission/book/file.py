"""A book in a file: written atomically, checked when read, never overwritten by accident.

The file is JSON: its format, a checksum, the book. Several processes may change it: each reads a book, derives another
and saves that with the version it was derived from. If another process has saved in the meantime, the save is rejected
and nothing is lost. A lock file beside the book covers the time between check and write.
"""

import fcntl
import hashlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import msgspec

from penstock.model.book import FORMAT, Book
from penstock.model.decoding import Undecodable, decode_json
from penstock.model.entity import to_invalid_input
from penstock.model.errors import FileProblem, InvalidInput
from penstock.model.files import read_text, write_whole

PATIENCE_S = 10.0
PACE_S = 0.02  # between two attempts to lock it


class Outdated(FileProblem):
    """Another process has saved the book since it was read."""


class BookFile:
    """File of a book; `patience_s` limits how long saving waits for other writers."""

    def __init__(self, path: str | Path, patience_s: float = PATIENCE_S) -> None:
        self.path = Path(path)
        self._patience_s = patience_s

    def exists(self) -> bool:
        """Return whether the file exists."""
        return self.path.exists()

    def load(self) -> Book:
        """Read the book; raises `FileProblem` if it is damaged."""
        raw = self._read()
        body = raw["book"]
        if raw.get("checksum") != _checksum(body):
            raise FileProblem(f"{self.path}: wrong checksum, the file was damaged or edited; restore a backup")
        try:
            return msgspec.convert(body, Book)
        except msgspec.ValidationError as error:
            raise FileProblem(f"{self.path}: {to_invalid_input(error, body, Book)}") from None
        except InvalidInput as error:
            raise FileProblem(f"{self.path}: {error}") from None

    def save(self, book: Book, expected_version: int | None) -> None:
        """Write a book derived from `expected_version`; None: the file must not exist yet.

        Raises `Outdated`, and leaves the file unchanged, if it has another version by now.
        """
        with self._locked():
            there = self.load().version if self.exists() else None
            if there != expected_version:
                raise Outdated(f"{self.path}: {_conflict(there, expected_version)}")
            body = msgspec.to_builtins(book)
            whole = {"format": FORMAT, "checksum": _checksum(body), "book": body}
            write_whole(self.path, msgspec.json.format(msgspec.json.encode(whole), indent=1) + b"\n")

    def _read(self) -> dict[str, Any]:
        text = read_text(self.path)
        try:
            raw = decode_json(text)
        except Undecodable as error:
            raise FileProblem(f"{self.path}: not a book, {error}; restore a backup") from None
        if not isinstance(raw, dict) or not isinstance(raw.get("book"), dict) or "format" not in raw:
            raise FileProblem(f"{self.path}: not a book, no format and book at the top level; use another file")
        if raw["format"] != FORMAT:
            raise FileProblem(
                f"{self.path}: unsupported book format {raw['format']!r}, expected {FORMAT}; use the right version"
            )
        return raw

    @contextmanager
    def _locked(self) -> Iterator[None]:
        beside = self.path.with_name(f".{self.path.name}.lock")
        with FileProblem.on(self.path, "cannot be written", "choose another folder"):
            lock = beside.open("w")
        with lock:
            self._wait_for(lock)  # released when the file is closed
            yield

    def _wait_for(self, lock: IO[str]) -> None:
        """Lock the file; raises `FileProblem` if another process has held the lock far longer than a save takes."""
        end = time.monotonic() + self._patience_s
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= end:
                    problem = f"another process has held {lock.name} locked for {self._patience_s:g} s"
                    raise FileProblem(f"{self.path}: {problem}; check that process and try again") from None
                time.sleep(PACE_S)
            else:
                return


def _checksum(body: Any) -> str:
    return hashlib.sha256(msgspec.json.encode(body, order="sorted")).hexdigest()


def _conflict(there: int | None, expected: int | None) -> str:
    if expected is None:
        return f"a book of version {there} exists already; use it, or another file name"
    if there is None:
        return f"expected version {expected}, but the file no longer exists; restore a backup"
    return f"expected version {expected}, but another process has saved version {there}; read it and try again"
