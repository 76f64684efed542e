"""The events: a source tuple becomes due, a service ends, a suspension ends.

An event only marks the out-queues that may bind tuples, the lanes that may send and the slots that may start. The loop
then handles these in that order, so that each is written, and compiled, once.
"""

import numpy as np

from penstock.model.kernel import lean
from penstock.sim.events.clocks import set_clock
from penstock.sim.events.layout import Layout
from penstock.sim.events.state import (
    ALARM,
    ALIVE,
    ARRIVED,
    ATTAINED,
    BACKLOG,
    BUSY,
    COMPLETED,
    CONSUMED,
    COUNT,
    CREDITS,
    DONE_RECORDS,
    DUE,
    EMITTED,
    EMITTED_ROOTS,
    FIRST_ARRIVAL,
    FOLLOWED,
    FREE_ROOT,
    GIVEN,
    HOP_RECORDS,
    HOPS,
    ID,
    LANE,
    LAST_ID,
    LATENCIES,
    LOST,
    MACHINE,
    NEXT_DUE,
    NONE,
    OFFERED,
    ONWARD,
    OWNER,
    PARENT,
    PENDING,
    PROCESSED,
    ROOT,
    ROOT_RECORDS,
    ROOTS_LEFT,
    SENT,
    SERVING,
    SINCE,
    UNTIL,
    USED,
    Dues,
    TwinState,
    note,
    push,
    release_row,
    take_row,
)
from penstock.sim.events.system import COPIES, TwinSystem


@lean
def fall_due(layout: Layout, state: TwinState, dues: Dues, now: float) -> None:
    """Append a source tuple to the queue of its source."""
    count, rows = state.counts, state.rows
    place = count[NEXT_DUE]
    task = dues.task[place]
    count[NEXT_DUE] = place + 1
    count[OFFERED] += 1
    set_clock(state.clocks, DUE, dues.times[place + 1] if place + 1 < len(dues.times) else np.inf)
    root = count[FREE_ROOT]
    count[FREE_ROOT] = state.roots[root, ONWARD]
    count[ROOTS_LEFT] -= 1
    row = take_row(rows, count)
    number = 0
    if dues.followed[place]:
        count[LAST_ID] += 1
        number = count[LAST_ID]
    state.due[root] = now
    state.roots[root, PENDING] = 1
    state.roots[root, OWNER] = task
    state.roots[root, FOLLOWED] = number
    state.roots[root, LOST] = 0
    rows[row, ROOT] = root
    rows[row, ID] = number
    state.times[row, ARRIVED] = now - dues.waited_s
    if state.lists[task, COUNT] == 0:
        state.task[task, FIRST_ARRIVAL] = now - dues.waited_s
    push(rows, state.lists, task, row)
    note(state.kicked, layout.slot[task])


@lean
def end_service(system: TwinSystem, layout: Layout, state: TwinState, machine: int, now: float) -> None:
    """End the first service to end on a machine; the resulting tuples enter the out-queues."""
    busy = state.busy[machine]
    place = layout.first[machine] + busy - 1
    slot = state.order[place]
    of = state.machine
    of[machine, USED] += (now - of[machine, SINCE]) * min(float(busy), layout.cores[machine])
    of[machine, SINCE] = now
    of[machine, ATTAINED] = state.ends[place]  # assigned, not incremented, so that errors do not accumulate
    state.busy[machine] = busy - 1
    row, task = state.serving[slot, 0], state.serving[slot, 1]
    state.serving[slot, 0] = NONE
    state.tasks[task, SERVING] = 0
    state.tasks[task, PROCESSED] += 1
    state.task[task, BUSY] += now - state.started[slot]
    note(state.kicked, slot)
    if layout.slot[task] != slot:  # it has moved meanwhile
        note(state.kicked, layout.slot[task])
    if system.source[task]:
        _give(state, row, task, now)
    else:
        _acknowledge(system, layout, state, row, slot, now)
    made = _make(system, state, row, task, machine, now)
    root = state.rows[row, ROOT]
    release_row(state.rows, state.counts, row)
    state.roots[root, PENDING] += made - 1
    if state.roots[root, PENDING] == 0:
        _end_tree(system, layout, state, root, now)


@lean
def _give(state: TwinState, row: int, task: int, now: float) -> None:
    """Count a source tuple that its source emits."""
    count = state.counts
    count[EMITTED_ROOTS] += 1
    if state.rows[row, ID] > 0:
        place = count[ROOT_RECORDS]
        count[ROOT_RECORDS] = place + 1
        state.root_times[place, 0] = state.times[row, ARRIVED]
        state.root_times[place, 1] = now
        state.root_numbers[place, 0] = state.rows[row, ID]
        state.root_numbers[place, 1] = task


