"""Where tasks have room, in K partial placements at once: memory, pins, resources, anti-affinity.

`draft.Draft` is the same for one placement.
"""

import numpy as np
from numpy.typing import NDArray

from penstock.model.placement import MEMORY_SLACK
from penstock.model.taskgraph import Bools
from penstock.policies.api import PlacementView
from penstock.policies.placement.learned.features import Singles

Placed = NDArray[np.int32]

NEVER = np.float32(-1e9)
TINY = np.float32(1e-30)  # float32 draws may be 0
HOTTEST = 4.0  # the temperature of the last placement; that of the second is 1: few tasks need more variety than many


class Room:
    """Free memory and the slots of tasks in K placements, of which the first is greedy and the others are random.

    `placed` [K, T] is -1 for tasks not placed; `stuck` [K] the first task without room, -1 without one.
    """

    def __init__(self, view: PlacementView, rows: int) -> None:
        slots, slack = view.slots, 1 + MEMORY_SLACK
        self._view, self._rows, self._row = view, rows, np.arange(rows)
        self._heat = np.linspace(1.0, HOTTEST, max(rows - 1, 1), dtype=np.float32)[:, None]
        self._memory, self._component, self._machine = view.tasks.memory_mb, view.tasks.component, slots.machine
        self.free = np.broadcast_to(slots.memory_mb * slack, (rows, slots.number)).copy()
        self.machine_free = np.broadcast_to(slots.machine_memory_mb * slack, (rows, slots.machines)).copy()
        self.placed = np.full((rows, view.tasks.number), -1, dtype=np.int32)
        self.stuck = np.full(rows, -1)
        self._on = None if view.conflicts is None else np.zeros((len(view.conflicts), rows, slots.machines), np.bool_)

    def allowed(self, task: int) -> Bools:
        """Return which slots have room for a task. [K, S]"""
        view, memory = self._view, self._memory[task]
        machines: Bools = self.machine_free >= memory
        if view.tasks.resources:
            machines = machines & view.machines_with_resources(task)
        if self._on is not None and view.conflicts is not None:
            machines = machines & ~self._on[view.conflicts[self._component[task]]].any(axis=0)
        pin = view.pins[task]
        if pin >= 0:
            machines = machines & (np.arange(view.slots.machines) == pin)
        fits: Bools = (self.free >= memory) & machines[:, self._machine]
        return fits

    def choose(self, task: int, scores: Singles, rng: np.random.Generator) -> Placed:
        """Put a task into slots by their scores [K, S], and return these: the best in the first row, else random."""
        allowed = self.allowed(task)
        wanted = np.where(allowed, scores, NEVER)
        if self._rows > 1:
            drawn = rng.standard_exponential((self._rows - 1, wanted.shape[1]), dtype=np.float32)
            wanted[1:] -= self._heat * np.log(np.maximum(drawn, TINY))
        slot: Placed = wanted.argmax(axis=1).astype(np.int32)
        at = (self._row, slot)
        self.stuck[(self.stuck < 0) & ~allowed[at]] = task
        memory, machine = self._memory[task], self._machine[slot]
        self.placed[:, task] = slot
        self.free[at] -= memory
        self.machine_free[self._row, machine] -= memory
        if self._on is not None:
            self._on[self._component[task], self._row, machine] = True
        return slot
