"""What a policy is: a pure function from a read-only view to a small value, one verb a kind.

A placement policy is any object with `place(view, rng)`. Its parameters are the fields of a frozen dataclass. It
remembers nothing between calls, takes all randomness from `rng`, leaves the view unchanged, and answers a case that
it cannot place with `Infeasible`; exceptions are for parameters that make no sense and for views that lack what it
needs. It does not check its own result: `checks` does.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from penstock.model.instance import Instance
from penstock.model.placement import Infeasible, Placement
from penstock.model.taskgraph import Floats

Evaluate = Callable[[NDArray[np.int32]], Floats]
"""From placements [B, T] (a slot for every task) to scores [B]: higher is better, -inf is not allowed at all."""


@dataclass(frozen=True)
class PlacementView(Instance):
    """What a placement policy may look at.

    `objective` and `evaluate` say what is wanted: the objective's name, and a function that scores placements. Policies
    that follow a rule of their own ignore both.
    """

    objective: str = "throughput"
    evaluate: Evaluate | None = None


@runtime_checkable
class PlacementPolicy(Protocol):
    """Decides in which slot every task runs."""

    def place(self, view: PlacementView, rng: np.random.Generator) -> Placement | Infeasible:
        """Return a slot for every task, with routes where the network is routed, or why there is none."""
        ...
