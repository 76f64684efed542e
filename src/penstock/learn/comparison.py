"""Policies on random instances: their rewards (TATA, eq. (13)) and times, all on the same instances."""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.estimate.evaluator import Evaluator
from penstock.estimate.flow import TATA, FlowEstimate
from penstock.learn.instances import draw_pairs
from penstock.model.objective import Objective
from penstock.model.placement import Placement
from penstock.policies.api import PlacementView
from penstock.policies.placement.learned.weights import NETWORKS
from penstock.policies.registry import placement_policy

TRAINABLE = NETWORKS


class Compared(NamedTuple):
    """A policy on all instances; the reward of an instance that it could not place is missing (nan)."""

    policy: str
    rewards: NDArray[np.float64]
    seconds: NDArray[np.float64]

    def against(self, other: "Compared") -> tuple[float, float]:
        """Return the mean difference of the rewards to another policy's, and half the width of its 95 % interval."""
        difference = self.rewards - other.rewards
        difference = difference[np.isfinite(difference)]
        if len(difference) < 2:
            return float("nan"), float("nan")
        return float(difference.mean()), float(1.96 * difference.std(ddof=1) / np.sqrt(len(difference)))


def compare(
    policies: Sequence[str], kind: str, pairs: int, seed: int, on_progress: Callable[[int], object] = int
) -> list[Compared]:
    """Return the rewards by TATA's estimate, λ = 0.8, and the times of policies on random instances of a kind."""
    chosen = [placement_policy(policy) for policy in policies]
    rewards, seconds = np.full((len(policies), pairs), np.nan), np.zeros((len(policies), pairs))
    for number, (view, reference) in enumerate(draw_pairs(kind, pairs, seed)):
        score = Evaluator(view.topology, view.cluster, TATA).scorer(Objective.BALANCED, FlowEstimate(*reference[0]))
        for row, policy in enumerate(chosen):
            own = PlacementView(view.topology, view.cluster, Objective.BALANCED, score)
            began = time.perf_counter()
            placed = policy.place(own, np.random.default_rng(seed))
            seconds[row, number] = time.perf_counter() - began
            if isinstance(placed, Placement):
                rewards[row, number] = score(np.array([placed.slots], dtype=np.int32))[0]
        on_progress(number + 1)
    return [Compared(*row) for row in zip(policies, rewards, seconds, strict=True)]
