"""One slot, step by step, as POTUS §3 has it: arrivals, decisions on what stands at the beginning, then service.

Tuples that are sent in a slot reach the in-queue in the next and may be served there, but a decision of that slot does
not see them in Q_in (8); what follows from them can be sent one slot later (9).
"""

import numpy as np

from penstock.model.kernel import kernel
from penstock.model.slotted import Longs, System
from penstock.model.taskgraph import Floats
from penstock.policies.tuples.kinds import FIELDS, FIFO, PARTIAL_KEY
from penstock.policies.tuples.lanes import Lanes, Queues
from penstock.policies.tuples.routing import route, route_keyed
from penstock.policies.tuples.sending import send
from penstock.sim.slotted.state import NONE, Counts, Feed, State, append, pop, push, release, take

ROUND = 1e-9  # what a sum of fractions may lack of a whole tuple


@kernel
def arrive(system: System, state: State, feed: Feed, counts: Counts, slot: int) -> None:
    """Let the tuples of a slot arrive, and those predicted for a later one be known."""
    slots = feed.known.shape[1]
    for task in range(len(system.source)):
        if not system.source[task]:
            continue
        lead = feed.lead[task]
        if lead > 0:
            _fall_due(system, state, counts, task, slot)
        foreseen = feed.known[task, slot] if lead > 0 and slot > 0 else 0
        _enter(system, state, task, feed.first[task, slot] + foreseen, feed.first[task, slot + 1], slot, False)
        if lead == 0:
            continue
        for later in range(slot + 1 if slot == 0 else slot + lead, min(slot + lead, slots - 1) + 1):
            begin = feed.first[task, later]
            _enter(system, state, task, begin, begin + feed.known[task, later], slot, True)  # (6)


@kernel
def _enter(system: System, state: State, task: int, begin: int, end: int, slot: int, ahead: bool) -> None:
    """Put roots into the out-queues of their source."""
    for root in range(begin, end):
        if not ahead and not state.roots.real[root]:
            continue
        for queue in range(system.queues[task], system.queues[task + 1]):
            state.made[queue] += system.emits[queue]
            number = int(state.made[queue] + ROUND)
            state.made[queue] -= number
            for _ in range(number):
                row = take(state.tuples, state.free)
                state.tuples.root[row], state.tuples.lane[row], state.tuples.since[row] = root, NONE, slot
                state.roots.pending[root] += 1
                push(state.tuples, state.ahead if ahead else state.outbox, queue, row)
        if state.roots.pending[root] == 0:  # it makes nothing this time
            state.roots.done[root] = state.roots.due[root]


@kernel
def _fall_due(system: System, state: State, counts: Counts, task: int, slot: int) -> None:
    """Move predicted tuples that are due to those that have arrived (5); drop those that did not come."""
    for queue in range(system.queues[task], system.queues[task + 1]):
        for _ in range(state.ahead.size[queue]):
            row = state.ahead.head[queue]
            root = state.tuples.root[row]
            if state.roots.due[root] > slot:
                break
            pop(state.tuples, state.ahead, queue)
            if state.roots.real[root]:
                state.tuples.since[row] = slot
                push(state.tuples, state.outbox, queue, row)
            else:
                release(state.tuples, state.free, row)
                state.roots.pending[root] -= 1
                counts.dropped[0] += 1


@kernel
def observe(system: System, state: State, queues: Queues, lanes: Lanes, counts: Counts, slot: int) -> None:
    """Note the queues at the beginning of a slot, for the decisions and the record."""
    for task in range(len(system.source)):
        counts.queued_in[slot] += state.inbox.size[task]
    for queue in range(len(system.emits)):
        arrived = state.outbox.size[queue]
        queues.waiting[queue] = arrived + state.ahead.size[queue]  # (3)
        counts.queued_out[slot] += queues.waiting[queue]
    for task in range(len(system.source)):
        for queue in range(system.queues[task], system.queues[task + 1]):
            queues.arrived[queue] = state.outbox.size[queue] if system.source[task] else 0
    for lane in range(len(system.target)):
        target = system.target[lane]
        lanes.backlog[lane] = state.inbox.size[target]
        lanes.flying[lane] = state.flying.size[target]


@kernel
def tell_prices(system: System, queues: Queues, lanes: Lanes) -> None:
    """Let every lane know what its target says that a tuple there will cost from there on."""
    for lane in range(len(system.target)):
        target = system.target[lane]
        price = 0.0
        for queue in range(system.queues[target], system.queues[target + 1]):
            price += system.emits[queue] * queues.price[queue]
        lanes.ahead[lane] = price


