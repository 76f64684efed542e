"""Taking a run over whose driver has died, was stopped or failed: what is left of it, and whether it can go on.

Everything is looked at before anything is changed. An application whose shape is not that of the checkpoint is refused
with all the differences. Where no checkpoint was ever complete nothing has been published either, so that the run may
begin anew. Where there were some and none is whole, it may not: what was published would be published twice.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from penstock.api.dataflow import Dataflow
from penstock.api.outputs import output_folders
from penstock.model.cluster import Cluster
from penstock.model.errors import FileProblem, InvalidInput, PenstockError
from penstock.model.files import load_cluster
from penstock.model.placement import Hop, Placement
from penstock.model.plan import Plan, to_plan
from penstock.model.routes import route
from penstock.model.slotgraph import expand_links, expand_slots
from penstock.model.taskgraph import expand_tasks
from penstock.model.tuples import TuplePolicies
from penstock.runtime.controller.settings import Complete
from penstock.runtime.handle import LogLine
from penstock.runtime.layout import Layout
from penstock.runtime.storage import checkpoints
from penstock.runtime.storage import run_folder as folder
from penstock.runtime.storage.checkpoints import Journal, Manifest
from penstock.runtime.storage.disk import Posix
from penstock.runtime.storage.run_folder import LogFile, RunInfo, RunLock, Setup


class AtItsEnd(PenstockError):
    """A run with nothing left to do; `published` where its last files had yet to get their names, and now have."""

    def __init__(self, problem: str, published: bool) -> None:
        super().__init__(problem)
        self.published = published


@dataclass(frozen=True)
class Resumption:
    """A run that this process may take over, from where it goes on, and what a person should be told of that."""

    info: RunInfo
    setup: Setup
    lock: RunLock
    manifest: Manifest | None  # None: it begins anew
    epoch: int  # the last one that was issued
    placement: dict[str, str]  # task -> slot: where tasks should be; empty: it is not known
    policy: str  # that has placed them so
    tuples: TuplePolicies  # that were in force
    limits: dict[str, float]  # of sources, likewise
    outputs: tuple[str, ...]  # folders of its sinks
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def tell(self, listener: Callable[[str], None]) -> None:
        """Say in the run's log, and to a listener, what a person should know."""
        log = LogFile(self.info)
        for level, texts in (("warning", self.warnings), ("info", self.notes)):
            for text in texts:
                log(LogLine(time.time(), level, "", None, "controller", text))
                listener(f"warning: {text}" if level == "warning" else text)
        log.close()

    def clear(self) -> None:
        """Remove what comes after the checkpoint that it goes on from, published or not: those tuples come again."""
        last = 0 if self.manifest is None else self.manifest.number
        checkpoints.withdraw(Posix(), str(self.info.checkpoints_path.absolute()), last, self.outputs)


def find_resumable(what: str | Path | None, runs: Path = folder.RUNS) -> tuple[RunInfo, Setup]:
    """Return a run and how it was started; refuse one that does not say."""
    info = folder.find(what, runs)
    _refuse_given_up(info)
    if info.setup is None:
        problem = f"run {info.run} was started by Penstock {info.version}, which did not write down how"
        raise InvalidInput("resume", f"{problem}; start a new run in its place")
    return info, info.setup


def refuse_places(info: RunInfo, setup: Setup, telemetry: Path | str | bool | None, share: str | None) -> None:
    """Refuse to write outside a run's folder only because its `run.json` says so: such a folder must be named again."""
    elsewhere = folder.outside(info, info.telemetry)
    if telemetry is not None and (not isinstance(telemetry, Path | str) or elsewhere != Path(telemetry).absolute()):
        raise InvalidInput("telemetry", "a run that is resumed keeps what it had, leave it out; or start a new run")
    if elsewhere is not None and telemetry is None and setup.telemetry:
        problem = f"run {info.run} keeps its telemetry outside its folder, in {elsewhere}"
        raise InvalidInput("telemetry", f"{problem}; confirm that by naming it again (--telemetry {elsewhere})")
    if setup.share is not None and share is None:
        problem = f"run {info.run} shares its machines by a folder outside its own, {setup.share}"
        raise InvalidInput("share", f"{problem}; confirm that by naming it again")


def take(info: RunInfo, setup: Setup, flow: Dataflow) -> Resumption:
    """Take a run's lock and say from where an application goes on in it; nothing is changed where it is refused."""
    lock = RunLock(info)
    try:
        return _looked_at(info, setup, flow, lock)
    except BaseException:
        lock.release()
        raise


