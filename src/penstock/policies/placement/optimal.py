"""The optimal placement, proven: the reference for all other policies, on cases that are small enough.

Rate and traffic are solved as mixed-integer programs (HiGHS); SPARCLE's authors search exhaustively for the rate. For
any other objective, every placement is scored, up to symmetry.
"""

import time
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from penstock.model.errors import InvalidInput
from penstock.model.kernel import Preparation, preparing
from penstock.model.placement import Infeasible, Placement
from penstock.model.taskgraph import Ints
from penstock.model.topology import Application
from penstock.policies.api import Evaluate, PlacementView
from penstock.policies.placement.draft import complete
from penstock.policies.placement.drafts import packed
from penstock.policies.placement.exact import refusal
from penstock.policies.placement.exact.enumeration import count_up_to_tasks, placements
from penstock.policies.placement.exact.program import MAX_COLUMNS, TooLarge
from penstock.policies.placement.exact.proof import PROVEN
from penstock.policies.placement.exact.rate import least_stressed, minimise_stress
from penstock.policies.placement.exact.traffic import least_crossing, minimise_traffic
from penstock.policies.placement.local_search import LocalSearch, nothing_allowed
from penstock.policies.placement.rearrangement import first_placements

BATCH = 4096  # placements scored at a time
WARM_UP = LocalSearch(seconds=None, steps=3000)
WARM_UP_TASKS = 100  # with more tasks a score takes too long for a warm-up


@dataclass(frozen=True, slots=True)
class Optimal:
    """Find the best placement and prove that it is.

    Objective `throughput`: the highest bottleneck rate (1a), with streams split evenly; on a routed network routes are
    chosen together with slots, one for each stream and pair of machines. `traffic`: the fewest bytes between machines;
    if the application declares its load, among placements whose slots, machines, other resources and network cards (not
    links) sustain it. Any other, or with local streams: all placements are scored, tasks of one component being
    equivalent.

    seconds: time limit; then the best placement found is returned with its gap to the bound.
    limit: maximum number of placements to score, equivalent ones counted once.
    """

    seconds: float = 30.0
    limit: int = 2_000_000

    def __post_init__(self) -> None:
        for name, least in (("seconds", 0), ("limit", 1)):
            if getattr(self, name) < least:
                raise InvalidInput(name, f"expected ≥ {least}, got {getattr(self, name)}")

    def place(self, view: PlacementView, rng: np.random.Generator) -> Placement | Infeasible:
        """Return the best placement, with gap 0 if it is proven; `rng` draws the placements a search starts from.

        Raises `ValueError` if every placement must be scored and the view has no `evaluate`.
        """
        if (short := refusal.without_room(view)) is not None:
            return short
        with preparing() as kernels:
            run = _Run(view, rng, time.perf_counter() + self.seconds, self, kernels)
            try:
                if any(flow.local for flow in view.tasks.flows):  # their traffic depends on the placement
                    return run.highest_score()
                if view.objective == "throughput":
                    return run.highest_rate()
                return run.least_traffic() if view.objective == "traffic" else run.highest_score()
            except TooLarge:
                size = f"a program of more than {MAX_COLUMNS} variables"
                return refusal.too_large(size, MAX_COLUMNS + 1.0, MAX_COLUMNS)


