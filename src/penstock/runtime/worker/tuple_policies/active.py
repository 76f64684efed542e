"""The tuple policies in force: a chooser for each out-queue with a routing policy, a gate, feedback to senders."""

import math
from functools import partial

from penstock.model.topology import Grouping
from penstock.policies.api import RoutingPolicy
from penstock.policies.registry import routing_policy, sending_policy
from penstock.policies.tuples.kinds import FIFO
from penstock.runtime.protocol.controller_messages import PolicyRules
from penstock.runtime.worker.input import InChannel
from penstock.runtime.worker.output import OutQueue
from penstock.runtime.worker.task import Task
from penstock.runtime.worker.tuple_policies.card_gate import CardGate
from penstock.runtime.worker.tuple_policies.router import LinkCosts, PolicyContext, Router, warm_up_kernels


class ActivePolicies:
    """The policies of one worker, until others are in force or the epoch ends."""

    def __init__(self, context: PolicyContext, rules: PolicyRules) -> None:
        self._context = context
        self._rules = rules
        self._costs = LinkCosts(context.directory, rules)
        by_label = {label: routing_policy(spec) for label, spec in rules.routing.items()}
        self._by_stream: dict[int, RoutingPolicy] = {
            stream.number: by_label[stream.label] for stream in context.layout.streams if stream.label in by_label
        }
        looking = frozenset(number for number, policy in self._by_stream.items() if policy.looks)
        self._feedback = LoadFeedback(context, looking, rules.slot_s)
        prices = (policy.price_of_cost for policy in self._by_stream.values())
        # One, because different ones are rejected; None: no policy uses prices.
        self._price_of_cost = next((price for price in prices if price is not None), None)
        self.gate: CardGate | None = None
        if rules.sending and (rule := sending_policy(rules.sending).rule).kind != FIFO:
            self.gate = CardGate(context, rule, rules.slot_s)
        warm_up_kernels()

    def close(self) -> None:
        """Make no more decisions: other policies are in force."""
        self._feedback.close()
        if self.gate is not None:
            self.gate.close()

    def add(self, task: Task) -> None:
        """Set the policies of a task's out-queues."""
        for queue in task.queues:
            policy = self._by_stream.get(queue.stream)
            slot_s = self._rules.slot_s
            chooser = None if policy is None else Router(self._context, self._costs, slot_s, task, queue, policy)
            queue.set_policies(chooser, self.gate)
        self._feedback.add(task)

    def update_costs(self, rules: PolicyRules) -> bool:
        """Adopt rules that differ only in costs; return whether these do."""
        before = self._rules
        if (rules.routing, rules.sending, rules.slot_s) != (before.routing, before.sending, before.slot_s):
            return False
        self._rules = rules
        self._costs.update(rules)
        for router in self._routers():
            router.update_costs()
        return True

    def relocated(self, task: int) -> None:
        """Note that a task has changed its slot: lanes to it may no longer pass the gate, or may have another cost."""
        if self.gate is not None:
            self.gate.relocated(task)
        for router in self._routers():
            router.update_costs()
        for upstream in list(self._context.directory.here.values()):
            if any(lane.target == task and lane.waiting for queue in upstream.queues for lane in queue.lanes):
                self._context.pump(upstream)

    def _routers(self) -> list[Router]:
        queues = (queue for task in self._context.directory.here.values() for queue in task.queues)
        return [queue.chooser for queue in queues if isinstance(queue.chooser, Router)]

    def count_sent(self, count: int, size: int) -> None:
        """Note that tuples have left the worker."""
        if self.gate is not None:
            self.gate.count_sent(count, size)

    def processed(self, task: Task, channel: InChannel) -> None:
        """Note that tuples were processed; the task's load is reported to their sender."""
        self._feedback.processed(task, channel)

    def credited(self, task: Task, channel: InChannel) -> tuple[float, float]:
        """Note that credit is given; return the seconds and the price per tuple to report with it."""
        price, v = 0.0, self._price_of_cost
        if v is not None:
            price = sum(self._price(queue, v) for queue in task.queues)
        return self._feedback.credited(task, channel), price

    def _price(self, queue: OutQueue, v: float) -> float:
        """Return the price of a tuple's results in one queue; without a policy, the mean over its lanes."""
        if isinstance(queue.chooser, Router) and queue.chooser.has_prices:
            return queue.chooser.selectivity() * queue.chooser.price()
        every = [v * self._costs.cost(lane.target) + lane.downstream_price for lane in queue.lanes]
        copies = len(every) if queue.grouping is Grouping.ALL else 1
        selectivity = self._context.layout.application.streams[queue.stream].selectivity
        return selectivity * copies * sum(every) / len(every)


class LoadFeedback:
    """Gives credit early on the streams whose routing looks at load, and reports how fast a task is.

    Every stream gets credit when a quarter of the window has been processed. These streams also get it if tuples were
    processed and a slot has passed since the last credit, at most once per slot and channel. So senders know the queues
    as of about a slot ago, even after the last tuples.
    """

    def __init__(self, context: PolicyContext, streams: frozenset[int], slot_s: float) -> None:
        self._directory = context.directory
        self._scheduler = context.scheduler
        self._grant = context.grant
        self._streams = streams
        self._slot_s = slot_s
        self._credited: dict[InChannel, float] = {}  # when credit was last given
        self._scheduled: set[InChannel] = set()  # channels that will get credit soon
        self._closed = False

    def close(self) -> None:
        """Give no more early credit."""
        self._closed = True

    def add(self, task: Task) -> None:
        """Schedule the credit that a task owes, perhaps from its previous worker."""
        for channel in task.inbox.channels.values():
            if channel.stream in self._streams and channel.consumed:
                self._schedule(task, channel)

    def processed(self, task: Task, channel: InChannel) -> None:
        """Note that tuples were processed, and give credit now or soon."""
        if channel.stream not in self._streams:
            return
        if self._scheduler.now() >= self._next(channel):
            self._grant(task, channel)
        else:
            self._schedule(task, channel)

    def credited(self, task: Task, channel: InChannel) -> float:
        """Note that credit is given; return the seconds per tuple to report with it."""
        if channel.stream not in self._streams:
            return 0.0
        self._credited[channel] = self._scheduler.now()
        return task.service_time.seconds

    def _next(self, channel: InChannel) -> float:
        return self._credited.get(channel, -math.inf) + self._slot_s

    def _schedule(self, task: Task, channel: InChannel) -> None:
        if channel not in self._scheduled:
            self._scheduled.add(channel)
            due = max(self._scheduler.now(), self._next(channel))
            self._scheduler.call_at(due, partial(self._give, task, channel))

    def _give(self, task: Task, channel: InChannel, _: float) -> None:
        """Give the scheduled credit, unless it has been given or the task has left."""
        self._scheduled.discard(channel)
        if self._closed or self._directory.here.get(task.number) is not task:
            return
        if channel.consumed:
            self._grant(task, channel)
