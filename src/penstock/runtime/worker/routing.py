"""Routing policies in a worker: which of the tasks downstream get the tuples that wait in an out-queue.

A decision is made for all that wait, when a slot has passed since the last one of the same queue: so the first tuple
after a quiet slot goes at once, and under load tuples wait for a slot at most. What a policy looks at is put into the
tables that it knows from the simulator, and `policies.tuples.routing.route` decides, as it does there.

Live, a source has no tuples before they arrive, and all that have arrived must leave: `arrived` is all that waits at a
source and nothing at an operator; γ is not limited, as credits limit what may leave. Of a target's queue is known what
it said last, and what went there since. A policy that holds tuples back waits for more of them, which live may never
come, and queues are not endless: what it has kept for `PATIENCE` slots is taken to have arrived at a source, and where
so much waits that its task stands still, it is dealt out in turn.
"""

from collections.abc import Callable
from functools import cache

import numpy as np

from penstock.model.slotted import UNLIMITED
from penstock.model.topology import Grouping
from penstock.policies.api import RoutingPolicy, rule
from penstock.policies.tuples.kinds import LEAST_LOADED, LOAD_AWARE, POTUS
from penstock.policies.tuples.lanes import empty_queues, idle_lanes
from penstock.policies.tuples.routing import route
from penstock.policies.tuples.sending import STATE, send
from penstock.runtime.protocol.frames import Credit
from penstock.runtime.worker.lane import Lane
from penstock.runtime.worker.output import OutQueue
from penstock.runtime.worker.task import Task
from penstock.runtime.worker.tuple_policies import Ruling

QUICKEST_S = 1e-7  # that a tuple takes; clocks tell no less
PATIENCE = 100  # slots for which a policy may hold all that waits in a queue


@cache
def warm_up() -> None:
    """Compile the kernels, or load them from disk: a tuple must not wait for that."""
    rng, ones = np.random.default_rng(0), np.ones(1)
    one, counts = rule(POTUS), np.zeros(1, dtype=np.int64)
    lanes = idle_lanes(ones.copy(), ones.copy(), ones.copy(), ones.copy())
    queues = empty_queues(np.array([0, 1], dtype=np.int64))
    route(one.kind, one.settings, queues, lanes, 0, 1, UNLIMITED, rng, counts)
    send(0, one.settings, 0.0, 1, counts, ones, np.zeros(STATE), rng, counts.copy())


