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


class Recorder:
    """Collects records and writes a file every few seconds, in a thread of its own.

    A file that cannot be written is given up and counted in `lost`; the first is told of in `problem`. The application
    goes on.
    """

    def __init__(self, folder: str, name: str, every_s: float = EVERY_S) -> None:
        self.problem = ""
        self.lost = 0
        self._folder = Path(folder)
        self._name = name.replace("/", ".")
        self._every = every_s
        self._records: list[Record] = []
        self._files = 0
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="penstock telemetry", daemon=True)
        self._thread.start()

    def add(self, records: list[Record]) -> None:
        """Take records; returns at once."""
        with self._lock:
            self._records += records
            many = len(self._records) >= ROWS
        if many:
            self._wake.set()

    def close(self, within_s: float = 10.0) -> None:
        """Write what is left."""
        self._closing = True
        self._wake.set()
        self._thread.join(within_s)

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
        import pyarrow as pa
        import pyarrow.parquet as pq

        names = [field.name for field in msgspec.structs.fields(Record)]
        columns = {name: [getattr(record, name) for record in records] for name in names}
        final = self._folder / f"{self._name}-{os.getpid()}-{self._files:06d}.parquet"
        temporary = final.with_name(f"_{final.name}")
        try:
            pq.write_table(pa.table(columns, schema=arrow_schema()), temporary)
            os.replace(temporary, final)
            self._files += 1
        except (OSError, pa.ArrowException) as error:
            if not self.lost:
                reason = " ".join((getattr(error, "strerror", None) or str(error)).split())
                self.problem = f"telemetry: records are lost, {final} cannot be written: {reason}"
            self.lost += len(records)
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
