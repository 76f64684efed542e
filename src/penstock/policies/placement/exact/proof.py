"""What an exact search returns: the best placement it found, and what no placement can be better than."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.model.placement import Hop
from penstock.model.taskgraph import Ints

PROVEN = 1e-6  # relative; the solver does not tell apart what is closer


@dataclass(frozen=True, slots=True)
class Candidate:
    """A placement and its cost, the less the better."""

    slots: Ints  # [T]
    cost: float
    routes: Mapping[Hop, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Proof:
    """The best candidate (none where none was found), and what no placement's cost is below.

    `impossible` says that there is no placement at all.
    """

    best: Candidate | None
    bound: float
    impossible: bool = False


def better(one: Candidate | None, other: Candidate | None) -> Candidate | None:
    """Return the candidate with the lower cost, the first among equals."""
    if one is None or other is None:
        return one or other
    return other if other.cost < one.cost else one
