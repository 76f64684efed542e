"""The event-driven twin's system as a SimPy model: a process per slot, tuples as objects, cards as resources.

Servers and queues are modelled as in SimPy's guide: a slot's in-queue is a `Store`, a network card a `Resource` of
capacity 1, a frame in flight a process. Machines share their cores evenly, which SimPy does not support: one event per
completion, rescheduled whenever the number of busy slots changes. `Sparing` uses only SimPy's clock: cards are times at
which they become free, a frame is one event, an idle slot is started by a call.
"""

from collections import deque
from collections.abc import Generator
from heapq import heappop, heappush
from random import Random
from typing import Any, NamedTuple

from penstock.sim.events.layout import END, Layout
from penstock.sim.events.state import Dues
from penstock.sim.events.system import EXPONENTIAL, GAMMA, KEY, TwinSystem

Process = Generator[Any, Any, None]


class Root:
    """A source tuple: when it was due, and how many of its descendants are in the system."""

    __slots__ = ("due", "pending")

    def __init__(self, due: float) -> None:
        self.due = due
        self.pending = 1


class Item(NamedTuple):
    """A tuple before a task."""

    root: Root
    task: int
    lane: int


class Cores:
    """The cores of a machine, shared evenly."""

    def __init__(self, model: "Model", cores: float, speed: float) -> None:
        self.model = model
        self.cores, self.speed = cores, speed
        self.now = self.attained = 0.0
        self.running: list[tuple[float, int, Any]] = []
        self.version = 0
        self.order = 0

    def serve(self, work: float) -> Any:
        """Return an event that occurs when the work is done."""
        done = self.model.env.event()
        self._advance()
        self.order += 1
        heappush(self.running, (self.attained + work, self.order, done))
        self._set()
        return done

    def _advance(self) -> None:
        now = self.model.env.now
        if self.running:
            self.attained += (now - self.now) * self._rate()
        self.now = now

    def _rate(self) -> float:
        return self.speed * min(1.0, self.cores / len(self.running))

    def _set(self) -> None:
        self.version += 1
        if self.running:
            version = self.version
            left = max(0.0, (self.running[0][0] - self.attained) / self._rate())
            self.model.env.timeout(left).callbacks.append(lambda _: self._complete(version))

    def _complete(self, version: int) -> None:
        if version == self.version:
            self._advance()
            self.attained, _, done = heappop(self.running)
            done.succeed()
            self._set()


