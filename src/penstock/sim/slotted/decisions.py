"""The decisions of a slot: how much each link's queues may send, and the target of each task's tuples."""

from typing import NamedTuple

import numpy as np

from penstock.model.kernel import kernel, lean
from penstock.model.slotted import Longs, SlottedSystem
from penstock.model.taskgraph import Floats
from penstock.policies.tuples.kinds import FIELDS, FIFO, PARTIAL_KEY
from penstock.policies.tuples.lanes import Lanes, Queues, queue_at, rotate
from penstock.policies.tuples.routing import choose_keyed, route_lean, tell_price
from penstock.policies.tuples.sending import send
from penstock.sim.slotted.state import (
    AFTER,
    HEAD,
    LANE,
    PENDING,
    ROOT,
    SINCE,
    SIZE,
    SlotCounts,
    SlottedState,
    push,
    take_row,
)
from penstock.sim.slotted.steps import send_down


class SharedLinks(NamedTuple):
    """The out-queues that share a link, and the state of the sending policy; K links."""

    begin: Longs  # [K + 1] the queues of link k are members[begin[k]] .. members[begin[k + 1]]
    members: Longs  # [Q]
    memory: Floats  # [K, STATE]


@kernel
def allow(
    system: SlottedSystem,
    state: SlottedState,
    waiting: Longs,
    links: SharedLinks,
    kind: int,
    settings: Floats,
    slot: int,
    rng: np.random.Generator,
    allowed: Longs,
) -> None:
    """Allocate every link's capacity to its queues; `allowed` [Q] is set."""
    for link in range(len(links.begin) - 1):
        own = links.members[links.begin[link] : links.begin[link + 1]]
        if len(own) == 0:
            continue
        memory = links.memory[link]
        if kind == FIFO:
            _allow_oldest(system, state, waiting, own, system.capacity[link], memory, rng, allowed)
            continue
        backlog, given = waiting[own], np.zeros(len(own), np.int64)
        enough = max(1, backlog.sum()) * len(own)  # enough even for a policy that wastes turns
        budget = min(system.capacity[link], enough)
        send(kind, settings, float(slot), budget, backlog, np.zeros(len(own)), memory, rng, given)
        allowed[own] = given


@kernel
def _allow_oldest(
    system: SlottedSystem,
    state: SlottedState,
    waiting: Longs,
    own: Longs,
    capacity: int,
    memory: Floats,
    rng: np.random.Generator,
    allowed: Longs,
) -> None:
    """Send the tuples of a link's queues in the order of their arrival, one decision per tuple."""
    rows, lists = state.rows, state.lists
    outbox, number = 3 * len(system.source), len(system.emits)
    backlog, oldest, heads = waiting[own], np.zeros(len(own)), np.zeros(len(own), np.int64)
    for place in range(len(own)):
        allowed[own[place]] = 0
        ahead = 0 if lists[outbox + own[place], SIZE] > 0 else number
        heads[place] = lists[outbox + ahead + own[place], HEAD]
    for _ in range(min(capacity, backlog.sum())):
        given = np.zeros(len(own), np.int64)
        for place in range(len(own)):
            if backlog[place] > 0:
                oldest[place] = rows[heads[place], SINCE]
        if send(FIFO, memory, 0.0, 1, backlog, oldest, memory, rng, given) == 0:
            break
        place = int(np.argmax(given))
        queue = own[place]
        backlog[place] -= 1
        allowed[queue] += 1
        if allowed[queue] == lists[outbox + queue, SIZE]:
            heads[place] = lists[outbox + number + queue, HEAD]
        else:
            heads[place] = rows[heads[place], AFTER]


@lean
def decide(
    system: SlottedSystem,
    state: SlottedState,
    queues: Queues,
    lanes: Lanes,
    counts: SlotCounts,
    kind: int,
    settings: Floats,
    keys: Floats,
    slot: int,
    rng: np.random.Generator,
    sent: Longs,
) -> None:
    """Choose the targets of every task's tuples, and send them."""
    rows, lists, target, cost, begin = state.rows, state.lists, system.target, system.cost, system.lanes
    copies, keyed = system.copies, system.keyed
    outstanding, waited, left, first_queue = lanes.outstanding, counts.waited, counts.left, system.queues
    tasks, number, by_key = len(system.source), len(system.emits), kind in (FIELDS, PARTIAL_KEY)
    spent = 0.0
    for task in range(tasks):
        first, last = first_queue[task], first_queue[task + 1]
        limit, special = system.limit[task], by_key
        for queue in range(first, last):
            special |= copies[queue] or keyed[queue]
        if special:
            _decide_mixed(system, state, queues, lanes, counts, kind, settings, keys, task, slot, rng, sent)
            continue
        if first == last:
            continue
        for lane in range(begin[first], begin[last]):
            sent[lane] = 0
        route_lean(kind, settings, queues, lanes, first, last, limit, rng, sent)
        for queue in range(first, last):
            for lane in range(begin[queue], begin[queue + 1]):
                amount = sent[lane]
                if amount > 0:
                    waited[queue] += send_down(rows, lists, tasks, number, queue, lane, target[lane], amount, slot)
                    left[queue] += amount
                    outstanding[lane] += amount
                    spent += amount * cost[lane]  # (11)
    counts.cost[slot] += spent


