"""Telemetry of the twin, in the runtime's schema: sampled tuples, and tasks and machines every second."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.model.instance import Instance
from penstock.model.slotted import Longs
from penstock.model.taskgraph import Floats, task_names
from penstock.model.telemetry import VERSION, RecordKind, arrow_schema
from penstock.sim.events.layout import Layout
from penstock.sim.events.span import TwinSpan
from penstock.sim.events.state import DONE_RECORDS, HOP_RECORDS, ROOT_RECORDS, TwinState
from penstock.sim.events.system import TwinSystem

if TYPE_CHECKING:
    import pyarrow as pa

CONTROLLER = "controller"
INTERVAL_S = 1.0  # covered by records of tasks and machines

Columns = dict[str, Any]


class TwinRecorder:
    """Collects records; `take` returns them as a table."""

    def __init__(self, instance: Instance, system: TwinSystem, name: str) -> None:
        self._system = system
        self._name = name
        self._tasks = np.array(task_names(instance.topology), dtype=object)
        self._machines = np.array([machine.name for machine in instance.cluster.machines], dtype=object)
        labels = np.array([stream.label for stream in instance.topology.streams], dtype=object)
        self._streams = labels[instance.edges.stream] if len(labels) else labels
        self._memory = instance.tasks.memory_mb
        self._capacity = {"capacity_cpu": instance.slots.machine_cpu, "capacity_mb": instance.slots.machine_memory_mb}
        self._parts: list[Columns] = []

    def drain(self, layout: Layout, state: TwinState) -> None:
        """Take over the tuple records of the loop."""
        count = state.counts
        roots, hops, done = (int(count[which]) for which in (ROOT_RECORDS, HOP_RECORDS, DONE_RECORDS))
        count[ROOT_RECORDS] = count[HOP_RECORDS] = count[DONE_RECORDS] = 0
        if roots:
            self._roots(layout, state.root_times[:roots, :2].copy(), state.root_numbers[:roots, :2].copy())
        if hops:
            self._hops(state.hop_times[:hops].copy(), state.hop_numbers[:hops].copy())
        if done:
            times, numbers = state.root_times[:done, 2:].copy(), state.root_numbers[:done, 2:].copy()
            columns = {
                "root": numbers[:, 0],
                "task": self._tasks[numbers[:, 1]],
                "due": times[:, 0],
                "finished": times[:, 1],
            }
            self._add(RecordKind.DONE, times[:, 1], np.full(done, CONTROLLER, dtype=object), columns)

    def _roots(self, layout: Layout, times: Floats, numbers: Longs) -> None:
        task = numbers[:, 1]
        columns = {
            "root": numbers[:, 0],
            "id": numbers[:, 0],
            "task": self._tasks[task],
            "due": times[:, 0],
            "emitted": times[:, 1],
        }
        self._add(RecordKind.ROOT, times[:, 1], self._machines[layout.machine[layout.slot[task]]], columns)

    def _hops(self, times: Floats, numbers: Longs) -> None:
        lane, sender, receiver = numbers[:, 3], numbers[:, 4], numbers[:, 5]
        sizes = self._system.tuple_bytes[self._system.queue[lane]]
        columns = {
            "root": numbers[:, 0],
            "id": numbers[:, 1],
            "parent": numbers[:, 2],
            "stream": self._streams[lane],
            "source": self._tasks[self._system.sender[lane]],
            "task": self._tasks[self._system.target[lane]],
            "source_worker": self._machines[sender],
            "source_incarnation": np.zeros(len(lane), dtype=np.int64),
            **{
                name: times[:, place]
                for place, name in enumerate(("emitted", "sent", "arrived", "started", "finished"))
            },
            "bytes": np.where(sender == receiver, 0, np.round(sizes)).astype(np.int64),
        }
        self._add(RecordKind.HOP, times[:, 4], self._machines[receiver], columns)

    def interval(self, layout: Layout, span: TwinSpan) -> None:
        """Record the activity of tasks and machines in a span."""
        tasks, machines = len(self._tasks), len(self._machines)
        where = layout.machine[layout.slot]
        columns = {
            "task": self._tasks,
            "interval": np.full(tasks, span.seconds),
            "processed": span.processed,
            "given": span.given,
            "queue": span.queue,
            "waiting_out": span.waiting_out,
            "busy": span.busy_s,
            "blocked": span.blocked_s,
        }
        self._add(RecordKind.TASK, np.full(tasks, span.end), self._machines[where], columns)
        columns = {
            "interval": np.full(machines, span.seconds),
            "busy": span.machine_cpu,
            "lag": np.zeros(machines),
            "memory_mb": np.bincount(where, self._memory, machines),
            **self._capacity,
        }
        self._add(RecordKind.MACHINE, np.full(machines, span.end), self._machines, columns)

    def event(self, at: float, event: str, detail: str) -> None:
        """Record an external action."""
        worker = np.array([CONTROLLER], dtype=object)
        self._add(RecordKind.EVENT, np.array([at]), worker, {"event": [event], "detail": [detail]})

    def _add(self, kind: RecordKind, at: Floats, worker: Sequence[str] | np.ndarray, columns: Columns) -> None:
        self._parts.append({"kind": kind.value, "at": at, "worker": worker, **columns})

    def take(self) -> "pa.Table":
        """Return the records since the last call."""
        import pyarrow as pa

        parts, self._parts = self._parts, []
        schema = arrow_schema()
        tables = []
        for part in parts:
            size = len(part["at"])
            always = {"run": self._name, "incarnation": 0, "version": VERSION, "epoch": 0, "emulated": True}
            arrays = []
            for field in schema:
                value = part.get(field.name, always.get(field.name))
                if value is None:
                    arrays.append(pa.nulls(size, field.type))
                elif np.isscalar(value):
                    arrays.append(pa.repeat(pa.scalar(value, field.type), size))
                else:
                    arrays.append(pa.array(value, field.type))
            tables.append(pa.Table.from_arrays(arrays, schema=schema))
        return pa.concat_tables(tables) if tables else schema.empty_table()
