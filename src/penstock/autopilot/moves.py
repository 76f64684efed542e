"""Moving the tasks of a plant as decided, moving them back, and seeing first whether a decision still holds.

A policy takes its time. What others move meanwhile, or a recovery does, is theirs: a decision is about the placement
that it was made from, and carrying it out on another would undo their moves.
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

SEEN_MOVES = 50  # of which the mean time is taken
MOVED = "tasks were moved while it was decided, by somebody else or by a recovery, and stay there"
DISTURBED = "the run failed, recovered or ended while it was decided"


class Mover:
    """Moves the tasks of one plant."""

    def __init__(self, plant: ControlTarget, move_s: float) -> None:
        self._plant = plant
        self._move_s = move_s  # that a move takes, as long as none has been seen
        self._held: deque[float] = deque(maxlen=SEEN_MOVES)  # s that moves took

    @property
    def held_s(self) -> float:
        """How long a move holds its task up, the mean of those seen last."""
        return fmean(self._held) if self._held else self._move_s

    def overtaken(self, opening: Opening, decision: Decision) -> str:
        """Look at the plant again, and say why a decision is not about it any more; nothing where it is."""
        plant, inputs = self._plant, decision.inputs
        reading = plant.reading()
        if (plant.placement(), plant.routes()) != (inputs.placement, inputs.routes):
            return MOVED
        same = (plant.application, plant.cluster) == (opening.application, opening.cluster)
        return "" if same and reading.steady and reading.epoch == inputs.readings[-1].epoch else DISTURBED

    def carry_out(self, decision: Decision) -> list[Moved]:
        """Move the tasks that a decision puts elsewhere."""
        return self._move(changed(decision), decision, decision.inputs.policy)

    def put_back(self, decision: Decision) -> str:
        """Put every task and route back as it was; return what is wrong where that fails."""
        inputs = decision.inputs
        try:
            self._move(inputs.placement, decision, inputs.placed_by, inputs.routes)
        except Ended:
            raise
        except Exception as problem:  # whatever it is, the next try may succeed
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
