"""SPARCLE's task assignment (Algorithm 2): of the tasks left, the one that would lower the rate most is placed next.

For every task that is not placed yet γ of eq. (2) says what rate each machine would allow; the task whose best machine
allows least is put there, and what it exchanges with its placed neighbours takes the widest paths (Algorithm 1).
Pinned tasks, as sources and sinks are in the paper, come first.

With `ties=lowest,together=false` this is the paper's algorithm to the letter. Neither is the default, since on 160
random stars and lines of 8 machines, links as fast as machines, it had on average 0.64 of the highest rate there is,
0.74 with ties to what is near, and 0.85 where transports that share links are also rated together.
"""

from dataclasses import dataclass

import numpy as np

from penstock.model.placement import Infeasible, Placement
from penstock.policies.api import PlacementView
from penstock.policies.placement.imposed_rate import Ties, place_by_rank


@dataclass(frozen=True, slots=True)
class Sparcle:
    """Place the task first that the rate will suffer from most, each where the rate falls least.

    ties: among equally good machines `near` takes the one with the least bits × links to the neighbours placed, then
        the roomier; `lowest` the first, as SPARCLE's reference answers do.
    together: rate the transports between a task and the placed tasks around it as they share links; `false` rates each
        alone, as eq. (2) does.
    """

    ties: Ties = "near"
    together: bool = True

    def place(self, view: PlacementView, rng: np.random.Generator) -> Placement | Infeasible:
        """Return the placement; `rng` is not used."""
        return place_by_rank(view, self.ties, self.together)
