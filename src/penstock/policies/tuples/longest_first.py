"""Longest backlog first, Hone's LBF: the longest queue has the signal and sends, for τ; the others send nothing.

As published, a signalled queue that runs empty leaves the link idle until τ has passed. In the work-conserving variant,
the longest of the others sends in the meantime. With τ = 0 the signal is reassigned for every tuple, as in the proof.
"""

from dataclasses import dataclass

from penstock.model.entity import NonNegative
from penstock.model.kernel import kernel
from penstock.model.slotted import Longs
from penstock.model.taskgraph import Floats
from penstock.policies.api import Rule, rule
from penstock.policies.tuples.kinds import LONGEST_FIRST


@dataclass(frozen=True, slots=True)
class LongestFirst:
    """Send from the longest queue.

    tau: time that it keeps the signal: slots in the simulator, milliseconds in the runtime; 0: for one tuple.
    conserving: whether the next longest sends when the signalled queue is empty; Hone's does not.
    """

    tau: NonNegative = 0.0
    conserving: bool = True

    @property
    def rule(self) -> Rule:
        """The decision."""
        return rule(LONGEST_FIRST, self.tau, self.conserving)


@kernel
def longest_first(settings: Floats, now: float, budget: int, backlog: Longs, state: Floats, allowed: Longs) -> int:
    """Allow tuples of the signalled queue; `state[1]` is its number + 1, `state[2]` when it got the signal."""
    tau, conserving = settings[0], settings[1] > 0.0
    given = 0
    if tau > 0.0:
        if state[1] == 0.0 or now >= state[2] + tau:
            state[1], state[2] = _longest(backlog, allowed) + 1.0, now
        signalled = int(state[1]) - 1
        if signalled >= 0:
            given = min(budget, backlog[signalled])
            allowed[signalled] = given
        if not conserving:
            return given
    for _ in range(budget - given):
        queue = _longest(backlog, allowed)
        if queue < 0:
            break
        allowed[queue] += 1
        given += 1
    return given


@kernel
def _longest(backlog: Longs, allowed: Longs) -> int:
    """Return the longest queue, ties by number; -1 if all are empty."""
    best, most = -1, 0
    for queue in range(len(backlog)):
        if backlog[queue] - allowed[queue] > most:
            best, most = queue, backlog[queue] - allowed[queue]
    return best
