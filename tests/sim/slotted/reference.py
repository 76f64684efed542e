"""POTUS's queueing equations (1)-(12) in plain Python: every tuple is an object, every queue a list."""

from collections import defaultdict
from dataclasses import dataclass, field
from math import floor, inf

import numpy as np

from penstock.model.slotted import Longs, SlottedSystem
from penstock.policies.api import Rule
from penstock.policies.tuples.lanes import empty_queues, idle_lanes
from penstock.policies.tuples.routing import route, tell_price


@dataclass
class Root:
    """A tuple from outside."""

    task: int
    due: int
    real: bool
    foreseen: bool
    pending: int = 0
    done: int | None = None


@dataclass
class Item:
    """A tuple in the system."""

    root: Root
    lane: int = -1


def lists(number: int) -> list[list[Item]]:
    return [[] for _ in range(number)]


@dataclass
class Plain:
    """A system and what happens to it, slot by slot."""

    system: SlottedSystem
    rule: Rule
    roots: list[Root]
    lead: list[int]
    turn: list[int]
    rng: np.random.Generator
    record: list[dict[str, float]] = field(default_factory=list)
    dropped: int = 0

    def __post_init__(self) -> None:
        s = self.system
        self.inside, self.landing, self.leaving = (lists(s.tasks) for _ in range(3))
        self.out, self.ahead = lists(len(s.emits)), lists(len(s.emits))
        self.made, self.credit = defaultdict[int, float](float), defaultdict[int, float](float)
        self.queues = empty_queues(s.lanes)
        self.first = [0] * s.tasks
        self.queues.turn[:] = self.turn
        self.lanes = idle_lanes(s.cost, s.onward, np.minimum(s.service[s.target], 1e9), s.senders)

    def of(self, task: int) -> range:
        return range(self.system.queues[task], self.system.queues[task + 1])

    def emit(self, root: Root, task: int, into: list[list[Item]]) -> None:
        for queue in self.of(task):
            self.made[queue] += self.system.emits[queue]
            count = floor(self.made[queue] + 1e-9)
            self.made[queue] -= count
            root.pending += count
            into[queue] += [Item(root) for _ in range(count)]

    def run(self, slots: int) -> None:
        for slot in range(slots):
            self.arrive(slot)
            self.decide()
            self.serve(slot)
            lengths = [len(a) + len(b) for a, b in zip(self.out, self.ahead, strict=True)]
            self.record[-1] |= {"longest": max(lengths)}

    def arrive(self, slot: int) -> None:
        for queue in range(len(self.ahead)):
            for item in [item for item in self.ahead[queue] if item.root.due == slot]:  # (5)
                self.ahead[queue].remove(item)
                if item.root.real:
                    self.out[queue].append(item)
                else:
                    item.root.pending -= 1
                    self.dropped += 1
        for root in self.roots:
            window = slot + self.lead[root.task]
            known = root.foreseen and root.due > 0
            if root.due == slot and root.real and not known:
                self.emit(root, root.task, self.out)
            elif known and slot < root.due and (root.due == window or (slot == 0 and root.due < window)):  # (6)
                self.emit(root, root.task, self.ahead)
            else:
                continue
            if root.pending == 0:
                root.done = root.due

    def decide(self) -> None:
        s, queues, lanes = self.system, self.queues, self.lanes
        queues.waiting[:] = [len(a) + len(b) for a, b in zip(self.out, self.ahead, strict=True)]  # (3)
        for task in range(s.tasks):
            for queue in self.of(task):
                queues.arrived[queue] = len(self.out[queue]) if s.source[task] else 0
        lanes.backlog[:] = [len(self.inside[task]) for task in s.target]  # (8): what is in flight is not in it
        lanes.flying[:] = [len(self.landing[task]) for task in s.target]
        self.record.append({"in": sum(map(len, self.inside)), "out": int(queues.waiting.sum()), "cost": 0.0})
        for task in range(s.tasks):
            limit, mixed = int(s.limit[task]), any(s.copies[queue] for queue in self.of(task))
            sent = np.zeros(len(s.target), dtype=np.int64)
            if not mixed and len(self.of(task)):
                route(*self.rule, queues, lanes, self.of(task)[0], self.of(task)[-1] + 1, limit, self.rng, sent)
            order, short = list(self.of(task)), False
            if mixed:
                order = order[self.first[task] :] + order[: self.first[task]]
            for queue in order:
                short |= int(queues.waiting[queue]) > limit
                amount = min(limit, int(queues.waiting[queue]))
                if s.copies[queue]:
                    tell_price(*self.rule, queues, lanes, queue, True)
                    sent[s.lanes[queue] : s.lanes[queue + 1]] = amount
                elif mixed:
                    amount = route(*self.rule, queues, lanes, queue, queue + 1, limit, self.rng, sent)
                limit -= amount
                self.send(queue, sent)
            if mixed and short:  # γ binds: the next stream is first in the next slot
                self.first[task] = (self.first[task] + 1) % len(order)
        price = [sum(s.emits[queue] * queues.price[queue] for queue in self.of(task)) for task in range(s.tasks)]
        lanes.ahead[:] = [price[task] for task in s.target]

    def send(self, queue: int, sent: Longs) -> None:
        lanes = range(self.system.lanes[queue], self.system.lanes[queue + 1])
        if self.system.copies[queue]:
            copied = [self.take(queue) for _ in range(sent[lanes[0]])]
            for root in copied:
                root.pending += len(lanes) - 1
        for lane in lanes:
            for number in range(sent[lane]):
                root = copied[number] if self.system.copies[queue] else self.take(queue)
                self.leaving[self.system.target[lane]].append(Item(root, lane))
                self.lanes.outstanding[lane] += 1
                self.record[-1]["cost"] += self.system.cost[lane]  # (11)

    def take(self, queue: int) -> Root:
        return (self.out[queue] or self.ahead[queue]).pop(0).root  # what has arrived goes first (4)

    def serve(self, slot: int) -> None:
        for task in range(self.system.tasks):
            self.inside[task] += self.landing[task]  # (8)
            self.landing[task], self.leaving[task] = self.leaving[task], []
            waiting, service = len(self.inside[task]), float(self.system.service[task])
            able = waiting
            if service < inf:
                self.credit[task] += service
                able = min(waiting, floor(self.credit[task] + 1e-9))
            self.credit[task] = 0.0 if able == waiting else self.credit[task] - able
            done, self.inside[task] = self.inside[task][:able], self.inside[task][able:]
            for item in done:
                item.root.pending -= 1
                self.lanes.outstanding[item.lane] -= 1
                self.emit(item.root, task, self.out)  # (9)
                if item.root.pending == 0:
                    item.root.done = slot
