"""HEFT, the classic list scheduler for heterogeneous machines (Topcuoglu, Hariri and Wu, 2002).

HEFT minimises the end of one job: tasks in descending *upward rank* (the longest path to the end, in mean execution and
communication times), each in the slot that finishes it earliest, in a gap between scheduled tasks if one is long
enough. A stream has no end, so the job here is a *batch* of source tuples that passes through all tasks once. Ranks are
computed between components, whose tasks are equivalent. Pinned tasks have their slots in advance, so that the others
leave room for them. A placement that ends one batch early need not sustain a high rate: for that SPARCLE compares
itself with HEFT.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from penstock.model.entity import Positive
from penstock.model.kernel import kernel
from penstock.model.placement import Infeasible, Placement
from penstock.model.routes import BITS
from penstock.model.taskgraph import Bools, Floats, Flow, Ints
from penstock.model.topology import Grouping
from penstock.policies.api import PlacementView
from penstock.policies.placement.draft import Draft
from penstock.policies.placement.rearrangement import make_room
from penstock.policies.placement.transfer_times import (
    TransferTimes,
    between_machines,
    inside_machine,
    mean_transfer,
    transfer_times,
)


@dataclass(frozen=True, slots=True)
class Heft:
    """Place the task with the longest path to the end first, each where it finishes earliest.

    batch: number of source tuples in a job; none: one for every task of the widest component. A task's execution time
        is its work for the batch, a hop's its bits for the batch plus its latency once.
    """

    batch: Positive | None = None

    def place(self, view: PlacementView, rng: np.random.Generator) -> Placement | Infeasible:
        """Return the placement; `rng` is not used."""
        batch = float(np.diff(view.tasks.first).max()) if self.batch is None else self.batch
        times = transfer_times(view, usual_bits(view) * batch)
        draft = Draft(view)
        schedule = Schedule(view, batch, times)
        rank = upward_ranks(view, batch, times)[view.tasks.component]
        if (stuck := draft.put_pinned()) is not None:
            return make_room(draft, stuck)
        for task in np.argsort(-rank, kind="stable").tolist():
            if view.pins[task] >= 0:
                schedule.add(task, np.arange(view.slots.number) == draft.slot[task])
                continue
            room = draft.slots_with_room(task)
            if not room.any():
                return make_room(draft, task)
            draft.put(task, schedule.add(task, room))
        return draft.done()


class Timetable(NamedTuple):
    """When the tasks scheduled so far run; the tasks of a slot form a chain by start time; S slots, T tasks."""

    first: Ints  # [S] task that starts first in the slot
    members: Ints  # [S] how many tasks are in the slot
    following: Ints  # [T] task that starts next in the same slot
    slot: Ints  # [T]
    start_s: Floats  # [T]
    finish_s: Floats  # [T]


class Schedule:
    """The tasks scheduled so far, and where the next one would finish earliest."""

    def __init__(self, view: PlacementView, batch: float, times: TransferTimes) -> None:
        tasks, slots = view.tasks.number, view.slots.number
        self._view = view
        self._batch = batch
        self._times = times
        self._inputs = [
            [flow for flow in view.tasks.flows if flow.target == c and flow.share > 0]
            for c in range(len(view.tasks.position))
        ]
        self.table = Timetable(
            first=np.full(slots, -1, dtype=np.int32),
            members=np.zeros(slots, dtype=np.int32),
            following=np.full(tasks, -1, dtype=np.int32),
            slot=np.full(tasks, -1, dtype=np.int32),
            start_s=np.zeros(tasks),
            finish_s=np.zeros(tasks),
        )

    def add(self, task: int, room: Bools) -> int:
        """Schedule a task, whose upstream tasks are scheduled, in the slot with room where it finishes earliest."""
        view, table = self._view, self.table
        at_machine, at_slot = np.zeros(view.slots.machines), np.zeros(view.slots.number)
        for flow in self._inputs[view.tasks.component[task]]:
            senders = self._senders(flow, task)
            bits = view.tasks.gain[senders] * (flow.share * flow.tuple_bytes * BITS * self._batch)
            arrivals(self._times, table.slot[senders], table.finish_s[senders], bits, at_machine, at_slot)
        durations = execution_times(view, task, self._batch)
        slot, start = earliest_finish(table, self._times.slot_machine, durations, at_machine, at_slot, room)
        book(table, task, slot, start, start + durations[self._times.slot_machine[slot]])
        return int(slot)

    def _senders(self, flow: Flow, task: int) -> Ints:
        tasks = self._view.tasks
        number = task - int(tasks.first[flow.target])
        senders = np.arange(tasks.first[flow.source], tasks.first[flow.source + 1], dtype=np.int32)
        if flow.grouping is Grouping.FORWARD:
            senders = senders[number : number + 1]
        elif flow.grouping is Grouping.GLOBAL and number > 0:
            senders = senders[:0]
        return senders[tasks.gain[senders] > 0]


def execution_times(view: PlacementView, task: int, batch: float) -> Floats:
    """Return the seconds of a task for a batch in a slot of each machine, limited by its slowest resource. [M]

    A slot of a machine with fewer cores than slots has the speed that remains if all slots are busy.
    """
    slots, tasks = view.slots, view.tasks
    speed = np.minimum(slots.cpu[slots.first[:-1]], slots.machine_cpu / np.diff(slots.first))
    seconds = view.work[task] * batch / speed
    for resource in np.flatnonzero(tasks.needs[task] * tasks.gain[task] > 0):
        need, there_is = tasks.needs[task, resource] * tasks.gain[task] * batch, slots.capacity[:, resource]
        taken = np.divide(need, there_is, out=np.full(slots.machines, np.inf), where=there_is > 0)
        seconds = np.maximum(seconds, taken)
    return np.asarray(seconds)


def usual_bits(view: PlacementView) -> float:
    """Return the bits per source tuple between a pair of tasks, mean over streams."""
    tasks = view.tasks
    bits = [tasks.gain[tasks.of(flow.source)].max() * flow.share * flow.tuple_bytes * BITS for flow in tasks.flows]
    return float(np.mean(bits)) if bits else 0.0


def upward_ranks(view: PlacementView, batch: float, times: TransferTimes) -> Floats:
    """Return the longest path from the start of each component to the end of the job, in mean times. [C]"""
    tasks = view.tasks
    latency, bit = mean_transfer(times)
    onward = np.zeros(len(tasks.position))  # after the component's own execution
    rank = np.zeros(len(tasks.position))
    for component in reversed(range(len(tasks.position))):
        members = tasks.of(component)
        busiest = members[int(np.argmax(tasks.gain[members.start : members.stop]))]
        for flow in tasks.flows:
            if flow.source == component and flow.share * tasks.gain[busiest] > 0:
                bits = tasks.gain[busiest] * flow.share * flow.tuple_bytes * BITS * batch
                onward[component] = max(onward[component], latency + bits * bit + rank[flow.target])
        rank[component] = _mean_execution(view, busiest, batch) + onward[component]
    return rank


def _mean_execution(view: PlacementView, task: int, batch: float) -> float:
    """Return the mean execution time of a task over the slots that can run it."""
    seconds = execution_times(view, task, batch)
    able = np.isfinite(seconds)
    return float(np.average(seconds[able], weights=np.diff(view.slots.first)[able])) if able.any() else 0.0


@kernel
def arrivals(
    times: TransferTimes, slot: Ints, finish_s: Floats, bits: Floats, at_machine: Floats, at_slot: Floats
) -> None:
    """Raise the times at which all input is available, given where and when its senders finish.

    `at_machine` is for input from other machines, `at_slot` for input from the same one.
    """
    for sender in range(len(slot)):
        here = times.slot_machine[slot[sender]]
        for machine in range(len(at_machine)):
            if machine != here:
                arrival = finish_s[sender] + between_machines(times, here, machine, bits[sender])
                at_machine[machine] = max(at_machine[machine], arrival)
        for there in range(times.first[here], times.first[here + 1]):
            at_slot[there] = max(at_slot[there], finish_s[sender] + inside_machine(times, slot[sender], there))


@kernel
def earliest_finish(
    table: Timetable, slot_machine: Ints, durations: Floats, at_machine: Floats, at_slot: Floats, room: Bools
) -> tuple[int, float]:
    """Return the slot with room in which a task finishes earliest, ties by number, and its start time."""
    best_slot, best_start, best_finish = -1, 0.0, np.inf
    for slot in range(len(room)):
        if room[slot]:
            machine = slot_machine[slot]
            duration = durations[machine]
            start = max(at_machine[machine], at_slot[slot])
            task = table.first[slot]
            for _ in range(table.members[slot]):
                if start + duration <= table.start_s[task]:
                    break
                start = max(start, table.finish_s[task])
                task = table.following[task]
            if best_slot < 0 or start + duration < best_finish:
                best_slot, best_start, best_finish = slot, start, start + duration
    return best_slot, best_start


@kernel
def book(table: Timetable, task: int, slot: int, start_s: float, finish_s: float) -> None:
    """Enter a task in a slot's chain."""
    before, after = -1, table.first[slot]
    for _ in range(table.members[slot]):
        if table.start_s[after] > start_s or (table.start_s[after] == start_s and table.finish_s[after] > finish_s):
            break
        before, after = after, table.following[after]
    if before < 0:
        table.first[slot] = task
    else:
        table.following[before] = task
    table.following[task] = after
    table.members[slot] += 1
    table.slot[task], table.start_s[task], table.finish_s[task] = slot, start_s, finish_s