@kernel
def allow(
    system: System,
    state: State,
    queues: Queues,
    links: Longs,
    members: Longs,
    kind: int,
    settings: Floats,
    memory: Floats,
    slot: int,
    rng: np.random.Generator,
    allowed: Longs,
) -> None:
    """Share every link's capacity out over its queues.

    links: [K + 1], members: the queues of link k are members[links[k]] .. members[links[k + 1]].
    memory: [K, 3], what the rule remembers. allowed: [Q], set.
    """
    for link in range(len(links) - 1):
        own = members[links[link] : links[link + 1]]
        capacity = system.capacity[link]
        if len(own) == 0:
            continue
        backlog = queues.waiting[own]
        if capacity >= backlog.sum() and kind == FIFO:
            allowed[own] = backlog
            continue
        oldest, given = np.zeros(len(own)), np.zeros(len(own), dtype=np.int64)
        if kind != FIFO:
            send(kind, settings, float(slot), capacity, backlog, oldest, memory[link], rng, given)
            allowed[own] = given
            continue
        allowed[own] = 0
        rows = np.empty(len(own), dtype=np.int64)
        for place in range(len(own)):
            rows[place] = (
                state.outbox.head[own[place]] if state.outbox.size[own[place]] else state.ahead.head[own[place]]
            )
        for _ in range(capacity):
            given[:] = 0
            for place in range(len(own)):
                oldest[place] = state.tuples.since[rows[place]] if backlog[place] > 0 else 0.0
            if send(kind, settings, float(slot), 1, backlog, oldest, memory[link], rng, given) == 0:
                break
            place = int(np.argmax(given))
            backlog[place] -= 1
            allowed[own[place]] += 1
            rows[place] = _following(state, own[place], rows[place], allowed[own[place]])


@kernel
def _following(state: State, queue: int, row: int, gone: int) -> int:
    """Return the tuple behind one in a queue, which a source continues with what is predicted."""
    if gone == state.outbox.size[queue]:
        return state.ahead.head[queue]
    return state.tuples.after[row]


@kernel
def decide(
    system: System,
    state: State,
    queues: Queues,
    lanes: Lanes,
    counts: Counts,
    kind: int,
    settings: Floats,
    keys: Floats,
    allowed: Longs,
    slot: int,
    rng: np.random.Generator,
    sent: Longs,
) -> None:
    """Decide where the tuples of every task go, and send them."""
    by_key = kind in (FIELDS, PARTIAL_KEY)
    for task in range(len(system.source)):
        first, last = system.queues[task], system.queues[task + 1]
        limit, free = system.limit[task], True
        for queue in range(first, last):
            queues.waiting[queue] = min(queues.waiting[queue], allowed[queue])
            queues.arrived[queue] = min(queues.arrived[queue], allowed[queue])
            free &= not (system.copies[queue] or system.keyed[queue] or by_key)
        if free:
            _route(system, state, queues, lanes, counts, kind, settings, first, last, limit, slot, rng, sent)
            continue
        for queue in range(first, last):
            if system.copies[queue]:
                limit -= _copy(system, state, lanes, counts, queue, min(limit, queues.waiting[queue]), slot)
            elif system.keyed[queue] or by_key:
                rule = kind if by_key and not system.keyed[queue] else PARTIAL_KEY if system.paired[queue] else FIELDS
                amount = min(limit, queues.waiting[queue])
                limit -= _by_key(system, state, lanes, counts, rule, keys, queue, amount, slot, rng, sent)
            else:
                limit -= _route(
                    system, state, queues, lanes, counts, kind, settings, queue, queue + 1, limit, slot, rng, sent
                )


@kernel
def _route(
    system: System,
    state: State,
    queues: Queues,
    lanes: Lanes,
    counts: Counts,
    kind: int,
    settings: Floats,
    first: int,
    last: int,
    limit: int,
    slot: int,
    rng: np.random.Generator,
    sent: Longs,
) -> int:
    """Decide where the tuples of some queues of one task go, and send them; return how many went."""
    for lane in range(system.lanes[first], system.lanes[last]):
        sent[lane] = 0
    went = route(kind, settings, queues, lanes, first, last, limit, rng, sent)
    for queue in range(first, last):
        for lane in range(system.lanes[queue], system.lanes[queue + 1]):
            for _ in range(sent[lane]):
                _send(system, state, lanes, counts, queue, lane, slot)
    return went


@kernel
def _send(system: System, state: State, lanes: Lanes, counts: Counts, queue: int, lane: int, slot: int) -> None:
    """Send the first tuple of a queue down a lane; what has arrived goes before what is predicted."""
    source = state.outbox if state.outbox.size[queue] else state.ahead
    row = pop(state.tuples, source, queue)
    counts.waited[queue] += slot - state.tuples.since[row]
    counts.left[queue] += 1
    counts.cost[slot] += system.cost[lane]  # (11)
    state.tuples.lane[row] = lane
    lanes.outstanding[lane] += 1.0
    push(state.tuples, state.landing, system.target[lane], row)


