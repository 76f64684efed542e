"""The telemetry that the controller records: events, workers' clocks, and traced tuples that were completed."""

from collections.abc import Callable
from typing import Any

import msgspec

from penstock.model.telemetry import Record, RecordKind
from penstock.runtime.controller.membership import Membership
from penstock.runtime.controller.progress import CompletedTree
from penstock.runtime.controller.run_spec import RunState
from penstock.runtime.protocol import controller_messages, worker_messages

PING_S = 0.5
CLOCK_S = 5.0  # between records of a worker's clock


class TelemetryBuffer:
    """The controller's records since they were last taken; without `keep` there are none."""

    def __init__(self, run: str, state: RunState, members: Membership, *, emulated: bool, keep: bool) -> None:
        self._run = run
        self._state = state
        self._members = members
        self._emulated = emulated
        self._keep = keep
        self._records: list[Record] = []

    def event(self, event: str, detail: str, now: float) -> None:
        """Record an event."""
        self._record(RecordKind.EVENT, now, event=event, detail=detail)

    def trace(self, done: CompletedTree) -> None:
        """Record a tree of tuples that is complete."""
        task, fields = self._state.names[done.task], {"root": done.root, "due": done.due, "finished": done.finished}
        self._record(RecordKind.DONE, done.finished, task=task, **fields)

    def clocks(self) -> None:
        """Record the offsets of the workers' clocks from the controller's."""
        for member in self._members:
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

    def _record(self, kind: RecordKind, at: float, **fields: Any) -> None:
        if self._keep:
            self._records.append(self._made(kind, at, **fields))

    def _made(self, kind: RecordKind, at: float, **fields: Any) -> Record:
        return Record(
            kind=kind.value,
            run=self._run,
            worker="controller",
            at=at,
            epoch=self._state.epoch,
            emulated=self._emulated,
            **fields,
        )


class ClockSync:
    """Measures the offsets of the workers' clocks by pings."""

    def __init__(
        self,
        members: Membership,
        send: Callable[[int, controller_messages.Command], None],
        record: Callable[[], None],
        now: float,
    ) -> None:
        self.due = now  # of the next pings
        self._members = members
        self._send = send
        self._record = record
        self._record_due = now
        self._pings: dict[int, tuple[int, float]] = {}  # worker -> number of its last ping, and when it was sent
        self._count = 0

    def tick(self, now: float) -> None:
        """Send the pings and record the clocks that are due."""
        if now >= self.due:
            self.due = now + PING_S
            for number in self._members.alive:
                self._count += 1
                self._pings[number] = (self._count, now)
                self._send(number, controller_messages.Ping(self._count))
        if now >= self._record_due:
            self._record_due = now + CLOCK_S
            self._record()

    def take_pong(self, worker: int, message: worker_messages.Pong, now: float) -> None:
        """Take the answer to a ping."""
        if worker in self._pings and self._pings[worker][0] == message.number:
            self._members[worker].clock.add(self._pings[worker][1], now, message.at)
