"""SPARCLE's placement, refined: a few more milliseconds for the rate that a greedy rule misses.

The search starts from the results of `sparcle` with both of its tie rules and of `greedy-sorted`, as far as there is
time for them, and is never worse than the best of these; the default result of `sparcle` is always included. Its only
goal is the bottleneck rate (1a), whatever the view's objective is.
"""

import time
from dataclasses import dataclass, replace

import numpy as np

from penstock.model.errors import InvalidInput
from penstock.model.kernel import Preparation, preparing
from penstock.model.placement import Hop, Infeasible, Placement
from penstock.model.taskgraph import Ints
from penstock.policies.api import PlacementView
from penstock.policies.placement.exact.proof import Candidate
from penstock.policies.placement.exact.stress import least_stress, stress
from penstock.policies.placement.greedy_sorted import GreedySorted
from penstock.policies.placement.refinement import log_of, problem_of, rate, scratch_of
from penstock.policies.placement.refinement_search import SAME, Walk, has_route_choice, search
from penstock.policies.placement.sparcle import Sparcle

STARTS = (Sparcle(), Sparcle(ties="lowest", together=False), GreedySorted())
STEPS = 6e6  # elementary steps of a search if `evaluations` is not set: about 20 ms
MOST = 4000  # maximum number of placements rated in that case
BATCH = 200  # placements rated between two checks of the time
BOUND_S = 30.0  # time limit for a bound


@dataclass(frozen=True, slots=True)
class SparcleRefined:
    """Improve the result of `sparcle` with moves, swaps and new routes.

    With a time limit, as by default, the result depends on the clock if the time ends before the evaluations do: on a
    slow or busy host another placement may be found, never one worse than `sparcle`'s.

    seconds: time limit, including the placements that it starts from, of which the first is always computed; none:
        until `evaluations` are spent, so that the result depends only on the random seed.
    evaluations: maximum number of placements to rate; none: what takes about 20 ms at this size, at most 4000.
    bound: also compute a bound of the rate with a mixed-integer program, and report the gap; takes up to 30 s.
    """

    seconds: float | None = 0.05
    evaluations: int | None = None
    bound: bool = False

    def __post_init__(self) -> None:
        for name, value in (("seconds", self.seconds), ("evaluations", self.evaluations)):
            if value is not None and value < 0:
                raise InvalidInput(name, f"expected ≥ 0, got {value}")

    def place(self, view: PlacementView, rng: np.random.Generator) -> Placement | Infeasible:
        """Return the best placement found; `rng` draws the proposals."""
        began = time.perf_counter()
        with preparing() as prepared:
            budget = _Budget(self, began, prepared)
            answers: list[Placement | Infeasible] = []
            made: list[Placement] = []
            for start in STARTS:
                if made and not budget.in_time():
                    break
                answers.append(start.place(view, rng))
                made = [answer for answer in answers if isinstance(answer, Placement)]
            if not made:
                return answers[0]
            found = _Search(view, made).improve(budget, rng)
        return self.bounded(view, found, BOUND_S) if self.bound else found

    def bounded(self, view: PlacementView, found: Placement, seconds: float) -> Placement:
        """Return a placement with its gap to a bound of the rate, by a mixed-integer program that starts there.

        Building the program does not count towards the time, and takes a second or two in a large network.
        """
        from penstock.policies.placement.exact.rate import minimise_stress

        cost = _stress(view, found)
        start = Candidate(np.array(found.slots, dtype=np.int32), cost, found.routes)
        proof = minimise_stress(view, start, seconds, linked=view.cluster.routed)
        gap = max(0.0, 1.0 - proof.bound / cost) if cost > 0 else 0.0
        return replace(found, gap=gap, note=f"rate at most {gap:.2%} from the best")


