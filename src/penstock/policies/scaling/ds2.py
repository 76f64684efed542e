"""DS2: the least parallelism that true processing rates require, for all components at once (Kalavri et al. 2018).

The input of a component at the target rate follows from those upstream, in topological order (8); divided by the mean
true rate of its tasks it gives their number (7). The rates of sources are given, so their tasks are not changed. DS2
assumes that a task has a core of its own and that its rate does not depend on the number of tasks.
"""

from dataclasses import dataclass

import numpy as np

from penstock.model.entity import Share
from penstock.model.parallelism import allowed
from penstock.policies.api import Resize, ScalingView
from penstock.policies.scaling.demand import described, required_tasks, whole


@dataclass(frozen=True, slots=True)
class Ds2:
    """Give every component the tasks that its true processing rate requires at the target rate.

    utilisation: share of a task's true rate to use; 1 is the paper's.
    """

    utilisation: Share = 1.0

    def resize(self, view: ScalingView, rng: np.random.Generator) -> Resize:
        """Return the required parallelism; `rng` is not used."""
        needed = whole(required_tasks(view, view.target_tps, self.utilisation))
        found = allowed(view.topology, view.bounds, needed)
        return Resize(found, note=described(view, found))
