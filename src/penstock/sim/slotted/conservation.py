"""Conservation of tuples: the check, after every slot, that each tuple is in exactly one place."""

import numpy as np

from penstock.model.kernel import kernel
from penstock.model.slotted import SlottedSystem
from penstock.policies.tuples.lanes import Lanes
from penstock.sim.slotted.state import AFTER, HEAD, LANE, NONE, PENDING, ROOT, SIZE, TAIL, SlottedState

FAULTS = (
    "",
    "the length of a list is wrong",
    "a tuple is in two lists",
    "a tuple is in no list",
    "the number of tuples that follow from a root is wrong",
    "the number of outstanding tuples of a lane is wrong",
)


@kernel
def first_fault(system: SlottedSystem, state: SlottedState, lanes: Lanes) -> int:
    """Return 0 if all tuples are accounted for, otherwise the index in FAULTS of what is wrong."""
    rows, lists, tasks = state.rows, state.lists, len(system.source)
    seen = np.zeros(len(rows), dtype=np.bool_)
    following = np.zeros(len(state.roots), dtype=np.int64)
    under_way = np.zeros(len(lanes.outstanding))
    for number in range(len(lists) + 1):
        free = number == len(lists)
        row, last = (state.free[0], NONE) if free else (lists[number, HEAD], NONE)
        for _ in range(state.free[1] if free else lists[number, SIZE]):
            if row == NONE:
                return 1
            if seen[row]:
                return 2
            seen[row] = True
            if not free:
                following[rows[row, ROOT]] += 1
            if number < 3 * tasks:
                under_way[rows[row, LANE]] += 1.0
            last, row = row, rows[row, AFTER]
        if not free and last != NONE and last != lists[number, TAIL]:
            return 1
    if not seen.all():
        return 3
    if (following != state.roots[:, PENDING]).any():
        return 4
    return 5 if (under_way != lanes.outstanding).any() else 0
