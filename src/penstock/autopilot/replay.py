"""Making a decision again from the ledger: by the same policy, to see that it is the same, or by another.

The ledger does not hold the latency models themselves, only where they were and their checksum; and a policy that
searches for as long as it has time may find something else. Where a decision is another now, the likely cause is said.
"""

import msgspec

from penstock.autopilot.decision import decide
from penstock.autopilot.ledger import Decision, Episode
from penstock.autopilot.proposal import Propose, by_policy, checksum
from penstock.policies.registry import placement_policy


def replay(episode: Episode, policy: str | None = None, propose: Propose = by_policy) -> Decision:
    """Return what a policy decides on an episode's inputs; None: the policy that decided then."""
    was = episode.decision
    if policy is not None:
        placement_policy(policy)  # refuses one that nobody knows
    inputs = was.inputs if policy is None else msgspec.structs.replace(was.inputs, policy=policy)
    opening = episode.opening
    return decide(
        opening.application,
        opening.cluster,
        inputs,
        propose,
        number=was.number,
        at=was.at,
        time=was.time,
        shadow=was.shadow,
    )


def model_changed(was: Decision) -> str:
    """Say so where a decision's latency models are not those in their file now; nothing where they are."""
    inputs = was.inputs
    now = checksum(inputs.model)
    if not inputs.checksum or now == inputs.checksum:
        return ""
    state = f"has the checksum {now[:12]} now" if now else "is not there any more, or is damaged"
    return f"{inputs.model} {state}; the decision was made by {inputs.checksum[:12]}"


def likely_cause(was: Decision) -> str:
    """Say why a decision that is made again is probably another."""
    seconds = getattr(placement_policy(was.inputs.policy), "seconds", None)
    if changed := model_changed(was):
        return changed
    if seconds is not None:
        return f"{was.inputs.policy} searches for {seconds:g} s, and finds more or less in that time"
    return "has the version of Penstock changed since?"
