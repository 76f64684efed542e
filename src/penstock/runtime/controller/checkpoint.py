"""The controller's part in checkpoints: when one is due, when it is complete, what is published and what is kept.

A checkpoint is complete when its manifest is on disk. Then the files that the sinks had prepared are published, then
older checkpoints are removed. One that cannot be completed is aborted with a warning; the application continues.
"""

import math
import time
from collections.abc import Callable, Sequence
from functools import cache
from importlib.metadata import version
from typing import Protocol

from penstock.api.dataflow import output_folders
from penstock.model.status import CheckpointStatus, SavingStatus
from penstock.runtime.controller.checkpoint_progress import CheckpointProgress, TaskLoads
from penstock.runtime.controller.outbox import ControllerOutbox
from penstock.runtime.controller.run_spec import RunSpec, RunState
from penstock.runtime.layout import Layout
from penstock.runtime.protocol import controller_messages, worker_messages
from penstock.runtime.protocol.controller_messages import StateLocation
from penstock.runtime.storage import checkpoints
from penstock.runtime.storage.checkpoints import KEEP, CheckpointManifest
from penstock.runtime.storage.disk import Disk, StorageJob

LATE_INTERVALS = 3  # after which a checkpoint in progress is reported, if they are longer than the next
LATE_S = 5.0
RESUME_AGAIN = "has other numbers of tasks: resume the run"
RETRY_S = 1.0  # before a publication that failed, or the last checkpoint, is tried again


class _Owner(Protocol):
    """What a checkpoint has the controller do when it ends, or cannot be read."""

    def end_checkpoint(self, completed: bool, current: bool, now: float) -> None: ...
    def end_if_last(self, now: float) -> None: ...
    def recover(self, reason: str, now: float) -> None: ...
    def proceed(self, now: float) -> None: ...
    def drop(self, worker: int, reason: str, now: float) -> None: ...
    def fail(self, problem: str, now: float) -> None: ...


