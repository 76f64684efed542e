"""Rollback of a change: which tasks are still as it put them, and what is pending if it cannot be rolled back yet.

A change is rolled back by the loop that made it, or by the next one if its driver died. Tasks that others or a recovery
have moved since stay where they are.
"""

from collections.abc import Mapping
from typing import NamedTuple

from msgspec.structs import replace

from penstock.autopilot.ledger import Decision, Outcome
from penstock.model.cluster import Cluster

DRIVER_ENDED = "the driver ended before the change was judged"
ELSEWHERE = "tasks were moved since, and stay there"


class Owed(NamedTuple):
    """A change that still has to be rolled back."""

    decision: Decision
    outcome: Outcome  # once that is done


def changed(decision: Decision) -> dict[str, str]:
    """Return the placement after a decision is applied."""
    return decision.inputs.placement | {move.task: move.after for move in decision.moves}


def is_own(decision: Decision, placement: Mapping[str, str], cluster: Cluster) -> bool:
    """Whether every task is where it was before or after a decision, and the previous slots still exist."""
    before, after = decision.inputs.placement, changed(decision)
    if placement.keys() != before.keys() or not set(before.values()) <= set(cluster.slot_names):
        return False
    return all(slot in (before[task], after[task]) for task, slot in placement.items())


def left_to_others(outcome: Outcome) -> Outcome:
    """Return the outcome of a change that is not rolled back, because somebody else has moved tasks since."""
    return replace(outcome, verdict="void", note="; ".join(filter(None, (outcome.note, ELSEWHERE))))