def emulated_cluster(info: RunInfo) -> Cluster | None:
    """Return the machines that a run emulates."""
    return None if info.emulated is None else load_cluster(info.cluster_path)


def _refuse_given_up(info: RunInfo) -> None:
    if info.given_up:
        problem = f"run {info.run} was a path that was given up, its tuples are with the application's other paths"
        raise InvalidInput("resume", f"{problem}; penstock cluster serve goes on with these")


def _looked_at(info: RunInfo, setup: Setup, flow: Dataflow, lock: RunLock) -> Resumption:
    _refuse_given_up(folder.load(info.path))  # as it is now that nobody else has it
    disk, place = Posix(), str(info.checkpoints_path.absolute())
    outputs = output_folders(flow, str(info.path.absolute()))
    checkpoints.refuse_outside(disk, place, outputs)
    journal = checkpoints.read_journal(disk, place)
    manifest, damaged = checkpoints.find_latest(disk, place)
    if manifest is None and damaged:
        problem = f"run {info.run} has no checkpoint that is whole, and has published from some: {'; '.join(damaged)}"
        raise FileProblem(f"{problem}; put back a copy, or start a new run in its place")
    if manifest is not None:
        _refuse_other(info, manifest, flow)
        if manifest.last:
            raise _at_its_end(info, manifest)
    found = Resumption(info, setup, lock, manifest, *_left(journal, manifest, info, setup), outputs)
    found.warnings.extend(damaged)
    found.notes.extend(_told(info, manifest))
    return found


def _left(
    journal: Journal | None, manifest: Manifest | None, info: RunInfo, setup: Setup
) -> tuple[int, dict[str, str], str, TuplePolicies, dict[str, float]]:
    """Return the last epoch, where tasks should be, by which policy, and the tuple policies and limits in force."""
    before = (0, {}) if manifest is None else (manifest.epoch, manifest.placement)
    if journal is None:
        return *before, info.policy, setup.tuples, setup.limits
    policy = journal.policy or info.policy
    return max(journal.epoch, before[0]), journal.placement or before[1], policy, journal.tuples, journal.limits


def _refuse_other(info: RunInfo, manifest: Manifest, flow: Dataflow) -> None:
    differences = checkpoints.mismatch(manifest, checkpoints.shape_of(flow))
    if differences:
        problem = f"checkpoint {manifest.number} of run {info.run} does not fit {flow.name!r}: {'; '.join(differences)}"
        raise InvalidInput("resume", f"{problem}. Resume it with the application as it was, or start a new run")


def _at_its_end(info: RunInfo, manifest: Manifest) -> AtItsEnd:
    """Finish publishing where that was all that was left, and say so."""
    disk, place = Posix(), str(info.checkpoints_path.absolute())
    ready = checkpoints.PUBLISHED not in disk.listed(checkpoints.folder_of(place, manifest.number))
    if ready:
        checkpoints.publish(disk, place, manifest)
    output = f"its output is in {info.output_path}"
    if ready:
        text = f"run {info.run} had come to its end but for publishing what was ready; that is done, {output}"
        return AtItsEnd(text, True)
    return AtItsEnd(f"run {info.run} has come to its end, there is nothing to resume; {output}", False)


def _told(info: RunInfo, manifest: Manifest | None) -> list[str]:
    if manifest is None:
        return [f"run {info.run} has no complete checkpoint, it begins anew"]
    given = sum(task.counted for task in manifest.tasks if task.position)
    told = [f"run {info.run} goes on from checkpoint {manifest.number}, after {given:,} source tuples"]
    if manifest.version != (own := version("penstock")):
        told.append(f"its checkpoint is of Penstock {manifest.version}, this is {own}; the format is the same")
    return told


def plan_of(found: Resumption, flow: Dataflow, cluster: Cluster, objective: str, complete: Complete) -> Plan | None:
    """Return the plan that puts tasks where they were, as far as these slots are there; None where none of them is."""
    names = Layout(flow).names
    wanted = [found.placement.get(name, "") for name in names]
    there = cluster.slot_names
    if not set(wanted) & set(there):
        return None
    slots = wanted if set(wanted) <= set(there) else complete(wanted, there)
    number = {name: position for position, name in enumerate(there)}
    placed = [number[slot] for slot in slots]
    application = flow.application
    routes = {}
    if cluster.routed:
        ways = route(expand_tasks(application), expand_slots(cluster), expand_links(cluster), placed)
        if isinstance(ways, Hop):
            return None
        routes = dict(ways)
    placement = Placement(tuple(placed), routes)
    return to_plan(application, cluster, placement, policy=found.policy, objective=objective, seed=found.setup.seed)
