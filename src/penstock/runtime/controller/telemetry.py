"""What the controller puts into the telemetry: events, clocks, and tuples that were followed to their end."""

from collections.abc import Iterable
from typing import Any

import msgspec

from penstock.model.telemetry import Record, RecordKind
from penstock.runtime.controller.membership import Member


class Diary:
    """The controller's records since they were last taken; none are kept where no telemetry is wanted."""

    def __init__(self, run: str, *, emulated: bool, keep: bool) -> None:
        self.epoch = 0
        self._run = run
        self._emulated = emulated
        self._keep = keep
        self._records: list[Record] = []

    def record(self, kind: RecordKind, at: float, **fields: Any) -> None:
        """Note something of the controller's own."""
        if self._keep:
            self._records.append(self._made(kind, at, **fields))

    def clocks(self, members: Iterable[Member]) -> None:
        """Note how far the workers' clocks are from the controller's."""
        for member in members:
            if member.alive and self._keep:
                clock = member.clock.estimate
                record = self._made(
                    RecordKind.CLOCK, clock.at, offset=clock.offset, drift=clock.drift, error=clock.error
                )
                worker = {"worker": member.site.name, "incarnation": member.incarnation}
                self._records.append(msgspec.structs.replace(record, **worker))

    def take(self) -> list[Record]:
        """Return the records since the last call."""
        records, self._records = self._records, []
        return records

    def _made(self, kind: RecordKind, at: float, **fields: Any) -> Record:
        return Record(
            kind=kind.value,
            run=self._run,
            worker="controller",
            at=at,
            epoch=self.epoch,
            emulated=self._emulated,
            **fields,
        )
