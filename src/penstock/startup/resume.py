"""Resuming a run whose driver has died, was stopped or failed: what is left of it, and whether it can continue.

All checks come before any change. An application whose shape differs from that of the checkpoint is refused with all
the differences. If no checkpoint was ever complete, nothing was published either, and the run starts again from the
beginning. If there were some and all are damaged, the run is refused: its output would be published twice.
"""

import dataclasses
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from msgspec.structs import replace

from penstock.api.dataflow import Dataflow, output_folders
from penstock.model.cluster import Cluster
from penstock.model.errors import FileProblem, InvalidInput, PenstockError
from penstock.model.files import load_cluster
from penstock.model.placement import Hop, Placement
from penstock.model.plan import Plan, to_plan
from penstock.model.routes import route_hops
from penstock.model.slotgraph import expand_links, expand_slots
from penstock.model.taskgraph import expand_tasks
from penstock.runtime.config import RunConfig
from penstock.runtime.controller.run_spec import Complete
from penstock.runtime.handle import LogLine
from penstock.runtime.layout import Layout
from penstock.runtime.storage import checkpoints
from penstock.runtime.storage import run_folder as folder
from penstock.runtime.storage.checkpoints import CheckpointManifest
from penstock.runtime.storage.disk import Posix
from penstock.runtime.storage.run_folder import LogFile, RunInfo, RunLock
from penstock.startup.rescaling import RescaledCheckpoint, changed_counts, rescale


class AlreadyCompleted(PenstockError):
    """A run with nothing left to do; `published`: its last files were ready and have just been published."""

    def __init__(self, problem: str, published: bool) -> None:
        super().__init__(problem)
        self.published = published


@dataclass(frozen=True)
class Resumption:
    """A run that this process has locked, and what it continues from."""

    info: RunInfo
    config: RunConfig  # as stored, with the tuple policies and limits that were in force
    lock: RunLock
    manifest: CheckpointManifest | None  # None: it starts from the beginning
    epoch: int  # the last one that was issued
    placement: dict[str, str]  # task -> slot: where tasks should be; empty: unknown
    policy: str  # that placed them
    outputs: tuple[str, ...]  # folders of its sinks
    rescaled: RescaledCheckpoint | None = None  # of another number of tasks, not on disk yet
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def base(self) -> RunConfig:
        """The settings that changes apply to. Folders outside the run's own are not among them: they must be set again.

        `run.json` may be another user's: it alone must not make this process write elsewhere.
        """
        telemetry, execution = self.config.telemetry, replace(self.config.execution, share=None)
        if folder.outside(self.info, self.info.telemetry) is not None:
            telemetry = replace(telemetry, folder=None)
        return replace(self.config, telemetry=telemetry, execution=execution)

    def report(self, listener: Callable[[str], None]) -> None:
        """Write notes and warnings to the run's log and to a listener."""
        log = LogFile(self.info)
        for level, texts in (("warning", self.warnings), ("info", self.notes)):
            for text in texts:
                log(LogLine(time.time(), level, "", None, "controller", text))
                listener(f"warning: {text}" if level == "warning" else text)
        log.close()

    def clear(self) -> "Resumption":
        """Remove all output after the checkpoint, published or not: those tuples are processed again.

        Return what the run continues from: with another number of tasks, a new checkpoint.
        """
        disk, place = Posix(), str(self.info.checkpoints_path.absolute())
        last = 0 if self.manifest is None else self.manifest.number
        checkpoints.withdraw(disk, place, last, self.outputs)
        if self.rescaled is None:
            return self
        return dataclasses.replace(self, manifest=self.rescaled.write(disk, place), rescaled=None)


def find_resumable(what: str | Path | None, runs: Path = folder.RUNS) -> tuple[RunInfo, RunConfig]:
    """Return a run and its settings."""
    info = folder.find_run(what, runs)
    _refuse_given_up(info)
    return info, info.config


def refuse_folders(info: RunInfo, stored: RunConfig, config: RunConfig) -> None:
    """Refuse to write outside a run's folder only because its `run.json` says so: such a folder must be set again."""
    elsewhere, telemetry = folder.outside(info, info.telemetry), config.telemetry.folder
    if telemetry is not None and elsewhere != Path(telemetry).absolute():
        problem = f"a resumed run keeps its folder, got {telemetry!r}"
        raise InvalidInput("telemetry.folder", f"{problem}; leave it out, or start a new run")
    if elsewhere is not None and telemetry is None and stored.telemetry.enabled:
        problem = f"run {info.run} keeps its telemetry outside its folder, in {elsewhere}"
        raise InvalidInput("telemetry.folder", f"{problem}; confirm it by setting it again (--telemetry {elsewhere})")
    if stored.execution.share is not None and config.execution.share is None:
        problem = f"run {info.run} shares its machines through a folder outside its own, {stored.execution.share}"
        raise InvalidInput("execution.share", f"{problem}; confirm it by setting it again")


def take_over(
    info: RunInfo, stored: RunConfig, flow: Dataflow, parallelism: Mapping[str, int] | None = None
) -> Resumption:
    """Lock a run and return what an application continues from; a run that is refused stays unchanged.

    parallelism: the components whose number of tasks may differ from the checkpoint's.
    """
    lock = RunLock(info)
    try:
        return _inspect(info, stored, flow, parallelism or {}, lock)
    except BaseException:
        lock.release()
        raise


