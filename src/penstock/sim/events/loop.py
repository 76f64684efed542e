"""The event loop: the next event, then its immediate consequences."""

import numpy as np

from penstock.model.kernel import kernel, lean
from penstock.sim.events import service, steps, transport
from penstock.sim.events.clocks import first_clock
from penstock.sim.events.layout import Layout
from penstock.sim.events.state import (
    DONE_RECORDS,
    DUE,
    HOP_RECORDS,
    LATENCIES,
    NONE,
    PIPES,
    ROOT_RECORDS,
    ROOTS_LEFT,
    ROWS_LEFT,
    Dues,
    TwinState,
)
from penstock.sim.events.system import TwinSystem

EVENTS = 20_000_000  # maximum per call, so that an interrupt is noticed

THERE, MORE, ROWS, ROOTS, RECORDS, TIMES = range(6)
"""Why the loop ended: all events up to the time are done; events are left; there is no capacity for tuples, for roots,
for records, for latencies."""


@kernel
def run_events(
    system: TwinSystem, layout: Layout, state: TwinState, dues: Dues, until: float, rng: np.random.Generator
) -> int:
    """Handle all events up to a time; return why it ended, before an event if not all are handled."""
    clocks = state.clocks
    machines = PIPES + len(layout.card)
    touched, dealt, kicked, varied = state.touched, state.dealt, state.kicked, state.varied
    for _ in range(EVENTS):
        now = clocks[1]
        if now > until:
            return THERE
        lacking = _lacking(system, state)
        if lacking != THERE:
            return lacking
        touched[0] = 0
        dealt[0] = 0
        kicked[0] = 0
        varied[0] = 0
        ended, leaf = NONE, first_clock(clocks)
        if leaf >= machines:
            ended = leaf - machines
            steps.end_service(system, layout, state, ended, now)
        elif leaf >= PIPES:
            transport.leave_pipe(system, layout, state, leaf - PIPES, now)
        elif leaf == DUE:
            steps.fall_due(layout, state, dues, now)
        else:
            steps.sound_alarm(system, layout, state, now)
        for place in range(1, dealt[0] + 1):
            transport.bind(system, layout, state, dealt[place], rng)
        for place in range(1, touched[0] + 1):
            transport.send_frame(system, layout, state, touched[place], now)
        transport.vary(system, layout, state, rng)
        for place in range(1, kicked[0] + 1):
            started = service.start_service(system, layout, state, kicked[place], now, rng)
            if started >= 0 and started != ended:
                service.set_machine(layout, state, started)
        if ended >= 0:
            service.set_machine(layout, state, ended)
    return MORE


@lean
def _lacking(system: TwinSystem, state: TwinState) -> int:
    """Return the capacity that the next event may exhaust; THERE if all suffice."""
    count = state.counts
    if count[ROWS_LEFT] <= system.most:
        return ROWS
    if count[ROOTS_LEFT] == 0:
        return ROOTS
    if count[LATENCIES] == len(state.latencies):
        return TIMES
    if max(count[HOP_RECORDS], count[ROOT_RECORDS], count[DONE_RECORDS]) == len(state.hop_times):
        return RECORDS
    return THERE
