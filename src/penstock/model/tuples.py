"""Which tuple policies are in force: where tuples go, and which out-queue is served first; part of a plan.

It has a file of its own as workers read it, which must not load what a plan needs besides.
"""

import msgspec

from penstock.model.entity import Entity, Positive

USUAL_SLOT_MS = 1.0  # between two routing decisions, where nothing else is said


class TuplePolicies(Entity, frozen=True):
    """The tuple policies of a whole application, as texts: a name, or `name:parameter=value,…`.

    Where a text is empty, it is as without policies: tuples are dealt out as each stream's grouping has it, and sent as
    they are made. In a plan it is not named, and stays as it is where the plan is applied; `none` there is no policy.
    """

    routing: str = ""  # for every stream that takes one
    streams: dict[str, str] = {}  # label of a stream -> its own, in place of that
    sending: str = ""
    slot_ms: Positive | None = None  # between two routing decisions of an out-queue; None: as usual

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
        return USUAL_SLOT_MS if self.slot_ms is None else self.slot_ms

    @property
    def texts(self) -> dict[str, str]:
        """What is set, for people: `routing`, `routing of STREAM`, `sending`, `slot`."""
        named = {"routing": self.routing}
        named |= {f"routing of {label}": spec for label, spec in self.streams.items()}
        named |= {"sending": self.sending}
        found = {name: text for name, text in named.items() if text}
        return found | ({"slot": f"{self.slot:g} ms"} if found else {})
