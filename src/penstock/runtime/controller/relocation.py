"""Takes a worker out of a run on purpose, without a failure: its tasks move away, then it parts from the others.

A worker that runs on another executor than planned is to be launched again where it belongs. Its tasks move to other
slots while tuples flow. Then every other worker puts a last frame on its connection to the one that leaves, which
answers each of them behind all that it has passed on: nothing is on its way any more, and its end is no loss. It comes
back as any worker does, and its tasks return to it.
"""

from typing import TYPE_CHECKING

from penstock.runtime.protocol import controller_messages, worker_messages

if TYPE_CHECKING:
    from penstock.runtime.controller.state_machine import Controller


class Relocation:
    """The workers of a run that are to leave."""

    def __init__(self, controller: "Controller") -> None:
        self.controller = controller
        self._asked: dict[int, tuple[int, set[int]]] = {}  # worker -> the epoch, and those it has not parted from yet

    def request(self, site: str, now: float) -> str:
        """Have the worker of a site leave; say why it cannot."""
        controller = self.controller
        number = controller.members.by_name[site]
        member = controller.members[number]
        if controller.spec.emulated is not None:
            return "an emulated machine may be anywhere"
        if not set(controller.members.usable(now)) - set(member.site.slots):
            return "no other slot could have its tasks"
        member.leaving = member.alive
        controller.standing.look_soon()
        return ""

    def tick(self, now: float) -> None:
        """Let workers part whose tasks have moved away; keep those whose tasks cannot."""
        controller = self.controller
        if controller.phase != "running":
            return
        for number, member in enumerate(controller.members):
            if not member.leaving or not member.alive or member.epoch != controller.epoch:
                continue
            here = [task for task, slot in enumerate(controller.placement) if slot in member.site.slots]
            stuck = [controller.layout.names[task] for task in here if controller.standing.refuses(task)]
            if stuck:
                member.leaving = False
                controller.warn(f"worker {member.site.name!r} stays where it is: {', '.join(stuck)} cannot move")
            elif not here and not controller.operations.current:
                self._part(number)

    def _part(self, number: int) -> None:
        controller = self.controller
        if self._asked.get(number, (0, set()))[0] == controller.epoch:
            return
        others = {
            other
            for other in controller.members.alive
            if other != number and controller.members[other].epoch == controller.epoch
        }
        self._asked[number] = (controller.epoch, others)
        for worker in (number, *others):
            controller.out.append((worker, controller_messages.Detach(controller.epoch, number, tuple(others))))

    def parted(self, worker: int, message: worker_messages.Detached, now: float) -> None:
        """Take note that nothing is on its way between two workers; let the one go when that is so of all others."""
        controller = self.controller
        epoch, others = self._asked.get(message.peer, (0, set()))
        member = controller.members[message.peer]
        others.discard(worker)
        if epoch == controller.epoch and not others and member.leaving and not member.parted:
            member.parted = True
            controller.event("left", member.site.name, now)
            controller.out.append((message.peer, controller_messages.Stop()))
