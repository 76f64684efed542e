"""Sending policies in a worker: which of the out-queues that share the machine's network card is served first.

Without a gate tuples go to the card as they are made, and wait there in that order. With one, the card is given no more
than it sends in a slot or a millisecond, whichever is longer; all else for other machines waits in its out-queue, and
`policies.tuples.sending.send` shares out what room there is among the queues of a component. Components take turns.

A rule that leaves tuples though there is room for them means the link to idle, by the signal that it has given or by a
turn that it wastes: nothing of that component leaves before the room would have been used up, but for tasks that stand
still because their out-queues are full. Markers never wait, and neither does what is before them.
"""

from typing import TYPE_CHECKING

import numpy as np

from penstock.model.cluster import machine_of
from penstock.policies.api import Rule
from penstock.policies.tuples.sending import STATE, send
from penstock.runtime.worker.lane import Lane
from penstock.runtime.worker.output import OutQueue

if TYPE_CHECKING:
    from penstock.runtime.worker.state_machine import Worker

SHORTEST_S = 1e-3  # for which the card is given work
USUAL_BYTES = 100.0  # of a tuple, before any was sent
RECENT = 1024.0  # tuples, over which their size is taken to be the same
MILLISECONDS = 1e3  # a second


class CardGate:
    """What one machine lets out, or one process where machines are real."""

    def __init__(self, worker: "Worker", rule: Rule, slot_s: float) -> None:
        self._worker = worker
        self._rule = rule
        self._ahead_s = max(slot_s, SHORTEST_S)
        self._here = machine_of(worker.slot_here())
        self._far = [machine_of(slot) != self._here for slot in worker.placement]
        self._rng = np.random.default_rng((worker.assigned.seed, worker.epoch, worker.me))
        self._bytes, self._tuples = USUAL_BYTES, 1.0
        self._waiting: dict[str, None] = {}  # components that something may wait of, in the order of their turns
        self._states: dict[tuple[str, tuple[int, ...]], np.ndarray[tuple[int], np.dtype[np.float64]]] = {}
        self._idle_until: dict[str, float] = {}  # by component: its rule wants nothing sent before
        self._due = np.inf  # when it looks again

    def bars(self, lane: Lane) -> bool:
        """Say whether a lane leads to another machine."""
        return self._far[lane.target]

    def moved(self, task: int) -> None:
        """Take note of where a task has gone."""
        self._far[task] = machine_of(self._worker.placement[task]) != self._here

    def sent(self, count: int, size: int) -> None:
        """Take note of how large tuples are."""
        self._bytes += size
        self._tuples += count
        if self._tuples > RECENT:
            share = RECENT / 2 / self._tuples
            self._bytes, self._tuples = self._bytes * share, self._tuples * share

    def held(self, queue: OutQueue) -> None:
        """See that tuples of a queue leave when there is room for them, if it is their turn."""
        component = self._worker.layout.components[queue.source].name
        self._waiting.setdefault(component)
        self._look(max(self._worker.execution.now(), self._idle_until.get(component, -np.inf)))

    def _look(self, when: float) -> None:
        if when < self._due:
            self._due = when
            self._worker.execution.later(when, self._open)

    def _open(self, at: float) -> None:
        """Let out what there is room for, component by component; look again when there is more."""
        worker = self._worker
        if worker.ruling is None or worker.ruling.gate is not self or at < self._due:
            return
        self._due = np.inf
        now = worker.execution.now()
        for component in list(self._waiting):
            if now < self._idle_until.get(component, -np.inf):
                self._look(self._idle_until[component])
                continue
            room, again = worker.execution.leeway(self._ahead_s)
            if room <= 0.0:
                self._look(max(now, again))
                return
            del self._waiting[component]
            left, idles = self._let_out(component, room, now)
            if idles:
                self._idle_until[component] = now + self._ahead_s
            if left:
                self._waiting[component] = None  # behind the others
                self._look(now + self._ahead_s if idles else max(now, worker.execution.leeway(self._ahead_s)[1]))

    def _let_out(self, component: str, room: float, now: float) -> tuple[bool, bool]:
        """Let out tuples of a component; return whether any is left, and whether the rule wants the link to idle."""
        worker = self._worker
        tasks = [task for task in worker.tasks.values() if task.component.name == component]
        queues = [queue for task in tasks for queue in task.queues]
        backlog = np.array([queue.releasable() for queue in queues], dtype=np.int64)
        total = int(backlog.sum())
        if total == 0:
            return False, False
        enough = total * len(queues)  # for a rule that wastes turns, too
        budget = int(min(enough, max(1.0, room * self._tuples / self._bytes)))
        key = (component, tuple(task.number for task in tasks))
        state = self._states.setdefault(key, np.zeros(STATE))
        allowed, oldest = np.zeros(len(queues), dtype=np.int64), np.zeros(len(queues))
        kind, settings = self._rule
        given = send(kind, settings, now * MILLISECONDS, budget, backlog, oldest, state, self._rng, allowed)
        blocked = {queue for task in tasks if task.full() for queue in task.queues} if given < budget else ()
        for place, queue in enumerate(queues):
            if queue in blocked:  # a barrier may wait for its task to go on
                extra = min(budget - given, int(backlog[place] - allowed[place]))
                allowed[place] += extra
                given += extra
            if allowed[place]:
                queue.release(int(allowed[place]))
        for task in tasks:
            worker.execution.relieved(task)
        return given < total, given < min(budget, total)
