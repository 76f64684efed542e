"""Service: a slot takes the tuple that has waited longest, and the busy slots of a machine share its cores."""

import numpy as np

from penstock.model.kernel import lean
from penstock.sim.events.clocks import set_clock
from penstock.sim.events.layout import Layout
from penstock.sim.events.state import (
    AFTER,
    ALIVE,
    ARRIVED,
    ATTAINED,
    BACKLOG,
    BLOCKED,
    BLOCKED_SINCE,
    COUNT,
    EMITTED,
    FIRST_ARRIVAL,
    LANE,
    NONE,
    PIPES,
    SERVING,
    SINCE,
    STARTED,
    TAKEN,
    UNTIL,
    USED,
    WAITED,
    TwinState,
    pop,
)
from penstock.sim.events.system import CONSTANT, EXPONENTIAL, GAMMA, TwinSystem


@lean
def start_service(
    system: TwinSystem, layout: Layout, state: TwinState, slot: int, now: float, rng: np.random.Generator
) -> int:
    """Let an idle slot take the tuple of its tasks that has waited longest; return its machine, or NONE."""
    if state.serving[slot, 0] >= 0:
        return NONE
    task = _longest_waiting(system, layout, state, slot, now)
    if task < 0:
        return NONE
    rows, of = state.rows, state.task
    row = pop(rows, state.lists, task)
    of[task, FIRST_ARRIVAL] = state.times[rows[row, AFTER], ARRIVED] if state.lists[task, COUNT] > 0 else np.inf
    of[task, WAITED] += now - state.times[row, ARRIVED]
    if of[task, BLOCKED_SINCE] < np.inf:
        of[task, BLOCKED] += now - of[task, BLOCKED_SINCE]
        of[task, BLOCKED_SINCE] = np.inf
    state.tasks[task, STARTED] += 1
    state.tasks[task, SERVING] = 1
    work = (
        draw_service_time(system.drawn[task], system.service[task, 0], system.service[task, 1], rng)
        + layout.extra[task]
    )
    if system.source[task]:
        state.tasks[task, ALIVE] += 1
    else:
        lane = rows[row, LANE]
        state.lanes[lane, TAKEN] += 1
        state.transfer[lane] += now - state.times[row, EMITTED]
        if layout.afar[lane]:
            work += system.receive_s[system.queue[lane]]
    state.serving[slot, 0] = row
    state.serving[slot, 1] = task
    state.started[slot] = now
    machine = layout.machine[slot]
    _submit(layout, state, machine, slot, work, now)
    return int(machine)


@lean
def _longest_waiting(system: TwinSystem, layout: Layout, state: TwinState, slot: int, now: float) -> int:
    """Return the task of a slot whose first tuple arrived first, among those not suspended; NONE if there is none."""
    chosen, earliest = NONE, np.inf
    for place in range(layout.begin[slot], layout.begin[slot + 1]):
        task = layout.member[place]
        arrived = state.task[task, FIRST_ARRIVAL]
        if arrived >= earliest or state.tasks[task, SERVING] != 0 or state.task[task, UNTIL] > now:
            continue
        full = system.source[task] and state.tasks[task, ALIVE] >= system.in_flight
        for queue in range(system.queues[task], system.queues[task + 1]):
            full = full or state.queues[queue, BACKLOG] >= system.full
        if full:
            state.task[task, BLOCKED_SINCE] = min(state.task[task, BLOCKED_SINCE], now)
        else:
            chosen, earliest = task, arrived
    return int(chosen)


@lean
def draw_service_time(kind: int, scale: float, shape: float, rng: np.random.Generator) -> float:
    """Draw a service time."""
    if kind == CONSTANT:
        return scale
    if kind == EXPONENTIAL:
        return scale * rng.standard_exponential()
    if kind == GAMMA:
        return scale * rng.standard_gamma(shape)
    return float(scale * np.exp(shape * rng.standard_normal()))


@lean
def _submit(layout: Layout, state: TwinState, machine: int, slot: int, work: float, now: float) -> None:
    """Start a service on a machine's cores, which all services in progress share evenly."""
    of, ends, order = state.machine, state.ends, state.order
    busy, first = state.busy[machine], layout.first[machine]
    attained = 0.0  # reset whenever possible, so that it stays small and exact
    if busy > 0:
        passed = now - of[machine, SINCE]
        grown = of[machine, ATTAINED] + passed * service_rate(layout, machine, busy)
        attained = min(grown, ends[first + busy - 1])  # rounding must not carry it past the next completion
        of[machine, USED] += passed * min(float(busy), layout.cores[machine])
    of[machine, ATTAINED] = attained
    of[machine, SINCE] = now
    end, place = attained + work, first + busy
    for _ in range(busy):
        if ends[place - 1] > end:
            break
        ends[place], order[place] = ends[place - 1], order[place - 1]
        place -= 1
    ends[place], order[place] = end, slot
    state.busy[machine] = busy + 1


@lean
def service_rate(layout: Layout, machine: int, busy: int) -> float:
    """Return the speed of each of `busy` simultaneous services."""
    return float(layout.speed[machine] * min(1.0, layout.cores[machine] / busy))


@lean
def set_machine(layout: Layout, state: TwinState, machine: int) -> None:
    """Set the time at which the next service of a machine ends, given that it is up to date."""
    busy, leaf = state.busy[machine], PIPES + len(layout.card) + machine
    ends = np.inf
    if busy > 0:
        left = state.ends[layout.first[machine] + busy - 1] - state.machine[machine, ATTAINED]
        ends = state.machine[machine, SINCE] + left / service_rate(layout, machine, busy)
    set_clock(state.clocks, leaf, ends)
