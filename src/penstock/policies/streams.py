"""Which routing policy each stream of an application has, and which it cannot have.

A stream's grouping says who has a say in where a tuple goes. Where any task will do (shuffle, local-or-shuffle), every
policy without keys applies; where a key has two tasks (partial-key), those that compare two tasks do; where the key,
the sender or the stream itself decides alone, none does.
"""

from collections.abc import Sequence

from penstock.model.errors import InvalidInput, UnknownName, choices
from penstock.model.topology import Grouping, Topology
from penstock.model.tuples import TuplePolicies
from penstock.policies.registry import routing, sending
from penstock.policies.tuples.kinds import LEAST_LOADED, PARTIAL_KEY, POTUS, POTUS_PLUS

SPREADING = (Grouping.SHUFFLE, Grouping.LOCAL_OR_SHUFFLE)
COMPARING = (PARTIAL_KEY, LEAST_LOADED, POTUS, POTUS_PLUS)  # that can choose between the two tasks of a key
NONE = "none"  # in a text from a user: no policy


def routings(tuples: TuplePolicies, topology: Topology) -> dict[str, str]:
    """Return the policy of each stream that has one in place of its grouping, by label; refuse what cannot be."""
    known = {stream.label: stream for stream in topology.streams}
    for label in tuples.streams:
        if label not in known:
            raise UnknownName("routing", f"no stream is named {label!r}; there are {choices(known)}")
    if tuples.routing:
        _refuse_useless(tuples.routing)
    found = {}
    for label, stream in known.items():
        own = tuples.streams.get(label, "")
        problem = _problem(own, stream.grouping) if own else ""
        if problem:
            raise InvalidInput("routing", f"stream {label} {problem}, got {own!r}; leave it out or choose another")
        spec = own or tuples.routing
        if spec and not _problem(spec, stream.grouping) and routing(spec).rule.kind != PARTIAL_KEY:
            found[label] = spec
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
    whole, streams = before.routing, dict(before.streams)
    for text in [routing] if isinstance(routing, str) else routing or ():
        label, equals, spec = text.partition("=")
        if equals and ":" not in label:  # a policy's parameters are behind a colon
            streams[label] = "" if spec == NONE else spec
        else:
            whole = "" if text == NONE else text
    return TuplePolicies(
        routing=whole,
        streams=streams,
        sending=before.sending if sending is None else "" if sending == NONE else sending,
        slot_ms=before.slot_ms if slot_ms is None else slot_ms,
    )


def _refuse_useless(spec: str) -> None:
    policy = routing(spec)
    if policy.keyed and policy.rule.kind != PARTIAL_KEY:
        raise InvalidInput("routing", f"{spec!r} is what a stream's grouping says, not a choice; choose another")


def _problem(spec: str, grouping: Grouping) -> str:
    """Say why a stream of a grouping cannot have a policy; nothing where it can."""
    policy = routing(spec)
    if grouping in SPREADING:
        return f"is grouped by {grouping} and has no keys" if policy.keyed else ""
    if grouping is Grouping.PARTIAL_KEY:
        compares = "partial-key, least-loaded, potus and potus-plus can choose between a key's two tasks"
        return "" if policy.rule.kind in COMPARING else f"is grouped by {grouping}: only {compares}"
    return f"is grouped by {grouping}, which says where each tuple goes"
