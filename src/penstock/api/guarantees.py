"""Delivery guarantees of an application after failures, by source and sink, and rejection of weaker ones.

After a failure everything is rolled back to the last checkpoint. A source that rewinds emits the tuples since then
again; one that cannot has lost them. A sink either withdraws what it wrote since then, or has written some of it twice.
Between sources and sinks, nothing is lost or duplicated.
"""

from dataclasses import dataclass

from penstock.api.contracts import Sink, Source
from penstock.api.dataflow import Dataflow
from penstock.model.errors import InvalidInput, UnknownName, nearest

EXACTLY_ONCE = "exactly-once"
ANY = "any"


@dataclass(frozen=True)
class Guarantee:
    """The delivery guarantee of a source or a sink."""

    component: str
    kind: str  # source or sink
    made_by: str  # the class
    exactly_once: bool
    text: str  # "exactly once: it rewinds"

    def __str__(self) -> str:
        return f"{self.kind} {self.component!r} ({self.made_by}): {self.text}"


def guarantees(flow: Dataflow) -> list[Guarantee]:
    """Return the guarantee of each source and each sink, in the order of the dataflow."""
    made = ((name, part.make()) for name, part in flow.parts.items())
    return [_of(name, logic) for name, logic in made if isinstance(logic, Source | Sink)]


def require_guarantee(flow: Dataflow, guarantee: str) -> None:
    """Reject a dataflow with a weaker guarantee than `exactly-once`, or accept `any`."""
    if guarantee not in (EXACTLY_ONCE, ANY):
        raise UnknownName("guarantee", f"unknown guarantee {guarantee!r}; {nearest(guarantee, (EXACTLY_ONCE, ANY))}")
    if guarantee == ANY:
        return
    for found in guarantees(flow):
        if found.exactly_once:
            continue
        if found.kind == "source":
            problem = f"expected a source that rewinds, for {EXACTLY_ONCE}; {found.made_by} cannot"
            remedy = "store its input in files and read them with Lines"
        else:
            problem = f"expected a sink that can withdraw output, for {EXACTLY_ONCE}; {found.made_by} cannot"
            remedy = "use a sink that extends PartFiles, such as JsonLines or Parquet"
        raise InvalidInput(f"{flow.name}.{found.component}", f"{problem}; {remedy}, or request {ANY!r}")


def _of(name: str, logic: Source[object] | Sink[object]) -> Guarantee:
    made_by = type(logic).__name__
    if isinstance(logic, Source):
        exactly, kind = logic.rewinds, "source"
        text = "exactly once: it rewinds" if exactly else f"at most once after a failure: {made_by} cannot rewind"
    else:
        exactly, kind = logic.exactly_once, "sink"
        kept = "exactly once: output becomes visible with a complete checkpoint"
        text = kept if exactly else "at least once after a failure: its output cannot be withdrawn"
    return Guarantee(name, kind, made_by, exactly, text)
