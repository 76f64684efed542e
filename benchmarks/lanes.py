"""The equilibrium of credits: rates of the lanes of a placement with saturated sources.

It models how twin and runtime allocate scarce capacity: every lane may have the same number of tuples in flight, and an
element (slot, card, link) serves them in order of arrival, so all lanes that wait for it carry at most the same rate,
1 / wait. A sender with a choice avoids a lane before the lane runs out of credit, because credit comes in quarters of a
window: at level `a` a lane of limit c carries min(a, 1 / (1 / c + 1 / 4a)). A sender without a choice stops when one
lane does; tuples sent to it then wait as before an element. Waits increase at fully used elements and vanish at others,
until a source is blocked. This algorithm is slow and simple: it is the reference for estimates.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.model.kernel import kernel
from penstock.model.slotted import Longs
from penstock.model.taskgraph import Bools, Floats

ROUNDS = 200
TIGHT = 0.97  # used share of an element above which lanes may wait for it


class LaneTable(NamedTuple):
    """The lanes of a placement; T tasks, Q out-queues, E lanes, N elements of the network."""

    cpu: Floats  # [T] core-seconds per tuple
    share_of_source: Floats  # [T] of all source tuples; 0: not a source
    slot: NDArray[Any]  # [T]
    queues: Longs  # [T + 1] the out-queues of task t are queues[t] .. queues[t + 1]
    lanes: Longs  # [Q + 1] the lanes of queue q are lanes[q] .. lanes[q + 1]
    chosen: Bools  # [Q] whether the sender chooses the lane
    amount: Floats  # [Q] tuples per tuple that its task processes
    target: Longs  # [E] task
    share: Floats  # [E] tuples per tuple that the sender processes, split evenly
    bits: Floats  # [E] per tuple
    uses: list[list[int]]  # [E] elements of the network
    network: Floats  # [N] bits per second
    slot_cpu: Floats  # [S]
    slot_machine: Longs  # [S]
    machine_cpu: Floats  # [M]


def settled_rate(table: LaneTable, rounds: int = ROUNDS) -> float:
    """Return the source tuples per second that the placement carries in the equilibrium of credits."""
    start = np.concatenate([[0], np.cumsum([len(used) for used in table.uses])]).astype(np.int64)
    used = np.array([element for one in table.uses for element in one], dtype=np.int64)
    return _settle(
        table.cpu,
        table.share_of_source,
        table.queues,
        table.lanes,
        table.chosen,
        table.amount,
        table.target,
        table.share,
        table.bits,
        table.network,
        table.slot_cpu,
        table.slot_machine,
        table.machine_cpu,
        table.slot.astype(np.int64),
        start,
        used,
        rounds,
    )


@kernel
def _fill(amount: float, limit: Floats, rate: Floats, begin: int, end: int) -> None:
    """Split the output of a queue over its lanes, each within its limit."""
    total = limit[begin:end].sum()
    if amount <= 0.0 or amount >= 0.999 * total:
        for lane in range(begin, end):
            rate[lane] = 0.0 if amount <= 0.0 else limit[lane] * amount / total
        return
    level = amount / (end - begin)
    for _ in range(12):
        carried, slope = 0.0, 0.0
        for lane in range(begin, end):
            one = _carried(level, limit[lane])
            carried += one
            slope += 1.0 if level <= 0.75 * limit[lane] else 0.25 * one * one / (level * level)
        lacking = amount - carried
        if lacking <= 1e-3 * amount:
            break
        level += min(lacking / slope, 3.0 * level)
    carried = 0.0
    for lane in range(begin, end):
        rate[lane] = _carried(level, limit[lane])
        carried += rate[lane]
    for lane in range(begin, end):
        rate[lane] *= amount / carried


@kernel
def _carried(level: float, limit: float) -> float:
    return level if level <= 0.75 * limit else 1.0 / (1.0 / limit + 0.25 / level)


@kernel
def _core_shares(load: Floats, tps: float, slot_machine: Longs, slot_cpu: Floats, cpu: Floats, most: Floats) -> None:
    """Set the capacity of every slot: if slots need more than their machine's cores, all have the same maximum."""
    for slot in range(len(load)):
        most[slot] = slot_cpu[slot]
    for machine in range(len(cpu)):
        mine = (slot_machine == machine) & (load > 0.0)
        if load[mine].sum() * tps <= 0.9 * cpu[machine]:
            continue
        level = cpu[machine] / mine.sum()
        for _ in range(mine.sum()):
            few = mine & (load * tps < 0.98 * level)
            if few.sum() == mine.sum():
                break
            higher = (cpu[machine] - load[few].sum() * tps) / (mine.sum() - few.sum())
            if higher <= level * (1 + 1e-9):
                break
            level = higher
        most[mine] = np.minimum(slot_cpu[mine], level)


