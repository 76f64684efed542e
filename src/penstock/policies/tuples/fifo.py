"""First in, first out over all out-queues of a link: Storm and Flink send tuples in order of emission."""

from dataclasses import dataclass

from penstock.model.kernel import kernel
from penstock.model.slotted import Longs
from penstock.model.taskgraph import Floats
from penstock.policies.api import Rule, rule
from penstock.policies.tuples.kinds import FIFO


@dataclass(frozen=True, slots=True)
class Fifo:
    """Send the oldest tuple first."""

    @property
    def rule(self) -> Rule:
        """The decision."""
        return rule(FIFO)


@kernel
def oldest_first(budget: int, backlog: Longs, oldest: Floats, allowed: Longs) -> int:
    """Allow one tuple, from the queue with the oldest one. Engines call this again for the next."""
    best = -1
    for queue in range(len(backlog)):
        if backlog[queue] > 0 and (best < 0 or oldest[queue] < oldest[best]):
            best = queue
    if best < 0 or budget <= 0:
        return 0
    allowed[best] = 1
    return 1
