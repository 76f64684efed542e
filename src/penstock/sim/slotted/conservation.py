"""Whether every tuple is in exactly one place: what debug mode checks after every slot."""

from penstock.model.kernel import kernel
from penstock.model.slotted import System
from penstock.policies.tuples.lanes import Lanes
from penstock.sim.slotted.state import AFTER, HEAD, NONE, PENDING, SIZE, State

FAULTS = (
    "",
    "a list is not as long as it says",
    "a tuple is in no list",
    "tuples in the system and tuples that roots wait for differ",
    "tuples at a task and tuples that lanes have outstanding differ",
)


@kernel
def first_fault(system: System, state: State, lanes: Lanes) -> int:
    """Return 0 where all tuples add up, otherwise which of FAULTS is found."""
    rows, lists, tasks = state.rows, state.lists, len(system.source)
    total, inside = 0, 0
    for number in range(len(lists)):
        row, counted = lists[number, HEAD], 0
        for _ in range(lists[number, SIZE]):
            if row == NONE:
                return 1
            counted += 1
            row = rows[row, AFTER]
        total += counted
        inside += counted if number < 3 * tasks else 0
    if total + state.free[1] != len(rows):
        return 2
    pending = 0
    for root in range(len(state.roots)):
        if state.roots[root, PENDING] < 0:
            return 3
        pending += state.roots[root, PENDING]
    if pending != total:
        return 3
    return 4 if lanes.outstanding.sum() != inside else 0
