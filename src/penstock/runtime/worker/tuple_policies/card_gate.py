"""Sending policies: the order in which the machine's network card serves its out-queues.

Without a gate tuples go to the card as they are emitted, and wait there in that order. With a gate, the card receives
no more than it sends in a slot or a millisecond, whichever is longer. All other tuples for other machines wait in their
out-queues, and `policies.tuples.sending.send` divides the budget among the queues of a component. Components
take turns.

A rule that leaves tuples although the budget covers them wants the link to idle, because of its signal or because it
wastes a turn. Then no tuple of that component leaves until the budget would have been used, except from tasks that are
blocked because their out-queues are full. Markers and the tuples before them never wait.
"""

import numpy as np

from penstock.model.cluster import machine_of
from penstock.policies.api import Rule
from penstock.policies.tuples.sending import STATE, send
from penstock.runtime.worker.output import Lane, OutQueue
from penstock.runtime.worker.tuple_policies.router import PolicyContext

SHORTEST_S = 1e-3  # minimum period for which the card receives work
DEFAULT_BYTES = 100.0  # assumed bytes of a tuple, before any was sent
RECENT = 1024.0  # tuples in the mean size
MILLISECONDS = 1e3  # per second


class CardGate:
    """The gate of one machine, or of one process if machines are real."""

    def __init__(self, context: PolicyContext, rule: Rule, slot_s: float) -> None:
        directory = context.directory
        self._layout = context.layout
        self._directory = directory
        self._scheduler = context.scheduler
        self._rule = rule
        self._ahead_s = max(slot_s, SHORTEST_S)
        self._machine = machine_of(directory.own_slot)
        self._remote = [machine_of(slot) != self._machine for slot in directory.placement]
        self._rng = np.random.default_rng((*context.seed, directory.me))
        self._bytes, self._tuples = DEFAULT_BYTES, 1.0
        self._waiting: dict[str, None] = {}  # components that may have waiting tuples, in the order of their turns
        self._states: dict[tuple[str, tuple[int, ...]], np.ndarray[tuple[int], np.dtype[np.float64]]] = {}
        self._idle_until: dict[str, float] = {}  # by component: the time before which its rule wants nothing sent
        self._due = np.inf  # time of the next opening
        self._closed = False

    def close(self) -> None:
        """Make no more releases: other policies are in force."""
        self._closed = True

    def holds(self, lane: Lane) -> bool:
        """Return whether a lane leads to another machine."""
        return self._remote[lane.target]

    def relocated(self, task: int) -> None:
        """Note that a task has changed its slot."""
        self._remote[task] = machine_of(self._directory.placement[task]) != self._machine

    def count_sent(self, count: int, size: int) -> None:
        """Measure the size of tuples."""
        self._bytes += size
        self._tuples += count
        if self._tuples > RECENT:
            share = RECENT / 2 / self._tuples
            self._bytes, self._tuples = self._bytes * share, self._tuples * share

    def request(self, queue: OutQueue) -> None:
        """Schedule a queue: its tuples are released when the budget and its turn allow."""
        component = self._layout.components[queue.source].name
        self._waiting.setdefault(component)
        self._open_at(max(self._scheduler.now(), self._idle_until.get(component, -np.inf)))

    def _open_at(self, when: float) -> None:
        if when < self._due:
            self._due = when
            self._scheduler.call_at(when, self._open)

    def _open(self, at: float) -> None:
        """Release the tuples that the budget covers, component by component; open again when there is more budget."""
        if self._closed or at < self._due:
            return
        self._due = np.inf
        scheduler, now = self._scheduler, self._scheduler.now()
        for component in list(self._waiting):
            if now < self._idle_until.get(component, -np.inf):
                self._open_at(self._idle_until[component])
                continue
            budget, again = scheduler.send_budget(self._ahead_s)
            if budget <= 0.0:
                self._open_at(max(now, again))
                return
            del self._waiting[component]
            left, idles = self._release(component, budget, now)
            if idles:
                self._idle_until[component] = now + self._ahead_s
            if left:
                self._waiting[component] = None  # after the others
                again = now + self._ahead_s if idles else max(now, scheduler.send_budget(self._ahead_s)[1])
                self._open_at(again)

    def _release(self, component: str, budget_bytes: float, now: float) -> tuple[bool, bool]:
        """Release tuples of a component; return whether any is left, and whether the rule wants the link to idle."""
        tasks = [task for task in self._directory.here.values() if task.component.name == component]
        queues = [queue for task in tasks for queue in task.queues]
        backlog = np.array([queue.releasable() for queue in queues], dtype=np.int64)
        total = int(backlog.sum())
        if total == 0:
            return False, False
        enough = total * len(queues)  # also for a rule that wastes turns
        budget = int(min(enough, max(1.0, budget_bytes * self._tuples / self._bytes)))
        key = (component, tuple(task.number for task in tasks))
        state = self._states.setdefault(key, np.zeros(STATE))
        allowed, oldest = np.zeros(len(queues), dtype=np.int64), np.zeros(len(queues))
        kind, settings = self._rule
        sent = send(kind, settings, now * MILLISECONDS, budget, backlog, oldest, state, self._rng, allowed)
        blocked = {queue for task in tasks if task.full() for queue in task.queues} if sent < budget else ()
        for place, queue in enumerate(queues):
            if queue in blocked:  # a barrier may wait for its task to continue
                extra = min(budget - sent, int(backlog[place] - allowed[place]))
                allowed[place] += extra
                sent += extra
            if allowed[place]:
                queue.release(int(allowed[place]))
        for task in tasks:
            self._scheduler.wake(task)
        return sent < total, sent < min(budget, total)
