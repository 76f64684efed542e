"""Select the routing policy of each stream of an application, and validate it.

A stream's grouping limits where a tuple may go. If any task may receive it (shuffle, local-or-shuffle), every policy
without keys applies; if a key has two tasks (partial-key), policies that compare two tasks apply; if the key, the
sender or the stream itself determines the task, none applies.
"""

import math
from collections.abc import Sequence

from penstock.model.errors import InvalidInput, UnknownName, choices, nearest
from penstock.model.topology import Grouping, Topology
from penstock.model.tuples import NO_POLICY, TuplePolicies, over
from penstock.policies.registry import PolicyKind, names, routing_policy, sending_policy

SPREADING = (Grouping.SHUFFLE, Grouping.LOCAL_OR_SHUFFLE)


def routings(tuples: TuplePolicies, topology: Topology) -> dict[str, str]:
    """Return the policy of each stream that has one instead of its grouping, by label; raises for invalid ones."""
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
            raise InvalidInput("routing", f"stream {label} {problem}, got {own!r}; omit it or choose another")
        spec = own or tuples.routing
        if spec and not _problem(spec, stream.grouping) and not routing_policy(spec).keyed:
            found[label] = spec
    _refuse_different_prices(found)
    return found


def check(tuples: TuplePolicies, topology: Topology) -> None:
    """Raise for unknown policies, and for those that a stream cannot have."""
    check_names(tuples)
    routings(tuples, topology)


def check_names(tuples: TuplePolicies) -> None:
    """Raise for unknown policies, whatever the application; `none` is no policy."""
    for spec in filter(None, (tuples.routing, *tuples.streams.values())):
        if spec != NO_POLICY:
            routing_policy(spec)
    if tuples.sending not in ("", NO_POLICY):
        sending_policy(tuples.sending)


def kept_groupings(tuples: TuplePolicies, topology: Topology) -> dict[str, str]:
    """Return the streams to which an application-wide routing policy does not apply, with their groupings."""
    if tuples.routing in ("", NO_POLICY):
        return {}
    ruled = routings(over(TuplePolicies(), tuples), topology)
    return {stream.label: str(stream.grouping) for stream in topology.streams if stream.label not in ruled}


def kept_note(tuples: TuplePolicies, topology: Topology) -> str:
    """Return a note about streams to which an application-wide routing policy does not apply; empty if none."""
    kept = [f"{label} ({grouping})" for label, grouping in kept_groupings(tuples, topology).items()]
    return f"routing {tuples.routing} does not apply to: {', '.join(kept)}" if kept else ""


def parse_policies(routing: str | Sequence[str] | None, sending: str | None, slot_ms: float | None) -> TuplePolicies:
    """Parse tuple policies; `none` is kept as a value.

    routing: `SPEC` for the application or `STREAM=SPEC` for one stream.
    """
    given: dict[str, str] = {}
    for text in [routing] if isinstance(routing, str) else routing or ():
        label, equals, spec = text.partition("=")
        if not equals or ":" in label:  # a policy's parameters follow a colon
            label, spec = "", text
        if not spec or text.startswith("="):
            raise InvalidInput("routing", f"expected POLICY or STREAM=POLICY, got {text!r}; name a policy, or none")
        if label in given:
            raise InvalidInput("routing", f"given twice for {label or 'all streams'}, again as {text!r}; remove one")
        given[label] = spec
    if sending == "":
        raise InvalidInput("sending", "expected a policy, got ''; name one, or none")
    if slot_ms is not None and not 0 < slot_ms < math.inf:
        raise InvalidInput("slot_ms", f"expected a number > 0, got {slot_ms:g}; choose another, or omit it")
    whole = given.pop("", "")
    return TuplePolicies(routing=whole, streams=given, sending=sending or "", slot_ms=slot_ms)


def changed(
    before: TuplePolicies, routing: str | Sequence[str] | None, sending: str | None, slot_ms: float | None
) -> TuplePolicies:
    """Return policies with some of them changed; see `parse_policies`. None: unchanged."""
    if routing is None and sending is None and slot_ms is not None and slot_ms > 0 and not before.named:
        problem = f"no policy in force uses slots, got {slot_ms:g}; set a routing or sending policy"
        raise InvalidInput("slot_ms", problem)
    return over(before, parse_policies(routing, sending, slot_ms))


def _refuse_useless(spec: str, topology: Topology) -> None:
    """Raise for a policy that no stream of an application can have."""
    policy = routing_policy(spec)
    if policy.keyed and not policy.compares:
        raise InvalidInput("routing", f"{spec!r} follows from a stream's grouping and cannot be chosen; choose another")
    if all(_problem(spec, stream.grouping) for stream in topology.streams):
        there = choices(f"{stream.label} by {stream.grouping}" for stream in topology.streams)
        wanted = Grouping.PARTIAL_KEY if policy.keyed else Grouping.SHUFFLE
        remedy = f"omit it, or group a stream by {wanted}"
        raise InvalidInput("routing", f"no stream can have {spec!r}; there are {there}; {remedy}")


def _refuse_different_prices(specs: dict[str, str]) -> None:
    """Raise for policies of streams whose prices cannot be added."""
    asked = {label: price for label, spec in specs.items() if (price := routing_policy(spec).price_of_cost) is not None}
    first, price = next(iter(asked.items()), ("", 0.0))
    for label, other in asked.items():
        if other != price:
            problem = f"prices of streams are added, but {first} has v={price:g}, {label} has v={other:g}"
            raise InvalidInput("routing", f"{problem}; use equal values, or prices=false for one")


def _problem(spec: str, grouping: Grouping) -> str:
    """Return why a stream with a grouping cannot have a policy; empty if it can."""
    policy = routing_policy(spec)
    if grouping in SPREADING:
        return f"is grouped by {grouping} and has no keys" if policy.keyed else ""
    if grouping is Grouping.PARTIAL_KEY:
        if policy.compares:
            return ""
        able = choices(name for name in names(PolicyKind.ROUTING) if routing_policy(name).compares)
        return f"is grouped by {grouping}: only {able} can select one of a key's two tasks"
    return f"is grouped by {grouping}, which determines the task of each tuple"
