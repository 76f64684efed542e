"""R-Storm (Peng et al. 2015): each task on the machine whose free resources are nearest to the task's demand.

Tasks are taken breadth-first from the sources, one of each component in turn, so that communicating tasks are placed
one after another. The first goes to the machine with the most resources, the *reference*; each of the others to the
machine with the smallest weighted Euclidean distance between demand and free resources, in the dimensions cpu, memory
and network distance from the reference. Memory is a hard constraint, cpu a soft one: a machine is overloaded only if no
machine has the cpu left.

In R-Storm the user specifies a task's demand. Here the cpu demand of a task is its work at the application's offered
load or, if that is unknown, at the load that all machines together could just sustain. Racks are unknown: the reference
is chosen among all machines.
"""

from collections import deque
from dataclasses import dataclass

import numpy as np

from penstock.model.entity import NonNegative
from penstock.model.placement import Infeasible, Placement
from penstock.model.routes import fewest_links
from penstock.model.taskgraph import Bools, Floats, Ints
from penstock.model.topology import Application
from penstock.policies.api import PlacementView
from penstock.policies.placement.draft import Draft
from penstock.policies.placement.rearrangement import make_room

_CPU_SLACK = 1e-9  # relative; rounding must not reject tasks that just fill a machine


@dataclass(frozen=True, slots=True)
class RStorm:
    """Put each task on the machine nearest to it in resource space, ties by number.

    cpu_weight, memory_weight, network_weight: weight of a difference in each dimension, after cpu and memory are
    divided
        by those of the largest machine and network distance by the largest one.
    """

    cpu_weight: NonNegative = 1.0
    memory_weight: NonNegative = 1.0
    network_weight: NonNegative = 1.0

    def place(self, view: PlacementView, rng: np.random.Generator) -> Placement | Infeasible:
        """Return the placement; `rng` is not used."""
        draft = Draft(view)
        if (stuck := draft.put_pinned()) is not None:
            return make_room(draft, stuck)
        rate = demand_rate(view)
        far: Floats | None = None  # from the reference machine, once there is one
        for task in breadth_first(view).tolist():
            room = draft.machines_with_room(task)
            if not room.any():
                return make_room(draft, task)
            if far is None:
                machine = _most_resources(draft, room, rate)
                far = network_distance(view, machine)
            else:
                machine = self._nearest(draft, task, room, rate, far)
            draft.put_on(task, machine)
        return draft.done()

    def _nearest(self, draft: Draft, task: int, room: Bools, rate: float, far: Floats) -> int:
        slots, demand = draft.view.slots, rate * draft.view.work[task]
        cpu_left = slots.machine_cpu - rate * draft.machine_load
        spare = room & (cpu_left >= demand * (1 - _CPU_SLACK))
        cpu = (cpu_left - demand) / slots.machine_cpu.max()
        memory = (draft.machine_free_mb - draft.view.tasks.memory_mb[task]) / slots.machine_memory_mb.max()
        # the root of the sum is the distance; its square gives the same order
        square = self.cpu_weight * cpu**2 + self.memory_weight * memory**2 + self.network_weight * far**2
        return int(np.argmin(np.where(spare if spare.any() else room, square, np.inf)))


def demand_rate(view: PlacementView) -> float:
    """Return the source tuples per second for which tasks demand cpu: those offered, or those that use all cpu."""
    offered = view.topology.offered_tps if isinstance(view.topology, Application) else None
    if offered is not None:
        return offered
    work = float(view.work.sum())
    return float(view.slots.machine_cpu.sum()) / work if work > 0 else 0.0


def breadth_first(view: PlacementView) -> Ints:
    """Return the free tasks: one of each component in turn, components by distance from the sources."""
    tasks = view.tasks
    down: list[list[int]] = [[] for _ in tasks.position]
    for flow in tasks.flows:
        down[flow.source].append(flow.target)
    waiting = deque(int(component) for component in np.unique(tasks.component[tasks.source]))
    rank = {component: number for number, component in enumerate(waiting)}
    while waiting:
        for component in down[waiting.popleft()]:
            if component not in rank:
                rank[component] = len(rank)
                waiting.append(component)
    by_component = np.array([rank[component] for component in range(len(rank))])
    number = np.arange(tasks.number) - tasks.first[tasks.component]
    order = np.lexsort((by_component[tasks.component], number)).astype(np.int32)
    return order[view.pins[order] < 0]


def network_distance(view: PlacementView, reference: int) -> Floats:
    """Return the distance of each machine from the reference, relative to the furthest: [M].

    On a mesh another machine of the same host is half as far as one of another host; on a routed network distance is
    the number of links, and unreachable machines are one link further than all others.
    """
    if view.cluster.routed:
        far = _hops(view, reference)[: view.slots.machines]
    else:
        host = view.slots.host[view.slots.first[:-1]]
        far = np.where(host == host[reference], 1.0, 2.0)
        far[reference] = 0.0
    return far / max(float(far.max()), 1.0)


def _hops(view: PlacementView, reference: int) -> Floats:
    hops = fewest_links(view.links, reference)
    return np.where(np.isfinite(hops), hops, hops[np.isfinite(hops)].max() + 1.0)


def _most_resources(draft: Draft, room: Bools, rate: float) -> int:
    slots = draft.view.slots
    cpu = (slots.machine_cpu - rate * draft.machine_load) / slots.machine_cpu.max()
    memory = draft.machine_free_mb / slots.machine_memory_mb.max()
    return int(np.argmax(np.where(room, cpu + memory, -np.inf)))
