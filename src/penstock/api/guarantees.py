"""What an application promises when something fails, source by source and sink by sink, and refusing less than asked.

After a failure everything goes back to the last checkpoint. A source that rewinds gives the tuples since then again;
one that cannot has lost them. A sink either takes back what it wrote since then, or has written some of it twice. In
between nothing is lost or counted twice.
"""

from dataclasses import dataclass

from penstock.api.contracts import Sink, Source
from penstock.api.dataflow import Dataflow
from penstock.model.errors import InvalidInput, UnknownName, nearest

EXACTLY_ONCE = "exactly-once"
ANY = "any"


@dataclass(frozen=True)
class Guarantee:
    """What a source or a sink promises."""

    component: str
    kind: str  # source or sink
    made_by: str  # the class
    exactly_once: bool
    text: str  # "exactly once: it rewinds"

    def __str__(self) -> str:
        return f"{self.kind} {self.component!r} ({self.made_by}): {self.text}"


def guarantees(flow: Dataflow) -> list[Guarantee]:
    """Return what each source and each sink promises, in the order of the dataflow."""
    made = ((name, part.make()) for name, part in flow.parts.items())
    return [_of(name, logic) for name, logic in made if isinstance(logic, Source | Sink)]


def require_guarantee(flow: Dataflow, guarantee: str) -> None:
    """Refuse a dataflow that promises less than is asked for: `exactly-once`, or `any`, which asks for nothing."""
    if guarantee not in (EXACTLY_ONCE, ANY):
        raise UnknownName("guarantee", f"unknown guarantee {guarantee!r}; {nearest(guarantee, (EXACTLY_ONCE, ANY))}")
    if guarantee == ANY:
        return
    for found in guarantees(flow):
        if found.exactly_once:
            continue
        if found.kind == "source":
            problem = f"expected a source that rewinds, for {EXACTLY_ONCE}, {found.made_by} cannot"
            remedy = "keep what comes in files and read those with Lines"
        else:
            problem = f"expected a sink that takes back what it wrote, for {EXACTLY_ONCE}, {found.made_by} cannot"
            remedy = "write with JsonLines or Parquet"
        raise InvalidInput(f"{flow.name}.{found.component}", f"{problem}; {remedy}, or ask for {ANY!r}")


def _of(name: str, logic: Source[object] | Sink[object]) -> Guarantee:
    made_by = type(logic).__name__
    if isinstance(logic, Source):
        exactly, kind = logic.rewinds, "source"
        text = "exactly once: it rewinds" if exactly else f"at most once after a failure: {made_by} cannot rewind"
    else:
        exactly, kind = logic.exactly_once, "sink"
        kept = "exactly once: what it writes counts with a complete checkpoint"
        text = kept if exactly else "at least once after a failure: what it writes cannot be taken back"
    return Guarantee(name, kind, made_by, exactly, text)
