"""One slot, step by step, following POTUS §3: arrivals, decisions on the state at the start, then service.

Tuples sent in a slot reach the in-queue in the next and may be served there, but a decision of that slot does not see
them in Q_in (8); what follows from them can be sent one slot later (9). Each step takes the arrays out of its tables
once: inside a loop that would count references for every tuple.
"""

import numpy as np

from penstock.model.kernel import lean
from penstock.model.slotted import Longs, SlottedSystem
from penstock.model.taskgraph import Floats
from penstock.policies.tuples.lanes import Lanes, Queues
from penstock.sim.slotted.state import (
    AFTER,
    DONE,
    DUE,
    HEAD,
    LANE,
    NONE,
    PENDING,
    REAL,
    ROOT,
    SINCE,
    SIZE,
    RootArrivals,
    SlotCounts,
    SlottedState,
    append,
    free_row,
    join,
    pop,
    push,
    take_row,
)

ROUND = 1e-9  # tolerance for a sum of fractions to be a whole number of tuples


@lean
def arrive(system: SlottedSystem, state: SlottedState, feed: RootArrivals, counts: SlotCounts, slot: int) -> None:
    """Process the arrivals of a slot, and the predictions for a later one."""
    first, known, slots = feed.first, feed.known, feed.known.shape[1]
    for task in range(len(system.source)):
        if not system.source[task]:
            continue
        lead = feed.lead[task]
        if lead > 0:
            _fall_due(system, state, counts, task, slot)
        foreseen = known[task, slot] if lead > 0 and slot > 0 else 0
        _enter(system, state, task, first[task, slot] + foreseen, first[task, slot + 1], False)
        if lead > 0:
            for later in range(slot + 1 if slot == 0 else slot + lead, min(slot + lead, slots - 1) + 1):
                begin = first[task, later]
                _enter(system, state, task, begin, begin + known[task, later], True)  # (6)


@lean
def _enter(system: SlottedSystem, state: SlottedState, task: int, begin: int, end: int, ahead: bool) -> None:
    """Add roots to the out-queues of their source."""
    rows, free, lists, made, roots, emits = state.rows, state.free, state.lists, state.made, state.roots, system.emits
    tasks, first, last = len(system.source), system.queues[task], system.queues[task + 1]
    number = 3 * tasks + (len(emits) if ahead else 0)
    for root in range(begin, end):
        if not ahead and roots[root, REAL] == 0:
            continue
        for queue in range(first, last):
            made[queue] += emits[queue]
            amount = int(made[queue] + ROUND)
            made[queue] -= amount
            for _ in range(amount):
                row = take_row(rows, free)
                rows[row, ROOT], rows[row, LANE], rows[row, SINCE] = root, NONE, roots[root, DUE]
                push(rows, lists, number + queue, row)
            roots[root, PENDING] += amount
        if roots[root, PENDING] == 0:  # it emits no tuple this time
            roots[root, DONE] = roots[root, DUE]


@lean
def _fall_due(system: SlottedSystem, state: SlottedState, counts: SlotCounts, task: int, slot: int) -> None:
    """Move predicted tuples that are due to the arrived ones (5); drop those that did not arrive."""
    rows, lists, roots = state.rows, state.lists, state.roots
    outbox = 3 * len(system.source)
    ahead = outbox + len(system.emits)
    for queue in range(system.queues[task], system.queues[task + 1]):
        for _ in range(lists[ahead + queue, SIZE]):
            row = lists[ahead + queue, HEAD]
            root = rows[row, ROOT]
            if roots[root, DUE] > slot:
                break
            pop(rows, lists, ahead + queue)
            if roots[root, REAL] != 0:
                push(rows, lists, outbox + queue, row)
            else:
                free_row(rows, state.free, row)
                roots[root, PENDING] -= 1
                counts.dropped[0] += 1


