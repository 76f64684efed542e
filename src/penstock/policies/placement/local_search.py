"""Simulated annealing on the view's score: the best placement within a limit of time or of scored placements.

Several chains walk in lockstep, so that one call of `view.evaluate` scores a move of each. A move changes the slot of
one task or swaps two tasks of different components. The temperature decreases geometrically; its unit is the median
score difference of a move, so scores may have any scale. Periodically, the worst quarter of the chains is replaced by
copies of the best quarter.
"""

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penstock.model.errors import InvalidInput
from penstock.model.kernel import Preparation, interpreting, preparing
from penstock.model.placement import Constraint, Infeasible, Placement
from penstock.model.taskgraph import Floats
from penstock.policies.api import Evaluate, PlacementView
from penstock.policies.placement.draft import complete
from penstock.policies.placement.rearrangement import first_placements

Placed = NDArray[np.int32]

DRAWN = 64  # moves per chain that are drawn at a time
REGROUP = 24  # moves of each chain between two regroupings
WALK = 150  # minimum number of moves per chain before that; with fewer, fewer chains are better


@dataclass(frozen=True, slots=True)
class LocalSearch:
    """Anneal several placements at once and keep the best one seen.

    seconds: time limit; None: until `steps`.
    steps: maximum number of placements to score; None: until `seconds`. With `seconds` None, the result depends only on
        the random seed.
    chains: number of placements annealed at once, fewer if there is time for few moves only.
    hot, cold: first and last temperature, in median score differences of a move.
    swaps: share of moves that swap two tasks.
    """

    seconds: float | None = 0.5
    steps: int | None = None
    chains: int = 32
    hot: float = 0.3
    cold: float = 0.002
    swaps: float = 0.4

    def __post_init__(self) -> None:
        if self.seconds is None and self.steps is None:
            raise InvalidInput("seconds", "expected a limit here or at steps, got none")
        for name, least in (("seconds", 0), ("steps", 1), ("chains", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise InvalidInput(name, f"expected ≥ {least}, got {value}")
        if not 0 <= self.swaps <= 1:
            raise InvalidInput("swaps", f"expected a share from 0 to 1, got {self.swaps}")
        if not 0 < self.cold <= self.hot:
            raise InvalidInput("cold", f"expected > 0 and ≤ hot, got {self.cold} and hot {self.hot}")

    def place(self, view: PlacementView, rng: np.random.Generator) -> Placement | Infeasible:
        """Return the best placement seen, never worse than the constructive ones that the search starts from.

        Raises `ValueError` for a view without `evaluate`, which gives the score.
        """
        if view.evaluate is None:
            raise ValueError("local-search needs a view with evaluate")
        with interpreting(False), preparing() as kernels:
            return self._place(view, view.evaluate, rng, kernels)

    def _starts(self, view: PlacementView, rng: np.random.Generator) -> Placed | Infeasible:
        """Return the placements from which the search starts, [N, T]; a refusal if there is none."""
        return first_placements(view, rng)

    def _place(
        self, view: PlacementView, evaluate: Evaluate, rng: np.random.Generator, kernels: Preparation
    ) -> Placement | Infeasible:
        began = time.perf_counter()
        first = self._starts(view, rng)
        if isinstance(first, Infeasible):
            return first
        search = _Search(evaluate, first)
        budget = _Budget(self, began, search, kernels)
        moves = _Moves(view, self.swaps, budget.chains, rng)
        if moves.possible:
            search.anneal(self, moves, budget, rng)
        if search.best_score == -np.inf:
            return nothing_allowed(view, search.best.tolist(), search.scored)
        return complete(view, search.best.tolist(), note=f"best of {search.scored} placements scored")


def nothing_allowed(view: PlacementView, slots: list[int], scored: int) -> Infeasible:
    """Return why a search found nothing: no route between two machines, or an objective that rejects all placements."""
    routed = complete(view, slots)
    if isinstance(routed, Infeasible):
        return routed
    return Infeasible(
        constraint=Constraint.SIZE,
        reason=f"the objective {view.objective!r} allows none of the {scored} placements tried; relax it",
        needed=1.0,
        available=0.0,
    )


class _Budget:
    """Spent share of a search's limits, without compiling kernels, and the number of chains that suits them."""

    def __init__(self, policy: LocalSearch, began: float, search: "_Search", kernels: Preparation) -> None:
        self._steps, self._seconds, self._began, self._kernels = policy.steps, policy.seconds, began, kernels
        rows = np.inf if policy.steps is None else float(policy.steps)
        if policy.seconds is not None:
            rows = min(rows, policy.seconds / search.seconds_a_row())
        self.chains = int(np.clip(rows / WALK, 1, policy.chains))

    def spent(self, scored: int) -> float:
        """Return the larger spent share of the two limits; 1 or more: the search is over."""
        steps = 0.0 if self._steps is None else (scored + self.chains) / (self._steps + 1)
        if self._seconds is None:
            return steps
        searched = time.perf_counter() - self._began - self._kernels.seconds
        return max(steps, searched / max(self._seconds, 1e-9))


class _Moves:
    """Random moves for all chains at once; a task stays in the slots that its pin allows."""

    def __init__(self, view: PlacementView, swaps: float, chains: int, rng: np.random.Generator) -> None:
        pinned = view.pins >= 0
        first, last = view.slots.first[view.pins], view.slots.first[view.pins + 1]
        self._first = np.where(pinned, first, 0)  # first allowed slot of a task
        self._number = np.where(pinned, last - first, view.slots.number)  # number of allowed slots
        self._free = np.flatnonzero(self._number > 1)
        self._component = view.tasks.component
        self._swaps, self._rng, self._shape = swaps, rng, (DRAWN, chains)
        self._chain = np.arange(chains)
        self._left = 0

    @property
    def possible(self) -> bool:
        """Whether any task has more than one allowed slot."""
        return len(self._free) > 0

    def propose(self, current: Placed) -> Placed:
        """Return a neighbour of each placement: [chains, T]."""
        if not self._left:
            self._draw()
        self._left -= 1
        chain, task, other = self._chain, self._task[self._left], self._other[self._left]
        here, there = current[chain, task], current[chain, other]
        swap = self._swap[self._left] & self._may_use(task, there) & self._may_use(other, here) & (here != there)
        first, number = self._first[task], self._number[task]
        elsewhere = first + (here - first + self._by[self._left]) % number
        proposed = current.copy()
        proposed[chain, other] = np.where(swap, here, there)
        proposed[chain, task] = np.where(swap, there, elsewhere)
        return proposed

    def _draw(self) -> None:
        rng, shape = self._rng, self._shape
        self._task = self._free[rng.integers(len(self._free), size=shape)]
        self._other = self._free[rng.integers(len(self._free), size=shape)]
        self._by = rng.integers(1, self._number[self._task])  # never its own slot
        different = self._component[self._task] != self._component[self._other]  # tasks of one component are equivalent
        self._swap = (rng.random(shape) < self._swaps) & different
        self._left = DRAWN

    def _may_use(self, task: NDArray[np.int64], slot: Placed) -> NDArray[np.bool_]:
        offset = slot - self._first[task]
        allowed: NDArray[np.bool_] = (offset >= 0) & (offset < self._number[task])
        return allowed


class _Search:
    """The best placement seen, and the chains that search for a better one."""

    def __init__(self, evaluate: Evaluate, first: Placed) -> None:
        self._evaluate, self._first = evaluate, first
        self._first_scores = evaluate(first)
        self.scored = len(first)
        best = int(np.argmax(self._first_scores))
        self.best, self.best_score = first[best].copy(), float(self._first_scores[best])

    def seconds_a_row(self) -> float:
        """Return the time to score a placement."""
        began = time.perf_counter()
        self._evaluate(self._first)
        return (time.perf_counter() - began) / len(self._first) + 1e-9

    def anneal(self, policy: LocalSearch, moves: _Moves, budget: _Budget, rng: np.random.Generator) -> None:
        """Walk until the budget is spent."""
        by_score = np.argsort(-self._first_scores, kind="stable")
        turn = by_score[np.arange(budget.chains) % len(by_score)]
        current, scores = self._first[turn], self._first_scores[turn]
        unit, step = 0.0, 0
        while (spent := budget.spent(self.scored)) < 1.0:
            proposed = moves.propose(current)
            new = self._evaluate(proposed)
            self._note(proposed, new)
            unit = unit or _usual_difference(scores, new)
            heat = unit * policy.hot * (policy.cold / policy.hot) ** spent
            taken = new >= scores - heat * rng.standard_exponential(budget.chains)
            current[taken], scores[taken] = proposed[taken], new[taken]
            step += 1
            if step % REGROUP == 0:
                _regroup(current, scores)

    def _note(self, placed: Placed, scores: Floats) -> None:
        self.scored += len(placed)
        best = int(np.argmax(scores))
        if scores[best] > self.best_score:
            self.best, self.best_score = placed[best].copy(), float(scores[best])


def _usual_difference(before: Floats, after: Floats) -> float:
    """Return the median change of the scores that changed; 0 if none did."""
    known = np.isfinite(before) & np.isfinite(after)
    change = np.abs(after[known] - before[known])
    change = change[change > 0]
    return float(np.median(change)) if len(change) else 0.0


def _regroup(current: Placed, scores: Floats) -> None:
    """Replace the worst quarter of the chains by copies of the best quarter."""
    quarter = len(scores) // 4
    order = np.argsort(scores, kind="stable")
    worst, best = order[:quarter], order[len(order) - quarter :]
    current[worst], scores[worst] = current[best], scores[best]
