"""The maximum rate of a placement when sources are saturated and senders with a choice avoid slow receivers.

A lane (a channel from task to task) has a window of tuples in flight, and the elements on it serve tuples in order of
arrival. So a lane that always waits carries window / wait, and its sender passes the remaining tuples to lanes with
capacity. Waits grow at saturated elements and at tasks that their receivers block; elsewhere they vanish. The kernels
find the waits at which no element is overloaded and a task is blocked. If its senders can avoid it, they also find the
waits at which a source is blocked; the larger rate is the maximum. The tasks of a component on the same slot are
equivalent and form a class. Rates are per source tuple, waits are in windows.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.estimate.bottleneck import RateNet, Settled, Ways, bottleneck_rates, empty_ways, link_rate, placed_gain
from penstock.model.kernel import kernel, lean, stage
from penstock.model.taskgraph import FORWARD, GLOBAL, Bools, Floats, Ints

PAIRS = 512  # maximum, which takes milliseconds; with more pairs, streams are assumed to split evenly
ROUNDS = 40
SETTLED, TIMES = 1e-3, 2  # relative change of the rate, consecutive rounds
STILL = 0.05  # relative change of all waits in a round below which they may have settled
EXACT = 1.005  # an even split is returned if no split could carry more than this multiple of it
TIGHT = 0.97  # utilisation of an element from which lanes may wait for it
POWER = 1.5  # exponent of an element's utilisation in the change of its wait per round
EASE = 0.25  # factor of POWER in the change of the wait for a blocked task
WINDOW = 0.875  # fraction of a window in flight: credit is returned in quarters, so an eighth is missing on average
TOGETHER = 0.25  # overlap of the busy times of a machine's slots: 0 is independent, 1 is nested
FIRST, SHORTEST, LONGEST = 0.5, 1e-3, 100.0  # waits, relative to the time that the busiest lane takes for a window
NEARLY = 1.02  # maximum factor by which a blocked task could increase its rate
MIXES = 4  # rounds to determine the busy times of a machine's slots


class Lanes(NamedTuple):
    """The lanes of a placement; C components, G classes, Q out-queues of classes, P pairs of classes."""

    first: Ints  # [C + 1] first class of each component
    task: Ints  # [G] one of its tasks
    slot: Ints  # [G]
    size: Floats  # [G] number of tasks
    cpu: Floats  # [G] core-seconds per tuple
    source: Floats  # [G] fraction of all source tuples, per task
    sender: Ints  # [Q] class
    start: Ints  # [Q + 1] the pairs of queue q are start[q] .. start[q + 1]
    chosen: Bools  # [Q] whether the sender chooses the receiver
    amount: Floats  # [Q] tuples per tuple processed by its task
    width: Floats  # [Q] number of receiving tasks
    bits: Floats  # [Q] per tuple
    target: Ints  # [P] class
    begin: Ints  # [P] its wires
    end: Ints  # [P]


class Waits(NamedTuple):
    """The variables of a round."""

    rate: Floats  # [P] tuples from task to task
    level: Floats  # [Q] rate of a lane without a wait, relative to an even split
    wait: Floats  # [P] windows from sending to being processed
    room: Floats  # [G] factor by which a task could increase its output
    done: Floats  # [G] tuples that a task processes
    held: Floats  # [G] windows that lanes wait for a blocked task
    needed: Floats  # [G] the same, if it blocks a source
    highest: Floats  # [G] maximum rate of a lane to it
    tight: Bools  # [G] whether it blocks a source
    slot: Floats  # [S] windows that lanes wait for a slot
    slot_load: Floats  # [S] core-seconds
    slot_busy: Floats  # [S] seconds
    slot_highest: Floats  # [S]
    wire: Floats  # [N]
    wire_load: Floats  # [N] bits
    wire_busy: Floats  # [N] seconds
    wire_highest: Floats  # [N]
    share: Floats  # [S] fraction of the time that a slot is busy
    chance: Floats  # [S + 1] probability that this number of other slots is busy


@kernel
def room_for(net: RateNet, ways: Ways) -> tuple[Lanes, Waits]:
    """Allocate arrays for the lanes of any placement, and for their waits."""
    tasks, slots, wires = len(net.cpu), len(net.slot_cpu), len(ways.capacity)
    queues, pairs = 0, 0
    for flow in range(len(net.bits)):
        senders = net.first[net.flow_source[flow] + 1] - net.first[net.flow_source[flow]]
        receivers = net.first[net.flow_target[flow] + 1] - net.first[net.flow_target[flow]]
        queues += senders
        pairs += senders * (receivers if net.heard[flow] != FORWARD and net.heard[flow] != GLOBAL else 1)
    pairs = min(pairs, PAIRS)
    lanes = Lanes(
        np.empty(len(net.first), dtype=np.int32),
        np.empty(tasks, dtype=np.int32),
        np.empty(tasks, dtype=np.int32),
        np.empty(tasks),
        np.empty(tasks),
        np.empty(tasks),
        np.empty(queues, dtype=np.int32),
        np.empty(queues + 1, dtype=np.int32),
        np.empty(queues, dtype=np.bool_),
        np.empty(queues),
        np.empty(queues),
        np.empty(queues),
        np.empty(pairs, dtype=np.int32),
        np.empty(pairs, dtype=np.int32),
        np.empty(pairs, dtype=np.int32),
    )
    waits = Waits(
        np.empty(pairs),
        np.empty(queues),
        np.empty(pairs),
        np.empty(tasks),
        np.empty(tasks),
        np.empty(tasks),
        np.empty(tasks),
        np.empty(tasks),
        np.empty(tasks, dtype=np.bool_),
        np.empty(slots),
        np.empty(slots),
        np.empty(slots),
        np.empty(slots),
        np.empty(wires),
        np.empty(wires),
        np.empty(wires),
        np.empty(wires),
        np.empty(slots),
        np.empty(slots + 1),
    )
    return lanes, waits


@lean
def _tasks(net: RateNet, component: int) -> int:
    """Return the number of tasks of a component."""
    return int(net.first[component + 1] - net.first[component])


@lean
def _set_way(net: RateNet, ways: Ways, lanes: Lanes, flow: int, sender: int, pair: int) -> None:
    """Set the wires of a pair."""
    here = net.slot_machine[lanes.slot[sender]]
    there = net.slot_machine[lanes.slot[lanes.target[pair]]]
    number = flow if net.routed else 0
    wired = here != there and len(ways.capacity) > 0
    lanes.begin[pair] = ways.start[number, here, there] if wired else 0
    lanes.end[pair] = ways.end[number, here, there] if wired else 0


@stage
def group_tasks(net: RateNet, placed: Ints, lanes: Lanes, waits: Waits) -> None:
    """Put the tasks of every component into classes."""
    number = 0
    for slot in range(len(net.slot_cpu)):
        waits.share[slot] = -1.0  # used here for the last class found on the slot
    for component in range(len(net.sink)):
        lanes.first[component] = number
        for task in range(net.first[component], net.first[component + 1]):
            slot = placed[task]
            known = -1 if net.single[component] else int(waits.share[slot])
            if known < lanes.first[component]:
                known = number
                number += 1
                waits.share[slot] = known
                lanes.task[known] = task
                lanes.slot[known] = slot
                lanes.size[known] = 0.0
                lanes.cpu[known] = net.cpu[task]
                lanes.source[known] = net.gain[task] if net.source[task] else 0.0
            lanes.size[known] += 1.0
    lanes.first[len(net.sink)] = number


@stage
def join_classes(net: RateNet, ways: Ways, lanes: Lanes) -> int:
    """List the queues and pairs of a placement's classes; return the number of queues, -1 if the pairs are too many."""
    queue, pair = 0, 0
    for flow in net.order:
        first, end = lanes.first[net.flow_source[flow]], lanes.first[net.flow_source[flow] + 1]
        to, to_end = lanes.first[net.flow_target[flow]], lanes.first[net.flow_target[flow] + 1]
        heard = net.heard[flow]
        for sender in range(first, end):
            process = net.slot_process[lanes.slot[sender]]
            low, high, near = to, to_end, False
            if heard == FORWARD:
                low = to + sender - first
                high = low + 1
            elif heard == GLOBAL:
                high = to + 1
            if net.local[flow]:
                for receiver in range(low, high):
                    near = near or net.slot_process[lanes.slot[receiver]] == process
            lanes.sender[queue], lanes.start[queue] = sender, pair
            width = 0.0
            for receiver in range(low, high):
                if near and net.slot_process[lanes.slot[receiver]] != process:
                    continue
                if pair == len(lanes.target):
                    return -1
                lanes.target[pair] = receiver
                _set_way(net, ways, lanes, flow, sender, pair)
                width += lanes.size[receiver]
                pair += 1
            lanes.width[queue] = width
            heard_by = 1 if heard in (FORWARD, GLOBAL) else _tasks(net, net.flow_target[flow])
            lanes.amount[queue] = net.share[flow] * heard_by
            lanes.chosen[queue] = net.chosen[flow] and width > 1.0
            lanes.bits[queue] = net.bits[flow]
            queue += 1
    lanes.start[queue] = pair
    return queue


