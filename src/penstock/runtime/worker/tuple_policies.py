"""The tuple policies in force in a worker: a chooser for each out-queue that has one, a gate, and feedback to senders.

Without policies there is none of this, and nothing of it is even loaded: kernels and their compiler take longer to load
than a worker takes to start. Policies decide which way tuples go and when; that none is lost, doubled or overtaken on
its channel is kept by channels, whatever a policy says.
"""

from typing import TYPE_CHECKING

from penstock.model.cluster import machine_of
from penstock.model.topology import Grouping
from penstock.model.tuples import TuplePolicies
from penstock.runtime.protocol.controller_messages import PolicyRules
from penstock.runtime.worker.input import InChannel
from penstock.runtime.worker.load_feedback import Feedback
from penstock.runtime.worker.output import OutQueue
from penstock.runtime.worker.task import Task

if TYPE_CHECKING:
    from penstock.policies.api import RoutingPolicy
    from penstock.runtime.worker.routing import Router
    from penstock.runtime.worker.sending import CardGate
    from penstock.runtime.worker.state_machine import Worker


def ruling_of(worker: "Worker", rules: PolicyRules) -> "Ruling | None":
    """Return what brings policies about in a worker, its kernels loaded; None where there are none."""
    return Ruling(worker, rules) if rules.routing or rules.sending else None


def prepare(tuples: TuplePolicies | None) -> None:
    """Have kernels compiled where policies need them, so that workers on the same machine find them on disk."""
    if tuples is not None and tuples.named:
        from penstock.runtime.worker.routing import warm_up

        warm_up()


class Ruling:
    """The policies of one worker, until others are in force or the epoch ends."""

    def __init__(self, worker: "Worker", rules: PolicyRules) -> None:
        from penstock.policies.registry import routing, sending
        from penstock.policies.tuples.kinds import FIFO
        from penstock.runtime.worker import sending as gates
        from penstock.runtime.worker.routing import Router, warm_up

        self.worker = worker
        self.rules = rules
        self.slot_s = rules.slot_s
        self._router = Router
        self._here = machine_of(worker.slot_here())
        by_label = {label: routing(spec) for label, spec in rules.routing.items()}
        self.of_stream: dict[int, RoutingPolicy] = {
            stream.number: by_label[stream.label] for stream in worker.layout.streams if stream.label in by_label
        }
        watched = frozenset(number for number, policy in self.of_stream.items() if policy.looks)
        self.feedback = Feedback(worker, watched, rules.slot_s)
        prices = (policy.price_of_cost for policy in self.of_stream.values())
        # one, as different ones are refused; None: nobody asks for prices
        self._price_of_cost = next((price for price in prices if price is not None), None)
        self.gate: CardGate | None = None
        if rules.sending and (rule := sending(rules.sending).rule).kind != FIFO:
            self.gate = gates.CardGate(worker, rule, rules.slot_s)
        warm_up()

    def added(self, task: Task) -> None:
        """Begin with a task, of which all is known by now."""
        for queue in task.queues:
            policy = self.of_stream.get(queue.stream)
            queue.chooser = None if policy is None else self._router(self, task, queue, policy)
            queue.gate = self.gate
            queue.resize()
        self.feedback.added(task)

    def weighed(self, rules: PolicyRules) -> bool:
        """Take rules that differ only in what the ways onward cost; return whether these are such."""
        if (rules.routing, rules.sending, rules.slot_s) != (self.rules.routing, self.rules.sending, self.slot_s):
            return False
        self.rules = rules
        for router in self._routers():
            router.weigh()
        return True

    def moved(self, task: int) -> None:
        """Take note that a task is on another machine: lanes to it may be free of the gate now, or cost otherwise."""
        if self.gate is not None:
            self.gate.moved(task)
        for router in self._routers():
            router.weigh()
        for upstream in list(self.worker.tasks.values()):
            if any(lane.target == task and lane.waiting for queue in upstream.queues for lane in queue.lanes):
                self.worker.pump(upstream)

    def _routers(self) -> "list[Router]":
        queues = (queue for task in self.worker.tasks.values() for queue in task.queues)
        return [queue.chooser for queue in queues if isinstance(queue.chooser, self._router)]

    def cost(self, task: int) -> float:
        """Return how many links are between this machine and a task's."""
        machine = machine_of(self.worker.placement[task])
        return 0.0 if machine == self._here else self.rules.costs.get(machine, 1.0)

    def onward(self, task: int) -> float:
        """Return the least cost of all that follows from a tuple at a task; 0 where nobody said."""
        return self.rules.onward[task] if task < len(self.rules.onward) else 0.0

    def sent(self, count: int, size: int) -> None:
        """Take note that tuples have left the worker."""
        if self.gate is not None:
            self.gate.sent(count, size)

    def processed(self, task: Task, channel: InChannel) -> None:
        """Take note of tuples that a task has processed, and see that their sender hears of it."""
        self.feedback.processed(task, channel)

    def credited(self, task: Task, channel: InChannel) -> tuple[float, float]:
        """Take note that credit is given; return what is told with it: seconds a tuple, and the price of a tuple."""
        price, v = 0.0, self._price_of_cost
        if v is not None:
            price = sum(self._price(queue, v) for queue in task.queues)
        return self.feedback.credited(task, channel), price

    def _price(self, queue: OutQueue, v: float) -> float:
        """Return the price of what a tuple gives by one queue; where no policy knows it, the mean of its lanes."""
        if isinstance(queue.chooser, self._router) and queue.chooser.prices:
            return queue.chooser.emits() * queue.chooser.price()
        every = [v * self.cost(lane.target) + lane.ahead for lane in queue.lanes]
        copies = len(every) if queue.grouping is Grouping.ALL else 1
        selectivity = self.worker.layout.application.streams[queue.stream].selectivity
        return selectivity * copies * sum(every) / len(every)
