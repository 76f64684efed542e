"""A book in a file: there as a whole or not at all, checked when read, and never overwritten by accident.

The file is JSON: its format, a checksum, the book. Several processes may change it: each reads a book, makes another
from it and saves that, saying which version it was made from; where somebody else has saved since, it is refused, and
nothing is lost. A lock file beside it covers the moment between looking and writing.
"""

import fcntl
import hashlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import msgspec

from penstock.admission.book.sharing import assessed, settled
from penstock.model.book import FORMAT, Book
from penstock.model.decoding import Undecodable, decode_json
from penstock.model.entity import LEAST_PRIORITY, MOST_PRIORITY, explain
from penstock.model.errors import FileProblem, InvalidInput
from penstock.model.files import read_text, write_whole

PATIENCE_S = 10.0
PACE_S = 0.02  # between two tries to lock it


class Outdated(FileProblem):
    """Somebody else has saved the book since it was read."""


class BookFile:
    """Where a book is kept; `patience_s` is for how long saving waits for others who are about to."""

    def __init__(self, path: str | Path, patience_s: float = PATIENCE_S) -> None:
        self.path = Path(path)
        self._patience_s = patience_s

    def exists(self) -> bool:
        """Return whether there is a book."""
        return self.path.exists()

    def load(self) -> Book:
        """Read the book; raises `FileProblem` where it cannot be trusted.

        Availabilities that were saved without regard to lowered capacities, as they once were, are mended, and so are
        priorities that were once allowed.
        """
        raw = self._read()
        body = raw["book"]
        if raw.get("checksum") != _checksum(body):
            raise FileProblem(f"{self.path}: its checksum does not fit, it was damaged or edited; restore a copy of it")
        try:
            within = _within_range(body)
            return (assessed if within == body else settled)(msgspec.convert(within, Book))
        except msgspec.ValidationError as error:
            raise FileProblem(f"{self.path}: {explain(error, body, Book)}") from None
        except InvalidInput as mistake:
            raise FileProblem(f"{self.path}: {mistake}") from None

    def save(self, book: Book, expected_version: int | None) -> None:
        """Write a book that was made from `expected_version`; None: there must be no file yet.

        Raises `Outdated`, and leaves the file as it is, where another version is there by now.
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
            raise FileProblem(f"{self.path}: not a book, {error}; restore a copy of it") from None
        if not isinstance(raw, dict) or not isinstance(raw.get("book"), dict) or "format" not in raw:
            raise FileProblem(f"{self.path}: not a book, it has no format and book at the top; give another file")
        if raw["format"] != FORMAT:
            raise FileProblem(
                f"{self.path}: a book of format {raw['format']!r}, expected {FORMAT}; use the Penstock that wrote it"
            )
        return raw

    @contextmanager
    def _locked(self) -> Iterator[None]:
        beside = self.path.with_name(f".{self.path.name}.lock")
        try:
            lock = beside.open("w")
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise FileProblem(f"{self.path}: cannot be written, {why}; choose another place") from None
        with lock:
            self._wait_for(lock)  # freed when the file is closed
            yield

    def _wait_for(self, lock: IO[str]) -> None:
        """Take the lock; raise `FileProblem` where somebody has had it for far longer than saving takes."""
        end = time.monotonic() + self._patience_s
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= end:
                    problem = f"another process has had {lock.name} locked for {self._patience_s:g} s"
                    raise FileProblem(f"{self.path}: {problem}; see what it is about, and try again") from None
                time.sleep(PACE_S)
            else:
                return


def _within_range(body: Any) -> Any:
    """Return a book with the priorities of bookings in the range of today; once there was no end to it but 0."""
    bookings = body.get("bookings") if isinstance(body, dict) else None
    if not isinstance(bookings, list):
        return body
    return {**body, "bookings": [_mended(_mended(booking), "application") for booking in bookings]}


def _mended(part: Any, inside: str = "") -> Any:
    if not isinstance(part, dict):
        return part
    if inside:
        return {**part, inside: _mended(part[inside])} if inside in part else part
    priority = part.get("priority")
    if not isinstance(priority, float | int) or priority <= 0:
        return part
    return {**part, "priority": min(max(priority, LEAST_PRIORITY), MOST_PRIORITY)}


def _checksum(body: Any) -> str:
    return hashlib.sha256(msgspec.json.encode(body, order="sorted")).hexdigest()


def _conflict(there: int | None, expected: int | None) -> str:
    if expected is None:
        return f"there is a book of version {there} already; use it, or another name"
    if there is None:
        return f"expected version {expected}, the file is gone; restore a copy of it"
    return f"expected version {expected}, somebody else has written {there} since; read it and try again"
