"""What a controller starts with, and the state of its run: settings, workers, where the tasks are, phase and epoch."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from penstock.model.cluster import Cluster, Machine
from penstock.model.errors import InvalidInput, UnknownName, nearest
from penstock.model.plan import Plan
from penstock.runtime.config import RunConfig
from penstock.runtime.layout import Layout
from penstock.runtime.protocol.controller_messages import Folders, Route
from penstock.runtime.storage.checkpoints import CheckpointManifest

# Places every task: from the slots that they should have and the slots available. It moves as few tasks as it can.
Complete = Callable[[Sequence[str], Sequence[str]], Sequence[str]]
ENDED = ("stopped", "failed")  # phases


@dataclass(frozen=True)
class Site:
    """A worker that the plan needs: one slot, or an emulated machine with all of its slots."""

    name: str
    slots: tuple[str, ...]
    capacity: tuple[float, float] | None = None  # cpu and memory (MB) of its machine; None: it is emulated


def run_folders(run: str = ".", telemetry: str = "", checkpoints: str = "") -> Folders:
    """Return the folders of a run.

    telemetry: empty: none is written. checkpoints: empty: one in the run's folder, absolute: later writes do not depend
    on the working directory.
    """
    return Folders(run=run, telemetry=telemetry, checkpoints=checkpoints or os.path.abspath(f"{run}/checkpoints"))


@dataclass(frozen=True)
class RunSpec:
    """What a controller starts with: the settings of its run, its workers, where its tasks are, what it resumes."""

    run: str
    sites: tuple[Site, ...]
    placement: tuple[str, ...]  # slot of each task
    config: RunConfig = field(default_factory=RunConfig)
    folders: Folders = field(default_factory=run_folders)
    master: str = ""  # of the Spark session
    policy: str = ""  # that placed the tasks
    emulated: Cluster | None = None
    routes: tuple[Route, ...] = ()
    resumed: CheckpointManifest | None = None  # the checkpoint from which the run continues
    epoch: int = 0  # the last one that was issued in this folder
    complete: Complete | None = None  # places tasks whose slots are unavailable; None: on the slots with fewest tasks


def sites_of(machine: Machine) -> list[Site]:
    """Return the workers of a machine that is not emulated: a process per slot, which share the machine's capacity.

    They record it in telemetry, so that models learned from it match the machine as policies see it.
    """
    slots = (f"{machine.name}/{number}" for number in range(machine.slots))
    return [Site(slot, (slot,), (machine.cpu, machine.memory_mb)) for slot in slots]


def routes_of(plan: Plan) -> tuple[Route, ...]:
    """Return a plan's routes as workers receive them."""
    return tuple((route.stream, route.source, route.target, route.links) for route in plan.routes)


def check_placement(layout: Layout, sites: Sequence[Site], placement: Sequence[str]) -> None:
    """Raise if a placement names slots that no worker has."""
    slots = {slot for site in sites for slot in site.slots}
    if len(placement) != len(layout.components):
        raise InvalidInput("plan", f"expected {len(layout.components)} tasks, got {len(placement)}; plan again")
    for task, slot in enumerate(placement):
        if slot not in slots:
            raise UnknownName(f"plan.{layout.names[task]}", f"no worker has slot {slot!r}; {nearest(slot, slots)}")


def place_on_fewest(wanted: Sequence[str], available: Sequence[str]) -> list[str]:
    """Place tasks whose slot is unavailable on the slots with the fewest tasks; keep all others."""
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


class RunState:
    """The phase, the epoch and the placement of a run.

    The state machine and recovery change the phase; recovery issues epochs; recovery and committed moves change the
    placement.
    """

    def __init__(self, names: Sequence[str], placement: Sequence[str], epoch: int) -> None:
        self.names = names  # of the tasks
        self.placement = list(placement)  # the slot that each task has
        self.phase = "starting"
        self.epoch = epoch

    @property
    def ended(self) -> bool:
        """Whether the run has stopped or failed."""
        return self.phase in ENDED

    @property
    def flowing(self) -> bool:
        """Whether tuples flow."""
        return self.phase in ("running", "draining")
