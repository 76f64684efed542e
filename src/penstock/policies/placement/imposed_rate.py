"""Place tasks by the rate that they would impose, SPARCLE's γ of eq. (2): by rank, or in a given order.

Pinned tasks come first. Each of the others is put where γ is highest, and its transports to placed neighbours use the
widest paths (Algorithm 1): policies differ in the order of tasks and in their tie rules.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from penstock.model.placement import Hop, Infeasible, Placement
from penstock.model.routes import hop_bits
from penstock.policies.api import PlacementView
from penstock.policies.placement.assignment import Result, assign
from penstock.policies.placement.draft import Draft, complete
from penstock.policies.placement.partial_placement import capacities_of, workload_of
from penstock.policies.placement.rearrangement import make_room
from penstock.policies.placement.routed_traffic import Hops

Ties = Literal["lowest", "near"]


def place_by_rank(view: PlacementView, ties: Ties, together: bool) -> Placement | Infeasible:
    """Place the task next that would lower the rate most, where γ is highest; `together`: transports share links."""
    return _assigned(view, (), ties, together)


def place_in_order(view: PlacementView, order: Sequence[int], ties: Ties) -> Placement | Infeasible:
    """Put every task where γ is highest, each transport rated separately: pinned ones first, others in order."""
    return _assigned(view, order, ties, together=False)


def _assigned(view: PlacementView, order: Sequence[int], ties: Ties, together: bool) -> Placement | Infeasible:
    """Return the placement with the routes by which it was rated, or the refusal."""
    turns = np.array(order, dtype=np.int32)
    found = assign(workload_of(view), capacities_of(view), ties == "near", together, turns)
    if found.unplaced >= 0:
        return _rearranged(view, found)
    slots = found.slot.tolist()
    if not view.cluster.routed:
        return Placement(tuple(slots))
    routes = _routes(found.hops)
    sizeless = any(stream.tuple_bytes == 0 for stream in view.topology.streams)  # no load, but it needs a route
    unrouted = sizeless and any(hop not in routes for hop in hop_bits(view.tasks, view.slots, found.slot))
    return complete(view, slots) if unrouted or () in routes.values() else Placement(tuple(slots), routes)


def _rearranged(view: PlacementView, found: Result) -> Placement | Infeasible:
    """Return the result for a task without room."""
    draft = Draft(view)
    for task in np.flatnonzero(found.slot >= 0).tolist():
        draft.put(task, int(found.slot[task]))
    return make_room(draft, found.unplaced)


def _routes(hops: Hops) -> dict[Hop, tuple[int, ...]]:
    number = int(hops.filled[0])
    first = hops.first[: number + 1].tolist()
    links = hops.links[: first[-1]].tolist()
    ends = zip(hops.stream[:number].tolist(), hops.source[:number].tolist(), hops.target[:number].tolist(), strict=True)
    return {Hop(*hop): tuple(links[first[at] : first[at + 1]]) for at, hop in enumerate(ends)}