@stage
def send(ways: Ways, lanes: Lanes, queues: int, evenly: bool, waits: Waits) -> None:
    """Split the output of every class over its lanes, and sum the loads of elements per source tuple."""
    for task_class in range(lanes.first[-1]):
        waits.done[task_class] = lanes.source[task_class]
        waits.highest[task_class] = 0.0
    for slot in range(len(waits.slot)):
        waits.slot_load[slot] = waits.slot_highest[slot] = 0.0
    for wire in range(len(waits.wire)):
        waits.wire_load[wire] = waits.wire_highest[wire] = 0.0
    for queue in range(queues):
        sender = lanes.sender[queue]
        amount = waits.done[sender] * lanes.amount[queue]
        if evenly or not lanes.chosen[queue] or amount == 0.0:
            for pair in range(lanes.start[queue], lanes.start[queue + 1]):
                waits.rate[pair] = amount / lanes.width[queue]
        else:
            _choose(lanes, queue, amount, waits)
        for pair in range(lanes.start[queue], lanes.start[queue + 1]):
            receiver, rate = lanes.target[pair], waits.rate[pair]
            slot, tuples = lanes.slot[receiver], rate * lanes.size[sender]
            waits.done[receiver] += tuples
            waits.highest[receiver] = max(waits.highest[receiver], rate)
            waits.slot_highest[slot] = max(waits.slot_highest[slot], rate)
            for place in range(lanes.begin[pair], lanes.end[pair]):
                wire = ways.wire[place]
                waits.wire_load[wire] += tuples * lanes.size[receiver] * lanes.bits[queue]
                waits.wire_highest[wire] = max(waits.wire_highest[wire], rate)
    for task_class in range(lanes.first[-1]):
        work = waits.done[task_class] * lanes.cpu[task_class] * lanes.size[task_class]
        waits.slot_load[lanes.slot[task_class]] += work