class Model:
    """The processes and what they share."""

    def __init__(self, system: TwinSystem, layout: Layout, dues: Dues, seed: int, simpy: Any) -> None:
        self.env = simpy.Environment()
        self.simpy = simpy
        self.random = Random(seed)
        self.system, self.layout, self.dues = system, layout, dues
        self.source = system.source.tolist()
        self.drawn, self.service = system.drawn.tolist(), system.service.tolist()
        self.queues: list[int] = system.queues.tolist()
        self.lanes: list[int] = system.lanes.tolist()
        self.bound, self.selectivity = system.bound.tolist(), system.selectivity.tolist()
        self.queue, self.sender, self.target = system.queue.tolist(), system.sender.tolist(), system.target.tolist()
        self.slot, self.machine = layout.slot.tolist(), layout.machine.tolist()
        self.paths = [self._way(int(step)) for step in layout.path]
        self.size = [float(system.tuple_bytes[queue]) for queue in self.queue]
        self.byte_s, self.latency, self.card = layout.byte_s.tolist(), layout.latency.tolist(), layout.card.tolist()
        self.credits = [system.window] * len(self.queue)
        self.consumed = [0] * len(self.queue)
        self.waiting: list[deque[Root]] = [deque() for _ in self.queue]
        self.carried = [self.random.random() for _ in self.bound]
        self.turn = [0] * len(self.bound)
        self.cores = [Cores(self, *pair) for pair in zip(layout.cores.tolist(), layout.speed.tolist(), strict=True)]
        self.hops = 0
        self.latencies: list[float] = []
        self.prepare()

    def prepare(self) -> None:
        """Create the in-queues, the cards and the processes."""
        self.inboxes = [self.simpy.Store(self.env) for _ in self.machine]
        self.cards = [self.simpy.Resource(self.env, 1) for _ in range(max(self.card) + 1)]
        for slot in sorted(set(self.slot)):
            self.env.process(self.serve(slot))
        self.env.process(self.arrive())

    def _way(self, step: int) -> list[int]:
        path = []
        for pipe in self.layout.pipes[step:].tolist():
            if pipe == END:
                break
            path.append(pipe)
        return path

    def run(self, until: float) -> None:
        """Run up to a time."""
        self.env.run(until=until)

    def arrive(self) -> Process:
        """Let source tuples fall due."""
        for due, task in zip(self.dues.times.tolist(), self.dues.task.tolist(), strict=True):
            yield self.env.timeout(max(0.0, due - self.env.now))
            yield self.inboxes[self.slot[task]].put(Item(Root(due), task, -1))

    def serve(self, slot: int) -> Process:
        """Serve the tuples of a slot, one after another."""
        inbox, cores = self.inboxes[slot], self.cores[self.machine[slot]]
        while True:
            item = yield inbox.get()
            yield cores.serve(self.draw(item.task))
            self.finish(item)

    def draw(self, task: int) -> float:
        """Draw a service time."""
        scale, shape = self.service[task]
        if self.drawn[task] == EXPONENTIAL:
            return self.random.expovariate(1.0 / scale)
        return self.random.gammavariate(shape, scale) if self.drawn[task] == GAMMA else scale

    def finish(self, item: Item) -> None:
        """Send the descendants of a tuple, and return its credit."""
        root, made = item.root, 0
        for queue in range(self.queues[item.task], self.queues[item.task + 1]):
            amount = self.carried[queue] + self.selectivity[queue]
            self.carried[queue] = amount - int(amount)
            made += int(amount)
            frames: dict[int, int] = {}
            for _ in range(int(amount)):
                lane = self.choose(queue)
                frames[lane] = frames.get(lane, 0) + 1
            for lane, count in frames.items():
                self.waiting[lane].extend([root] * count)
                self.flush(lane)
        root.pending += made - 1
        if root.pending == 0:
            self.latencies.append(self.env.now - root.due)
        if item.lane >= 0:
            self.hops += 1
            self.consumed[item.lane] += 1
            if self.consumed[item.lane] >= self.system.credit_at:
                self.credits[item.lane] += self.consumed[item.lane]
                self.consumed[item.lane] = 0
                self.flush(item.lane)

    def choose(self, queue: int) -> int:
        """Return the lane of a tuple: a random one, or each in turn."""
        first, width = self.lanes[queue], self.lanes[queue + 1] - self.lanes[queue]
        if self.bound[queue] == KEY:
            return first + int(self.random.random() * width)
        self.turn[queue] = (self.turn[queue] + 1) % width
        return first + self.turn[queue]

    def flush(self, lane: int) -> None:
        """Send what waits in a lane as one frame, as far as credit allows."""
        waiting, amount = self.waiting[lane], min(len(self.waiting[lane]), self.credits[lane])
        if amount:
            self.credits[lane] -= amount
            self.launch(lane, [waiting.popleft() for _ in range(amount)])

    def launch(self, lane: int, roots: list[Root]) -> None:
        """Start the transfer of a frame."""
        self.env.process(self.travel(lane, roots))

    def travel(self, lane: int, roots: list[Root]) -> Process:
        """Cross the cards of a route one after another."""
        for pipe in self.paths[lane]:
            if self.card[pipe] >= 0:
                with self.cards[self.card[pipe]].request() as free:
                    yield free
                    yield self.env.timeout(len(roots) * self.size[lane] * self.byte_s[pipe])
            if self.latency[pipe] > 0:
                yield self.env.timeout(self.latency[pipe])
        task = self.target[lane]
        for root in roots:
            yield self.inboxes[self.slot[task]].put(Item(root, task, lane))


class Sparing(Model):
    """The same with the minimum number of events."""

    def prepare(self) -> None:
        """Create the in-queues; all cards are free."""
        self.inbox: list[deque[Item]] = [deque() for _ in self.machine]
        self.busy = [False] * len(self.machine)
        self.free = [0.0] * (max(self.card) + 1)
        self.env.process(self.arrive())

    def arrive(self) -> Process:
        """Let source tuples fall due."""
        for due, task in zip(self.dues.times.tolist(), self.dues.task.tolist(), strict=True):
            yield self.env.timeout(max(0.0, due - self.env.now))
            self.inbox[self.slot[task]].append(Item(Root(due), task, -1))
            self.start(self.slot[task])

    def start(self, slot: int) -> None:
        """Let an idle slot start the next tuple."""
        if self.inbox[slot] and not self.busy[slot]:
            self.busy[slot] = True
            item = self.inbox[slot].popleft()
            done = self.cores[self.machine[slot]].serve(self.draw(item.task))
            done.callbacks.append(lambda _: self._end(slot, item))

    def _end(self, slot: int, item: Item) -> None:
        self.busy[slot] = False
        self.finish(item)
        self.start(slot)

    def launch(self, lane: int, roots: list[Root]) -> None:
        """Start the transfer of a frame."""
        self._enter(lane, roots, 0)

    def _enter(self, lane: int, roots: list[Root], place: int) -> None:
        """Cross the card at a position of the route, or arrive."""
        if place == len(self.paths[lane]):
            task = self.target[lane]
            self.inbox[self.slot[task]].extend(Item(root, task, lane) for root in roots)
            self.start(self.slot[task])
            return
        pipe, leaves = self.paths[lane][place], self.env.now
        if (card := self.card[pipe]) >= 0:
            leaves = max(leaves, self.free[card]) + len(roots) * self.size[lane] * self.byte_s[pipe]
            self.free[card] = leaves
        after = self.env.timeout(leaves + self.latency[pipe] - self.env.now)
        after.callbacks.append(lambda _: self._enter(lane, roots, place + 1))
