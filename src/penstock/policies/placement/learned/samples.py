"""Placements that a network proposes: those that fit, and what to do if none does."""

from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from penstock.model.kernel import interpreting
from penstock.model.placement import Infeasible, Placement
from penstock.policies.api import PlacementView
from penstock.policies.placement.draft import Draft, complete
from penstock.policies.placement.rearrangement import make_room

Placed = NDArray[np.int32]

PAIRS = 2e7  # task × slot × placements that are tried at most, beyond the greedy placement
Propose = Callable[[int], tuple[Placed, NDArray[np.int64]]]
"""From a number of placements to placements [K, T], and for each the first task without room, -1 without one [K]."""


def proposals(view: PlacementView, samples: int, propose: Propose) -> tuple[Placed, Placement | Infeasible | None]:
    """Return placements that respect memory, pins and anti-affinity, the greedy one first if it does; [K, T].

    If none does, tasks of the greedy one are moved until all fit; this placement, or the refusal, comes second.
    """
    rows = int(np.clip(PAIRS / (view.tasks.number * view.slots.number), 1, samples))
    with _libraries().limit(limits=1, user_api="blas"):  # on small arrays, its threads only wait for each other
        placed, stuck = propose(rows)
    fitting = placed[stuck < 0]
    if len(fitting):
        return fitting, None
    draft = Draft(view)
    for task in np.argsort(view.pins < 0, kind="stable").tolist():
        if task == stuck[0]:
            break
        draft.put(task, int(placed[0, task]))
    return fitting, make_room(draft, int(stuck[0]))


@cache
def _libraries() -> ThreadpoolController:
    """Return the libraries for linear algebra that have threads; finding them takes milliseconds."""
    return ThreadpoolController()


def best_of(view: PlacementView, samples: int, propose: Propose) -> Placement | Infeasible:
    """Return the best of some proposed placements by the view's score; the greedy one without a score."""
    fitting, arranged = proposals(view, samples, propose)
    if arranged is not None:
        return arranged
    if view.evaluate is None or len(fitting) == 1:
        return complete(view, fitting[0].tolist())
    with interpreting(False):
        scores = view.evaluate(fitting)
    best = int(np.argmax(scores))
    return complete(view, fitting[best].tolist(), note=f"best of {len(fitting)} placements proposed")
