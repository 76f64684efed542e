"""The offline optimum of Hone's problem (eqs. (1)–(4)), exact: what the sending of a link is measured against.

In a slot tuples arrive, then one is sent, of those that have just arrived too; a backlog is what is left at the end of
the slot, B_i(t+1) = max{B_i(t) + a_i(t) - x_i(t), 0} (1), and the maximum is taken over the ends of all slots, the
last among them. A sending rule is measured at the same moment when it is compared with this.

Whether the backlogs can stay within b is a matter of deadlines: the j-th tuple of a queue must be gone by the end of
the slot in which its (j + b)-th arrives, and cannot go before it has arrived. Such jobs of one slot each fit if they
fit with the earliest deadline first, and b is found by bisection.
"""

import numpy as np
from numpy.typing import NDArray

from penstock.model.errors import InvalidInput
from penstock.model.kernel import kernel

Longs = NDArray[np.int64]


def offline_optimum(arrivals: NDArray[np.integer]) -> int:
    """Return the least possible largest backlog when one tuple is sent a slot and all arrivals are known.

    arrivals: tuples that come to each queue in each slot. [slots, N]
    """
    counts = np.asarray(arrivals)
    if counts.ndim != 2 or counts.dtype.kind not in "iu":
        raise InvalidInput("arrivals", f"expected whole numbers [slots, queues], got {counts.dtype} {counts.shape}")
    if (counts < 0).any():
        raise InvalidInput("arrivals", f"expected numbers >= 0, got {counts.min()}")
    return int(least_backlog(np.cumsum(counts, axis=0, dtype=np.int64)))


@kernel
def least_backlog(arrived: Longs) -> int:
    """Return the least threshold within which backlogs can stay, given how many have arrived by each slot."""
    low, high = 0, 0
    for queue in range(arrived.shape[1]):
        for slot in range(arrived.shape[0]):
            high = max(high, arrived[slot, queue])
    for _ in range(64):  # a halving each
        if low < high:
            middle = (low + high) // 2
            if stays_within(arrived, middle):
                high = middle
            else:
                low = middle + 1
    return low


@kernel
def stays_within(arrived: Longs, threshold: int) -> bool:
    """Tell whether the earliest deadline first keeps every backlog within a threshold; then, and only then, can any."""
    slots, queues = arrived.shape
    sent = np.zeros(queues, dtype=np.int64)
    due = np.zeros(queues, dtype=np.int64)  # the slot by whose end the next tuple must have gone; none: `slots`
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
