"""Writes telemetry records to Parquet files, in a side thread: each file appears atomically."""

import os
import threading
from contextlib import suppress
from pathlib import Path
from time import monotonic

import msgspec

from penstock.model.telemetry import Record, arrow_schema

INTERVAL_S = 2.0
ROWS = 20_000
MAX_WAITING = 200_000  # records in memory; further ones are lost


class Recorder:
    """Collects records and writes a file every few seconds, in a side thread.

    Records that cannot be written, or come faster than they can be written, are counted in `lost`. `problem` reports
    the first loss of each kind, and at the end how many records came too fast. The application continues.
    """

    def __init__(self, folder: str, name: str, every_s: float = INTERVAL_S, umask: int | None = None) -> None:
        self.problem = ""
        self.lost = 0
        self._folder = Path(folder)
        self._name = name.replace("/", ".")
        self._every = every_s
        self._umask = umask  # of its files; None: that of the process
        self._records: list[Record] = []
        self._files = 0
        self._failed = False  # a file could not be written
        self._rejected = 0  # lost records that came too fast
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="penstock telemetry", daemon=True)
        self._thread.start()

    def add(self, records: list[Record]) -> None:
        """Take records; returns at once."""
        with self._lock:
            room = max(MAX_WAITING - len(self._records), 0)
            self._records += records[:room]
            if len(records) > room:
                self._reject(len(records) - room)
            many = len(self._records) >= ROWS
        if many:
            self._wake.set()

    def close(self, within_s: float = 10.0) -> None:
        """Write what is left."""
        self._closing = True
        self._wake.set()
        self._thread.join(within_s)
        if self._rejected:
            self._add_problem(
                f"{self._rejected} records were lost in total, they came faster than they could be written"
            )

    def _reject(self, count: int) -> None:
        if not self._rejected:
            self._add_problem("records are lost, they come faster than they can be written")
        self._rejected += count
        self.lost += count

    def _add_problem(self, problem: str) -> None:
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
        except Exception as error:  # of any kind: later files may succeed
            reason = " ".join((getattr(error, "strerror", None) or str(error)).split())
            with self._lock:
                if not self._failed:
                    self._add_problem(f"records are lost, {final} cannot be written: {reason}")
                self._failed = True
                self.lost += len(records)
            with suppress(OSError):
                temporary.unlink(missing_ok=True)


def _write(records: list[Record], path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = [field.name for field in msgspec.structs.fields(Record)]
    columns = {name: [getattr(record, name) for record in records] for name in names}
    pq.write_table(pa.table(columns, schema=arrow_schema()), path)
