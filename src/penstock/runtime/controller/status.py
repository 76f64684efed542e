"""How a run is going, for people: what the controller knows, put together when somebody asks."""

import math
import time
from typing import TYPE_CHECKING

import msgspec

from penstock.model.cluster import machine_of
from penstock.model.status import CheckpointStatus, MachineStatus, Status
from penstock.runtime.controller.membership import Member

if TYPE_CHECKING:
    from penstock.runtime.controller.state_machine import Controller

SILENT_S = 2.0  # without a sign of life, after which a worker is warned of


def overview(controller: "Controller", now: float) -> Status:
    """Return how it is going; after the end, how it went."""
    now = now if controller.ended_at is None else controller.ended_at
    machines = [machine_of(slot) for slot in controller.placement]
    counts = [0] * len(controller.members)
    for slot in controller.placement:
        counts[controller.slots[slot]] += 1
    spec = controller.spec
    return Status(
        run=spec.run,
        application=controller.layout.application.name,
        phase=controller.phase,
        seconds=now - (controller.went_at if controller.went_at is not None else now),
        emulated=None if spec.emulated is None else spec.emulated.name,
        master=spec.master,
        policy=controller.policy,
        tuples=controller.rulebook.tuples,
        limits=dict(controller.limits),
        components=controller.gauges.components(machines, now),
        machines=[
            _machine(controller, number, member, counts[number], now)
            for number, member in enumerate(controller.members)
        ],
        latency=controller.gauges.end_to_end(now),
        placement=dict(zip(controller.layout.names, controller.placement, strict=True)),
        emitted=controller.gauges.emitted,
        written=controller.gauges.written,
        in_flight=controller.progress.in_flight,
        timed_out=controller.progress.acker.timed_out,
        operation=controller.operations.current,
        epoch=controller.epoch,
        resumed=spec.resumed.number if spec.resumed is not None else 0,
        recoveries=controller.recovery.count,
        last_recovery=controller.recovery.last,
        last_recovery_s=controller.recovery.times[-1] if controller.recovery.times else 0.0,
        checkpoint=_checkpoint(controller, now),
        warnings=[*controller.gauges.warnings(), *_warnings(controller, now)],
        error=controller.error,
    )


def _machine(controller: "Controller", number: int, member: Member, tasks: int, now: float) -> MachineStatus:
    offset = member.clock.estimate.offset
    found = controller.gauges.machine(number, member.site, member.host, tasks, offset, member.alive)
    note = found.note
    if controller.members.is_out(number, now):
        note = f"left out for {member.out_until - now:.0f} s more: {member.reason}"
    return msgspec.structs.replace(found, note=note, pid=member.pid)


def _checkpoint(controller: "Controller", now: float) -> CheckpointStatus | None:
    latest = controller.checkpointing.latest
    if latest is None:
        return None
    age = now - controller.checkpointing.completed_at
    return CheckpointStatus(
        number=latest.number,
        age_s=max(0.0, age if math.isfinite(age) else time.time() - latest.at),  # it may be of the driver before
        seconds=latest.seconds,
        bytes=latest.size,
        problem=controller.checkpointing.problem,
    )


def _warnings(controller: "Controller", now: float) -> list[str]:
    """Say which workers give no sign of life though their connection stands, and why there is no checkpoint."""
    if controller.at_rest:
        return ["no source emitted a tuple"] if controller.phase == "stopped" and not controller.gauges.emitted else []
    found = [
        f"worker {m.site.name!r} ({m.where}) has given no sign of life for {now - m.last_beat:.0f} s"
        for m in controller.members
        if m.alive and m.epoch and now - m.last_beat > SILENT_S
    ]
    if controller.checkpointing.problem:
        latest = controller.checkpointing.latest
        since = f"since checkpoint {latest.number}" if latest else "yet"
        found.append(f"there is no checkpoint {since}: {controller.checkpointing.problem}")
    return found
