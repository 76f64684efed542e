"""Result of an exact search: the best placement found, and a lower bound of the cost."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.model.placement import Hop
from penstock.model.taskgraph import Ints

PROVEN = 1e-6  # relative; the solver does not distinguish closer values


@dataclass(frozen=True, slots=True)
class Candidate:
    """A placement and its cost; lower is better."""

    slots: Ints  # [T]
    cost: float
    routes: Mapping[Hop, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Proof:
    """The best candidate (none if none was found), and a lower bound of any placement's cost.

    `impossible`: there is no placement at all.
    """

    best: Candidate | None
    bound: float
    impossible: bool = False


def better(one: Candidate | None, other: Candidate | None) -> Candidate | None:
    """Return the candidate with the lower cost, the first if they are equal."""
    if one is None or other is None:
        return one or other
    return other if other.cost < one.cost else one
