"""Making a decision again from the ledger: by the same policy, to see that it is the same, or by another."""

import msgspec

from penstock.control.loop.deciding import decide
from penstock.control.loop.ledger import Decision, Episode
from penstock.control.loop.proposing import Propose, by_policy
from penstock.policies.registry import make


def replay(episode: Episode, policy: str | None = None, propose: Propose = by_policy) -> Decision:
    """Return what a policy decides on an episode's inputs; None: the policy that decided then."""
    was = episode.decision
    if policy is not None:
        make(policy)  # refuses one that nobody knows
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
