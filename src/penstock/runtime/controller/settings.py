"""How a run is to be run: its workers, where its tasks begin, and what it keeps."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.model.cluster import Machine
from penstock.model.errors import InvalidInput, UnknownName, nearest
from penstock.model.plan import Plan
from penstock.model.tuples import TuplePolicies
from penstock.runtime.layout import Layout
from penstock.runtime.protocol.controller_messages import Route
from penstock.runtime.storage.checkpoints import Manifest

# Where every task goes: from the slots they should have and the slots that there are. It moves as few as it can.
Complete = Callable[[Sequence[str], Sequence[str]], Sequence[str]]


@dataclass(frozen=True)
class Site:
    """A worker that the plan needs: one slot, or an emulated machine with all of its slots."""

    name: str
    slots: tuple[str, ...]
    capacity: tuple[float, float] | None = None  # cpu and memory (MB) of its machine; an emulated one knows them itself


@dataclass(frozen=True)
class Terms:
    """How a run is to be run."""

    run: str
    sites: tuple[Site, ...]
    placement: tuple[str, ...]  # slot of each task
    folder: str = "."
    umask: int = 0o077  # permissions that its files do not have
    telemetry: str = ""
    window: int = 2048
    sample_tps: float = 20.0
    in_flight: int = 0
    seed: int = 0
    master: str = ""
    policy: str = ""
    emulated: Mapping[str, Any] | None = None  # the cluster
    emulated_name: str | None = None
    routes: tuple[Route, ...] = ()
    tuples: TuplePolicies = field(default_factory=TuplePolicies)
    limits: Mapping[str, float] = field(default_factory=dict)  # source component -> tuples a second
    share: str = ""  # folder by which its emulated machines are also those of other runs; empty: they are not
    start_s: float = 120.0  # for all workers to come
    checkpoints: str = ""  # folder; empty: in `folder`
    checkpoint_s: float = 0.0  # between checkpoints; 0: only the last one, when the sources have ended
    resumed: Manifest | None = None  # the checkpoint from which it goes on
    epoch: int = 0  # the last one that was issued in this folder
    complete: Complete | None = None  # where tasks go whose slots are not there; None: the slots with fewest tasks
    lease_s: float = 3.0  # for which a worker goes on without a sign of the controller
    silent_s: float = 5.0  # after which a worker without a sign of life is taken for lost; not below `lease_s`
    replace_s: float = 5.0  # for a lost worker to be replaced, before its tasks go elsewhere
    checkpoint_within_s: float = 60.0  # for a checkpoint to come to its end
    restarts: int = 10  # recoveries within the window after which the next loss ends the run
    restart_window_s: float = 600.0
    restart_pause_s: float = 0.5  # before a recovery where no checkpoint came after the one before; doubled each time

    def __post_init__(self) -> None:
        if not self.checkpoints:  # settled now: what is written later must not depend on where the process is then
            object.__setattr__(self, "checkpoints", os.path.abspath(os.path.join(self.folder, "checkpoints")))


def sites_of(machine: Machine) -> list[Site]:
    """Return the workers of a machine that is not emulated: a process a slot, which share what it is described to have.

    They tell that in telemetry, so that what is learnt from it holds for the machine as policies see it.
    """
    slots = (f"{machine.name}/{number}" for number in range(machine.slots))
    return [Site(slot, (slot,), (machine.cpu, machine.memory_mb)) for slot in slots]


def routes_of(plan: Plan) -> tuple[Route, ...]:
    """Return a plan's routes as workers are told them."""
    return tuple((route.stream, route.source, route.target, route.links) for route in plan.routes)


def check_placement(layout: Layout, sites: Sequence[Site], placement: Sequence[str]) -> None:
    """Refuse a placement that names slots which no worker has."""
    slots = {slot for site in sites for slot in site.slots}
    if len(placement) != len(layout.components):
        raise InvalidInput("plan", f"expected {len(layout.components)} tasks, got {len(placement)}; plan again")
    for task, slot in enumerate(placement):
        if slot not in slots:
            raise UnknownName(f"plan.{layout.names[task]}", f"no worker has slot {slot!r}; {nearest(slot, slots)}")


def fewest(wanted: Sequence[str], available: Sequence[str]) -> list[str]:
    """Put tasks whose slot is not there on the slots with the fewest, and leave all others."""
    counts = dict.fromkeys(available, 0)
    for slot in wanted:
        if slot in counts:
            counts[slot] += 1
    placed = []
    for slot in wanted:
        if slot not in counts:
            slot = min(available, key=counts.__getitem__)
            counts[slot] += 1
        placed.append(slot)
    return placed