@lean
def _decide_mixed(
    system: SlottedSystem,
    state: SlottedState,
    queues: Queues,
    lanes: Lanes,
    counts: SlotCounts,
    kind: int,
    settings: Floats,
    keys: Floats,
    task: int,
    slot: int,
    rng: np.random.Generator,
    sent: Longs,
) -> None:
    """Decide for a task, some of whose streams leave the policy no choice."""
    limit, by_key, short = system.limit[task], kind in (FIELDS, PARTIAL_KEY), False
    first, last = system.queues[task], system.queues[task + 1]
    for place in range(last - first):
        queue = queue_at(queues, first, last, place)
        begin, end = system.lanes[queue], system.lanes[queue + 1]
        wanted = min(queues.waiting[queue], queues.allowed[queue])
        short |= wanted > limit
        amount = min(limit, wanted)
        sent[begin:end] = 0
        if system.copies[queue] or system.keyed[queue]:
            tell_price(kind, settings, queues, lanes, queue, system.copies[queue])
        if system.copies[queue]:
            _copy(system, state, lanes, counts, queue, amount, slot)
            limit -= amount
        elif system.keyed[queue] or by_key:
            rule = kind
            if system.keyed[queue]:
                rule = PARTIAL_KEY if system.paired[queue] else FIELDS
            limit -= _by_key(system, state, lanes, counts, rule, keys, queue, amount, slot, rng, sent)
        else:
            limit -= route_lean(kind, settings, queues, lanes, queue, queue + 1, limit, rng, sent)
            for lane in range(begin, end):
                _send(system, state, lanes, counts, queue, lane, sent[lane], slot)
    if short:
        rotate(queues, first, last)


@lean
def _send(
    system: SlottedSystem,
    state: SlottedState,
    lanes: Lanes,
    counts: SlotCounts,
    queue: int,
    lane: int,
    amount: int,
    slot: int,
) -> None:
    """Send tuples through a lane, and count them."""
    tasks, number, target = len(system.source), len(system.emits), system.target[lane]
    counts.waited[queue] += send_down(state.rows, state.lists, tasks, number, queue, lane, target, amount, slot)
    counts.left[queue] += amount
    counts.cost[slot] += amount * system.cost[lane]
    lanes.outstanding[lane] += amount


@lean
def _copy(
    system: SlottedSystem, state: SlottedState, lanes: Lanes, counts: SlotCounts, queue: int, amount: int, slot: int
) -> None:
    """Send tuples through every lane of a queue."""
    rows, lists, free, roots = state.rows, state.lists, state.free, state.roots
    tasks, number = len(system.source), len(system.emits)
    for _ in range(amount):
        ahead = 0 if lists[3 * tasks + queue, SIZE] > 0 else number
        root = rows[lists[3 * tasks + ahead + queue, HEAD], ROOT]
        for lane in range(system.lanes[queue] + 1, system.lanes[queue + 1]):
            row = take_row(rows, free)
            rows[row, ROOT], rows[row, LANE] = root, lane
            roots[root, PENDING] += 1
            lanes.outstanding[lane] += 1.0
            counts.cost[slot] += system.cost[lane]
            push(rows, lists, 2 * tasks + system.target[lane], row)
        _send(system, state, lanes, counts, queue, system.lanes[queue], 1, slot)


@lean
def _by_key(
    system: SlottedSystem,
    state: SlottedState,
    lanes: Lanes,
    counts: SlotCounts,
    kind: int,
    keys: Floats,
    queue: int,
    amount: int,
    slot: int,
    rng: np.random.Generator,
    sent: Longs,
) -> int:
    """Send tuples by their keys; return their number. keys: [keys] cumulative probabilities."""
    begin, width = system.lanes[queue], system.lanes[queue + 1] - system.lanes[queue]
    went = 0
    for _ in range(amount):
        key = min(int(np.searchsorted(keys, rng.random(), side="right")), len(keys) - 1)
        own = key * 40503 % 65521 % width
        other = (own + 1 + key * 30011 % 65519 % max(1, width - 1)) % width
        lane = choose_keyed(kind, lanes, begin + own, begin + other, sent)
        if lane < 0:
            break
        _send(system, state, lanes, counts, queue, lane, 1, slot)  # outstanding at once, not only sent
        went += 1
    return went
