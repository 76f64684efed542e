"""Which routing policy each stream of an application has, and which it cannot have.

A stream's grouping says who has a say in where a tuple goes. Where any task will do (shuffle, local-or-shuffle), every
policy without keys applies; where a key has two tasks (partial-key), those that compare two tasks do; where the key,
the sender or the stream itself decides alone, none does.
"""

import math
from collections.abc import Sequence

from penstock.model.errors import InvalidInput, UnknownName, choices, nearest
from penstock.model.topology import Grouping, Topology
from penstock.model.tuples import NO_POLICY, TuplePolicies, over
from penstock.policies.registry import PolicyKind, names, routing_policy, sending_policy

SPREADING = (Grouping.SHUFFLE, Grouping.LOCAL_OR_SHUFFLE)


def routings(tuples: TuplePolicies, topology: Topology) -> dict[str, str]:
    """Return the policy of each stream that has one in place of its grouping, by label; refuse what cannot be."""
    known = {stream.label: stream for stream in topology.streams}
    for label in tuples.streams:
        if label not in known:
            raise UnknownName("routing", f"no stream is named {label!r}; {nearest(label, known)}")
    if tuples.routing:
        _refuse_useless(tuples.routing, topology)
    found = {}
    for label, stream in known.items():
        own = tuples.streams.get(label, "")
        problem = _problem(own, stream.grouping) if own else ""
        if problem:
            raise InvalidInput("routing", f"stream {label} {problem}, got {own!r}; leave it out or choose another")
        spec = own or tuples.routing
        if spec and not _problem(spec, stream.grouping) and not routing_policy(spec).keyed:
            found[label] = spec
    _refuse_different_prices(found)
    return found


def check(tuples: TuplePolicies, topology: Topology) -> None:
    """Refuse policies that are not known, or that a stream cannot have."""
    check_names(tuples)
    routings(tuples, topology)


def check_names(tuples: TuplePolicies) -> None:
    """Refuse policies that are not known, whatever the application; `none` is no policy."""
    for spec in filter(None, (tuples.routing, *tuples.streams.values())):
        if spec != NO_POLICY:
            routing_policy(spec)
    if tuples.sending not in ("", NO_POLICY):
        sending_policy(tuples.sending)


def kept_groupings(tuples: TuplePolicies, topology: Topology) -> dict[str, str]:
    """Return the streams that a routing for all streams leaves to their groupings, by label, with the grouping."""
    if tuples.routing in ("", NO_POLICY):
        return {}
    ruled = routings(over(TuplePolicies(), tuples), topology)
    return {stream.label: str(stream.grouping) for stream in topology.streams if stream.label not in ruled}


def kept_note(tuples: TuplePolicies, topology: Topology) -> str:
    """Say which streams a routing for all of them leaves to their groupings; empty where it leaves none."""
    kept = [f"{label} ({grouping})" for label, grouping in kept_groupings(tuples, topology).items()]
    return f"routing {tuples.routing} leaves to their grouping: {', '.join(kept)}" if kept else ""


def told(routing: str | Sequence[str] | None, sending: str | None, slot_ms: float | None) -> TuplePolicies:
    """Return the policies that a user's texts name, and no others; `none` stays as it is said.

    routing: texts, `SPEC` for the application or `STREAM=SPEC` for one stream.
    """
    given: dict[str, str] = {}
    for text in [routing] if isinstance(routing, str) else routing or ():
        label, equals, spec = text.partition("=")
        if not equals or ":" in label:  # a policy's parameters are behind a colon
            label, spec = "", text
        if not spec or text.startswith("="):
            raise InvalidInput("routing", f"expected POLICY or STREAM=POLICY, got {text!r}; name a policy, or none")
        if label in given:
            raise InvalidInput("routing", f"given twice for {label or 'all streams'}, again as {text!r}; remove one")
        given[label] = spec
    if sending == "":
        raise InvalidInput("sending", "expected a policy, got ''; name one, or none")
    if slot_ms is not None and not 0 < slot_ms < math.inf:
        raise InvalidInput("slot_ms", f"expected a number > 0, got {slot_ms:g}; choose another, or leave it out")
    whole = given.pop("", "")
    return TuplePolicies(routing=whole, streams=given, sending=sending or "", slot_ms=slot_ms)


def changed(
    before: TuplePolicies, routing: str | Sequence[str] | None, sending: str | None, slot_ms: float | None
) -> TuplePolicies:
    """Return policies with some of them changed, as a user says it; see `told`. None: as before."""
    if routing is None and sending is None and slot_ms is not None and slot_ms > 0 and not before.named:
        problem = f"no policy is in force that decides once a slot, got {slot_ms:g}; name one by routing or sending"
        raise InvalidInput("slot_ms", problem)
    return over(before, told(routing, sending, slot_ms))


def _refuse_useless(spec: str, topology: Topology) -> None:
    """Refuse a policy for an application none of whose streams can have it."""
    policy = routing_policy(spec)
    if policy.keyed and not policy.compares:
        raise InvalidInput("routing", f"{spec!r} is what a stream's grouping says, not a choice; choose another")
    if all(_problem(spec, stream.grouping) for stream in topology.streams):
        there = choices(f"{stream.label} by {stream.grouping}" for stream in topology.streams)
        wanted = Grouping.PARTIAL_KEY if policy.keyed else Grouping.SHUFFLE
        remedy = f"leave it out, or group a stream by {wanted}"
        raise InvalidInput("routing", f"no stream can have {spec!r}; there are {there}; {remedy}")


def _refuse_different_prices(specs: dict[str, str]) -> None:
    """Refuse policies of streams whose prices cannot be added up."""
    asked = {label: price for label, spec in specs.items() if (price := routing_policy(spec).price_of_cost) is not None}
    first, price = next(iter(asked.items()), ("", 0.0))
    for label, other in asked.items():
        if other != price:
            problem = f"streams tell each other prices, and {first} has v={price:g}, {label} has v={other:g}"
            raise InvalidInput("routing", f"{problem}; give both the same, or one prices=false")


def _problem(spec: str, grouping: Grouping) -> str:
    """Say why a stream of a grouping cannot have a policy; nothing where it can."""
    policy = routing_policy(spec)
    if grouping in SPREADING:
        return f"is grouped by {grouping} and has no keys" if policy.keyed else ""
    if grouping is Grouping.PARTIAL_KEY:
        able = choices(name for name in names(PolicyKind.ROUTING) if routing_policy(name).compares)
        return "" if policy.compares else f"is grouped by {grouping}: only {able} can choose between a key's two tasks"
    return f"is grouped by {grouping}, which says where each tuple goes"
