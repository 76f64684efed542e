"""Writes telemetry records to Parquet files, off the loop: each file appears whole or not at all."""

import os
import threading
from contextlib import suppress
from pathlib import Path
from time import monotonic

import msgspec

from penstock.model.telemetry import Record, arrow_schema

EVERY_S = 2.0
ROWS = 20_000
WAITING = 200_000  # records that wait to be written; more are lost


class Recorder:
    """Collects records and writes a file every few seconds, in a thread of its own.

    What cannot be written, or comes faster than it can be, is counted in `lost`; `problem` tells of it when it begins,
    and at the end of how much came too fast. The application goes on.
    """

    def __init__(self, folder: str, name: str, every_s: float = EVERY_S, umask: int | None = None) -> None:
        self.problem = ""
        self.lost = 0
        self._folder = Path(folder)
        self._name = name.replace("/", ".")
        self._every = every_s
        self._umask = umask  # of its files; None: the process's own
        self._records: list[Record] = []
        self._files = 0
        self._unwritten = False  # whether a file could not be
        self._refused = 0  # of the lost ones, those that came too fast
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="penstock telemetry", daemon=True)
        self._thread.start()

    def add(self, records: list[Record]) -> None:
        """Take records; returns at once."""
        with self._lock:
            room = max(WAITING - len(self._records), 0)
            self._records += records[:room]
            if len(records) > room:
                self._refuse(len(records) - room)
            many = len(self._records) >= ROWS
        if many:
            self._wake.set()

    def close(self, within_s: float = 10.0) -> None:
        """Write what is left."""
        self._closing = True
        self._wake.set()
        self._thread.join(within_s)
        if self._refused:
            self._tell(f"{self._refused} records in all were lost, they came faster than they could be written")

    def _refuse(self, count: int) -> None:
        if not self._refused:
            self._tell("records are lost, they come faster than they can be written")
        self._refused += count
        self.lost += count

    def _tell(self, problem: str) -> None:
        self.problem = f"{self.problem}; {problem}" if self.problem else f"telemetry: {problem}"

    def _run(self) -> None:
        while not self._closing:
            started = monotonic()
            self._wake.wait(self._every)
            self._wake.clear()
            self._write()
            if not self._closing and monotonic() - started < 0.05:
                threading.Event().wait(0.05)
        self._write()

    def _write(self) -> None:
        with self._lock:
            records, self._records = self._records, []
        if not records:
            return
        final = self._folder / f"{self._name}-{os.getpid()}-{self._files:06d}.parquet"
        temporary = final.with_name(f"_{final.name}")
        try:
            _write(records, temporary)
            if self._umask is not None:
                temporary.chmod(0o666 & ~self._umask)
            os.replace(temporary, final)
            self._files += 1
        except Exception as error:  # of whatever kind: what comes after it may be written again
            reason = " ".join((getattr(error, "strerror", None) or str(error)).split())
            with self._lock:
                if not self._unwritten:
                    self._tell(f"records are lost, {final} cannot be written: {reason}")
                self._unwritten = True
                self.lost += len(records)
            with suppress(OSError):
                temporary.unlink(missing_ok=True)


def _write(records: list[Record], path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = [field.name for field in msgspec.structs.fields(Record)]
    columns = {name: [getattr(record, name) for record in records] for name in names}
    pq.write_table(pa.table(columns, schema=arrow_schema()), path)
