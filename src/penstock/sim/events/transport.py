"""The passage of tuples between tasks: out-queues bind them to lanes, lanes send frames, frames pass pipes."""

import numpy as np

from penstock.model.kernel import lean
from penstock.sim.events.chains import behind_in_chain, join_chain
from penstock.sim.events.clocks import set_clock
from penstock.sim.events.layout import Layout
from penstock.sim.events.state import (
    AFTER,
    ARRIVED,
    AWAITED,
    BACKLOG,
    CAME,
    COUNT,
    CREDITS,
    EXIT,
    FIRST_ARRIVAL,
    HEAD,
    LANE,
    LAST,
    NEXT,
    NONE,
    ONE,
    OTHER,
    PIPES,
    SENT,
    SIZE,
    STEP,
    TAIL,
    TURN,
    TwinState,
    note,
    pop,
    push,
)
from penstock.sim.events.system import COPIES, FIRST, KEY, NAMED, TWO_KEYS, TwinSystem


@lean
def enter_pipe(system: TwinSystem, layout: Layout, state: TwinState, frame: int, pipe: int, now: float) -> None:
    """Put a frame into a pipe: it waits for the card, occupies it in proportion to its bytes, and travels."""
    rows, lists = state.rows, state.lists
    card, leaves = layout.card[pipe], now
    if card >= 0:
        size = rows[frame, SIZE] * system.tuple_bytes[system.queue[rows[frame, LANE]]] + system.frame_bytes
        leaves = max(now, state.card[card]) + size * layout.byte_s[pipe]
        state.card[card] = leaves
    if layout.spread[pipe] > 0.0:
        state.times[frame, EXIT] = leaves
        note(state.varied, frame)
        return
    leaves += layout.latency[pipe]
    state.times[frame, EXIT] = leaves
    rows[frame, NEXT] = NONE
    number = system.in_pipes + pipe
    if lists[number, COUNT] == 0:
        lists[number, HEAD] = frame
        set_clock(state.clocks, PIPES + pipe, leaves)
    else:
        rows[lists[number, TAIL], NEXT] = frame
    lists[number, TAIL] = frame
    lists[number, COUNT] += 1


@lean
def leave_pipe(system: TwinSystem, layout: Layout, state: TwinState, pipe: int, now: float) -> None:
    """Move the first frame of a pipe to the next pipe or to its task."""
    rows, times, lists = state.rows, state.times, state.lists
    number = system.in_pipes + pipe
    frame = lists[number, HEAD]
    following = rows[frame, NEXT]
    lists[number, HEAD] = following
    lists[number, COUNT] -= 1
    set_clock(state.clocks, PIPES + pipe, times[following, EXIT] if following >= 0 else np.inf)
    onward = layout.pipes[rows[frame, STEP] + 1]
    if onward >= 0:
        rows[frame, STEP] += 1
        enter_pipe(system, layout, state, frame, onward, now)
        return
    lane = rows[frame, LANE]
    task, awaited = system.target[lane], state.lanes[lane, AWAITED]
    if awaited >= 0 and awaited != frame:  # others of its lane are still on the old path
        rows[frame, STEP] = CAME
        return
    for _ in range(len(rows)):
        _deliver(state, task, frame, now)
        if awaited < 0:
            break
        frame = behind_in_chain(state, lane, frame)
        if frame < 0:
            break
    note(state.kicked, layout.slot[task])


@lean
def _deliver(state: TwinState, task: int, frame: int, now: float) -> None:
    """Append the tuples of a frame to the in-queue of their task."""
    rows, times, lists = state.rows, state.times, state.lists
    sent, row = times[frame, SENT], frame
    for _ in range(rows[frame, SIZE]):
        times[row, SENT] = sent
        times[row, ARRIVED] = now
        row = rows[row, AFTER]
    if lists[task, COUNT] == 0:
        lists[task, HEAD] = frame
        state.task[task, FIRST_ARRIVAL] = now
    else:
        rows[lists[task, TAIL], AFTER] = frame
    lists[task, TAIL] = rows[frame, LAST]
    lists[task, COUNT] += rows[frame, SIZE]


@lean
def bind(system: TwinSystem, layout: Layout, state: TwinState, queue: int, rng: np.random.Generator) -> None:
    """Bind the tuples of an out-queue to lanes, up to the first one that has to wait."""
    rows, lists = state.rows, state.lists
    unbound = system.tasks + queue
    for _ in range(lists[unbound, COUNT]):
        lane = _lane(system, layout, state, queue, rng)
        if lane < 0:
            break
        row = pop(rows, lists, unbound)
        rows[row, LANE] = lane
        number = system.in_lanes + lane
        if lists[number, COUNT] == 0:
            note(state.touched, lane)
        push(rows, lists, number, row)