class Router:
    """The policy of one out-queue."""

    def __init__(self, ruling: Ruling, task: Task, queue: OutQueue, policy: RoutingPolicy) -> None:
        self._ruling = ruling
        self._worker = ruling.worker
        self._task = task
        self._queue = queue
        self._rule = policy.rule
        self._holds = policy.holds
        self.prices = policy.price_of_cost is not None
        count = len(queue.lanes)
        self.queues = empty_queues(np.array([0, count], dtype=np.int64))
        self.queues.turn[0] = 0 if self._rule.kind == LOAD_AWARE else queue.turn % count
        senders = float(len(self._worker.layout.tasks(task.component.name)))
        self.lanes = idle_lanes(np.zeros(count), np.zeros(count), np.ones(count), np.full(count, senders))
        self._sent = np.zeros(count, dtype=np.int64)
        # What is not known to have come is taken to be on its way.
        self._received = np.array([lane.number - (lane.window - lane.credits) for lane in queue.lanes], dtype=np.int64)
        self._seconds = np.zeros(count)
        self._stale = False  # the speeds that follow from these
        self._rng = np.random.default_rng((self._worker.assigned.seed, self._worker.epoch, task.number, queue.stream))
        self._due = self._priced = -np.inf  # when the next decision may be made; when its price was worked out
        self._waits = False  # for that
        self._held = 0  # decisions in a row, one a slot, that sent nothing
        self._before = (task.counted, self._gone())
        self.weigh()

    def weigh(self) -> None:
        """Look up what lanes cost, by where tasks are now."""
        self.lanes.cost[:] = [self._ruling.cost(lane.target) for lane in self._queue.lanes]
        self.lanes.onward[:] = [self._ruling.onward(lane.target) for lane in self._queue.lanes]

    def heard(self, place: int, credit: Credit) -> None:
        """Take what the target of a lane says of itself."""
        self.lanes.backlog[place] = credit.queue
        self.lanes.ahead[place] = credit.price
        self._received[place] = credit.received
        if credit.seconds > 0.0:
            self._seconds[place] = max(credit.seconds, QUICKEST_S)
            self._stale = True

    def _clock_speeds(self) -> None:
        """Work out how many tuples a slot each target serves, and a price: of one that has not said, what others do.

        Taken to cost nothing, it would get the tuples of all senders until it has said otherwise.
        """
        known = self._seconds > 0.0
        self.lanes.speed[:] = self._ruling.slot_s / np.where(known, self._seconds, self._seconds[known].mean())
        self.lanes.ahead[~known] = self.lanes.ahead[known].mean()
        self._stale = False

    def choose(self) -> None:
        """Decide, if a slot has passed since the last time; see that it is decided when one has."""
        now = self._worker.execution.now()
        if now >= self._due and any(lane.credits > lane.backlog for lane in self._queue.lanes):
            self._due = now + self._ruling.slot_s
            if self._queue.grouping is Grouping.PARTIAL_KEY:
                self._queue.bind_by(self._load())
            else:
                self.decide(len(self._queue.values))
                self._held = 0 if self._sent.any() else self._held + 1
                for place in np.flatnonzero(self._sent):
                    self._queue.bind(int(place), int(self._sent[place]))
                if self._holds and self._held and self._task.full():
                    self._queue.deal()  # its task stands still, and a barrier may wait for it to go on
        if self._queue.values and not self._waits and any(lane.credits > lane.backlog for lane in self._queue.lanes):
            self._waits = True
            self._worker.execution.later(max(now, self._due), self._again)

    def choose_all(self) -> None:
        """Decide for all that wait, whatever room there is, as a marker is to go behind them."""
        if self._queue.grouping is Grouping.PARTIAL_KEY:
            self._queue.bind_by(self._load(), whatever_room=True)
            return
        self.decide(len(self._queue.values), roomy=True)
        for place in np.flatnonzero(self._sent):
            self._queue.hold(int(place), int(self._sent[place]))

    def decide(self, waiting: int, roomy: bool = False) -> None:
        """Fill the tables for so many tuples and have the rule decide; how many go down each lane is in `_sent`."""
        own = self._queue.lanes
        queues, lanes = self.queues, self.lanes
        if self._stale:
            self._clock_speeds()
        queues.waiting[0] = waiting
        queues.arrived[0] = waiting if self._task.is_source or self._held >= PATIENCE else 0
        lanes.outstanding[:] = [lane.outstanding for lane in own]
        lanes.flying[:] = np.maximum([lane.number + lane.backlog for lane in own] - self._received, 0)
        if roomy:
            lanes.room[:] = UNLIMITED
        else:
            lanes.room[:] = [lane.room for lane in own]
        self._sent[:] = 0
        route(self._rule.kind, self._rule.settings, queues, lanes, 0, 1, UNLIMITED, self._rng, self._sent)
        self._priced = self._worker.execution.now()

    def _load(self) -> Callable[[Lane], float]:
        """Return what says which of a key's two lanes is the more loaded, with what is bound to it at the moment.

        POTUS's measure is that of the slot's beginning; what is bound in it does not count.
        """
        if self._rule.kind == LEAST_LOADED:
            return lambda lane: lane.outstanding + len(lane.fresh)
        self.decide(0)
        first, score, speed = self._queue.lanes[0].target, self.lanes.score, self.lanes.speed
        if self._rule.kind == POTUS:
            return lambda lane: float(score[lane.target - first])
        return lambda lane: float(score[lane.target - first] + len(lane.fresh) / speed[lane.target - first])

    def price(self) -> float:
        """Return what the next tuple would cost and wait, as of a slot ago at most."""
        if self._worker.execution.now() > self._priced + self._ruling.slot_s:
            self.decide(0)
        return float(self.queues.price[0])

    def emits(self) -> float:
        """Return how many tuples come here for each that the task processes."""
        taken, given = self._task.counted - self._before[0], self._gone() - self._before[1]
        if taken <= 0:
            return self._worker.layout.application.streams[self._queue.stream].selectivity
        return given / taken

    def _gone(self) -> int:
        return sum(lane.number for lane in self._queue.lanes) + self._queue.backlog

    def _again(self, _: float) -> None:
        self._waits = False
        if self._queue.chooser is self and self._worker.tasks.get(self._task.number) is self._task:
            self._worker.pump(self._task)