class CheckpointCoordinator:
    """The checkpoints of one run."""

    def __init__(
        self,
        layout: Layout,
        spec: RunSpec,
        state: RunState,
        outbox: ControllerOutbox,
        event: Callable[[str, str, float], None],
        desired: Sequence[str],
        all_ended: Callable[[], bool],
        loads: TaskLoads,
        owner: _Owner,
    ) -> None:
        self._layout = layout
        self._spec = spec
        self._state = state
        self._outbox = outbox
        self._event = event
        self._desired = desired  # the slot that each task should have
        self._all_ended = all_ended
        self._loads = loads
        self._owner = owner
        self.folder = spec.folders.checkpoints
        self.complete: list[CheckpointManifest] = [] if spec.resumed is None else [spec.resumed]
        self.completed_at = -math.inf  # controller's time
        self.number = 0 if spec.resumed is None else spec.resumed.number  # the last that was begun
        self.problem = ""  # why there was none since the last that is complete
        self.writing = False  # a manifest is being written: it is unknown whether the checkpoint is complete
        self._active = False
        self._progress = CheckpointProgress(layout, loads, self.number, 0.0)  # of the last that was begun
        self._late = math.inf  # when to report that it is late
        self._saved: dict[int, worker_messages.CheckpointSaved] = {}
        self._unpublished: list[CheckpointManifest] = []
        self._publishing = False
        self._next = math.inf

    @property
    def latest(self) -> CheckpointManifest | None:
        """The checkpoint that a recovery goes back to."""
        return self.complete[-1] if self.complete else None

    @property
    def aborted(self) -> int:
        """The last checkpoint whose barriers have no effect any more."""
        return self.number - self._active

    def states(self, tasks: Sequence[int]) -> tuple[StateLocation, ...]:
        """Return where the latest checkpoint has the states of tasks."""
        latest, names = self.latest, self._state.names
        return () if latest is None else tuple(latest.kept(names[task], task) for task in tasks)

    # When one is due

    @property
    def due(self) -> float:
        """When the next checkpoint is due."""
        return self._next

    def start(self, now: float) -> None:
        """Start the time to the next checkpoint."""
        every = self._spec.config.checkpointing.interval_s
        self._next = now + every if every else math.inf

    def request(self, now: float) -> None:
        """Make a checkpoint due now; once every task has ended, it is the last one."""
        self._next = now

    def take_due(self, now: float) -> bool:
        """Return whether a checkpoint is to be taken now, once.

        One in progress schedules the next when it ends: it may be the last.
        """
        if now < self._next or not self._state.flowing:
            return False
        self._next = math.inf
        return not (self._active or self.writing)

    # From the first barrier to the manifest

    def begin(self, now: float) -> None:
        """Begin a checkpoint."""
        self.number += 1
        self._active = True
        self._progress = CheckpointProgress(self._layout, self._loads, self.number, now)
        every = self._spec.config.checkpointing.interval_s
        self._late = now + max(LATE_INTERVALS * every, LATE_S) if every else math.inf
        self._saved = {}
        self._outbox.broadcast(controller_messages.BeginCheckpoint(self._state.epoch, self.number))

    def take_saved(self, worker: int, message: worker_messages.CheckpointSaved, now: float) -> bool:
        """Take what a worker has saved, and write the manifest if it was the last; return whether it counts."""
        if not self._active or message.checkpoint != self.number:
            return False
        self._saved[worker] = message
        self._progress.take(entry.task for entry in message.entries)
        entries = {entry.task: (entry, saved.file) for saved in self._saved.values() for entry in saved.entries}
        if len(entries) == len(self._layout.components):
            self._write_manifest(entries, now)
        return True

    def take_report(self, report: worker_messages.ActivityReport) -> None:
        """Take the tasks that a worker has encoded; their states are on disk when `take_saved` gets them."""
        if self._active and report.checkpoint == self.number:
            self._progress.take(report.saved)

    def warn_late(self, now: float) -> None:
        """Report once what a checkpoint waits for that takes long."""
        if self._active and now >= self._late:
            self._late = math.inf
            found = self._progress.status(now)
            self._outbox.warn(f"checkpoint {self.number} has taken {found.age_s:.0f} s so far: it {found.cause}")

    def _write_manifest(self, entries: dict[int, tuple[worker_messages.TaskEntry, str]], now: float) -> None:
        names = self._state.names
        manifest = CheckpointManifest(
            run=self._spec.run,
            number=self.number,
            epoch=self._state.epoch,
            at=time.time(),
            seconds=now - self._progress.began,
            version=_version(),
            shape=checkpoints.shape_of(self._layout.flow),
            placement=dict(zip(names, self._desired, strict=True)),
            files={saved.file: saved.size for saved in self._saved.values() if saved.entries},
            tasks=tuple(
                checkpoints.manifest_entry(entry, names[task], file) for task, (entry, file) in sorted(entries.items())
            ),
            last=all(entry.ended for entry, _ in entries.values()),
        )
        self._active, self.writing = False, True

        def do(disk: Disk) -> None:
            checkpoints.write_manifest(disk, self.folder, manifest)

        def then(_: object, problem: str, at: float) -> None:
            if problem:
                self._forget(manifest, problem)
            else:
                self._decide(manifest, "", at)

        self._outbox.store(StorageJob(f"manifest {self.number}", do, then))

    def take_failed(self, _: int, message: worker_messages.CheckpointFailed, now: float) -> None:
        """Abort a checkpoint that a worker cannot save."""
        if self._active and message.checkpoint == self.number:
            self.abort(message.problem, now)

    def abort(self, problem: str, now: float) -> None:
        """Abort the checkpoint in progress; the next one is taken when it is due."""
        if not self._active:
            return
        self._active = False
        self._warn(problem)
        self._outbox.broadcast(controller_messages.AbortCheckpoint(self._state.epoch, self.number))
        self._end(completed=False, now=now)

    def abort_overdue(self, now: float) -> None:
        """Abort a checkpoint that makes no progress, and name the tasks that are not saved."""
        timeout = self._spec.config.checkpointing.timeout_s
        self.abort(f"no progress for {timeout:g} s; it {self._progress.status(now).cause}", now)

    def interrupt(self) -> None:
        """Discard the checkpoint in progress: a new epoch starts."""
        self._active = False
        self._saved = {}
        self._next = math.inf

    def _forget(self, manifest: CheckpointManifest, problem: str) -> None:
        """Remove a manifest that could not be written: it must not be found later."""

        def do(disk: Disk) -> None:
            checkpoints.forget_manifest(disk, self.folder, manifest.number)

        def then(_: object, again: str, now: float) -> None:
            if again:
                self._outbox.schedule(now + RETRY_S, lambda _: self._forget(manifest, problem))
            else:
                self._decide(manifest, problem, now)

        self._outbox.store(StorageJob(f"forget manifest {manifest.number}", do, then))

    def _decide(self, manifest: CheckpointManifest, problem: str, now: float) -> None:
        """Continue: it is known whether the checkpoint is complete."""
        self.writing = False
        current = manifest.epoch == self._state.epoch and self._state.flowing
        if problem:
            self._warn(problem)
            if current:
                self._outbox.broadcast(controller_messages.AbortCheckpoint(self._state.epoch, manifest.number))
        else:
            self.problem = ""
            self.complete.append(manifest)
            self.completed_at = now
            self._unpublished.append(manifest)
            self._event("checkpoint", f"{manifest.number} {manifest.size} B {manifest.seconds:.3f} s", now)
            if current:
                self._outbox.broadcast(controller_messages.CheckpointCompleted(self._state.epoch, manifest.number))
        if current:
            self._publish()
        self._end(completed=not problem, now=now, current=current)

    def _end(self, *, completed: bool, now: float, current: bool = True) -> None:
        """Schedule the next checkpoint, and let the next operation begin."""
        if current:
            self.start(now)
            if self._all_ended() and (self.latest is None or not self.latest.last):
                self._next = now + (RETRY_S if self.problem else 0.0)
        self._owner.end_checkpoint(completed, current, now)

    # Publication

    def _publish(self) -> None:
        """Publish complete checkpoints, then remove those that are not needed any more."""
        if self._publishing or not self._unpublished:
            return
        self._publishing = True
        manifests = list(self._unpublished)
        del self.complete[:-KEEP]
        keep = list(self.complete)

        def do(disk: Disk) -> None:
            for manifest in manifests:
                checkpoints.publish(disk, self.folder, manifest)
            checkpoints.retire(disk, self.folder, keep)

        def then(_: object, problem: str, now: float) -> None:
            self._publishing = False
            if problem:
                self._warn(f"its output is not published yet, {problem}")
                self._outbox.schedule(now + RETRY_S, lambda _: self._publish())
                return
            self._unpublished = [manifest for manifest in self._unpublished if manifest not in manifests]
            self._publish()
            self._owner.end_if_last(now)

        self._outbox.store(StorageJob(f"publish {manifests[-1].number}", do, then))

    def restart(self) -> Callable[[Disk], None]:
        """Return what completes all publications, before a new epoch starts from the latest checkpoint."""
        manifests, folder = [*self._unpublished, *self.complete[-1:]], self.folder

        def do(disk: Disk) -> None:
            for manifest in manifests:
                checkpoints.publish(disk, folder, manifest)

        return do

    def restarted(self) -> None:
        """Record that all publications are complete."""
        self._unpublished = []

    # A checkpoint that cannot be read

    def take_unreadable(self, worker: int, message: worker_messages.CheckpointUnreadable, now: float) -> None:
        """Check a checkpoint that a worker cannot read.

        If it is whole, the worker is dropped: it cannot reach the disk. If it is damaged, the run falls back to the one
        before, and withdraws what it had published.
        """
        bad, owner = self.latest, self._owner
        outputs = output_folders(self._layout.flow, self._spec.folders.run)
        if bad is None or bad.number != message.checkpoint or self.writing:
            return
        self.writing = True
        reason = f"checkpoint {bad.number} could not be read"

        def do(disk: Disk) -> tuple[str, CheckpointManifest | None, list[str]]:
            damage = checkpoints.damage(disk, self.folder, bad.number)
            if not damage:
                return "", bad, []
            found, problems = checkpoints.find_latest(disk, self.folder, damaged=[bad.number])
            if found is not None:
                checkpoints.withdraw(disk, self.folder, found.number, outputs)
            return damage, found, problems

        def then(checked: tuple[str, CheckpointManifest | None, list[str]] | None, problem: str, at: float) -> None:
            self.writing = False
            if checked is None:
                self._outbox.warn(f"checkpoint {bad.number} could not be checked, {problem}; trying again")
                owner.recover(reason, at)
                return
            damage, found, problems = checked
            if damage:
                self._fall_back(bad, damage, found, problems, at)
            else:
                owner.drop(worker, f"it cannot read checkpoint {bad.number}, which is whole: {message.problem}", at)
                owner.proceed(at)

        self._outbox.store(StorageJob(f"check checkpoint {bad.number}", do, then))
        owner.recover(reason, now)

    def _fall_back(
        self, bad: CheckpointManifest, damage: str, found: CheckpointManifest | None, problems: list[str], now: float
    ) -> None:
        """Use the checkpoint before a damaged one."""
        for text in problems:
            self._outbox.warn(text)
        if found is not None and found.shape != checkpoints.shape_of(self._layout.flow):
            self._owner.fail(f"checkpoint {bad.number} is damaged, {damage}; {found.number} {RESUME_AGAIN}", now)
            return
        if found is None:
            self._owner.fail(f"checkpoint {bad.number} is damaged, {damage}, and there is none before it", now)
            return
        self._outbox.warn(f"checkpoint {bad.number} cannot be used, {damage}; falling back to {found.number}")
        self.complete, self._unpublished = [found], []
        self._owner.proceed(now)

    # Status

    def status(self, now: float) -> CheckpointStatus | None:
        """Return the latest checkpoint, for people."""
        latest = self.latest
        if latest is None:
            return None
        age = now - self.completed_at
        return CheckpointStatus(
            number=latest.number,
            age_s=max(0.0, age if math.isfinite(age) else time.time() - latest.at),  # an earlier driver's
            seconds=latest.seconds,
            bytes=latest.size,
            problem=self.problem,
        )

    def progress(self, now: float) -> SavingStatus | None:
        """Return the progress of the checkpoint in progress, for people; None: there is none."""
        return self._progress.status(now) if self._active or (self.writing and self._state.flowing) else None

    def warnings(self) -> list[str]:
        """Return why there is no new checkpoint."""
        since = f"since checkpoint {self.latest.number}" if self.latest else "yet"
        return [f"there is no checkpoint {since}: {self.problem}"] if self.problem else []

    def _warn(self, problem: str) -> None:
        if problem != self.problem:
            self._outbox.warn(f"checkpoint {self.number} was not completed: {problem}")
        self.problem = problem


@cache
def _version() -> str:
    return version("penstock")
