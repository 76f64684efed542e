"""Which routing policy each stream of an application has, and which it cannot have.

A stream's grouping says who has a say in where a tuple goes. Where any task will do (shuffle, local-or-shuffle), every
policy without keys applies; where a key has two tasks (partial-key), those that compare two tasks do; where the key,
the sender or the stream itself decides alone, none does.
"""

from collections.abc import Sequence

from penstock.model.errors import InvalidInput, UnknownName, choices
from penstock.model.topology import Grouping, Topology
from penstock.model.tuples import TuplePolicies
from penstock.policies.registry import PolicyKind, names, routing, sending

SPREADING = (Grouping.SHUFFLE, Grouping.LOCAL_OR_SHUFFLE)
NONE = "none"  # in a text from a user: no policy


def routings(tuples: TuplePolicies, topology: Topology) -> dict[str, str]:
    """Return the policy of each stream that has one in place of its grouping, by label; refuse what cannot be."""
    known = {stream.label: stream for stream in topology.streams}
    for label in tuples.streams:
        if label not in known:
            raise UnknownName("routing", f"no stream is named {label!r}; there are {choices(known)}")
    if tuples.routing:
        _refuse_useless(tuples.routing, topology)
    found = {}
    for label, stream in known.items():
        own = tuples.streams.get(label, "")
        problem = _problem(own, stream.grouping) if own else ""
        if problem:
            raise InvalidInput("routing", f"stream {label} {problem}, got {own!r}; leave it out or choose another")
        spec = own or tuples.routing
        if spec and not _problem(spec, stream.grouping) and not routing(spec).keyed:  # else as its grouping has it
            found[label] = spec
    _refuse_different_prices(found)
    return found


def check(tuples: TuplePolicies, topology: Topology) -> None:
    """Refuse policies that are not known, or that a stream cannot have."""
    check_names(tuples)
    routings(tuples, topology)


def check_names(tuples: TuplePolicies) -> None:
    """Refuse policies that are not known, whatever the application."""
    for spec in filter(None, (tuples.routing, *tuples.streams.values())):
        routing(spec)
    if tuples.sending:
        sending(tuples.sending)


def changed(
    before: TuplePolicies, routing: str | Sequence[str] | None, sending: str | None, slot_ms: float | None
) -> TuplePolicies:
    """Return policies with some of them changed, as a user says it.

    routing: texts, `SPEC` for the application or `STREAM=SPEC` for one stream; `none` is no policy. None: as before.
    """
    if routing is None and sending is None and slot_ms is not None and slot_ms > 0 and not before.named:
        problem = f"no policy is in force that decides once a slot, got {slot_ms:g}; name one by routing or sending"
        raise InvalidInput("slot_ms", problem)
    whole, streams = before.routing, dict(before.streams)
    given: dict[str, str] = {}
    for text in [routing] if isinstance(routing, str) else routing or ():
        label, equals, spec = text.partition("=")
        if not equals or ":" in label:  # a policy's parameters are behind a colon
            label, spec = "", text
        if label in given:
            raise InvalidInput("routing", f"given twice for {label or 'all streams'}, again as {text!r}; remove one")
        given[label] = spec
        if label:
            streams[label] = "" if spec == NONE else spec
        else:
            whole = "" if spec == NONE else spec
    return TuplePolicies(
        routing=whole,
        streams=streams,
        sending=before.sending if sending is None else "" if sending == NONE else sending,
        slot_ms=before.slot_ms if slot_ms is None else slot_ms,
    )


def _refuse_useless(spec: str, topology: Topology) -> None:
    """Refuse a policy for an application none of whose streams can have it."""
    policy = routing(spec)
    if policy.keyed and not policy.compares:
        raise InvalidInput("routing", f"{spec!r} is what a stream's grouping says, not a choice; choose another")
    if all(_problem(spec, stream.grouping) for stream in topology.streams):
        there = choices(f"{stream.label} by {stream.grouping}" for stream in topology.streams)
        wanted = Grouping.PARTIAL_KEY if policy.keyed else Grouping.SHUFFLE
        remedy = f"leave it out, or group a stream by {wanted}"
        raise InvalidInput("routing", f"no stream can have {spec!r}; there are {there}; {remedy}")


def _refuse_different_prices(specs: dict[str, str]) -> None:
    """Refuse policies of streams whose prices cannot be added up."""
    asked = {label: price for label, spec in specs.items() if (price := routing(spec).price_of_cost) is not None}
    first, price = next(iter(asked.items()), ("", 0.0))
    for label, other in asked.items():
        if other != price:
            problem = f"streams tell each other prices, and {first} has v={price:g}, {label} has v={other:g}"
            raise InvalidInput("routing", f"{problem}; give both the same, or one prices=false")


def _problem(spec: str, grouping: Grouping) -> str:
    """Say why a stream of a grouping cannot have a policy; nothing where it can."""
    policy = routing(spec)
    if grouping in SPREADING:
        return f"is grouped by {grouping} and has no keys" if policy.keyed else ""
    if grouping is Grouping.PARTIAL_KEY:
        able = choices(name for name in names(PolicyKind.ROUTING) if routing(name).compares)
        return "" if policy.compares else f"is grouped by {grouping}: only {able} can choose between a key's two tasks"
    return f"is grouped by {grouping}, which says where each tuple goes"
