"""T-Storm (Xu et al. 2014): the busiest tasks first, each on the machine where it adds least inter-machine traffic.

What a task adds is its traffic less what it exchanges with tasks already on the machine, so the machine that draws it
most is taken. T-Storm holds every machine to about the same number of tasks, whatever they cost and however fast the
machine is; heterogeneous machines are unknown to it.
"""

from dataclasses import dataclass

import numpy as np

from penstock.model.entity import Count
from penstock.model.placement import Infeasible, Placement
from penstock.model.taskgraph import Bools, Ints
from penstock.policies.api import PlacementView
from penstock.policies.placement.affinity import Affinity, busiest_first
from penstock.policies.placement.draft import Draft


@dataclass(frozen=True, slots=True)
class TStorm:
    """Put each task where it adds least traffic between machines; of equal machines on the one with fewest free tasks.

    capacity: how many tasks a machine takes, those pinned to it not counted; none: the free tasks divided by the
        machines, rounded up. Where no machine below it has room, the least filled ones that have room take one more.
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
                return draft.stuck(task)
            pinned = view.pins[task] >= 0
            candidates = np.flatnonzero(room if pinned else below(limit, free_on, room))
            pull = affinity.pull(task)[candidates]
            equals = candidates[pull == pull.max()]
            machine = int(equals[np.argmin(free_on[equals])])
            draft.put_on(task, machine)
            affinity.put(task, machine)
            free_on[machine] += not pinned
        return draft.done()


def below(limit: int, tasks_in: Ints, room: Bools) -> Bools:
    """Return which places with room hold fewer than `limit` tasks; where none does, those that hold the fewest."""
    spare: Bools = room & (tasks_in < max(limit, int(tasks_in[room].min()) + 1))
    return spare