class _Budget:
    """Limits of a search; the compilation of kernels does not count."""

    def __init__(self, policy: SparcleRefined, began: float, prepared: Preparation) -> None:
        self.evaluations = policy.evaluations
        self._seconds, self._began, self._prepared = policy.seconds, began, prepared

    def in_time(self) -> bool:
        """Return whether time is left."""
        if self._seconds is None:
            return True
        return time.perf_counter() - self._began - self._prepared.seconds < self._seconds


class _Search:
    """Placements that are being improved."""

    def __init__(self, view: PlacementView, made: list[Placement]) -> None:
        self._view = view
        self._problem = problem_of(view)
        self._scratch, self._log = scratch_of(self._problem), log_of(0, 0)
        self._made = min(made, key=lambda placement: _stress(view, placement))
        self._walks = [self._walk(np.array(slots, dtype=np.int32)) for slots in dict.fromkeys(m.slots for m in made)]
        self._enough = 1.0 / bound if (bound := least_stress(view)) > 0 else np.inf

    def improve(self, budget: _Budget, rng: np.random.Generator) -> Placement:
        """Search from every start for a while, then from the best; return the best placement seen."""
        problem = self._problem
        if len(problem.free) or has_route_choice(problem):
            total = self._affordable() if budget.evaluations is None else budget.evaluations
            for walk in self._walks:
                self._climb(walk, total // (2 * len(self._walks)), budget, rng)
            self._walks.sort(key=lambda walk: (-walk.score[0], walk.score[1]))
            self._climb(self._walks[0], total // 2, budget, rng)
        best = max(self._walks, key=lambda walk: float(walk.score[0]))
        found = Placement(tuple(best.placed.tolist()), self._routes(best))
        return found if _stress(self._view, found) < _stress(self._view, self._made) * (1 - SAME) else self._made

    def _climb(self, walk: Walk, evaluations: int, budget: _Budget, rng: np.random.Generator) -> None:
        problem = self._problem
        moves = len(problem.free) * (len(problem.cpu) + len(problem.free) // 2)
        patience = int(np.clip(moves, 20, 2 * BATCH))
        for done in range(0, evaluations, BATCH):
            if walk.score[0] >= self._enough * (1 - SAME) or not budget.in_time():
                break
            search(problem, self._scratch, self._log, walk, min(BATCH, evaluations - done), patience, rng)

    def _walk(self, placed: Ints) -> Walk:
        order = np.arange(len(self._problem.bits), dtype=np.int32)
        score = rate(self._problem, self._scratch, self._log, placed, order, np.inf, 0.0)
        return Walk(placed, order, np.array([*score, np.inf]))

    def _affordable(self) -> int:
        """Return the number of placements to rate: fewer if one takes longer."""
        problem = self._problem
        steps = len(problem.work) + len(problem.slot_cpu) + problem.capacity.size + 2 * len(problem.cpu)
        if problem.routed:
            width = np.minimum(np.diff(problem.first), len(problem.cpu))
            hops = int((width[problem.flow_source] * width[problem.flow_target]).sum())
            steps += len(problem.links.bandwidth) + hops * problem.links.nodes**2
        return int(min(STEPS / steps, MOST))

    def _routes(self, walk: Walk) -> dict[Hop, tuple[int, ...]]:
        """Return the routes with which a walk's placement was rated."""
        log, problem = self._log, self._problem
        for _ in range(2):  # the first time counts the hops
            rate(problem, self._scratch, log, walk.placed, walk.order, float(walk.score[2]), 0.0)
            log = log_of(*log.filled.tolist()) if len(log.hops) < log.filled[0] else log
        ends = np.cumsum(log.hops[:, 3])
        found = {}
        for (flow, source, target, length), end in zip(log.hops.tolist(), ends.tolist(), strict=True):
            links = log.links[end - length : end][::-1]
            found[Hop(int(problem.stream[flow]), source, target)] = tuple(links.tolist())
        return found if problem.routed else {}


def _stress(view: PlacementView, placement: Placement) -> float:
    return stress(view, np.array(placement.slots, dtype=np.int32), placement.routes if view.cluster.routed else None)