@lean
def _lane(system: TwinSystem, layout: Layout, state: TwinState, queue: int, rng: np.random.Generator) -> int:
    """Return the lane of the first tuple of an out-queue, NONE if no possible lane has capacity."""
    kind, first = system.bound[queue], system.lanes[queue]
    width = system.lanes[queue + 1] - first
    if kind == KEY:  # keys are uniformly distributed
        return int(first + int(rng.random() * width))
    if kind == FIRST:
        return int(first)
    if kind == COPIES:
        return int(state.rows[state.lists[system.tasks + queue, HEAD], LANE])
    turn = state.queues[queue, TURN]
    if kind == NAMED:
        state.queues[queue, TURN] = turn + 1 if turn + 1 < width else 0
        return int(first + turn)
    if kind == TWO_KEYS:
        return _of_two(system, state, queue, rng)
    begin, width = layout.choice[queue, 0], layout.choice[queue, 1] - layout.choice[queue, 0]
    for step in range(width):
        place = turn + step
        if place >= width:
            place -= width
        if place >= width:  # fewer tasks are near than at the time of this turn
            place = step
        lane = layout.near[begin + place]
        if _room(system, state, lane) > 0:
            state.queues[queue, TURN] = place + 1 if place + 1 < width else 0
            return int(lane)
    return NONE


@lean
def _of_two(system: TwinSystem, state: TwinState, queue: int, rng: np.random.Generator) -> int:
    """Return the less loaded of the two lanes of a random key, among those with capacity."""
    first = system.lanes[queue]
    width = system.lanes[queue + 1] - first
    if state.queues[queue, ONE] < 0:
        one = int(rng.random() * width)
        other = int(rng.random() * (width - 1))
        state.queues[queue, ONE] = first + one
        state.queues[queue, OTHER] = first + (other + 1 if other >= one and width > 1 else other)
    lane, other = state.queues[queue, ONE], state.queues[queue, OTHER]
    if _room(system, state, other) > _room(system, state, lane):
        lane = other
    if _room(system, state, lane) <= 0:
        return NONE
    state.queues[queue, ONE] = NONE
    return int(lane)


@lean
def _room(system: TwinSystem, state: TwinState, lane: int) -> int:
    """Return how many more tuples a lane accepts now: with equal windows, the less loaded one accepts more."""
    return int(state.lanes[lane, CREDITS] - state.lists[system.in_lanes + lane, COUNT])


@lean
def send_frame(system: TwinSystem, layout: Layout, state: TwinState, lane: int, now: float) -> None:
    """Send the tuples that wait in a lane as one frame, as far as credit allows."""
    rows, lists = state.rows, state.lists
    number = system.in_lanes + lane
    waiting = lists[number, COUNT]
    amount = min(waiting, state.lanes[lane, CREDITS])
    if amount <= 0:
        return
    frame = lists[number, HEAD]
    last = lists[number, TAIL]
    if amount < waiting:
        last = frame
        for _ in range(amount - 1):
            last = rows[last, AFTER]
        lists[number, HEAD] = rows[last, AFTER]
        rows[last, AFTER] = NONE
    lists[number, COUNT] = waiting - amount
    state.lanes[lane, CREDITS] -= amount
    state.queues[system.queue[lane], BACKLOG] -= amount
    step = layout.path[lane]
    rows[frame, LAST] = last
    rows[frame, SIZE] = amount
    rows[frame, STEP] = step
    state.times[frame, SENT] = now
    join_chain(state, lane, frame)
    enter_pipe(system, layout, state, frame, layout.pipes[step], now)


@lean
def vary(system: TwinSystem, layout: Layout, state: TwinState, rng: np.random.Generator) -> None:
    """Send the frames whose latency varies."""
    for place in range(1, state.varied[0] + 1):
        _travel(system, layout, state, state.varied[place], rng)


@lean
def _travel(system: TwinSystem, layout: Layout, state: TwinState, frame: int, rng: np.random.Generator) -> None:
    """Draw the travel time of a frame once its card is free, and insert it into its pipe by departure time.

    The time is lognormal. A frame that would overtake another of its lane leaves together with it.
    """
    rows, times, lists, before = state.rows, state.times, state.lists, state.before
    pipe = layout.pipes[rows[frame, STEP]]
    spread = layout.spread[pipe]
    factor = np.exp(spread * (rng.standard_normal() - 0.5 * spread))  # its mean is 1
    leaves = times[frame, EXIT] + layout.latency[pipe] * factor
    number, passed = system.in_pipes + pipe, 0
    count, ahead, behind = lists[number, COUNT], lists[number, TAIL], NONE
    for _ in range(count):
        if times[ahead, EXIT] <= leaves:
            break
        if rows[ahead, LANE] == rows[frame, LANE]:
            leaves = times[ahead, EXIT]
            break
        behind, ahead = ahead, before[ahead]
        passed += 1
    times[frame, EXIT] = leaves
    rows[frame, NEXT] = behind
    before[frame] = ahead
    if passed == count:
        lists[number, HEAD] = frame
        set_clock(state.clocks, PIPES + pipe, leaves)
    else:
        rows[ahead, NEXT] = frame
    if passed == 0:
        lists[number, TAIL] = frame
    else:
        before[behind] = frame
    lists[number, COUNT] = count + 1
