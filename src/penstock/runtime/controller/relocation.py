"""Ends a worker on purpose, without a failure: its tasks move away, then it detaches from the other workers.

A worker that runs on another executor than planned has to be launched again on its own. Its tasks move to other slots
while tuples flow. Then every other worker puts a last frame on its connection to the worker that leaves, which answers
each of them behind all that it has forwarded: nothing is in flight any more, and its end is no loss. Its site gets a
new worker like any other, and its tasks return to it.
"""

from collections.abc import Callable

from penstock.runtime.controller.membership import Membership
from penstock.runtime.controller.outbox import ControllerOutbox
from penstock.runtime.controller.run_spec import RunState
from penstock.runtime.protocol import controller_messages, worker_messages


class Relocation:
    """The workers of a run that leave."""

    def __init__(
        self, state: RunState, members: Membership, outbox: ControllerOutbox, event: Callable[[str, str, float], None]
    ) -> None:
        self._state = state
        self._members = members
        self._outbox = outbox
        self._event = event
        self._detaching: dict[int, tuple[int, set[int]]] = {}  # worker -> epoch, the workers that have not answered

    def request(self, site: str, now: float) -> str:
        """Have the worker of a site leave; return why it cannot, or nothing."""
        member = self._members[self._members.by_name[site]]
        if not set(self._members.usable(now)) - set(member.site.slots):
            return "no other slot could have its tasks"
        member.leaving = member.alive
        return ""

    def tick(self, is_movable: Callable[[int], bool], idle: bool) -> None:
        """Detach workers whose tasks have moved, if no operation is running; keep those with an immovable task."""
        state = self._state
        if state.phase != "running":
            return
        for number in self._members.in_epoch(state.epoch):
            member = self._members[number]
            if not member.leaving:
                continue
            here = [task for task, slot in enumerate(state.placement) if slot in member.site.slots]
            stuck = [state.names[task] for task in here if not is_movable(task)]
            if stuck:
                member.leaving = False
                self._outbox.warn(f"worker {member.site.name!r} stays where it is: {', '.join(stuck)} cannot move")
            elif not here and idle:
                self._detach(number)

    def _detach(self, number: int) -> None:
        epoch = self._state.epoch
        if self._detaching.get(number, (0, set()))[0] == epoch:
            return
        others = {other for other in self._members.in_epoch(epoch) if other != number}
        self._detaching[number] = (epoch, others)
        for worker in (number, *others):
            self._outbox.send(worker, controller_messages.Detach(epoch, number, tuple(others)))

    def take_detached(self, worker: int, message: worker_messages.Detached, now: float) -> None:
        """Take one worker's answer that nothing is in flight; stop the worker that leaves after the last answer."""
        epoch, others = self._detaching.get(message.peer, (0, set()))
        member = self._members[message.peer]
        others.discard(worker)
        if epoch == self._state.epoch and not others and member.leaving and not member.detached:
            member.detached = True
            self._event("left", member.site.name, now)
            self._outbox.send(message.peer, controller_messages.Stop())
