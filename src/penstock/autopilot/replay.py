"""Repeat a decision from the ledger: with the same policy, to check that the result is the same, or with another.

The ledger has only the path and checksum of latency models, and a time-limited search may find something else. If the
decision differs, the likely cause is reported.
"""

import msgspec

from penstock.autopilot.decision import decide
from penstock.autopilot.ledger import Decision, Episode
from penstock.autopilot.proposal import checksum, propose_with_policy
from penstock.policies.registry import placement_policy


def replay(episode: Episode, policy: str | None = None) -> Decision:
    """Return the decision of a policy on an episode's inputs; None: the original policy."""
    was = episode.decision
    if policy is not None:
        placement_policy(policy)  # raises for an unknown policy
    inputs = was.inputs if policy is None else msgspec.structs.replace(was.inputs, policy=policy)
    opening = episode.opening
    return decide(
        opening.application,
        opening.cluster,
        inputs,
        propose_with_policy,
        number=was.number,
        at=was.at,
        time=was.time,
        shadow=was.shadow,
    )


def model_changed(was: Decision) -> str:
    """Return a message if a decision's latency models are no longer those in their file; else empty."""
    inputs = was.inputs
    now = checksum(inputs.model)
    if not inputs.checksum or now == inputs.checksum:
        return ""
    state = f"now has the checksum {now[:12]}" if now else "no longer exists or is damaged"
    return f"{inputs.model} {state}; the decision used {inputs.checksum[:12]}"


def likely_cause(was: Decision) -> str:
    """Return the likely cause if a repeated decision differs."""
    seconds = getattr(placement_policy(was.inputs.policy), "seconds", None)
    if changed := model_changed(was):
        return changed
    if seconds is not None:
        return f"{was.inputs.policy} searches for {seconds:g} s, and its result depends on the machine's speed"
    return "the decision may have been made by another version of Penstock"