@kernel
def _copy(system: System, state: State, lanes: Lanes, counts: Counts, queue: int, amount: int, slot: int) -> int:
    """Send tuples down every lane of a queue; return how many left the queue."""
    begin, end = system.lanes[queue], system.lanes[queue + 1]
    for _ in range(amount):
        source = state.outbox if state.outbox.size[queue] else state.ahead
        root = state.tuples.root[source.head[queue]]
        for lane in range(begin + 1, end):
            row = take(state.tuples, state.free)
            state.tuples.root[row], state.tuples.lane[row] = root, lane
            state.roots.pending[root] += 1
            lanes.outstanding[lane] += 1.0
            counts.cost[slot] += system.cost[lane]
            push(state.tuples, state.landing, system.target[lane], row)
        _send(system, state, lanes, counts, queue, begin, slot)
    return amount


@kernel
def _by_key(
    system: System,
    state: State,
    lanes: Lanes,
    counts: Counts,
    kind: int,
    keys: Floats,
    queue: int,
    amount: int,
    slot: int,
    rng: np.random.Generator,
    sent: Longs,
) -> int:
    """Send tuples where their keys say; return how many went. keys: [keys] how likely each is, running total."""
    begin, end = system.lanes[queue], system.lanes[queue + 1]
    own, other, chosen = np.empty(amount, np.int64), np.empty(amount, np.int64), np.empty(amount, np.int64)
    for place in range(amount):
        key = np.searchsorted(keys, rng.random(), side="right")
        own[place] = key * 40503 % 65521 % (end - begin)
        other[place] = (own[place] + 1 + key * 30011 % 65519 % max(1, end - begin - 1)) % (end - begin)
    for lane in range(begin, end):
        sent[lane] = 0
    went = route_keyed(kind, lanes, begin, own, other, amount, chosen, sent)
    for place in range(went):
        _send(system, state, lanes, counts, queue, chosen[place], slot)
    return went


@kernel
def serve(system: System, state: State, lanes: Lanes, counts: Counts, slot: int) -> None:
    """Let what was sent in the last slot land, and every task serve its queue (8)."""
    tuples, roots = state.tuples, state.roots
    for task in range(len(system.source)):
        append(tuples, state.flying, state.inbox, task)
        append(tuples, state.landing, state.flying, task)
        if system.source[task] or state.inbox.size[task] == 0:
            state.served[task] = 0.0
            continue
        able = state.inbox.size[task]
        if system.service[task] < able + 1.0:
            state.served[task] += system.service[task]
            able = min(able, int(state.served[task] + ROUND))
            state.served[task] -= able
        first, last = system.queues[task], system.queues[task + 1]
        for _ in range(able):
            row = pop(tuples, state.inbox, task)
            root = tuples.root[row]
            lanes.outstanding[tuples.lane[row]] -= 1.0
            pending = roots.pending[root] - 1
            for queue in range(first, last):
                state.made[queue] += system.emits[queue]
                number = int(state.made[queue] + ROUND)
                state.made[queue] -= number
                pending += number
                for _ in range(number):  # (9)
                    new = row if row != NONE else take(tuples, state.free)
                    row = NONE
                    tuples.root[new], tuples.since[new] = root, slot
                    push(tuples, state.outbox, queue, new)
            if row != NONE:
                release(tuples, state.free, row)
            roots.pending[root] = pending
            if pending == 0:
                roots.done[root] = slot
        counts.hops[0] += able
        if state.inbox.size[task] == 0:
            state.served[task] = 0.0


@kernel
def needed(system: System, state: State, feed: Feed, slot: int) -> int:
    """Return how many more tuples a slot can bring into the system, at most."""
    slots, most = feed.known.shape[1], 0
    for task in range(len(system.source)):
        if system.source[task]:
            last = min(slots - 1, slot + feed.lead[task])
            able = feed.first[task, slot + 1] - feed.first[task, slot]
            able += feed.first[task, last + 1] - feed.first[task, slot if slot == 0 else last]
        else:
            able = state.inbox.size[task] + state.flying.size[task]
            able = int(min(float(able), system.service[task] + 1.0))
        for queue in range(system.queues[task], system.queues[task + 1]):
            most += int(able * system.emits[queue] + 1.0)
            if system.copies[queue]:
                waiting = state.outbox.size[queue] + state.ahead.size[queue] + able
                most += waiting * (system.lanes[queue + 1] - system.lanes[queue])
    return most


@kernel
def record(system: System, state: State, counts: Counts, slot: int) -> None:
    """Note the out-queues at the end of a slot: the longest, and Jain's index of fairness."""
    total, squares = 0.0, 0.0
    for queue in range(len(system.emits)):
        size = state.outbox.size[queue] + state.ahead.size[queue]
        counts.longest[slot] = max(counts.longest[slot], size)
        total += size
        squares += float(size) * size
    counts.fairness[slot] = total * total / (len(system.emits) * squares) if squares > 0.0 else np.nan
