"""The failure of a machine, and its recovery.

Everything on the machine is lost: tuples in service or in the in-queues and out-queues of its tasks, and those in
transit to them. Their source tuples never complete, and are counted as lost at once. No tuple is sent to a task on a
failed machine: bound tuples wait at the sender, and streams with a choice of task avoid it. A task resumes, with new
channels, when its machine has recovered or when the task is moved to another. Tuples that wait in front of a source are
outside of it and survive, and a tuple in service at a source is processed again.

A task that has moved may have a tuple in service at its old slot, while its channels lead to the new one. If that tuple
is lost, its credit is returned, unless the machine of the task's new slot has failed meanwhile: then its channels are
lost, too.
"""

import numpy as np

from penstock.model.kernel import interpreted
from penstock.sim.events.chains import end_chain
from penstock.sim.events.clocks import set_clock
from penstock.sim.events.layout import Layout
from penstock.sim.events.state import (
    AFTER,
    ALIVE,
    ARRIVED,
    AWAITED,
    BACKLOG,
    CONSUMED,
    COUNT,
    CREDITS,
    EXIT,
    FIRST_ARRIVAL,
    FREE_ROOT,
    HEAD,
    LANE,
    LOST,
    LOST_ROOTS,
    NEXT,
    NONE,
    ONE,
    ONWARD,
    OWNER,
    PENDING,
    PIPES,
    ROOT,
    ROOTS_LEFT,
    SERVING,
    SINCE,
    SIZE,
    TAIL,
    UNTIL,
    USED,
    TwinState,
    release_row,
)
from penstock.sim.events.system import TwinSystem

change_clock = interpreted(set_clock)
_release = interpreted(release_row)


def fail_machine(system: TwinSystem, layout: Layout, state: TwinState, machine: int, now: float) -> None:
    """Discard everything on a machine, and suspend its tasks."""
    passed = now - state.machine[machine, SINCE]
    state.machine[machine, USED] += passed * min(float(state.busy[machine]), layout.cores[machine])
    state.machine[machine, SINCE] = now
    _end_services(system, layout, state, machine)
    for task in np.flatnonzero(layout.machine[layout.slot] == machine).tolist():
        state.task[task, UNTIL] = np.inf
        if not system.source[task]:
            _lose_list(state, task)
            state.task[task, FIRST_ARRIVAL] = np.inf
        for queue in range(system.queues[task], system.queues[task + 1]):
            _lose_list(state, system.tasks + queue)
            for lane in range(system.lanes[queue], system.lanes[queue + 1]):
                _lose_list(state, system.in_lanes + lane)
            state.queues[queue, BACKLOG] = 0
            state.queues[queue, ONE] = NONE
    dead = layout.machine[layout.slot[system.target]] == machine
    state.lanes[dead, CREDITS] = 0
    state.lanes[dead, CONSUMED] = 0
    _owe(system, state, dead)
    for lane in np.flatnonzero(dead & (state.lanes[:, AWAITED] >= 0)).tolist():
        for frame in end_chain(state, lane):
            _lose_frame(state, frame)
    for pipe in range(len(layout.card)):
        _lose_frames(system, state, pipe, dead)


def restore_task(system: TwinSystem, state: TwinState, task: int, until: float) -> None:
    """Resume a task of a failed machine at a time, with new channels."""
    state.task[task, UNTIL] = until
    lanes = system.target == task
    state.lanes[lanes, CREDITS] = system.window
    state.lanes[lanes, CONSUMED] = 0
    _owe(system, state, lanes)


def _owe(system: TwinSystem, state: TwinState, lanes: np.ndarray) -> None:
    """Record in advance the tuples in service of lanes that restart, so that they return no credit when they end."""
    for row, task in state.serving.tolist():
        if row >= 0 and not system.source[task] and lanes[state.rows[row, LANE]]:
            state.lanes[state.rows[row, LANE], CONSUMED] -= 1


def _end_services(system: TwinSystem, layout: Layout, state: TwinState, machine: int) -> None:
    for slot in range(layout.first[machine], layout.first[machine + 1]):
        row, task = (int(number) for number in state.serving[slot])
        if row < 0:
            continue
        state.serving[slot, 0] = NONE
        state.tasks[task, SERVING] = 0
        if system.source[task]:
            _requeue(state, task, row)
        else:
            _return_credit(system, state, int(state.rows[row, LANE]))
            _lose_row(state, row)
    state.busy[machine] = 0
    change_clock(state.clocks, PIPES + len(layout.card) + machine, np.inf)


def _return_credit(system: TwinSystem, state: TwinState, lane: int) -> None:
    """Return the credit of a lost tuple, as if it had been processed."""
    state.lanes[lane, CONSUMED] += 1
    if state.lanes[lane, CONSUMED] >= system.credit_at:
        state.lanes[lane, CREDITS] += state.lanes[lane, CONSUMED]
        state.lanes[lane, CONSUMED] = 0


def _requeue(state: TwinState, task: int, row: int) -> None:
    """Put a source tuple back in front of the waiting ones."""
    lists = state.lists
    state.tasks[task, ALIVE] -= 1
    if lists[task, COUNT] == 0:
        lists[task, TAIL] = row
    state.rows[row, AFTER] = lists[task, HEAD] if lists[task, COUNT] else NONE
    lists[task, HEAD] = row
    lists[task, COUNT] += 1
    state.task[task, FIRST_ARRIVAL] = state.times[row, ARRIVED]


def _lose_list(state: TwinState, number: int) -> None:
    row = int(state.lists[number, HEAD])
    for _ in range(int(state.lists[number, COUNT])):
        following = int(state.rows[row, AFTER])
        _lose_row(state, row)
        row = following
    state.lists[number, COUNT] = 0


def _lose_frames(system: TwinSystem, state: TwinState, pipe: int, dead: np.ndarray) -> None:
    """Discard the frames in a pipe whose task is suspended; the others keep their times."""
    number = system.in_pipes + pipe
    kept: list[int] = []
    frame = int(state.lists[number, HEAD])
    for _ in range(int(state.lists[number, COUNT])):
        following = int(state.rows[frame, NEXT])
        if dead[state.rows[frame, LANE]]:
            _lose_frame(state, frame)
        else:
            kept.append(frame)
        frame = following
    for place, frame in enumerate(kept):
        state.rows[frame, NEXT] = kept[place + 1] if place + 1 < len(kept) else NONE
        state.before[frame] = kept[place - 1] if place > 0 else NONE
    state.lists[number, COUNT] = len(kept)
    if kept:
        state.lists[number, HEAD], state.lists[number, TAIL] = kept[0], kept[-1]
    exit_at = float(state.times[kept[0], EXIT]) if kept else np.inf
    change_clock(state.clocks, PIPES + pipe, exit_at)


def _lose_frame(state: TwinState, frame: int) -> None:
    row = frame
    for _ in range(int(state.rows[frame, SIZE])):
        behind = int(state.rows[row, AFTER])
        _lose_row(state, row)
        row = behind


def _lose_row(state: TwinState, row: int) -> None:
    """Discard a tuple, and count its source tuple as lost."""
    root, count, roots = int(state.rows[row, ROOT]), state.counts, state.roots
    _release(state.rows, count, row)
    if roots[root, LOST] == 0:
        roots[root, LOST] = 1
        count[LOST_ROOTS] += 1
        state.tasks[roots[root, OWNER], ALIVE] -= 1
    roots[root, PENDING] -= 1
    if roots[root, PENDING] == 0:
        roots[root, ONWARD] = count[FREE_ROOT]
        count[FREE_ROOT] = root
        count[ROOTS_LEFT] += 1