@lean
def _choose(lanes: Lanes, queue: int, amount: float, waits: Waits) -> None:
    """Split an amount evenly over lanes, except that a lane with a wait gets less as it approaches its limit."""
    start, end = lanes.start[queue], lanes.start[queue + 1]
    limit, waiting = 0.0, False
    for pair in range(start, end):
        limit += lanes.size[lanes.target[pair]] / waits.wait[pair]
        waiting = waiting or waits.wait[pair] > 0.0
    even = amount / lanes.width[queue]
    full = amount >= 0.98 * WINDOW * limit
    level = even
    if waiting and not full:
        level = even * max(waits.level[queue], 1.0)
        for _ in range(30):
            carried, slope = 0.0, 0.0
            for pair in range(start, end):
                part, size = _of_level(level, waits.wait[pair]), lanes.size[lanes.target[pair]]
                carried += size * part
                slope += size * part * part * part * part * part
            lacking = amount / level - carried
            if abs(lacking) <= 1e-3 * carried:
                break
            level *= 1.0 + max(min(lacking / slope, 3.0), -0.5)
        waits.level[queue] = level / even
    carried = 0.0
    for pair in range(start, end):
        wait = waits.wait[pair]
        waits.rate[pair] = 1.0 / wait if full else level * _of_level(level, wait)
        carried += lanes.size[lanes.target[pair]] * waits.rate[pair]
    for pair in range(start, end):
        waits.rate[pair] *= amount / carried


