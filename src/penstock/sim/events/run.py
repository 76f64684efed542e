"""A run of the twin: virtual time advances on request, with changes in between."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from penstock.api.sources.pace import ArrivalProcess
from penstock.model.costs import Costs
from penstock.model.errors import InvalidInput, UnknownMachine, nearest
from penstock.model.instance import Instance
from penstock.model.placement import Hop
from penstock.model.slotted import Longs
from penstock.model.taskgraph import Floats, task_names
from penstock.sim.events import loop
from penstock.sim.events.chains import make_chains
from penstock.sim.events.due_times import Saturation, Sources
from penstock.sim.events.failures import change_clock, fail_machine, restore_task
from penstock.sim.events.layout import Layout, PathTable, build_layout, first_turns
from penstock.sim.events.records import INTERVAL_S, TwinRecorder
from penstock.sim.events.span import TwinSpan
from penstock.sim.events.state import (
    ALARM,
    BACKLOG,
    BLOCKED,
    BLOCKED_SINCE,
    BUSY,
    COMPLETED,
    COUNT,
    DUE,
    EMITTED_ROOTS,
    GIVEN,
    HOPS,
    LATENCIES,
    LOST_ROOTS,
    NEXT_DUE,
    OFFERED,
    PROCESSED,
    SINCE,
    STARTED,
    TAKEN,
    UNTIL,
    USED,
    WAITED,
    TwinState,
    more_latencies,
    more_records,
    more_roots,
    more_rows,
    new_twin_state,
)
from penstock.sim.events.system import TwinSystem

if TYPE_CHECKING:
    import pyarrow as pa

CHUNK_S = 10.0  # maximum time span of source tuples drawn at once, except for the fewest
SUPPLIES = 8  # supplies per period in which saturated sources take the tuples that the supply is ahead
CHUNK, FEWEST = 500_000, 100  # maximum and minimum number of source tuples drawn, if the rate is known

_MORE: dict[int, Callable[[TwinState], TwinState]] = {
    loop.ROWS: more_rows,
    loop.ROOTS: more_roots,
    loop.RECORDS: more_records,
    loop.TIMES: more_latencies,
}


class TwinSetup(NamedTuple):
    """The parts of a run."""

    instance: Instance
    system: TwinSystem
    costs: Costs
    routes: Mapping[Hop, tuple[int, ...]] | None
    processes: Mapping[str, ArrivalProcess]


class _Totals(NamedTuple):
    """The counters since the start, at some time."""

    at: float
    counts: Longs
    tasks: Longs
    task: Floats
    used: Floats
    taken: Longs
    transfer: Floats


class TwinRun:
    """A running application in virtual time. The arguments determine its course."""

    def __init__(self, setup: TwinSetup, slots: Sequence[int], seed: int, records: float, name: str) -> None:
        self._instance, self._system, self._costs = setup.instance, setup.system, setup.costs
        self._ways = PathTable(setup.instance, setup.routes)
        self._layout = self._built(slots)
        self._rng = np.random.default_rng([seed, 0])
        turns = first_turns(setup.instance, setup.system, self._layout)
        self._state = new_twin_state(setup.system, self._layout, turns, self._rng)
        self._sources = Sources(setup.instance, setup.processes, seed, records)
        self._supply: Saturation | None = None  # replaces the sources' arrivals
        self._supply_chunk_s = CHUNK_S
        self._rate = sum(process.rate or 0.0 for process in setup.processes.values())
        self._recorder = TwinRecorder(setup.instance, setup.system, name) if records else None
        self._down: set[int] = set()
        self._loop = loop.run_events
        self.now = 0.0
        self._seen = self._totals()  # at the end of the last span
        if self._recorder is not None:
            self._recorder.event(0.0, "start", "")

    @property
    def slots(self) -> tuple[int, ...]:
        """The slot of each task."""
        return tuple(int(slot) for slot in self._layout.slot)

    def advance(self, seconds: float) -> TwinSpan:
        """Advance by a number of seconds of virtual time; return the results."""
        if not 0 <= seconds < np.inf:
            raise InvalidInput("seconds", f"expected a number ≥ 0, got {seconds}")
        before, latencies, end = self._seen, [], self.now + seconds
        while self.now < end:
            second = self._seen
            self._go_on(min(end, self._chunk_end()))
            latencies.append(self._latencies())
            if self._recorder is not None:
                self._seen = self._totals()
                self._recorder.interval(self._layout, self._span(second, latencies[-1]))
        self._seen = self._totals()
        return self._span(before, np.concatenate(latencies) if latencies else np.empty(0))

    def move(self, moves: Mapping[int, int]) -> None:
        """Move tasks to other slots: {task: slot}.

        The queue of a task moves with it, and nothing overtakes tuples in transit to it. A task that moves to another
        process is suspended for the costs' `move_s`; a tuple in service is completed at the old slot.
        """
        slots = list(self.slots)
        for task, slot in moves.items():
            if not 0 <= task < len(slots):
                raise InvalidInput(f"moves[{task}]", f"expected a task from 0 to {len(slots) - 1}")
            if not 0 <= slot < self._instance.slots.number:
                raise InvalidInput(f"moves[{task}]", f"expected a slot below {self._instance.slots.number}, got {slot}")
            if int(self._instance.slots.machine[slot]) in self._down:
                down = self._machine_name(int(self._instance.slots.machine[slot]))
                raise InvalidInput(f"moves[{task}]", f"machine {down!r} is down; restore it or choose another")
            slots[task] = slot
        was = self._layout
        self._layout = self._built(slots)
        make_chains(self._system, self._state, was, self._layout)
        process, machine = self._instance.slots.process, self._instance.slots.machine
        names, places = task_names(self._instance.topology), self._instance.cluster.slot_names
        for moved in np.flatnonzero(was.slot != self._layout.slot).tolist():
            here, there = was.slot[moved], self._layout.slot[moved]
            self._leave(moved, int(machine[here]), bool(process[here] != process[there]))
            self._tell("move", f"{names[moved]} {places[here]} -> {places[there]}")

    def _leave(self, task: int, here: int, far: bool) -> None:
        until = self.now + self._costs.move_s if far else self.now
        if here in self._down:
            restore_task(self._system, self._state, task, until)
        elif far:
            self._state.task[task, UNTIL] = max(until, float(self._state.task[task, UNTIL]))

    def suspend(self, until: float) -> None:
        """Suspend all tasks until a time, as while an application restarts; source tuples become due meanwhile."""
        self._state.task[:, UNTIL] = np.maximum(self._state.task[:, UNTIL], until)
        self._tell("suspend", f"all tasks until {until:g} s")

    def saturate(self, tuples: float) -> Saturation:
        """Supply an unlimited number of source tuples from now on, about `tuples` ahead of the sources."""
        share = np.where(self._instance.tasks.source, self._instance.tasks.gain, 0.0)
        self._supply = Saturation(share, tuples, lambda: self._state.tasks[:, STARTED])
        self._supply_chunk_s = tuples / (SUPPLIES * self._rate)
        return self._supply

    def scale(self, factor: float) -> None:
        """Multiply the initial arrival rates by a factor from now on."""
        self._sources.scale(factor)
        self._tell("load", f"{factor:g} times the initial load")

    def fail(self, machine: int | str) -> None:
        """Fail a machine, as `failures` describes."""
        number = self._machine_number(machine)
        if number not in self._down:
            self._down.add(number)
            fail_machine(self._system, self._layout, self._state, number, self.now)
            self._tell("failure", self._machine_name(number))

    def restore(self, machine: int | str) -> None:
        """Recover a failed machine; its tasks resume."""
        number = self._machine_number(machine)
        if number in self._down:
            self._down.discard(number)
            for task in np.flatnonzero(self._layout.machine[self._layout.slot] == number):
                restore_task(self._system, self._state, int(task), self.now)
            self._tell("restore", self._machine_name(number))

    def records(self) -> "pa.Table":
        """Return the telemetry since the last call, in the runtime's schema."""
        if self._recorder is None:
            raise InvalidInput("records", "expected a run that keeps records; start it with records=20")
        return self._recorder.take()

    def _built(self, slots: Sequence[int]) -> Layout:
        return build_layout(self._instance, self._system, self._costs, self._ways, slots)

    def _tell(self, event: str, detail: str) -> None:
        """Record an action, and let the loop resume everything that can continue."""
        change_clock(self._state.clocks, ALARM, self.now)
        if self._recorder is not None:
            self._recorder.event(self.now, event, detail)

    def _chunk_end(self) -> float:
        if self._supply is not None:
            return self.now + self._supply_chunk_s
        if self._recorder is not None:
            return float(np.floor(self.now / INTERVAL_S + 1e-9) + 1.0) * INTERVAL_S
        if self._rate == 0:
            return self.now + CHUNK_S
        return self.now + max(min(CHUNK_S, max(0.01, CHUNK / self._rate)), FEWEST / self._rate)

    def _go_on(self, until: float) -> None:
        """Handle all events up to a time."""
        dues = (self._supply or self._sources).take(self.now, until)
        self._state.counts[NEXT_DUE] = 0
        first = float(dues.times[0]) if len(dues.times) else np.inf
        change_clock(self._state.clocks, DUE, first)
        while True:
            why = self._loop(self._system, self._layout, self._state, dues, until, self._rng)
            if why == loop.THERE:
                break
            if why in _MORE:
                self._state = _MORE[why](self._state)
        self.now = until
        if self._recorder is not None:
            self._recorder.drain(self._layout, self._state)

    def _latencies(self) -> Floats:
        size = int(self._state.counts[LATENCIES])
        self._state.counts[LATENCIES] = 0
        return self._state.latencies[:size].copy()

    def _totals(self) -> _Totals:
        state, layout = self._state, self._layout
        task = state.task[:, BUSY:].copy()  # the columns before are not sums
        since = state.task[:, BLOCKED_SINCE]
        task[:, BLOCKED - BUSY] += np.where(since < np.inf, self.now - since, 0.0)
        running = (self.now - state.machine[:, SINCE]) * np.minimum(state.busy, layout.cores)
        used = state.machine[:, USED] + running
        taken = state.lanes[:, TAKEN].copy()
        return _Totals(self.now, state.counts.copy(), state.tasks.copy(), task, used, taken, state.transfer.copy())

    def _span(self, before: _Totals, latencies: Floats) -> TwinSpan:
        after, state = self._seen, self._state
        count, tasks, task = after.counts - before.counts, after.tasks - before.tasks, after.task - before.task
        sizes = state.lists[: self._system.tasks, COUNT].astype(np.int64)
        queue_task = np.repeat(np.arange(self._system.tasks), np.diff(self._system.queues))
        waiting_out = np.bincount(queue_task, state.queues[:, BACKLOG], self._system.tasks)
        taken, transfer = after.taken - before.taken, after.transfer - before.transfer
        seconds = max(after.at - before.at, 1e-300)
        total, came = after.counts, self._by_stream(taken)
        return TwinSpan(
            start=before.at,
            end=after.at,
            offered=int(count[OFFERED]),
            emitted=int(count[EMITTED_ROOTS]),
            completed=int(count[COMPLETED]),
            lost=int(count[LOST_ROOTS]),
            in_flight=int(total[EMITTED_ROOTS] - total[COMPLETED] - total[LOST_ROOTS]),
            waiting=int(total[OFFERED] - total[EMITTED_ROOTS]),
            hops=int(count[HOPS]),
            latencies=latencies,
            processed=tasks[:, PROCESSED],
            given=tasks[:, GIVEN],
            busy_s=task[:, 0],
            waited_s=task[:, WAITED - BUSY],
            taken=tasks[:, STARTED],
            blocked_s=task[:, BLOCKED - BUSY],
            queue=sizes,
            waiting_out=waiting_out.astype(np.int64),
            machine_cpu=(after.used - before.used) / seconds / self._layout.cores,
            edge_tuples=taken,
            edge_transfer_s=transfer,
            component_processing_s=self._by_component(tasks[:, PROCESSED], task[:, 0]),
            stream_tuples={label: int(number) for label, number in came.items()},
            stream_transfer_s={label: _mean(total, came[label]) for label, total in self._by_stream(transfer).items()},
        )

    def _by_component(self, processed: Longs, busy: Floats) -> dict[str, float]:
        """Return the mean processing time of every component."""
        tasks, topology = self._instance.tasks, self._instance.topology
        names = [topology.components[position].name for position in tasks.position]
        ended = np.bincount(tasks.component, processed, len(names))
        spent = np.bincount(tasks.component, busy, len(names))
        return {name: _mean(spent[number], ended[number]) for number, name in enumerate(names)}

    def _by_stream(self, amounts: Longs | Floats) -> dict[str, float]:
        """Add up amounts of edges by stream."""
        labels = [stream.label for stream in self._instance.topology.streams]
        total = np.bincount(self._instance.edges.stream, amounts, len(labels))
        return {label: float(total[number]) for number, label in enumerate(labels)}

    def _machine_number(self, machine: int | str) -> int:
        known = self._instance.cluster.machine_index
        if isinstance(machine, str) and machine not in known:
            raise UnknownMachine("machine", f"the cluster has no {machine!r}; {nearest(machine, known)}")
        number = known[machine] if isinstance(machine, str) else int(machine)
        if not 0 <= number < len(known):
            raise UnknownMachine("machine", f"expected a number below {len(known)}, got {number}")
        return number

    def _machine_name(self, number: int) -> str:
        return self._instance.cluster.machines[number].name


def _mean(total: float, number: float) -> float:
    return float(total / number) if number > 0 else float("nan")
