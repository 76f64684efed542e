"""Move the tasks of a target as decided, restore them, and check first whether a decision still applies.

A policy takes its time. Moves by others or by a recovery in the meantime have precedence: a decision refers to the
placement it was made from, and applying it to another one would undo their moves.
"""

from collections import deque
from collections.abc import Mapping
from statistics import fmean

from penstock.autopilot.control_target import ControlTarget, Ended
from penstock.autopilot.ledger import Decision, Opening
from penstock.autopilot.proposal import plan_of
from penstock.autopilot.rollback import changed
from penstock.model.errors import PenstockError
from penstock.model.plan import PlannedRoute
from penstock.runtime.handle import Outcome as Moved

SEEN_MOVES = 50  # whose mean duration is used
MOVED = "others or a recovery moved tasks during the decision; they stay there"
DISTURBED = "the run failed, recovered or ended during the decision"


class Mover:
    """Moves the tasks of one target."""

    def __init__(self, plant: ControlTarget, move_s: float) -> None:
        self._plant = plant
        self._move_s = move_s  # assumed duration of a move until one was measured
        self._held: deque[float] = deque(maxlen=SEEN_MOVES)  # measured durations, in s

    @property
    def held_s(self) -> float:
        """Duration of a move, mean of the last ones measured."""
        return fmean(self._held) if self._held else self._move_s

    def overtaken(self, opening: Opening, decision: Decision) -> str:
        """Check the target again and return why a decision no longer applies; empty if it does."""
        plant, inputs = self._plant, decision.inputs
        reading = plant.reading()
        if (plant.placement(), plant.routes()) != (inputs.placement, inputs.routes):
            return MOVED
        same = (plant.application, plant.cluster) == (opening.application, opening.cluster)
        return "" if same and reading.steady and reading.epoch == inputs.readings[-1].epoch else DISTURBED

    def carry_out(self, decision: Decision) -> list[Moved]:
        """Move the tasks as decided."""
        return self._move(changed(decision), decision, decision.inputs.policy)

    def put_back(self, decision: Decision) -> str:
        """Restore the placement and routes before a decision; return the problem if that fails."""
        inputs = decision.inputs
        try:
            self._move(inputs.placement, decision, inputs.placed_by, inputs.routes)
        except Ended:
            raise
        except Exception as problem:  # whatever the error, the next attempt may succeed
            return str(problem) if isinstance(problem, PenstockError) else f"{type(problem).__name__}: {problem}"
        return ""

    def _move(
        self, placement: Mapping[str, str], decision: Decision, policy: str, routes: tuple[PlannedRoute, ...] = ()
    ) -> list[Moved]:
        application, cluster = self._plant.application, self._plant.cluster
        goal, seed = decision.inputs.objective, decision.inputs.seed
        plan = plan_of(application, cluster, placement, policy=policy, objective=goal, seed=seed, by=routes)
        moved = self._plant.apply(plan)
        self._held.extend(outcome.seconds for outcome in moved)
        return moved