@lean
def _of_level(level: float, wait: float) -> float:
    """Return the fraction of a level that a lane carries: 1 without a wait; at a high level, a window per wait."""
    relative = level * wait * (1.0 / WINDOW)
    if relative < 0.15:  # the fraction exceeds 0.9998
        return 1.0
    square = relative * relative
    return float(1.0 / np.sqrt(np.sqrt(1.0 + square * square)))


@stage
def use_up(net: RateNet, ways: Ways, waits: Waits) -> float:
    """Set the busy times of elements per source tuple, and return the maximum."""
    longest = 0.0
    for wire in range(len(waits.wire)):
        waits.wire_busy[wire] = waits.wire_load[wire] / ways.capacity[wire]
        longest = max(longest, waits.wire_busy[wire])
    for slot in range(len(waits.slot)):
        waits.slot_busy[slot] = waits.slot_load[slot] / net.slot_cpu[slot]
        longest = max(longest, waits.slot_busy[slot])
    for machine in range(len(net.machine_cpu)):
        total = 0.0
        for slot in range(net.slot_first[machine], net.slot_first[machine + 1]):
            total += waits.slot_load[slot]
        longest = max(longest, total / net.machine_cpu[machine])
    for machine in range(len(net.machine_cpu)):
        longest = max(longest, _share_cores(net, machine, longest, waits))
    return longest


@lean
def _share_cores(net: RateNet, machine: int, longest: float, waits: Waits) -> float:
    """Set the busy times of the slots of a machine with fewer cores than busy slots; return the maximum.

    While more slots are busy than there are cores, each is slower. The fraction of time in which this happens depends
    on the overlap of their busy times, which is assumed to be partial.
    """
    start, end = net.slot_first[machine], net.slot_first[machine + 1]
    cores = net.machine_cpu[machine] / net.slot_cpu[start]
    busy, most = 0, start
    for slot in range(start, end):
        busy += waits.slot_busy[slot] > 0.0
        most = slot if waits.slot_busy[slot] > waits.slot_busy[most] else most
    if busy <= cores:
        return float(waits.slot_busy[most])
    work = waits.slot_busy[most]
    for slot in range(start, end):
        waits.share[slot] = waits.slot_busy[slot] / work
    nested = _nest(start, end, busy, cores, waits)
    if nested <= TIGHT * longest:
        return nested
    for _ in range(MIXES):
        fastest = _speed(start, end, most, cores, waits)
        for slot in range(start, end):
            if slot != most and waits.share[slot] > 0.0:
                work_of = waits.slot_load[slot] / waits.slot_load[most]
                waits.share[slot] = min(1.0, work_of * fastest / _speed(start, end, slot, cores, waits))
    total = 0.0
    for slot in range(start, end):
        total += waits.slot_load[slot] / net.machine_cpu[machine]
    alone = max(total, work / _speed(start, end, most, cores, waits))
    for slot in range(start, end):
        waits.slot_busy[slot] = TOGETHER * waits.slot_busy[slot] + (1.0 - TOGETHER) * alone * waits.share[slot]
    return float(waits.slot_busy[most])


@lean
def _nest(start: int, end: int, busy: int, cores: float, waits: Waits) -> float:
    """Set the busy times of slots if slots with less work are busy only while those with more work are."""
    work, taken = 0.0, 0.0
    for _ in range(busy):
        lowest, others = np.inf, 0
        for slot in range(start, end):
            if waits.share[slot] > work:
                others += 1
                lowest = min(lowest, waits.share[slot])
        if others == 0:
            break
        taken += (lowest - work) * max(1.0, others / cores)
        for slot in range(start, end):
            if waits.share[slot] == lowest:
                waits.slot_busy[slot] *= taken / lowest
        work = lowest
    longest = 0.0
    for slot in range(start, end):
        longest = max(longest, waits.slot_busy[slot])
    return longest


@lean
def _speed(start: int, end: int, which: int, cores: float, waits: Waits) -> float:
    """Return the fraction of a core that a slot gets while it is busy, if the other slots are busy independently."""
    waits.chance[0] = 1.0
    others = 0
    for slot in range(start, end):
        share = waits.share[slot]
        if slot == which or share <= 0.0:
            continue
        others += 1
        waits.chance[others] = 0.0
        for number in range(others, 0, -1):
            waits.chance[number] += share * (waits.chance[number - 1] - waits.chance[number])
        waits.chance[0] *= 1.0 - share
    speed = 0.0
    for number in range(others + 1):
        speed += waits.chance[number] * min(1.0, cores / (number + 1))
    return float(speed)