@lean
def record_queues(
    system: SlottedSystem, state: SlottedState, queues: Queues, lanes: Lanes, counts: SlotCounts, slot: int
) -> None:
    """Record the queues at the start of a slot, for decisions and statistics."""
    lists, waiting, arrived, target = state.lists, queues.waiting, queues.arrived, system.target
    tasks, number = len(system.source), len(system.emits)
    queued = 0
    for task in range(tasks):
        queued += lists[task, SIZE]
        for queue in range(system.queues[task], system.queues[task + 1]):
            here = lists[3 * tasks + queue, SIZE]
            waiting[queue] = here + lists[3 * tasks + number + queue, SIZE]  # (3)
            arrived[queue] = here if system.source[task] else 0
    counts.queued_in[slot] = queued
    counts.queued_out[slot] = waiting.sum()
    backlog, flying = lanes.backlog, lanes.flying
    for lane in range(len(target)):
        backlog[lane] = lists[target[lane], SIZE]
        flying[lane] = lists[tasks + target[lane], SIZE]


@lean
def tell_prices(system: SlottedSystem, queues: Queues, lanes: Lanes) -> None:
    """Give every lane its target's price: the cost of a tuple from there on."""
    begin, emits, price, ahead, target = system.queues, system.emits, queues.price, lanes.ahead, system.target
    for lane in range(len(target)):
        total = 0.0
        for queue in range(begin[target[lane]], begin[target[lane] + 1]):
            total += emits[queue] * price[queue]
        ahead[lane] = total


@lean
def send_down(
    rows: Longs, lists: Longs, tasks: int, number: int, queue: int, lane: int, target: int, amount: int, slot: int
) -> int:
    """Send the first tuples of a queue through a lane, arrived ones before predicted ones.

    Returns the sum of the slots that they waited in the queue.
    """
    waited, left = 0, amount
    for ahead in range(2):
        source = 3 * tasks + ahead * number + queue
        count = min(left, lists[source, SIZE])
        if count > 0:
            head = last = row = lists[source, HEAD]
            for _ in range(count):
                waited += max(0, slot - rows[row, SINCE])  # a predicted tuple is not waiting yet
                rows[row, LANE] = lane
                last, row = row, rows[row, AFTER]
            lists[source, HEAD] = row
            lists[source, SIZE] -= count
            join(rows, lists, 2 * tasks + target, head, last, count)
            left -= count
    return waited


@lean
def serve_tasks(system: SlottedSystem, state: SlottedState, lanes: Lanes, counts: SlotCounts, slot: int) -> None:
    """Deliver the tuples of the previous slot, and serve the queue of every task (8)."""
    rows, lists, free, roots, served = state.rows, state.lists, state.free, state.roots, state.served
    service, begin, emits, outstanding = system.service, system.queues, system.emits, lanes.outstanding
    tasks, hops = len(service), 0
    for task in range(tasks):
        append(rows, lists, tasks + task, task)
        append(rows, lists, 2 * tasks + task, tasks + task)
        able = waiting = lists[task, SIZE]
        if able == 0:
            served[task] = 0.0
            continue
        if service[task] < able + 1.0:
            served[task] += service[task]
            able = min(able, int(served[task] + ROUND))
            served[task] -= able
        if able == waiting:
            served[task] = 0.0  # unused service is lost
        first, last = begin[task], begin[task + 1]
        hops += able
        if able == 0:
            continue
        if last == first + 1 and emits[first] == 1.0:
            _pass_on(rows, lists, outstanding, task, 3 * tasks + first, able, slot)
        elif last == first:
            _finish(rows, lists, free, roots, outstanding, task, able, slot)
        else:
            _process(system, state, outstanding, task, able, slot)
    counts.hops[0] += hops


