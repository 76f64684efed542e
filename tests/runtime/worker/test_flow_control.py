"""Credit: receivers give back what they have processed, and windows follow what they are set to."""

import random
from collections import deque
from typing import Any

import pytest

from penstock.api.contracts import TaskContext
from penstock.api.logic import MapOperator
from penstock.model.topology import Component, Grouping, Kind
from penstock.runtime.protocol.controller_messages import Peer
from penstock.runtime.protocol.frames import Credit
from penstock.runtime.worker.flow_control import CreditControl
from penstock.runtime.worker.input import Delivery, Inbox, InChannel
from penstock.runtime.worker.output import Lane, OutQueue
from penstock.runtime.worker.routing import Early, TaskDirectory
from penstock.runtime.worker.running_task import RunningTask
from penstock.runtime.worker.task import AuthorCode, SourceLimits, Task
from tests.runtime.worker.test_output import Recorded

MAXIMUM = 32


class Windows:
    """Sets every window to the same number, which a test may change."""

    size = MAXIMUM

    def __init__(self) -> None:
        self.woken: list[int] = []

    def now(self) -> float:
        return 1.0

    def window(self, seconds: float | None, channels: int) -> int:
        return self.size

    def wake(self, task: Task) -> None:
        self.woken.append(task.number)


class Nobody:
    """No task moves; credit for one of these is kept."""

    def __init__(self, moving: frozenset[int] = frozenset()) -> None:
        self.moving = moving
        self.kept: list[Early] = []

    def awaits(self, task: int) -> bool:
        return task in self.moving

    def keep(self, task: int, item: Early) -> None:
        self.kept.append(item)

    def settle(self, *_: Any) -> None:
        raise AssertionError


def a_task(number: int, inbox: Inbox, queues: list[OutQueue]) -> Task:
    context = TaskContext("same", number, 2)
    code = AuthorCode(MapOperator(int))
    return Task(number, Component(name="same", kind=Kind.OPERATOR), context, code, inbox, queues, "a/0", SourceLimits())


def ends() -> tuple[CreditControl, CreditControl, Windows, Task, Task, deque[Credit]]:
    """Return the flow control of two workers, what sets the receiver's windows, their tasks, and the wire between."""
    slots, placement = {"a/0": 0, "b/0": 1}, ("a/0", "b/0")
    peers = (Peer("a", "h", 1, 1), Peer("b", "h", 2, 2))
    wire: deque[Credit] = deque()

    def post(worker: int, frame: Credit) -> None:
        assert worker == 0
        wire.append(frame)

    windows = Windows()
    sending, receiving = (TaskDirectory(me, peers, slots, placement) for me in (0, 1))
    queue = OutQueue(3, Grouping.GLOBAL, 0, [Lane(1, MAXIMUM)], Recorded())
    source = a_task(0, Inbox("same[0]", ()), [queue])
    target = a_task(1, Inbox("same[1]", (InChannel(3, 0, MAXIMUM),)), [])
    sending.add(source)
    receiving.add(target)
    flows = [
        CreditControl(1, MAXIMUM, directory, windows, Nobody(), post, RunningTask())
        for directory in (sending, receiving)
    ]
    return flows[0], flows[1], windows, source, target, wire


@pytest.mark.parametrize("seed", range(20))
def test_tuples_in_flight_never_exceed_the_window_and_all_credit_returns(seed: int) -> None:
    rng = random.Random(seed)
    sender, receiver, windows, source, target, wire = ends()
    (lane,), (channel,) = source.queues[0].lanes, target.inbox.channels.values()
    recorded = source.queues[0]._sender
    assert isinstance(recorded, Recorded)
    arrived = largest = 0
    for _ in range(600):
        action = rng.randrange(5)
        if action == 0:
            source.put(list(range(rng.randrange(1, 9))))
        elif action == 1 and arrived < len(recorded.values(1)):
            values = recorded.values(1)[arrived : arrived + rng.randrange(1, 9)]
            target.inbox.accept(channel, arrived, Delivery(channel, values, (), 0.0, 0.0, 0, 0))
            arrived += len(values)
        elif action == 2 and target.inbox.waiting:
            item = target.inbox.waiting[0]
            assert isinstance(item, Delivery)
            values, _ = item.peek(rng.randrange(1, 9))
            item.advance(len(values), False)
            target.inbox.drop_taken(len(values))
            receiver.processed(target, channel, len(values), 0.0)
        elif action == 3 and wire:
            sender.receive(wire.popleft())
        elif rng.random() < 0.1:
            windows.size = rng.choice((2, 8, MAXIMUM))
        in_flight = lane.number - target.counted  # sent, and not processed
        largest = max(largest, in_flight)
        assert 0 <= in_flight <= MAXIMUM
        on_its_way = sum(credit.amount for credit in wire)
        assert lane.credits + on_its_way + in_flight + channel.consumed == channel.granted
        assert lane.window + sum(credit.wider for credit in wire) == channel.granted
    assert largest > MAXIMUM // 2
    assert target.counted > 100
    assert set(windows.woken) == {0}


def test_gives_credit_when_a_quarter_of_the_window_is_processed() -> None:
    _, receiver, _, _, target, wire = ends()
    (channel,) = target.inbox.channels.values()
    target.inbox.accept(channel, 0, Delivery(channel, list(range(20)), (), 0.0, 0.0, 0, 0))
    receiver.processed(target, channel, 7, 0.0)
    assert not wire
    receiver.processed(target, channel, 1, 0.0)
    assert [(credit.source, credit.target, credit.amount, credit.received) for credit in wire] == [(0, 1, 8, 20)]


def test_a_much_narrower_window_takes_credit_back_at_once() -> None:
    sender, receiver, windows, source, target, wire = ends()
    (channel,), (lane,) = target.inbox.channels.values(), source.queues[0].lanes
    target.inbox.accept(channel, 0, Delivery(channel, list(range(16)), (), 0.0, 0.0, 0, 0))
    windows.size = 2
    receiver.processed(target, channel, 1, 0.0)
    assert (wire[0].amount, wire[0].wider, channel.granted) == (3 - MAXIMUM, 2 - MAXIMUM, 2)
    sender.receive(wire.popleft())
    assert (lane.window, lane.credits) == (2, 3)


def test_a_sender_without_credit_waits_until_its_tuples_have_been_processed() -> None:
    sender, receiver, windows, source, target, wire = ends()
    (channel,), (queue,) = target.inbox.channels.values(), source.queues
    (lane,) = queue.lanes
    lane.spend(20)
    target.inbox.accept(channel, 0, Delivery(channel, list(range(20)), (), 0.0, 0.0, 0, 0))
    windows.size = 2
    for left in range(19, -1, -1):
        receiver.processed(target, channel, 1, 0.0)
        while wire:
            sender.receive(wire.popleft())
        assert lane.credits == 2 - left
        assert lane.room == max(0, 2 - left)


def test_credit_for_a_task_that_moves_here_waits_for_it() -> None:
    peers, arrivals = (Peer("a", "h", 1, 1),), Nobody(frozenset({0}))
    directory = TaskDirectory(0, peers, {"a/0": 0}, ("a/0", "a/0"))
    flow = CreditControl(1, MAXIMUM, directory, Windows(), arrivals, lambda *_: None, RunningTask())
    credit = Credit(1, 3, 0, 1, 8, 0)
    flow.receive(credit)
    assert arrivals.kept == [credit]