@stage
def avoids(net: RateNet, ways: Ways, lanes: Lanes, queues: int, longest: float, waits: Waits) -> bool:
    """Return whether another split of the streams could reduce the load of the limiting slot or wire significantly."""
    limiting, wired = -1, False
    for slot in range(len(waits.slot)):
        if waits.slot_busy[slot] >= longest:
            limiting = slot
    for wire in range(len(waits.wire)):
        if waits.wire_busy[wire] >= longest:
            limiting, wired = wire, True
    if limiting < 0 or (not wired and waits.slot_load[limiting] < 0.999 * longest * net.slot_cpu[limiting]):
        return True  # the limit is the cores of a machine, which its slots share
    load = waits.wire_load[limiting] if wired else waits.slot_load[limiting]
    least = waits.room  # minimum load per tuple that a class processes
    for task_class in range(lanes.first[-1]):
        least[task_class] = lanes.cpu[task_class] if not wired and lanes.slot[task_class] == limiting else 0.0
    for queue in range(queues - 1, -1, -1):
        lowest, total = np.inf, 0.0
        for pair in range(lanes.start[queue], lanes.start[queue + 1]):
            each = least[lanes.target[pair]]
            if wired:
                for place in range(lanes.begin[pair], lanes.end[pair]):
                    each += lanes.bits[queue] if ways.wire[place] == limiting else 0.0
            lowest = min(lowest, each)
            total += each * lanes.size[lanes.target[pair]]
        each = lowest if lanes.chosen[queue] else total / lanes.width[queue]
        least[lanes.sender[queue]] += lanes.amount[queue] * each
    unavoidable = 0.0
    for task_class in range(lanes.first[-1]):
        unavoidable += lanes.source[task_class] * lanes.size[task_class] * least[task_class]
    return bool(unavoidable * EXACT < load)


@stage
def wait_longer(tps: float, busy: Floats, highest: Floats, wait: Floats) -> None:
    """Update the waits for elements: low utilisation shortens them; `highest`: the maximum rates of their lanes."""
    for place in range(len(wait)):
        if highest[place] <= 0.0:
            wait[place] = 0.0
            continue
        share = busy[place] * tps
        if wait[place] == 0.0:
            if share <= TIGHT:
                continue
            wait[place] = FIRST / highest[place]
        if share < 1.0:
            wait[place] *= share**POWER
        wait[place] = min(wait[place], LONGEST / highest[place])
        if wait[place] < SHORTEST / highest[place]:
            wait[place] = 0.0


@stage
def make_room(ways: Ways, lanes: Lanes, queues: int, blocking: bool, waits: Waits) -> float:
    """Set the factors by which classes could increase their output; return the minimum over sources.

    Unless `blocking`, tasks do not block each other, and the minimum is over all classes. A full lane to a blocked task
    carries a window per wait, but a lane with less can grow to that.
    """
    for task_class in range(lanes.first[-1]):
        waits.room[task_class] = np.inf
    for queue in range(queues - 1, -1, -1):
        sender = lanes.sender[queue]
        amount, total = waits.done[sender] * lanes.amount[queue], 0.0
        for pair in range(lanes.start[queue], lanes.start[queue + 1]):
            receiver = lanes.target[pair]
            wait = waits.slot[lanes.slot[receiver]]
            for place in range(lanes.begin[pair], lanes.end[pair]):
                wait += waits.wire[ways.wire[place]]
            waits.wait[pair] = wait
            if amount <= 0.0:
                continue
            limit = full = 1.0 / wait
            if blocking and waits.room[receiver] < np.inf:
                full = 1.0 / (wait + waits.held[receiver])
                limit = min(limit, waits.rate[pair] * waits.room[receiver])
            if lanes.chosen[queue]:
                total += lanes.size[receiver] * min(limit, full)
            else:
                if waits.held[receiver] > 0.0:
                    limit = max(limit, full)
                waits.room[sender] = min(waits.room[sender], limit / waits.rate[pair])
        if amount > 0.0 and lanes.chosen[queue]:
            waits.room[sender] = min(waits.room[sender], total / amount)
    growth = 2.0
    for task_class in range(lanes.first[-1]):
        if lanes.source[task_class] > 0.0 or not blocking:
            growth = min(growth, waits.room[task_class])
    return growth


