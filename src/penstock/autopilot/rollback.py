"""Taking a change back: whose move it is, where tasks are, and what is said of a change that cannot be taken back yet.

A change is taken back by the loop that made it, or by the next one where its driver ended in the middle. Tasks that
somebody else has moved since, or a recovery has, are left where they are.
"""

from collections.abc import Mapping
from typing import NamedTuple

from msgspec.structs import replace

from penstock.autopilot.ledger import Decision, Outcome
from penstock.model.cluster import Cluster

DRIVER_ENDED = "the driver ended before it was judged"
ELSEWHERE = "tasks have been moved elsewhere since, and stay there"


class Owed(NamedTuple):
    """A change that is still to be taken back."""

    decision: Decision
    outcome: Outcome  # as it is when that is done


def changed(decision: Decision) -> dict[str, str]:
    """Return where tasks are once a decision is carried out."""
    return decision.inputs.placement | {move.task: move.after for move in decision.moves}


def is_own(decision: Decision, placement: Mapping[str, str], cluster: Cluster) -> bool:
    """Whether every task is where it was before a decision or where that put it, and the slots before still exist."""
    before, after = decision.inputs.placement, changed(decision)
    if placement.keys() != before.keys() or not set(before.values()) <= set(cluster.slot_names):
        return False
    return all(slot in (before[task], after[task]) for task, slot in placement.items())


def left_to_others(outcome: Outcome) -> Outcome:
    """Return the outcome of a change that is not taken back, as somebody else has moved tasks since."""
    return replace(outcome, verdict="void", note="; ".join(filter(None, (outcome.note, ELSEWHERE))))
