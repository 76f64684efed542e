"""Policies on random instances: their rewards (TATA, eq. (13)) and times, all on the same instances."""

import time
from collections.abc import Callable, Iterator, Sequence
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
    rewards, seconds = np.full((len(policies), pairs), np.nan), np.zeros((len(policies), pairs))
    for number, (view, reference) in enumerate(draw_pairs(kind, pairs, seed)):
        for row, one in enumerate(judged(policies, view, reference, seed)):
            rewards[row, number], seconds[row, number] = one.reward, one.seconds
        on_progress(number + 1)
    return [Compared(*row) for row in zip(policies, rewards, seconds, strict=True)]


class Judged(NamedTuple):
    """A policy's placement of one instance."""

    policy: str
    reward: float  # nan without a placement
    seconds: float


def judged(policies: Sequence[str], view: PlacementView, reference: NDArray[np.float64], seed: int) -> Iterator[Judged]:
    """Yield what each policy reaches on an instance; `reference` is that of `draw_pairs`."""
    score = Evaluator(view.topology, view.cluster, TATA).scorer(Objective.BALANCED, FlowEstimate(*reference[0]))
    for policy in policies:
        own, chosen = PlacementView(view.topology, view.cluster, Objective.BALANCED, score), placement_policy(policy)
        began = time.perf_counter()
        placed = chosen.place(own, np.random.default_rng(seed))
        seconds = time.perf_counter() - began
        reward = float("nan")
        if isinstance(placed, Placement):
            reward = float(score(np.array([placed.slots], dtype=np.int32))[0])
        yield Judged(policy, reward, seconds)
