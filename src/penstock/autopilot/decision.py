"""Make a decision from what was observed and proposed: a pure function, so that the ledger suffices to repeat it.

A repeated decision may differ: the ledger has only the path and checksum of latency models, and a time-limited search
may find something else. Then the likely cause is reported.
"""

from statistics import fmean

import msgspec

from penstock.autopilot.control_target import Reading
from penstock.autopilot.guard import mean_latencies
from penstock.autopilot.ledger import Decision, Episode, Inputs
from penstock.autopilot.proposal import Proposal, Proposer, checksum_models, propose_with_policy
from penstock.model.cluster import Cluster
from penstock.model.topology import Application
from penstock.policies.registry import placement_policy

BLOCKED = 0.01  # share of time from which on sources are assumed to emit less than is offered


def make_decision(
    application: Application,
    cluster: Cluster,
    inputs: Inputs,
    propose: Proposer,
    *,
    number: int,
    at: float,
    time: str,
    shadow: bool = False,
) -> Decision:
    """Return what to do according to proposal and guard; if proposing fails, do nothing."""
    try:
        proposal = propose(application, cluster, inputs)
    except Exception as error:  # whatever the policy's error, the application must not suffer
        proposal = Proposal(problem=f"{inputs.policy} failed, {type(error).__name__}: {' '.join(str(error).split())}")
    guard = inputs.guard
    before_s = fmean(mean_latencies(inputs.readings))
    cost_s = guard.cost_s(proposal.weights, inputs.held_s)
    refused = proposal.problem or guard.refusal(proposal.gain, len(proposal.moves), before_s, cost_s)
    allowed = f"predicted gain {proposal.gain:.1%}, {format_count(len(proposal.moves), 'move')}"
    return Decision(
        number=number,
        at=at,
        time=time,
        inputs=inputs,
        alternatives=proposal.alternatives,
        moves=proposal.moves,
        gain=proposal.gain,
        predicted_s=proposal.predicted_s,
        acts=not refused,
        reason=", ".join(filter(None, (refused or allowed, proposal.caution))),
        before_s=before_s,
        bound_s=guard.bound_s(inputs.readings, inputs.anchor_s),
        cost_s=cost_s,
        shadow=shadow,
    )


def estimate_offered_rates(application: Application, readings: list[Reading]) -> dict[str, float]:
    """Return the rate offered to each source: emitted, or declared if the source was blocked and that is higher.

    A blocked source emits less than arrives at it.
    """
    found = {}
    for source in application.sources:
        given = fmean([reading.rates.get(source.name, 0.0) for reading in readings])
        held_back = fmean([reading.blocked for reading in readings]) > BLOCKED
        found[source.name] = max(given, application.rate_tps.get(source.name, 0.0)) if held_back else given
    return found


def format_count(count: int, noun: str) -> str:
    """Format a count with its noun: `1 move`, `2 moves`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def replay(episode: Episode, policy: str | None = None) -> Decision:
    """Return the decision of a policy on an episode's inputs; None: the original policy."""
    was = episode.decision
    if policy is not None:
        placement_policy(policy)  # raises for an unknown policy
    inputs = was.inputs if policy is None else msgspec.structs.replace(was.inputs, policy=policy)
    opening = episode.opening
    return make_decision(
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
    now = checksum_models(inputs.model)
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
