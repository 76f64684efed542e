"""T-Storm (Xu et al. 2014): the busiest tasks first, each on the machine where it adds least inter-machine traffic.

A task adds its traffic minus what it exchanges with tasks already on the machine, so the machine with the highest
affinity is chosen. T-Storm gives every machine about the same number of tasks, whatever their cost and the machine's
speed; it ignores heterogeneity.
"""

from dataclasses import dataclass

import numpy as np

from penstock.model.entity import Count
from penstock.model.placement import Infeasible, Placement
from penstock.model.taskgraph import Bools, Ints
from penstock.policies.api import PlacementView
from penstock.policies.placement.affinity import Affinity, busiest_first
from penstock.policies.placement.draft import Draft
from penstock.policies.placement.rearrangement import make_room


@dataclass(frozen=True, slots=True)
class TStorm:
    """Put each task where it adds the least traffic between machines, ties by the number of free tasks there.

    capacity: maximum number of tasks per machine, without pinned ones; none: free tasks divided by machines, rounded
    up.
        If no machine below it has room, the least filled ones with room take one more.
    """

    capacity: Count | None = None

    def place(self, view: PlacementView, rng: np.random.Generator) -> Placement | Infeasible:
        """Return the placement; `rng` is not used."""
        draft, affinity = Draft(view), Affinity(view)
        machines = view.slots.machines
        free = int((view.pins < 0).sum())
        limit = max(1, -(-free // machines)) if self.capacity is None else self.capacity
        free_on = np.zeros(machines, dtype=np.int32)
        for task in busiest_first(view).tolist():
            room = draft.machines_with_room(task)
            if not room.any():
                return make_room(draft, task)
            pinned = view.pins[task] >= 0
            candidates = np.flatnonzero(room if pinned else within_limit(limit, free_on, room))
            pull = affinity.pull(task)[candidates]
            equals = candidates[pull == pull.max()]
            machine = int(equals[np.argmin(free_on[equals])])
            draft.put_on(task, machine)
            affinity.put(task, machine)
            free_on[machine] += not pinned
        return draft.done()


def within_limit(limit: int, tasks_in: Ints, room: Bools) -> Bools:
    """Return places with room and fewer than `limit` tasks; if there are none, those with the fewest."""
    spare: Bools = room & (tasks_in < max(limit, int(tasks_in[room].min()) + 1))
    return spare
