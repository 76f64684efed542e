"""The outbox: to whom commands go, and when scheduled steps run."""

import math

from penstock.runtime.controller.membership import Membership
from penstock.runtime.controller.outbox import ControllerOutbox
from penstock.runtime.controller.run_spec import Site
from penstock.runtime.protocol.controller_messages import Ping
from penstock.runtime.protocol.worker_messages import Register


def outbox() -> ControllerOutbox:
    """Return one for three sites: a worker in epoch 1, one without an epoch, and none."""
    members = Membership(tuple(Site(f"w{number}", (f"w{number}/0",)) for number in range(3)), 3.0, 5.0, 0.0)
    for name in ("w0", "w1"):
        members.register(Register(name, "host", 1, 2), 0.0)
    members[0].epoch = 1
    return ControllerOutbox(members)


def test_broadcasts_to_workers_that_have_an_epoch() -> None:
    one = outbox()
    one.broadcast(Ping(1))
    one.send(1, Ping(2))
    assert one.take_commands() == [(0, Ping(1)), (1, Ping(2))]
    assert one.take_commands() == []


def test_runs_scheduled_steps_in_order_when_they_are_due() -> None:
    one, steps = outbox(), list[tuple[str, float]]()
    for when, name in ((3.0, "last"), (1.0, "first"), (1.0, "second")):
        one.schedule(when, lambda now, name=name: steps.append((name, now)))  # type: ignore[misc]
    assert one.next_step == 1.0
    one.run_steps(0.5)
    assert steps == []
    one.run_steps(2.0)
    assert (steps, one.next_step) == ([("first", 2.0), ("second", 2.0)], 3.0)
    one.run_steps(3.0)
    assert (steps[-1], one.next_step) == (("last", 3.0), math.inf)