@lean
def _follow(lanes: Lanes, queue: int, growth: float, waits: Waits) -> None:
    """If a queue blocks a source, find the waits for its receivers that this requires."""
    sender = lanes.sender[queue]
    amount, total = waits.done[sender] * lanes.amount[queue], 0.0
    if not waits.tight[sender] or amount <= 0.0:
        return
    if lanes.chosen[queue]:
        for pair in range(lanes.start[queue], lanes.start[queue + 1]):
            limit, room = 1.0 / waits.wait[pair], waits.room[lanes.target[pair]]
            total += lanes.size[lanes.target[pair]] * (min(limit, waits.rate[pair] * room) if room < np.inf else limit)
        if total > NEARLY * growth * amount:
            return
    for pair in range(lanes.start[queue], lanes.start[queue + 1]):
        receiver = lanes.target[pair]
        needed = 1.0 / waits.rate[pair] - waits.wait[pair] * growth
        if waits.room[receiver] <= NEARLY * growth and waits.rate[pair] > 0.0 and needed > 0.0:
            waits.needed[receiver] = min(waits.needed[receiver], needed) if waits.tight[receiver] else needed
            waits.tight[receiver] = True


@stage
def hold_up(lanes: Lanes, queues: int, growth: float, blocking: bool, waits: Waits) -> None:
    """Set the waits for tasks that their receivers block; they are longer if such a task blocks a source."""
    for slot in range(len(waits.slot)):
        waits.slot[slot] *= growth
    for wire in range(len(waits.wire)):
        waits.wire[wire] *= growth
    for task_class in range(lanes.first[-1]):
        relative = min(max(waits.room[task_class] / growth, 0.25), 4.0)
        waits.tight[task_class] = lanes.source[task_class] > 0.0 and relative <= NEARLY
        if waits.highest[task_class] <= 0.0 or not blocking:
            continue
        if relative < 1.0 and waits.held[task_class] == 0.0:
            waits.held[task_class] = 1.0 / (waits.highest[task_class] * relative)
        elif waits.held[task_class] > 0.0:
            waits.held[task_class] *= growth * relative ** (-EASE * POWER)
        if relative >= 1.0 and waits.held[task_class] * waits.highest[task_class] < 0.05:
            waits.held[task_class] = 0.0
    for queue in range(queues if blocking else 0):
        _follow(lanes, queue, growth, waits)
    for task_class in range(lanes.first[-1]):
        if waits.tight[task_class] and lanes.source[task_class] == 0.0:
            waits.held[task_class] = waits.needed[task_class]
    for pair in range(lanes.start[queues]):
        waits.wait[pair] = waits.wait[pair] * growth + waits.held[lanes.target[pair]]


@stage
def resource_rate(net: RateNet, lanes: Lanes, waits: Waits) -> float:
    """Return the maximum rate that resources other than cpu and network allow."""
    rate = np.inf
    for resource in range(net.capacity.shape[1]):
        for machine in range(len(net.machine_cpu)):
            load = 0.0
            for number in range(lanes.first[-1]):
                if net.slot_machine[lanes.slot[number]] == machine:
                    load += net.needs[lanes.task[number], resource] * waits.done[number] * lanes.size[number]
            if load > 0.0:
                rate = min(rate, net.capacity[machine, resource] / load)
    return rate


@stage
def evades(lanes: Lanes, queues: int, waits: Waits) -> bool:
    """Return whether a sender with a choice may avoid a task that its receivers block."""
    for task_class in range(lanes.first[-1]):
        waits.tight[task_class] = waits.room[task_class] <= NEARLY
    for queue in range(queues - 1, -1, -1):
        start, end = lanes.start[queue], lanes.start[queue + 1]
        for pair in range(start, end):
            if waits.tight[lanes.target[pair]] and waits.rate[pair] > 0.0:
                if lanes.chosen[queue] and end > start + 1:
                    return True
                waits.tight[lanes.sender[queue]] = True
    return False


