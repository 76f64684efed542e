"""The offline optimum of Hone's problem (eqs. (1)–(4)), exact: the reference for sending policies on one link.

In a slot tuples arrive, then one is sent, possibly one that has just arrived; a backlog is the number left at the end
of the slot, B_i(t+1) = max{B_i(t) + a_i(t) - x_i(t), 0} (1), and the maximum is taken over the ends of all slots,
including the last. For comparison, a sending policy is measured at the same times.

Whether the backlogs can stay within b is a scheduling problem with deadlines: the j-th tuple of a queue must be sent by
the end of the slot in which its (j + b)-th arrives, and not before it has arrived. Such jobs of one slot each are
feasible if earliest deadline first is; b is found by bisection.
"""

import numpy as np
from numpy.typing import NDArray

from penstock.model.errors import InvalidInput
from penstock.model.kernel import kernel

Longs = NDArray[np.int64]


def offline_optimum(arrivals: NDArray[np.integer]) -> int:
    """Return the minimum possible maximum backlog if one tuple is sent per slot and all arrivals are known.

    arrivals: tuples that arrive at each queue in each slot. [slots, N]
    """
    counts = np.asarray(arrivals)
    if counts.ndim != 2 or counts.dtype.kind not in "iu":
        raise InvalidInput("arrivals", f"expected whole numbers [slots, queues], got {counts.dtype} {counts.shape}")
    if (counts < 0).any():
        raise InvalidInput("arrivals", f"expected numbers >= 0, got {counts.min()}")
    return int(least_backlog(np.cumsum(counts, axis=0, dtype=np.int64)))


@kernel
def least_backlog(arrived: Longs) -> int:
    """Return the minimum threshold that backlogs can satisfy, given the cumulative arrivals by slot."""
    low, high = 0, 0
    for queue in range(arrived.shape[1]):
        for slot in range(arrived.shape[0]):
            high = max(high, arrived[slot, queue])
    for _ in range(64):  # one halving each
        if low < high:
            middle = (low + high) // 2
            if stays_within(arrived, middle):
                high = middle
            else:
                low = middle + 1
    return low


@kernel
def stays_within(arrived: Longs, threshold: int) -> bool:
    """Return whether earliest deadline first, and therefore any schedule, keeps every backlog within a threshold."""
    slots, queues = arrived.shape
    sent = np.zeros(queues, dtype=np.int64)
    due = np.zeros(queues, dtype=np.int64)  # the slot by whose end the next tuple must be sent; none: `slots`
    for slot in range(slots):
        first = -1
        for queue in range(queues):
            for later in range(due[queue], slots + 1):
                due[queue] = later
                if later < slots and arrived[later, queue] > sent[queue] + threshold:
                    break
            if arrived[slot, queue] > sent[queue] and (first < 0 or due[queue] < due[first]):
                first = queue
        if first >= 0:
            sent[first] += 1
        for queue in range(queues):
            if arrived[slot, queue] - sent[queue] > threshold:
                return False
    return True
