"""Whether every tuple is in exactly one place: what debug mode checks after every slot."""

from penstock.model.kernel import kernel
from penstock.model.slotted import System
from penstock.policies.tuples.lanes import Lanes
from penstock.sim.slotted.state import NONE, Lists, State, Tuples

LOST, WRONG_SIZE, WRONG_ROOTS, WRONG_LANES = 1, 2, 3, 4


@kernel
def first_fault(system: System, state: State, lanes: Lanes) -> int:
    """Return 0 where all tuples add up, otherwise which rule is broken."""
    total = 0
    for lists in (state.inbox, state.flying, state.landing, state.outbox, state.ahead):
        for number in range(len(lists.size)):
            counted = _length(state.tuples, lists, number)
            if counted != lists.size[number]:
                return WRONG_SIZE
            total += counted
    if total + state.free[1] != len(state.tuples.root):
        return LOST
    pending = 0
    for root in range(len(state.roots.pending)):
        if state.roots.pending[root] < 0:
            return WRONG_ROOTS
        pending += state.roots.pending[root]
    if pending != total:
        return WRONG_ROOTS
    outstanding, inside = 0.0, 0
    for lane in range(len(system.target)):
        outstanding += lanes.outstanding[lane]
    for task in range(len(system.source)):
        inside += state.inbox.size[task] + state.flying.size[task] + state.landing.size[task]
    return WRONG_LANES if outstanding != inside else 0


@kernel
def _length(tuples: Tuples, lists: Lists, number: int) -> int:
    """Count a list by walking it; one that does not end is longer than all tuples."""
    row, counted = lists.head[number], 0
    for _ in range(lists.size[number]):
        if row == NONE:
            break
        counted += 1
        row = tuples.after[row]
    if lists.size[number] > 0 and row != NONE:
        return NONE
    return counted
