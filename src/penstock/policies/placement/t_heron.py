"""T-Heron, POTUS's placement (section 5.1): the busiest tasks first, each where it adds least inter-container traffic.

POTUS adapts T-Storm to Heron: it sorts all tasks "by their descending order of (incoming and outgoing) tuple traffic
rate" and gives each to one of the *available* containers. A container is one process here. The paper does not define
availability; without a limit all tasks would be in one container, so here each has a capacity.
"""

from dataclasses import dataclass

import numpy as np

from penstock.model.entity import Count
from penstock.model.placement import Constraint, Infeasible, Placement
from penstock.model.taskgraph import Bools, task_names
from penstock.policies.api import PlacementView
from penstock.policies.placement.affinity import Affinity, busiest_first
from penstock.policies.placement.draft import Draft
from penstock.policies.placement.rearrangement import make_room
from penstock.policies.placement.t_storm import within_limit

_USUAL_CAPACITY = 10


@dataclass(frozen=True, slots=True)
class THeron:
    """Put each task in the container with the highest affinity, ties by number.

    capacity: maximum number of tasks per container, including pinned ones; more are refused. None: 10, or tasks divided
        by containers if that is more; if no container below that has room, the least filled ones with room take one
        more.
    """

    capacity: Count | None = None

    def place(self, view: PlacementView, rng: np.random.Generator) -> Placement | Infeasible:
        """Return the placement; `rng` is not used."""
        containers = int(view.slots.process[-1]) + 1
        first = np.searchsorted(view.slots.process, np.arange(containers + 1))
        limit = self.capacity
        if limit is None:
            limit = max(_USUAL_CAPACITY, -(-view.tasks.number // containers))
        draft, affinity = Draft(view), Affinity(view, containers)
        tasks_in = np.zeros(containers, dtype=np.int32)
        for task in busiest_first(view).tolist():
            room: Bools = np.logical_or.reduceat(draft.slots_with_room(task), first[:-1])
            if not room.any():
                return make_room(draft, task) if self.capacity is None else draft.refusal(task)
            if self.capacity is not None and tasks_in[room].min() >= limit:
                return _full(view, task, limit)
            pull = np.where(within_limit(limit, tasks_in, room), affinity.pull(task), -1.0)
            container = int(np.argmax(pull))
            draft.put_among(task, int(first[container]), int(first[container + 1]))
            affinity.put(task, container)
            tasks_in[container] += 1
        return draft.done()


def _full(view: PlacementView, task: int, capacity: int) -> Infeasible:
    return Infeasible(
        constraint=Constraint.SLOTS,
        reason=f"every container with memory for task {task_names(view.topology)[task]} has {capacity} tasks, "
        "the policy's capacity; raise it, or add containers",
        needed=float(capacity + 1),
        available=float(capacity),
    )
