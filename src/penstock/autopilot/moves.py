"""Move the tasks of a target as decided, restore them, and check first whether a decision still applies.

A policy takes its time. Moves by others or by a recovery in the meantime have precedence: a decision refers to the
placement it was made from, and applying it to another one would undo their moves.

A change is rolled back by the loop that made it, or by the next one if its driver died.
"""

from collections import deque
from collections.abc import Mapping
from statistics import fmean
from typing import NamedTuple

from msgspec.structs import replace

from penstock.autopilot.control_target import ControlTarget, TargetEnded
from penstock.autopilot.ledger import Decision, DecisionOutcome, Opening
from penstock.autopilot.proposal import make_plan
from penstock.model.cluster import Cluster
from penstock.model.errors import PenstockError
from penstock.model.plan import PlannedRoute
from penstock.runtime.handle import MovedTask

SEEN_MOVES = 50  # whose mean duration is used
MOVED = "others or a recovery moved tasks during the decision; they stay there"
DRIVER_ENDED = "the driver ended before the change was judged"
ELSEWHERE = "tasks were moved since, and stay there"
DISTURBED = "the run failed, recovered or ended during the decision"


class Mover:
    """Moves the tasks of one target."""

    def __init__(self, target: ControlTarget, move_s: float) -> None:
        self._target = target
        self._move_s = move_s  # assumed duration of a move until one was measured
        self._held: deque[float] = deque(maxlen=SEEN_MOVES)  # measured durations, in s

    @property
    def held_s(self) -> float:
        """Duration of a move, mean of the last ones measured."""
        return fmean(self._held) if self._held else self._move_s

    def find_conflict(self, opening: Opening, decision: Decision) -> str:
        """Check the target again and return why a decision no longer applies; empty if it does."""
        target, inputs = self._target, decision.inputs
        reading = target.reading()
        if (target.placement(), target.routes()) != (inputs.placement, inputs.routes):
            return MOVED
        same = (target.application, target.cluster) == (opening.application, opening.cluster)
        return "" if same and reading.steady and reading.epoch == inputs.readings[-1].epoch else DISTURBED

    def apply_decision(self, decision: Decision) -> list[MovedTask]:
        """Move the tasks as decided."""
        return self._move(placement_after(decision), decision, decision.inputs.policy)

    def restore_tasks(self, decision: Decision) -> str:
        """Restore the placement and routes before a decision; return the problem if that fails."""
        inputs = decision.inputs
        try:
            self._move(inputs.placement, decision, inputs.placed_by, inputs.routes)
        except TargetEnded:
            raise
        except Exception as problem:  # whatever the error, the next attempt may succeed
            return str(problem) if isinstance(problem, PenstockError) else f"{type(problem).__name__}: {problem}"
        return ""

    def _move(
        self, placement: Mapping[str, str], decision: Decision, policy: str, routes: tuple[PlannedRoute, ...] = ()
    ) -> list[MovedTask]:
        application, cluster = self._target.application, self._target.cluster
        goal, seed = decision.inputs.objective, decision.inputs.seed
        plan = make_plan(application, cluster, placement, policy=policy, objective=goal, seed=seed, by=routes)
        moved = self._target.apply(plan)
        self._held.extend(outcome.seconds for outcome in moved)
        return moved


class PendingRollback(NamedTuple):
    """A change that still has to be rolled back."""

    decision: Decision
    outcome: DecisionOutcome  # once that is done


def placement_after(decision: Decision) -> dict[str, str]:
    """Return the placement after a decision is applied."""
    return decision.inputs.placement | {move.task: move.after for move in decision.moves}


def is_own(decision: Decision, placement: Mapping[str, str], cluster: Cluster) -> bool:
    """Whether every task is where it was before or after a decision, and the previous slots still exist."""
    before, after = decision.inputs.placement, placement_after(decision)
    if placement.keys() != before.keys() or not set(before.values()) <= set(cluster.slot_names):
        return False
    return all(slot in (before[task], after[task]) for task, slot in placement.items())


def leave_to_others(outcome: DecisionOutcome) -> DecisionOutcome:
    """Return the outcome of a change that is not rolled back, because somebody else has moved tasks since."""
    return replace(outcome, verdict="void", note="; ".join(filter(None, (outcome.note, ELSEWHERE))))