@kernel
def _settle(  # noqa: C901
    cpu: Floats,
    source: Floats,
    queues: Longs,
    lanes: Longs,
    chosen: Bools,
    amount: Floats,
    target: Longs,
    share: Floats,
    bits: Floats,
    network: Floats,
    slot_cpu: Floats,
    slot_machine: Longs,
    machine_cpu: Floats,
    slot: Longs,
    start: Longs,
    used: Longs,
    rounds: int,
) -> float:
    """Iterate waits to the equilibrium; rates are per source tuple, waits relative to a source tuple's."""
    tasks, slots, count = len(cpu), len(slot_cpu), len(target)
    machines, wires = len(machine_cpu), len(network)
    slot_wait, wire_wait, task_wait = np.zeros(slots), np.zeros(wires), np.zeros(tasks)
    waits, limit, rate = np.zeros(count), np.full(count, np.inf), np.zeros(count)
    done, room, most = np.zeros(tasks), np.zeros(tasks), np.zeros(slots)
    tps = 0.0
    for turn in range(rounds + 1):
        done[:] = source
        slot_load, machine_load, wire_load = np.zeros(slots), np.zeros(machines), np.zeros(wires)
        slot_top, wire_top, task_top = np.zeros(slots), np.zeros(wires), np.zeros(tasks)
        for task in range(tasks):
            slot_load[slot[task]] += done[task] * cpu[task]
            machine_load[slot_machine[slot[task]]] += done[task] * cpu[task]
            for queue in range(queues[task], queues[task + 1]):
                begin, end = lanes[queue], lanes[queue + 1]
                if chosen[queue] and turn > 0:
                    _fill(done[task] * amount[queue], limit, rate, begin, end)
                else:
                    rate[begin:end] = done[task] * share[begin:end]
                for lane in range(begin, end):
                    to = target[lane]
                    done[to] += rate[lane]
                    task_top[to] = max(task_top[to], rate[lane])
                    slot_top[slot[to]] = max(slot_top[slot[to]], rate[lane])
                    for place in range(start[lane], start[lane + 1]):
                        wire_load[used[place]] += rate[lane] * bits[lane]
                        wire_top[used[place]] = max(wire_top[used[place]], rate[lane])
        tps = min(_least(slot_cpu, slot_load), _least(machine_cpu, machine_load), _least(network, wire_load))
        if turn == rounds or tps == np.inf:
            break
        _core_shares(slot_load, tps, slot_machine, slot_cpu, machine_cpu, most)
        power = 4.0 - 3.0 * turn / rounds
        _raise(slot_wait, slot_top, slot_load * tps / most, power)
        _raise(wire_wait, wire_top, wire_load * tps / network, power)
        for task in range(tasks - 1, -1, -1):  # by which factor a task's load could increase
            least = np.inf
            for queue in range(queues[task], queues[task + 1]):
                if amount[queue] <= 0.0 or done[task] <= 0.0:
                    continue
                total = 0.0
                for lane in range(lanes[queue], lanes[queue + 1]):
                    to = target[lane]
                    waits[lane] = slot_wait[slot[to]]
                    for place in range(start[lane], start[lane + 1]):
                        waits[lane] += wire_wait[used[place]]
                    if not chosen[queue]:
                        least = min(least, 1.0 / (waits[lane] * rate[lane]), room[to])
                    elif room[to] == np.inf:
                        total += 1.0 / waits[lane]
                    else:
                        total += min(1.0 / waits[lane], rate[lane] * room[to])
                if chosen[queue]:
                    least = min(least, total / (done[task] * amount[queue]))
            room[task] = least
        growth = 2.0
        for task in range(tasks):
            if source[task] > 0.0:
                growth = min(growth, room[task])
        slot_wait *= growth
        wire_wait *= growth
        _hold_up(task_wait, task_top, room, growth, power)
        for lane in range(count):
            limit[lane] = 1.0 / (waits[lane] * growth + task_wait[target[lane]])
    return tps


@kernel
def _least(capacity: Floats, load: Floats) -> float:
    rate = np.inf
    for place in range(len(load)):
        if load[place] > 0.0:
            rate = min(rate, capacity[place] / load[place])
    return rate


@kernel
def _raise(wait: Floats, top: Floats, busy: Floats, power: float) -> None:
    """Reduce waits for an element, the more the less it is used; `top` is the highest rate of a lane over it."""
    for place in range(len(wait)):
        if top[place] <= 0.0:
            wait[place] = 0.0
            continue
        if busy[place] > TIGHT:
            wait[place] = max(wait[place], 0.25 / top[place])
        wait[place] = min(wait[place] * min(1.0, busy[place]) ** power, 100.0 / top[place])
        if wait[place] < 1e-3 / top[place]:
            wait[place] = 0.0


@kernel
def _hold_up(wait: Floats, top: Floats, room: Floats, growth: float, power: float) -> None:
    """Increase waits for a blocked task, and reduce them for others."""
    for task in range(len(wait)):
        if top[task] <= 0.0:
            continue
        relative = min(max(room[task] / growth, 0.25), 4.0)
        if relative < 1.0 and wait[task] == 0.0:
            wait[task] = 1.0 / (top[task] * relative)
        else:
            wait[task] *= growth * relative ** (-0.5 * power)
        if relative >= 1.0 and wait[task] * top[task] < 0.05:
            wait[task] = 0.0