@lean
def _pass_on(rows: Longs, lists: Longs, outstanding: Floats, task: int, outbox: int, amount: int, slot: int) -> None:
    """Serve tuples that each produce one tuple, reusing their rows."""
    head = last = row = lists[task, HEAD]
    for _ in range(amount):
        outstanding[rows[row, LANE]] -= 1.0
        rows[row, SINCE] = slot
        last, row = row, rows[row, AFTER]
    lists[task, HEAD] = row
    lists[task, SIZE] -= amount
    join(rows, lists, outbox, head, last, amount)  # (9)


@lean
def _finish(
    rows: Longs, lists: Longs, free: Longs, roots: Longs, outstanding: Floats, task: int, amount: int, slot: int
) -> None:
    """Serve tuples that produce none."""
    head = last = row = lists[task, HEAD]
    for _ in range(amount):
        outstanding[rows[row, LANE]] -= 1.0
        root = rows[row, ROOT]
        roots[root, PENDING] -= 1
        if roots[root, PENDING] == 0:
            roots[root, DONE] = slot
        last, row = row, rows[row, AFTER]
    lists[task, HEAD] = row
    lists[task, SIZE] -= amount
    rows[last, AFTER] = free[0]
    free[0] = head
    free[1] += amount


@lean
def _process(
    system: SlottedSystem, state: SlottedState, outstanding: Floats, task: int, amount: int, slot: int
) -> None:
    """Serve tuples that each produce any number of tuples."""
    rows, lists, free, roots, made = state.rows, state.lists, state.free, state.roots, state.made
    emits, outbox = system.emits, 3 * len(system.source)
    first, last = system.queues[task], system.queues[task + 1]
    for _ in range(amount):
        row = pop(rows, lists, task)
        root = rows[row, ROOT]
        outstanding[rows[row, LANE]] -= 1.0
        roots[root, PENDING] -= 1
        for queue in range(first, last):
            made[queue] += emits[queue]
            number = int(made[queue] + ROUND)
            made[queue] -= number
            roots[root, PENDING] += number
            for _ in range(number):  # (9)
                new = row
                if row == NONE:
                    new = take_row(rows, free)
                row = NONE
                rows[new, ROOT], rows[new, SINCE] = root, slot
                push(rows, lists, outbox + queue, new)
        if row != NONE:
            free_row(rows, free, row)
        if roots[root, PENDING] == 0:
            roots[root, DONE] = slot


@lean
def max_new_tuples(system: SlottedSystem, state: SlottedState, feed: RootArrivals, slot: int) -> int:
    """Return an upper bound on the number of tuples that a slot can add to the system."""
    lists, first, service, emits = state.lists, feed.first, system.service, system.emits
    tasks, slots, most = len(service), feed.known.shape[1], 0
    for task in range(tasks):
        if system.source[task]:
            last = min(slots - 1, slot + feed.lead[task])
            able = first[task, slot + 1] - first[task, slot]
            able += first[task, last + 1] - first[task, slot if slot == 0 else last]
        else:
            able = lists[task, SIZE] + lists[tasks + task, SIZE]
            if service[task] < able:
                able = int(service[task] + 1.0)
        for queue in range(system.queues[task], system.queues[task + 1]):
            most += int(able * emits[queue] + 1.0)
            if system.copies[queue]:
                here = lists[3 * tasks + queue, SIZE] + lists[3 * tasks + len(emits) + queue, SIZE]
                most += (here + able) * (system.lanes[queue + 1] - system.lanes[queue])
    return most


@lean
def record(system: SlottedSystem, state: SlottedState, counts: SlotCounts, slot: int) -> None:
    """Record the out-queues at the end of a slot: the maximum length, and Jain's index of fairness."""
    lists, outbox, number = state.lists, 3 * len(system.source), len(system.emits)
    total, squares, longest = 0.0, 0.0, 0
    for queue in range(outbox, outbox + number):
        size = lists[queue, SIZE] + lists[queue + number, SIZE]
        longest = max(longest, size)
        total += size
        squares += float(size) * size
    counts.longest[slot] = longest
    counts.fairness[slot] = total * total / (number * squares) if squares > 0.0 else np.nan
