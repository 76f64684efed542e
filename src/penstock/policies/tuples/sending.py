"""The sending decision, for every engine: how many tuples each of the out-queues that share a link may send now.

`send` dispatches on the number of a rule inside one compiled function, as `routing.route` does.
"""

import numpy as np

from penstock.model.kernel import kernel
from penstock.model.slotted import Longs
from penstock.model.taskgraph import Floats
from penstock.policies.tuples.fifo import oldest_first
from penstock.policies.tuples.kinds import FIFO, IDLE_TURNS, LONGEST_FIRST, RANDOM
from penstock.policies.tuples.longest_first import longest_first
from penstock.policies.tuples.queues_in_turn import in_turn
from penstock.policies.tuples.random_queue import at_random

TURN, SIGNAL, SINCE = range(3)
STATE = 3


@kernel
def send(
    kind: int,
    settings: Floats,
    now: float,
    budget: int,
    backlog: Longs,
    oldest: Floats,
    state: Floats,
    rng: np.random.Generator,
    allowed: Longs,
) -> int:
    """Allocate `budget` tuples to the queues of a link; return how many are allowed.

    now: slots in the simulator, seconds in the runtime. backlog, oldest: [N] tuples in each queue, and when the first
    of them arrived. state: [STATE], the rule's state for this link; initially 0. allowed: [N], all 0; set.
    """
    if kind == LONGEST_FIRST:
        return longest_first(settings, now, budget, backlog, state, allowed)
    if kind == FIFO:
        return oldest_first(budget, backlog, oldest, allowed)
    if kind == RANDOM:
        return at_random(budget, backlog, rng, allowed)
    return in_turn(kind == IDLE_TURNS, budget, backlog, state, allowed)
