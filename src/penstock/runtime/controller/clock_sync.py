"""Asks workers for the time again and again, so that what their clocks say can be told in the controller's time."""

from typing import TYPE_CHECKING

from penstock.runtime.protocol import controller_messages, worker_messages

if TYPE_CHECKING:
    from penstock.runtime.controller.state_machine import Controller

PING_S = 0.5
CLOCK_S = 5.0  # between records of a worker's clock


class Pings:
    """What the controller asks, and is answered, about clocks."""

    def __init__(self, controller: "Controller", now: float) -> None:
        self.controller = controller
        self.due = now  # when workers are asked next
        self._recorded = now  # when their clocks are written down next
        self._asked: dict[int, tuple[int, float]] = {}  # worker -> number of the last ping, and when
        self._count = 0

    def tick(self, now: float) -> None:
        """Do what is due."""
        controller = self.controller
        if now >= self.due:
            self.due = now + PING_S
            for number, member in enumerate(controller.members.all):
                if member.alive:
                    self._count += 1
                    self._asked[number] = (self._count, now)
                    controller.out.append((number, controller_messages.Ping(self._count)))
        if now >= self._recorded:
            self._recorded = now + CLOCK_S
            controller.diary.clocks(controller.members)

    def answered(self, worker: int, message: worker_messages.Pong, now: float) -> None:
        """Learn from an answer how far a worker's clock is from this one's."""
        if worker in self._asked and self._asked[worker][0] == message.number:
            self.controller.members[worker].clock.add(self._asked[worker][1], now, message.at)