@stage
def balance(net: RateNet, ways: Ways, lanes: Lanes, queues: int, tps: float, blocking: bool, waits: Waits) -> float:
    """Repeat rounds until the rate stays the same; return it."""
    same = 0
    for _ in range(ROUNDS):
        wait_longer(tps, waits.slot_busy, waits.slot_highest, waits.slot)
        wait_longer(tps, waits.wire_busy, waits.wire_highest, waits.wire)
        growth = make_room(ways, lanes, queues, blocking, waits)
        hold_up(lanes, queues, growth, blocking, waits)
        send(ways, lanes, queues, False, waits)
        before, tps = tps, 1.0 / use_up(net, ways, waits)
        same = same + 1 if abs(tps - before) <= SETTLED * before and abs(growth - 1.0) <= STILL else 0
        if same >= (TIMES if blocking else 1):
            break
    return tps


@stage
def split_evenly(net: RateNet, ways: Ways, lanes: Lanes, queues: int, waits: Waits) -> float:
    """Remove all waits, and split streams evenly; return the maximum busy time."""
    for number in range(lanes.first[-1]):
        waits.held[number] = 0.0
    for slot in range(len(waits.slot)):
        waits.slot[slot] = 0.0
    for wire in range(len(waits.wire)):
        waits.wire[wire] = 0.0
    for queue in range(queues):
        waits.level[queue] = 1.0
    send(ways, lanes, queues, True, waits)
    return use_up(net, ways, waits)


@stage
def settle(net: RateNet, ways: Ways, lanes: Lanes, queues: int, waits: Waits) -> float:
    """Return the rate at which waits settle, at least that of an even split; `waits` has the loads per source tuple.

    Queues are empty at first, so a rate is sustained if it is before tasks block each other, or after that.
    """
    longest = split_evenly(net, ways, lanes, queues, waits)
    other = resource_rate(net, lanes, waits)
    if longest <= 0.0 or other * longest <= 1.0 or not avoids(net, ways, lanes, queues, longest, waits):
        return float(min(other, 1.0 / longest))
    even = 1.0 / longest
    tps = balance(net, ways, lanes, queues, even, False, waits)
    if evades(lanes, queues, waits):
        before, tps = tps, balance(net, ways, lanes, queues, tps, True, waits)
        if tps < before:
            split_evenly(net, ways, lanes, queues, waits)
            tps = balance(net, ways, lanes, queues, even, False, waits)
    tps = min(tps, resource_rate(net, lanes, waits))
    return tps if tps >= even else 1.0 / split_evenly(net, ways, lanes, queues, waits)


@kernel
def saturated_rates(net: RateNet, placed: NDArray[np.int32]) -> Floats:
    """Return the rates of placements [B, T]; 0 if a hop has no path."""
    rates = np.zeros(len(placed))
    ways = empty_ways(net)
    lanes, waits = room_for(net, ways)
    for row in range(len(placed)):
        if net.routed and link_rate(net, placed[row], placed_gain(net, placed[row]), ways) <= 0.0:
            continue
        group_tasks(net, placed[row], lanes, waits)
        queues = join_classes(net, ways, lanes)
        if queues < 0:
            rates[row] = bottleneck_rates(net, placed[row : row + 1], True)[0]
        else:
            rates[row] = settle(net, ways, lanes, queues, waits)
    return rates


@kernel
def settled(net: RateNet, ways: Ways, placed: NDArray[np.int32]) -> Settled:
    """Return the rate and loads of a placement [T] over given paths; the rate is -1 if there are too many pairs."""
    lanes, waits = room_for(net, ways)
    group_tasks(net, placed, lanes, waits)
    queues = join_classes(net, ways, lanes)
    if queues < 0:
        return Settled(-1.0, waits.done, waits.slot_busy, waits.wire_load)
    rate = settle(net, ways, lanes, queues, waits)
    gain = np.empty(len(placed))
    for component in range(len(net.sink)):
        for number in range(lanes.first[component], lanes.first[component + 1]):
            for task in range(lanes.task[number], net.first[component + 1]):
                alone = net.single[component] and task != lanes.task[number]
                if placed[task] == lanes.slot[number] and not alone:
                    gain[task] = waits.done[number]
    return Settled(rate, gain, waits.slot_busy, waits.wire_load)
