"""Routing policies: the choice of downstream tasks for the tuples that wait in an out-queue.

A decision covers all waiting tuples, and is made when a slot has passed since the last decision of the same queue. So
the first tuple after a quiet slot leaves at once, and under load tuples wait for one slot at most. The state that a
policy reads is written to the same tables as in the simulator, and `policies.tuples.routing.route` decides, as there.

In a live run a source has no tuples before they arrive, and all that have arrived must leave: `arrived` is the number
of waiting tuples at a source and 0 at an operator. γ is not limited, because credits limit departures. Of a target's
queue, the last report is known, and the tuples sent since. A policy that holds tuples back waits for more of them,
which may never arrive in a live run, and queues are finite. Therefore tuples held for `PATIENCE` slots count as arrived
at a source, and if a task is blocked, its waiting tuples are bound in turn.
"""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple, Protocol

import numpy as np

from penstock.model.cluster import machine_of
from penstock.model.slotted import UNLIMITED
from penstock.model.topology import Grouping
from penstock.policies.api import RoutingPolicy, rule
from penstock.policies.tuples.kinds import LEAST_LOADED, LOAD_AWARE, POTUS
from penstock.policies.tuples.lanes import empty_queues, idle_lanes
from penstock.policies.tuples.routing import route
from penstock.policies.tuples.sending import STATE, send
from penstock.runtime.layout import Layout
from penstock.runtime.protocol.controller_messages import PolicyRules
from penstock.runtime.protocol.frames import Credit
from penstock.runtime.worker.input import InChannel
from penstock.runtime.worker.output import Lane, OutQueue
from penstock.runtime.worker.routing import TaskDirectory
from penstock.runtime.worker.task import Task

SHORTEST_S = 1e-7  # minimum processing time of a tuple: the resolution of clocks
PATIENCE = 100  # slots for which a policy may hold all waiting tuples of a queue


class _Scheduler(Protocol):
    """The part of `TaskExecution` that provides the time and the send budget of the machine."""

    def now(self) -> float: ...
    def call_at(self, when: float, step: Callable[[float], None]) -> None: ...
    def send_budget(self, seconds: float) -> tuple[float, float]: ...
    def wake(self, task: Task) -> None: ...


class PolicyContext(NamedTuple):
    """The inputs and the actions of a worker's policies."""

    layout: Layout
    directory: TaskDirectory
    scheduler: _Scheduler
    seed: tuple[int, int]  # of the run, and the epoch
    pump: Callable[[Task], None]  # send all sendable tuples of a task's out-queues
    grant: Callable[[Task, InChannel], None]  # give credit to a channel's sender


@cache
def warm_up_kernels() -> None:
    """Compile the kernels, or load them from disk, so that no tuple waits for this."""
    rng, ones = np.random.default_rng(0), np.ones(1)
    one, counts = rule(POTUS), np.zeros(1, dtype=np.int64)
    lanes = idle_lanes(ones.copy(), ones.copy(), ones.copy(), ones.copy())
    queues = empty_queues(np.array([0, 1], dtype=np.int64))
    route(one.kind, one.settings, queues, lanes, 0, 1, UNLIMITED, rng, counts)
    send(0, one.settings, 0.0, 1, counts, ones, np.zeros(STATE), rng, counts.copy())


class LinkCosts:
    """The cost of a tuple on its path to a task and beyond."""

    def __init__(self, directory: TaskDirectory, rules: PolicyRules) -> None:
        self._directory = directory
        self._machine = machine_of(directory.own_slot)
        self._rules = rules

    def update(self, rules: PolicyRules) -> None:
        """Set the costs."""
        self._rules = rules

    def cost(self, task: int) -> float:
        """Return the number of links between this machine and a task's."""
        machine = machine_of(self._directory.placement[task])
        return 0.0 if machine == self._machine else self._rules.costs.get(machine, 1.0)

    def onward(self, task: int) -> float:
        """Return the minimum cost of all results of a tuple at a task; 0 if it is unknown."""
        return self._rules.onward[task] if task < len(self._rules.onward) else 0.0


