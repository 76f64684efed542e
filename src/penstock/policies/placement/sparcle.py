"""SPARCLE's task assignment (Algorithm 2): the remaining task that would lower the rate most is placed next.

For every task that is not placed yet, γ of eq. (2) is the rate that each machine would allow. The task whose best
machine allows least is put there, and its transports to placed neighbours use the widest paths (Algorithm 1). Pinned
tasks, as sources and sinks are in the paper, come first.

With `ties=lowest,together=false` this is exactly the paper's algorithm. It is not the default: on 160 random stars and
lines of 8 machines, with links as fast as machines, it reached on average 0.64 of the optimal rate, 0.74 with ties to
near machines, and 0.85 if transports that share links are also rated together.
"""

from dataclasses import dataclass

import numpy as np

from penstock.model.placement import Infeasible, Placement
from penstock.policies.api import PlacementView
from penstock.policies.placement.imposed_rate import Ties, place_by_rank


@dataclass(frozen=True, slots=True)
class Sparcle:
    """Place the task first that limits the rate most, each where the rate decreases least.

    ties: among equally good machines, `near` selects the one with the fewest bits × links to placed neighbours, then
        the one with more capacity; `lowest` the first, as SPARCLE's reference results do.
    together: rate the transports between a task and the placed tasks around it as they share links; `false` rates each
        separately, as eq. (2) does.
    """

    ties: Ties = "near"
    together: bool = True

    def place(self, view: PlacementView, rng: np.random.Generator) -> Placement | Infeasible:
        """Return the placement; `rng` is not used."""
        return place_by_rank(view, self.ties, self.together)
