"""A slotted system as a SimPy model: a process per task, tuples as objects, each sent to a random downstream task.

Producers and consumers are modelled as in SimPy's guide: an in-queue is a `Store`, tuples are put and got one by one.
In a slot a task first takes what it is going to send, then serves, then puts what it took into the stores, so a tuple
arrives one slot after it was sent, as in (8). `Sparing` uses only SimPy's clock, with one event per task and slot, and
plain lists as queues: the minimum number of events that the model can have.
"""

import subprocess
import sys
from collections import deque
from collections.abc import Generator
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

from penstock.model.slotted import Longs, SlottedSystem

FOLDER = Path(__file__).resolve().parents[1] / ".bench" / "simpy"
REQUIREMENTS = Path(__file__).with_name("requirements.txt")

Process = Generator[Any, Any, None]


def simpy_module() -> Any:
    """Return SimPy, installed on first use, because the project itself does not depend on it."""
    if not FOLDER.is_dir():
        command = [sys.executable, "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
        subprocess.run([*command, "--target", str(FOLDER), "-r", str(REQUIREMENTS)], check=True)
    sys.path.append(str(FOLDER))
    return import_module("simpy")


class Root:
    """An external tuple: its arrival, the number of its descendants in the system, and when the last was served."""

    __slots__ = ("done", "due", "pending")

    def __init__(self, due: int) -> None:
        self.due = due
        self.pending = 0
        self.done = -1


class Model:
    """The processes and what they share."""

    def __init__(self, system: SlottedSystem, counts: Longs, seed: int, simpy: Any) -> None:
        self.env = simpy.Environment()
        self.random = Random(seed)
        self.slots = counts.shape[1]
        self.roots: list[Root] = []
        self.served = 0
        self.limit = system.limit.tolist()
        lanes, target = system.lanes.tolist(), system.target.tolist()
        begin = system.queues.tolist()
        ways = [target[lanes[queue] : lanes[queue + 1]] for queue in range(len(lanes) - 1)]
        self.ways = [ways[begin[task] : begin[task + 1]] for task in range(system.tasks)]  # [task][queue] targets
        self.out: list[list[deque[Root]]] = [[deque() for _ in own] for own in self.ways]
        self.prepare(simpy, system.tasks)
        for task in range(system.tasks):
            if system.source[task]:
                self.env.process(self.source(task, counts[task].tolist()))
            else:
                self.env.process(self.worker(task, int(system.service[task])))

    def prepare(self, simpy: Any, tasks: int) -> None:
        """Create the in-queues."""
        self.inboxes = [simpy.Store(self.env) for _ in range(tasks)]

    def run(self) -> None:
        """Run all slots."""
        self.env.run(until=self.slots)

    def source(self, task: int, counts: list[int]) -> Process:
        """Receive external tuples, and send them."""
        for slot, count in enumerate(counts):
            self.arrive(task, slot, count)
            outgoing = self.outgoing(task)
            yield self.env.timeout(0.75)
            for target, root in outgoing:
                yield self.inboxes[target].put(root)
            yield self.env.timeout(0.25)

    def worker(self, task: int, service: int) -> Process:
        """Send what was emitted in the last slot, serve what has arrived."""
        inbox = self.inboxes[task]
        for slot in range(self.slots):
            outgoing = self.outgoing(task)
            yield self.env.timeout(0.5)
            for _ in range(min(service, len(inbox.items))):
                root = yield inbox.get()
                self.finish(task, root, slot)
            yield self.env.timeout(0.25)
            for target, root in outgoing:
                yield self.inboxes[target].put(root)
            yield self.env.timeout(0.25)

    def arrive(self, task: int, slot: int, count: int) -> None:
        """Put external tuples into the out-queues of a source."""
        for _ in range(count):
            root = Root(slot)
            self.roots.append(root)
            self.make(task, root)

    def make(self, task: int, root: Root) -> None:
        """Put a tuple into every out-queue of a task."""
        for queue in self.out[task]:
            queue.append(root)
        root.pending += len(self.out[task])

    def finish(self, task: int, root: Root, slot: int) -> None:
        """Serve a tuple."""
        self.served += 1
        root.pending -= 1
        self.make(task, root)
        if root.pending == 0:
            root.done = slot

    def outgoing(self, task: int) -> list[tuple[int, Root]]:
        """Take what a task sends in a slot, each tuple with its target, up to its limit."""
        found: list[tuple[int, Root]] = []
        for ways, queue in zip(self.ways[task], self.out[task], strict=True):
            amount = min(len(queue), self.limit[task] - len(found))
            found += [(self.random.choice(ways), queue.popleft()) for _ in range(amount)]
        return found

    def response(self, warm_up: int) -> float:
        """Return the mean response time; unfinished tuples count with their age."""
        ends = [(self.slots if root.done < 0 else root.done) - root.due for root in self.roots if root.due >= warm_up]
        return sum(ends) / len(ends)


class Sparing(Model):
    """The same with one event per task and slot."""

    def prepare(self, simpy: Any, tasks: int) -> None:
        """Create the in-queues."""
        self.landed: list[deque[tuple[int, Root]]] = [deque() for _ in range(tasks)]

    def source(self, task: int, counts: list[int]) -> Process:
        """Receive external tuples, and send them."""
        for slot, count in enumerate(counts):
            self.arrive(task, slot, count)
            for target, root in self.outgoing(task):
                self.landed[target].append((slot, root))
            yield self.env.timeout(1)

    def worker(self, task: int, service: int) -> Process:
        """Send what was made in the last slot, serve what was sent in an earlier one."""
        inbox = self.landed[task]
        for slot in range(self.slots):
            for target, root in self.outgoing(task):
                self.landed[target].append((slot, root))
            for _ in range(service):
                if not inbox or inbox[0][0] == slot:
                    break
                self.finish(task, inbox.popleft()[1], slot)
            yield self.env.timeout(1)
