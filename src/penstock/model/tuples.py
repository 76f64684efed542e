"""Tuple policies: where tuples go, and which out-queue is served first. They are part of a plan.

They have a file of their own because workers import it, and must not load the rest of a plan's dependencies.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from penstock.model.entity import Entity, Positive

NO_POLICY = "none"  # in a text from a user
DEFAULT_SLOT_MS = 1.0  # default time between two routing decisions


class TuplePolicies(Entity, frozen=True):
    """The tuple policies of an application, as texts: a name, or `name:parameter=value,…`.

    An empty text is no policy: the grouping of each stream routes its tuples, and they are sent in the order in which
    they were emitted. In a plan, an empty text keeps the policy in force, and `none` removes it.
    """

    routing: Annotated[str, Meta(description="Routing policy for every stream that can take one.")] = ""
    streams: Annotated[dict[str, str], Meta(description="Routing policies of single streams: label -> policy.")] = {}
    sending: Annotated[str, Meta(description="Sending policy: which out-queue sends first.")] = ""
    slot_ms: Annotated[
        Positive | None, Meta(description="Milliseconds between two routing decisions of an out-queue. Default: 1.")
    ] = None

    def _check(self) -> None:
        if "" in self.streams.values():  # as if it were not there
            kept = {label: spec for label, spec in self.streams.items() if spec}
            msgspec.structs.force_setattr(self, "streams", kept)

    @property
    def named(self) -> bool:
        """Whether there is any policy."""
        return bool(self.routing or self.streams or self.sending)

    @property
    def slot(self) -> float:
        """Milliseconds between two routing decisions of an out-queue."""
        return DEFAULT_SLOT_MS if self.slot_ms is None else self.slot_ms

    @property
    def texts(self) -> dict[str, str]:
        """What is set, for people: `routing`, `routing of STREAM`, `sending`, `slot`."""
        named = {"routing": self.routing}
        named |= {f"routing of {label}": spec for label, spec in self.streams.items()}
        named |= {"sending": self.sending}
        found = {name: text for name, text in named.items() if text}
        return found | ({"slot": f"{self.slot:g} ms"} if found else {})


def over(before: TuplePolicies, named: TuplePolicies) -> TuplePolicies:
    """Return policies with those that others name in their place; those that are not named stay."""
    streams = {**before.streams, **named.streams}
    return TuplePolicies(
        routing=_either(before.routing, named.routing),
        streams={label: _either("", spec) for label, spec in streams.items()},
        sending=_either(before.sending, named.sending),
        slot_ms=before.slot_ms if named.slot_ms is None else named.slot_ms,
    )


def _either(before: str, named: str) -> str:
    """Return a policy's text, or the previous one if none is named; `none` is no policy."""
    return "" if named == NO_POLICY else named or before