def emulated_cluster(info: RunInfo) -> Cluster | None:
    """Return the machines that a run emulates."""
    return None if info.emulated is None else load_cluster(info.cluster_path)


def _refuse_given_up(info: RunInfo) -> None:
    if info.given_up:
        problem = f"run {info.run} was a path that was given up, its tuples are with the application's other paths"
        raise InvalidInput("resume", f"{problem}; penstock cluster serve continues those")


def _inspect(
    info: RunInfo, stored: RunConfig, flow: Dataflow, parallelism: Mapping[str, int], lock: RunLock
) -> Resumption:
    _refuse_given_up(folder.load(info.path))  # as it is now that nobody else has it
    disk, place = Posix(), str(info.checkpoints_path.absolute())
    outputs = output_folders(flow, str(info.path.absolute()))
    checkpoints.refuse_outside(disk, place, outputs)
    journal = checkpoints.read_journal(disk, place)
    manifest, damaged = checkpoints.find_latest(disk, place)
    if manifest is None and damaged:
        problem = f"run {info.run} has no checkpoint that is whole, and has published from some: {'; '.join(damaged)}"
        raise FileProblem(f"{problem}; restore a copy, or start a new run in its place")
    if manifest is not None:
        counts = {name: both for name, both in changed_counts(manifest, flow).items() if name in parallelism}
        _refuse_other(info, manifest, flow, counts)
        if manifest.last:
            raise _completed(info, manifest)
        rescaled = rescale(disk, place, manifest, flow) if counts else None
        notes = [f"{name!r} has {after} tasks instead of {before}" for name, (before, after) in counts.items()]
    else:
        rescaled, notes = None, []
    epoch, placement = (0, {}) if manifest is None else (manifest.epoch, manifest.placement)
    policy = info.policy
    if journal is not None:
        epoch, placement = max(journal.epoch, epoch), journal.placement or placement
        policy, stored = journal.policy or policy, replace(stored, tuple_policies=journal.tuples, limits=journal.limits)
    notes = [*_notes(info, manifest), *notes]
    return Resumption(info, stored, lock, manifest, epoch, placement, policy, outputs, rescaled, notes, list(damaged))


def _refuse_other(
    info: RunInfo, manifest: CheckpointManifest, flow: Dataflow, counts: Mapping[str, tuple[int, int]]
) -> None:
    """Refuse an application that does not fit a checkpoint, except for the number of tasks of some components."""
    as_before = flow.resized({name: before for name, (before, _) in counts.items()})
    differences = checkpoints.mismatch(manifest, checkpoints.shape_of(as_before))
    if differences:
        problem = f"checkpoint {manifest.number} of run {info.run} does not fit {flow.name!r}: {'; '.join(differences)}"
        others = changed_counts(manifest, as_before)
        resized = as_before.resized({name: before for name, (before, _) in others.items()})
        remedy = "Resume it with the application as it was"
        if not checkpoints.mismatch(manifest, checkpoints.shape_of(resized)):
            options = " ".join(f"--parallelism {name}={count}" for name, (_, count) in others.items())
            remedy += f", or, with the new numbers of tasks, with {options}"
        raise InvalidInput("resume", f"{problem}. {remedy}, or start a new run")


def _completed(info: RunInfo, manifest: CheckpointManifest) -> AlreadyCompleted:
    """Publish what was ready, if that was all that was left, and return the error that reports it."""
    disk, place = Posix(), str(info.checkpoints_path.absolute())
    ready = checkpoints.PUBLISHED not in disk.listed(checkpoints.folder_of(place, manifest.number))
    if ready:
        checkpoints.publish(disk, place, manifest)
    output = f"its output is in {info.output_path}"
    if ready:
        text = f"run {info.run} had completed except for publishing its last files; they are published now, {output}"
        return AlreadyCompleted(text, True)
    return AlreadyCompleted(f"run {info.run} has completed, there is nothing to resume; {output}", False)


def _notes(info: RunInfo, manifest: CheckpointManifest | None) -> list[str]:
    if manifest is None:
        return [f"run {info.run} has no complete checkpoint, it starts from the beginning"]
    emitted = sum(task.counted for task in manifest.tasks if task.position)
    notes = [f"run {info.run} continues from checkpoint {manifest.number}, after {emitted:,} source tuples"]
    if manifest.version != (own := version("penstock")):
        notes.append(f"its checkpoint is of Penstock {manifest.version}, this is {own}; the format is the same")
    return notes


def plan_of(found: Resumption, flow: Dataflow, cluster: Cluster, config: RunConfig, complete: Complete) -> Plan | None:
    """Return a plan that keeps tasks on their slots, as far as these are available; None: none of them is."""
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
        ways = route_hops(expand_tasks(application), expand_slots(cluster), expand_links(cluster), placed)
        if isinstance(ways, Hop):
            return None
        routes = dict(ways)
    placement = Placement(tuple(placed), routes)
    objective, seed = config.planning.objective, config.execution.seed
    return to_plan(application, cluster, placement, policy=found.policy, objective=objective, seed=seed)
