"""Make a decision from what was observed and proposed: a pure function."""

from statistics import fmean

from penstock.autopilot.control_target import Reading
from penstock.autopilot.guard import latencies
from penstock.autopilot.ledger import Decision, Inputs
from penstock.autopilot.proposal import Proposal, Proposer
from penstock.model.cluster import Cluster
from penstock.model.topology import Application

BLOCKED = 0.01  # share of time from which on sources are assumed to emit less than is offered


def decide(
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
    before_s = fmean(latencies(inputs.readings))
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
