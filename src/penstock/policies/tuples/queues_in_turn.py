"""Round-robin over queues, with and without wasted turns.

Hone's baseline (RRB) takes queue (i + 1) mod N next, empty or not: an empty queue wastes the turn. The other policy
skips it.
"""

from dataclasses import dataclass

from penstock.model.kernel import kernel
from penstock.model.slotted import Longs
from penstock.model.taskgraph import Floats
from penstock.policies.api import Rule, rule
from penstock.policies.tuples.kinds import IDLE_TURNS, QUEUES_IN_TURN


@dataclass(frozen=True, slots=True)
class QueuesInTurn:
    """Send from queues in turn, one tuple each; empty ones are skipped."""

    @property
    def rule(self) -> Rule:
        """The decision."""
        return rule(QUEUES_IN_TURN)


@dataclass(frozen=True, slots=True)
class IdleTurns:
    """Send from queues in turn, one tuple each; an empty one wastes its turn."""

    @property
    def rule(self) -> Rule:
        """The decision."""
        return rule(IDLE_TURNS)


@kernel
def in_turn(wasteful: bool, budget: int, backlog: Longs, state: Floats, allowed: Longs) -> int:
    """Allow tuples in turn; `state[0]` is the queue whose turn is next."""
    given, number = 0, len(backlog)
    queue = int(state[0]) % number
    for _ in range(budget):
        if not wasteful:
            for _ in range(number):
                if backlog[queue] > allowed[queue]:
                    break
                queue = 0 if queue + 1 == number else queue + 1
            if backlog[queue] <= allowed[queue]:
                break  # all are empty: the turn does not change
        if backlog[queue] > allowed[queue]:
            allowed[queue] += 1
            given += 1
        queue = 0 if queue + 1 == number else queue + 1
    state[0] = queue
    return given
