"""How far placements may be from the best, for `penstock plan`: what a quick policy leaves open where it is used.

`sparcle-refined` is to answer in milliseconds, for an admission or an autopilot; whoever compares policies can spare a
second more.
"""

from dataclasses import replace

from penstock.model.placement import Placement
from penstock.planning.planner import Decision, Planner
from penstock.policies.api import BoundingPolicy
from penstock.policies.registry import placement_policy

GAP_S = 1.0  # to look for a bound at most
NONE = 5e-5  # a gap that is written as 0.00 %


def with_gap(planner: Planner, decision: Decision) -> Decision:
    """Return a decision with the gap to the best, where its policy could have told it and did not."""
    found, policy = decision.result, placement_policy(decision.policy)
    if not isinstance(policy, BoundingPolicy) or not isinstance(found, Placement) or found.gap is not None:
        return decision
    bounded = policy.bounded(planner.view, found, GAP_S)
    if bounded.gap is not None and bounded.gap > NONE:
        bounded = replace(bounded, note=f"{bounded.note}; bound=true may show that it is less, in up to 30 s")
    return replace(decision, result=bounded)