@lean
def _acknowledge(system: TwinSystem, layout: Layout, state: TwinState, row: int, slot: int, now: float) -> None:
    """Count a processed tuple, and return credit to its sender once there is enough."""
    count, rows = state.counts, state.rows
    count[HOPS] += 1
    lane = rows[row, LANE]
    state.lanes[lane, CONSUMED] += 1
    if state.lanes[lane, CONSUMED] >= system.credit_at:
        state.lanes[lane, CREDITS] += state.lanes[lane, CONSUMED]
        state.lanes[lane, CONSUMED] = 0
        queue = system.queue[lane]
        if state.queues[queue, BACKLOG] > 0:
            note(state.dealt, queue)
            note(state.touched, lane)
            note(state.kicked, layout.slot[system.sender[lane]])
    if rows[row, ID] > 0:
        place = count[HOP_RECORDS]
        count[HOP_RECORDS] = place + 1
        state.hop_times[place, 0] = state.times[row, EMITTED]
        state.hop_times[place, 1] = state.times[row, SENT]
        state.hop_times[place, 2] = state.times[row, ARRIVED]
        state.hop_times[place, 3] = state.started[slot]
        state.hop_times[place, 4] = now
        state.hop_numbers[place, 0] = state.roots[rows[row, ROOT], FOLLOWED]
        state.hop_numbers[place, 1] = rows[row, ID]
        state.hop_numbers[place, 2] = state.kin[row, PARENT]
        state.hop_numbers[place, 3] = lane
        state.hop_numbers[place, 4] = state.kin[row, MACHINE]
        state.hop_numbers[place, 5] = layout.machine[slot]


@lean
def _make(system: TwinSystem, state: TwinState, row: int, task: int, machine: int, now: float) -> int:
    """Put the results of a tuple into the out-queues of its task; return their number.

    Fractions of a selectivity are carried over to the next tuple.
    """
    rows, count = state.rows, state.counts
    root, number, total = rows[row, ROOT], rows[row, ID], 0
    for queue in range(system.queues[task], system.queues[task + 1]):
        amount = state.carried[queue] + system.selectivity[queue]
        whole = int(amount)
        state.carried[queue] = amount - whole
        if whole == 0:
            continue
        first, copies = system.lanes[queue], 1
        if system.bound[queue] == COPIES:
            copies = system.lanes[queue + 1] - first
        for place in range(whole * copies):
            new = take_row(rows, count)
            rows[new, ROOT] = root
            rows[new, LANE] = first + place % copies
            rows[new, ID] = 0
            state.times[new, EMITTED] = now
            if number > 0:
                count[LAST_ID] += 1
                rows[new, ID] = count[LAST_ID]
                state.kin[new, PARENT] = number
                state.kin[new, MACHINE] = machine
            push(rows, state.lists, system.tasks + queue, new)
        state.queues[queue, BACKLOG] += whole * copies
        state.tasks[task, GIVEN] += whole
        total += whole * copies
        note(state.dealt, queue)
    return total


@lean
def _end_tree(system: TwinSystem, layout: Layout, state: TwinState, root: int, now: float) -> None:
    """Count a source tuple whose tree is complete."""
    count, roots = state.counts, state.roots
    if roots[root, LOST] == 0:
        owner = roots[root, OWNER]
        state.latencies[count[LATENCIES]] = now - state.due[root]
        count[LATENCIES] += 1
        count[COMPLETED] += 1
        state.tasks[owner, ALIVE] -= 1
        if state.tasks[owner, ALIVE] == system.in_flight - 1:
            note(state.kicked, layout.slot[owner])
        if roots[root, FOLLOWED] > 0:
            place = count[DONE_RECORDS]
            count[DONE_RECORDS] = place + 1
            state.root_times[place, 2] = state.due[root]
            state.root_times[place, 3] = now
            state.root_numbers[place, 2] = roots[root, FOLLOWED]
            state.root_numbers[place, 3] = owner
    roots[root, ONWARD] = count[FREE_ROOT]
    count[FREE_ROOT] = root
    count[ROOTS_LEFT] += 1


@lean
def sound_alarm(system: TwinSystem, layout: Layout, state: TwinState, now: float) -> None:
    """Mark everything that may continue, and set the time at which the next suspension ends."""
    upcoming = np.inf
    for task in range(system.tasks):
        if state.task[task, UNTIL] > now:
            upcoming = min(upcoming, state.task[task, UNTIL])
    set_clock(state.clocks, ALARM, upcoming)
    for queue in range(len(system.bound)):
        if state.queues[queue, BACKLOG] > 0:
            note(state.dealt, queue)
    for lane in range(len(system.queue)):
        if state.lists[system.in_lanes + lane, COUNT] > 0:
            note(state.touched, lane)
    for slot in range(len(layout.machine)):
        note(state.kicked, slot)