class Router:
    """The routing policy of one out-queue."""

    def __init__(
        self,
        context: PolicyContext,
        costs: LinkCosts,
        slot_s: float,
        task: Task,
        queue: OutQueue,
        policy: RoutingPolicy,
    ) -> None:
        self._directory = context.directory
        self._scheduler = context.scheduler
        self._pump = context.pump
        self._costs = costs
        self._slot_s = slot_s
        self._task = task
        self._queue = queue
        self._rule = policy.rule
        self._holds = policy.holds
        self._selectivity = context.layout.application.streams[queue.stream].selectivity
        self.has_prices = policy.price_of_cost is not None
        count = len(queue.lanes)
        self.queues = empty_queues(np.array([0, count], dtype=np.int64))
        self.queues.turn[0] = 0 if self._rule.kind == LOAD_AWARE else queue.turn % count
        senders = float(len(context.layout.tasks(task.component.name)))
        self.lanes = idle_lanes(np.zeros(count), np.zeros(count), np.ones(count), np.full(count, senders))
        self._sent = np.zeros(count, dtype=np.int64)
        # Tuples count as in flight until the target reports them.
        self._received = np.array([lane.number - (lane.window - lane.credits) for lane in queue.lanes], dtype=np.int64)
        self._seconds = np.zeros(count)  # per tuple at each target, as reported; 0: not yet
        self._stale = False  # whether the speeds derived from these are outdated
        self._rng = np.random.default_rng((*context.seed, task.number, queue.stream))
        self._due = self._priced = -np.inf  # when the next decision may be made; when its price was computed
        self._waits = False  # a decision is scheduled
        self._held = 0  # decisions in a row, one per slot, that sent nothing
        self._before = (task.counted, self._put())
        self.update_costs()

    def update_costs(self) -> None:
        """Set the costs of lanes from the current locations of tasks."""
        self.lanes.cost[:] = [self._costs.cost(lane.target) for lane in self._queue.lanes]
        self.lanes.onward[:] = [self._costs.onward(lane.target) for lane in self._queue.lanes]

    def observe(self, place: int, credit: Credit) -> None:
        """Process the load that the target of a lane reports."""
        self.lanes.backlog[place] = credit.queue
        self.lanes.ahead[place] = credit.price
        self._received[place] = credit.received
        if credit.seconds > 0.0:
            self._seconds[place] = max(credit.seconds, SHORTEST_S)
            self._stale = True

    def _set_speeds(self) -> None:
        """Compute the tuples per slot that each target serves, and a price; a target without a report gets the mean.

        If it counted as free, it would get the tuples of all senders until its first report.
        """
        known = self._seconds > 0.0
        self.lanes.speed[:] = self._slot_s / np.where(known, self._seconds, self._seconds[known].mean())
        self.lanes.ahead[~known] = self.lanes.ahead[known].mean()
        self._stale = False

    def choose(self) -> None:
        """Decide, if a slot has passed since the last decision; otherwise schedule the next decision."""
        now = self._scheduler.now()
        if now >= self._due and self._has_room():
            self._due = now + self._slot_s
            if self._queue.grouping is Grouping.PARTIAL_KEY:
                self._queue.bind_by_load(self._load())
            else:
                self.decide(len(self._queue.values))
                self._held = 0 if self._sent.any() else self._held + 1
                for place in np.flatnonzero(self._sent):
                    self._queue.bind(int(place), int(self._sent[place]))
                if self._holds and self._held and self._task.full():
                    self._queue.bind_in_turn()  # its task is blocked, and a barrier may wait for it to continue
        if self._queue.values and not self._waits and self._has_room():
            self._waits = True
            self._scheduler.call_at(max(now, self._due), self._choose_again)

    def _has_room(self) -> bool:
        return any(lane.credits > lane.backlog for lane in self._queue.lanes)

    def _choose_again(self, _: float) -> None:
        self._waits = False
        if self._queue.chooser is self and self._directory.here.get(self._task.number) is self._task:
            self._pump(self._task)

    def choose_all(self) -> None:
        """Decide for all waiting tuples, regardless of room, because a marker will follow them."""
        if self._queue.grouping is Grouping.PARTIAL_KEY:
            self._queue.bind_by_load(self._load(), ignore_credit=True)
            return
        self.decide(len(self._queue.values), ignore_credit=True)
        for place in np.flatnonzero(self._sent):
            self._queue.queue(int(place), int(self._sent[place]))

    def decide(self, waiting: int, ignore_credit: bool = False) -> None:
        """Fill the tables for `waiting` tuples; the rule sets the number of tuples per lane in `_sent`."""
        own = self._queue.lanes
        queues, lanes = self.queues, self.lanes
        if self._stale:
            self._set_speeds()
        queues.waiting[0] = waiting
        queues.arrived[0] = waiting if self._task.is_source or self._held >= PATIENCE else 0
        lanes.outstanding[:] = [lane.outstanding for lane in own]
        lanes.flying[:] = np.maximum([lane.number + lane.backlog for lane in own] - self._received, 0)
        if ignore_credit:
            lanes.room[:] = UNLIMITED
        else:
            lanes.room[:] = [lane.room for lane in own]
        self._sent[:] = 0
        route(self._rule.kind, self._rule.settings, queues, lanes, 0, 1, UNLIMITED, self._rng, self._sent)
        self._priced = self._scheduler.now()

    def _load(self) -> Callable[[Lane], float]:
        """Return the loads for the comparison of a key's two lanes, including the tuples being bound.

        POTUS's measure is that at the start of the slot; tuples bound within the slot do not count.
        """
        if self._rule.kind == LEAST_LOADED:
            return lambda lane: lane.outstanding + len(lane.collected)
        self.decide(0)
        first, score, speed = self._queue.lanes[0].target, self.lanes.score, self.lanes.speed
        if self._rule.kind == POTUS:
            return lambda lane: float(score[lane.target - first])
        return lambda lane: float(score[lane.target - first] + len(lane.collected) / speed[lane.target - first])

    def price(self) -> float:
        """Return the price of the next tuple, its cost and its wait, at most a slot old."""
        if self._scheduler.now() > self._priced + self._slot_s:
            self.decide(0)
        return float(self.queues.price[0])

    def selectivity(self) -> float:
        """Return the number of tuples that the queue gets per tuple processed by its task."""
        processed, put = self._task.counted - self._before[0], self._put() - self._before[1]
        return put / processed if processed > 0 else self._selectivity

    def _put(self) -> int:
        return sum(lane.number for lane in self._queue.lanes) + self._queue.backlog