@dataclass(frozen=True, slots=True)
class _Run:
    """One search: its input and its deadline, which excludes the time to compile kernels."""

    view: PlacementView
    rng: np.random.Generator
    ends: float
    policy: Optimal
    kernels: Preparation

    def highest_rate(self) -> Placement | Infeasible:
        """Return the placement of the highest bottleneck rate."""
        view = self.view
        start = least_stressed(view, self._candidates(), linked=view.cluster.routed)
        proof = minimise_stress(view, start, self._left(), linked=view.cluster.routed)
        if proof.best is None:
            return self._nothing(proof.impossible)
        gap = 1.0 - proof.bound / proof.best.cost if proof.best.cost > 0 else 0.0
        gap, note = _proven(gap)
        if any(flow.chosen and len(view.tasks.of(flow.target)) > 1 for flow in view.tasks.flows):
            note = f"{note}, with evenly split streams"
        return Placement(tuple(proof.best.slots.tolist()), proof.best.routes, gap, note)

    def least_traffic(self) -> Placement | Infeasible:
        """Return the placement with the minimum traffic among those that sustain the offered load."""
        view = self.view
        offered = view.topology.offered_tps if isinstance(view.topology, Application) else None
        most = np.inf if offered is None else 1.0 / offered
        candidates = self._candidates()
        proof = minimise_traffic(view, least_crossing(view, candidates, most), most, self._left())
        if proof.best is not None:
            above = proof.best.cost - proof.bound
            gap = above / proof.bound if proof.bound > 0 else np.inf if above > 0 else 0.0
            return complete(view, proof.best.slots.tolist(), *_proven(gap))
        if proof.impossible and offered is not None:
            fastest = minimise_stress(view, least_stressed(view, candidates, linked=False), self._left(), linked=False)
            if fastest.best is not None and fastest.best.cost > most:
                return refusal.too_slow(offered, 1.0 / fastest.best.cost)
        return self._nothing(proof.impossible)

    def highest_score(self) -> Placement | Infeasible:
        """Return the placement with the highest score of all."""
        view = self.view
        every = placements(view, self.policy.limit) if view.evaluate is not None else None
        if every is not None and view.evaluate is not None:
            return self._best_of(every, view.evaluate)
        if view.objective == "throughput":
            fastest = self.highest_rate()
            return self._or_searched(fastest) if isinstance(fastest, Placement) else fastest
        if view.evaluate is None:
            raise ValueError(f"optimal needs a view with evaluate for objective {view.objective!r}")
        count = count_up_to_tasks(view)
        return refusal.too_large(f"scores of up to {count:g} placements", count, self.policy.limit)

    def _or_searched(self, fastest: Placement) -> Placement:
        """Return the placement with the highest rate, or a search's result with a higher score: neither is proven."""
        view = self.view
        note = "the highest bottleneck rate, streams split evenly; not proven for the estimate of throughput"
        if view.evaluate is not None and view.tasks.number <= WARM_UP_TASKS:
            searched = WARM_UP.place(view, self.rng)
            if isinstance(searched, Placement):
                scores = view.evaluate(np.array([fastest.slots, searched.slots], dtype=np.int32))
                if scores[1] > scores[0] * (1 + 1e-6):
                    return replace(
                        searched, note="found by search, with more throughput than the highest rate; not proven"
                    )
        return replace(fastest, gap=None, note=note)

    def _best_of(self, every: NDArray[np.int16], evaluate: Evaluate) -> Placement | Infeasible:
        best, best_score, done = every[0], -np.inf, 0
        while done < len(every) and (done == 0 or self._left() > 0):
            batch = every[done : done + BATCH]
            scores = evaluate(batch.astype(np.int32))
            if scores.max() > best_score:
                best, best_score = batch[np.argmax(scores)], scores.max()
            done += len(batch)
        if best_score == -np.inf:
            unfit = isinstance(packed(self.view), Infeasible) and done == len(every)
            return refusal.unpackable(self.view) if unfit else nothing_allowed(self.view, best.tolist(), done)
        if done == len(every):
            return complete(self.view, best.tolist(), gap=0.0, note=f"best of all {done} placements that differ")
        note = f"stopped after {self.policy.seconds:g} s: best of {done} of {len(every)} placements that differ"
        return complete(self.view, best.tolist(), note=note)

    def _candidates(self) -> list[Ints]:
        """Return placements that are easy to find."""
        made = first_placements(self.view, self.rng)
        found = [] if isinstance(made, Infeasible) else list(made)
        if found and self.view.evaluate is not None and self.view.tasks.number <= WARM_UP_TASKS:
            searched = WARM_UP.place(self.view, self.rng)
            found += [np.array(searched.slots, dtype=np.int32)] if isinstance(searched, Placement) else []
        return found

    def _nothing(self, impossible: bool) -> Infeasible:
        """Return the refusal: why no placement was found."""
        if not impossible:
            return refusal.out_of_time(self.policy.seconds)
        if self.view.cluster.routed:
            unlinked = minimise_stress(self.view, None, self._left(), linked=False)
            if not unlinked.impossible:
                return refusal.out_of_time(self.policy.seconds) if unlinked.best is None else refusal.unroutable()
        return refusal.unpackable(self.view)

    def _left(self) -> float:
        return self.ends + self.kernels.seconds - time.perf_counter()


def _proven(gap: float) -> tuple[float, str]:
    """Return the gap to report, and a note about it."""
    if gap <= PROVEN:
        return 0.0, "proven best"
    return float(gap), f"stopped early: at most {gap:.2%} from the best" if np.isfinite(gap) else "stopped early"
