"""Random: a uniformly random non-empty queue for each tuple. It shows the value of knowing backlogs."""

from dataclasses import dataclass

import numpy as np

from penstock.model.kernel import kernel
from penstock.model.slotted import Longs
from penstock.policies.api import Rule, rule
from penstock.policies.tuples.kinds import RANDOM


@dataclass(frozen=True, slots=True)
class RandomQueue:
    """Send from a uniformly random non-empty queue."""

    @property
    def rule(self) -> Rule:
        """The decision."""
        return rule(RANDOM)


@kernel
def at_random(budget: int, backlog: Longs, rng: np.random.Generator, allowed: Longs) -> int:
    """Allow tuples one by one, each from a uniformly random queue with tuples left."""
    given = 0
    for _ in range(budget):
        able = 0
        for queue in range(len(backlog)):
            able += backlog[queue] > allowed[queue]
        if able == 0:
            break
        pick = int(rng.random() * able)
        for queue in range(len(backlog)):
            if backlog[queue] > allowed[queue]:
                if pick == 0:
                    allowed[queue] += 1
                    break
                pick -= 1
        given += 1
    return given
