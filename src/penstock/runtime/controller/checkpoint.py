"""The controller's part in checkpoints: when one is due, when it is complete, what is published and what is kept.

A checkpoint is complete when its manifest is on disk. Only then are the files published that the sinks had ready, and
only after that are older checkpoints removed. One that does not come to its end is given up and told of; the
application goes on.
"""

import math
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING

from penstock.api.outputs import output_folders
from penstock.runtime.protocol import controller_messages, worker_messages
from penstock.runtime.storage import checkpoints
from penstock.runtime.storage.checkpoints import KEEP, Manifest
from penstock.runtime.storage.disk import Disk, Job

if TYPE_CHECKING:
    from penstock.runtime.controller.state_machine import Controller

RETRY_S = 1.0  # before what could not be published, or the last checkpoint, is tried again


class Checkpointing:
    """The checkpoints of one run."""

    def __init__(self, controller: "Controller") -> None:
        self.controller = controller
        resumed = controller.spec.resumed
        self.folder = controller.spec.folders.checkpoints
        self.complete: list[Manifest] = [] if resumed is None else [resumed]
        self.completed_at = -math.inf  # controller's time
        self.number = 0 if resumed is None else resumed.number  # the last that was begun
        self.problem = ""  # why there was none since the last that is complete
        self.writing = False  # a manifest is on its way to the disk: it is not known whether the checkpoint counts
        self._begun = 0.0
        self._active = False
        self._saved: dict[int, worker_messages.CheckpointSaved] = {}
        self._unpublished: list[Manifest] = []
        self._publishing = False
        self._next = math.inf

    @property
    def latest(self) -> Manifest | None:
        """The checkpoint to go on from."""
        return self.complete[-1] if self.complete else None

    def start(self, now: float) -> None:
        """Begin to count the time to the next checkpoint."""
        every = self.controller.spec.config.checkpointing.interval_s
        self._next = now + every if every else math.inf

    def tick(self, now: float) -> None:
        """Ask for a checkpoint when one is due: also for the last one, until it is complete.

        One that is under way says when it has come to its end whether another is due: it may be the last.
        """
        if now < self._next or self.controller.phase not in ("running", "draining"):
            return
        self._next = math.inf
        if not (self._active or self.writing):
            self.controller.operations.checkpoint(now)

    @property
    def due(self) -> float:
        """When `tick` has something to do."""
        return self._next

    def request(self, now: float) -> None:
        """Ask for a checkpoint now; once every task has ended, it is the last one."""
        self._next = now

    def begin(self, now: float) -> None:
        """Begin a checkpoint."""
        self.number += 1
        self._begun, self._active = now, True
        self._saved = {}
        self.controller.tell_all(controller_messages.BeginCheckpoint(self.controller.epoch, self.number))

    def saved(self, worker: int, message: worker_messages.CheckpointSaved, now: float) -> None:
        """Take note of what a worker has saved; write the manifest when that was the last."""
        if not self._active or message.checkpoint != self.number:
            return
        self._saved[worker] = message
        self.controller.operations.progressed(now)
        entries = {entry.task: (entry, saved.file) for saved in self._saved.values() for entry in saved.entries}
        if len(entries) < len(self.controller.layout.components):
            return
        controller, names = self.controller, self.controller.layout.names
        manifest = checkpoints.made(
            controller.layout.application,
            controller.spec.run,
            self.number,
            controller.epoch,
            now - self._begun,
            _version(),
            dict(zip(names, controller.standing.wanted, strict=True)),
            {saved.file: saved.size for saved in self._saved.values() if saved.entries},
            [checkpoints.saved(entry, names[task], file) for task, (entry, file) in sorted(entries.items())],
            all(entry.ended for entry, _ in entries.values()),
        )
        self._active, self.writing = False, True

        def do(disk: Disk) -> None:
            checkpoints.write_manifest(disk, self.folder, manifest)

        controller.storing.append(Job(f"manifest {self.number}", do, lambda _, p, at: self._written(manifest, p, at)))

    def unsaved(self, _: int, message: worker_messages.CheckpointFailed, now: float) -> None:
        """Give up a checkpoint that a worker cannot save."""
        if self._active and message.checkpoint == self.number:
            self.give_up(message.problem, now)

    def give_up(self, problem: str, now: float) -> None:
        """Give up the checkpoint under way; the application goes on, and the next one is tried in its time."""
        if not self._active:
            return
        self._active = False
        self._warn(problem)
        self.controller.tell_all(controller_messages.AbortCheckpoint(self.controller.epoch, self.number))
        self._go_on(now)

    @property
    def given_up(self) -> int:
        """The last checkpoint of which no barrier matters any more."""
        return self.number - self._active

    def interrupt(self) -> None:
        """Forget the checkpoint under way: a new epoch begins."""
        self._active = False
        self._saved = {}
        self._next = math.inf

    def _written(self, manifest: Manifest, problem: str, now: float) -> None:
        """Go on once it is known whether the checkpoint counts: one that failed must not be found later."""
        if problem:
            self._undo(manifest, problem)
        else:
            self._decided(manifest, "", now)

    def _undo(self, manifest: Manifest, problem: str) -> None:
        def then(_: object, again: str, now: float) -> None:
            if again:
                self.controller.later(now + RETRY_S, lambda _: self._undo(manifest, problem))
            else:
                self._decided(manifest, problem, now)

        def do(disk: Disk) -> None:
            checkpoints.forget(disk, self.folder, manifest.number)

        self.controller.storing.append(Job(f"forget manifest {manifest.number}", do, then))

    def _decided(self, manifest: Manifest, problem: str, now: float) -> None:
        self.writing = False
        current = manifest.epoch == self.controller.epoch and self.controller.phase in ("running", "draining")
        if problem:
            self._warn(problem)
            if current:
                self.controller.tell_all(controller_messages.AbortCheckpoint(self.controller.epoch, manifest.number))
        else:
            self.problem = ""
            self.controller.recovery.fruitful()
            self.complete.append(manifest)
            self.completed_at = now
            self._unpublished.append(manifest)
            self.controller.event("checkpoint", f"{manifest.number} {manifest.size} B {manifest.seconds:.3f} s", now)
            if current:
                self.controller.tell_all(
                    controller_messages.CheckpointCompleted(self.controller.epoch, manifest.number)
                )
        if current:
            self._publish()
            self._go_on(now)
        else:
            self.controller.recovery.proceed(now)

    def _go_on(self, now: float) -> None:
        """Let the next operation begin, and say when the next checkpoint is due."""
        self.start(now)
        if self.controller.progress.all_ended and (self.latest is None or not self.latest.last):
            self._next = now + (RETRY_S if self.problem else 0.0)
        self.controller.operations.checkpointed(now)

    def _publish(self) -> None:
        """Publish complete checkpoints, then remove those that are not needed any more."""
        if self._publishing or not self._unpublished:
            return
        self._publishing = True
        manifests = list(self._unpublished)
        del self.complete[:-KEEP]
        keep = [manifest.number for manifest in self.complete]

        def do(disk: Disk) -> None:
            for manifest in manifests:
                checkpoints.publish(disk, self.folder, manifest)
            checkpoints.retire(disk, self.folder, min(keep))

        def then(_: object, problem: str, now: float) -> None:
            self._publishing = False
            if problem:
                self._warn(f"its output is not published yet, {problem}")
                self.controller.later(now + RETRY_S, lambda _: self._publish())
                return
            self._unpublished = [manifest for manifest in self._unpublished if manifest not in manifests]
            self._publish()
            self.controller.published(now)

        self.controller.storing.append(Job(f"publish {manifests[-1].number}", do, then))

    def unusable(self, worker: int, message: worker_messages.CheckpointUnreadable, now: float) -> None:
        """Look for oneself at a checkpoint that a worker cannot read.

        One that is whole stays, and the worker goes: it cannot reach the disk. One that is damaged is passed over for
        the one before, and what it had published is taken back.
        """
        controller, bad = self.controller, self.latest
        outputs = output_folders(controller.layout.flow, controller.spec.folders.run)
        if bad is None or bad.number != message.checkpoint or self.writing:
            return
        self.writing = True

        def do(disk: Disk) -> tuple[str, Manifest | None, list[str]]:
            damage = checkpoints.damage(disk, self.folder, bad.number)
            if not damage:
                return "", bad, []
            found, problems = checkpoints.find_latest(disk, self.folder, damaged=[bad.number])
            if found is not None:
                checkpoints.withdraw(disk, self.folder, found.number, outputs)
            return damage, found, problems

        def then(looked: tuple[str, Manifest | None, list[str]] | None, problem: str, at: float) -> None:
            self.writing = False
            if looked is None:
                controller.warn(f"checkpoint {bad.number} could not be looked at, {problem}; trying again")
                controller.recovery.begin(f"checkpoint {bad.number} could not be read", at)
                return
            self._looked(bad, worker, message.problem, *looked, at)

        controller.storing.append(Job(f"look at checkpoint {bad.number}", do, then))
        controller.recovery.begin(f"checkpoint {bad.number} could not be read", now)

    def _looked(
        self,
        bad: Manifest,
        worker: int,
        told: str,
        damage: str,
        found: Manifest | None,
        problems: list[str],
        now: float,
    ) -> None:
        controller = self.controller
        if not damage:
            controller.drop(worker, f"it cannot read checkpoint {bad.number}, which is whole: {told}", now)
            controller.recovery.proceed(now)
            return
        for text in problems:
            controller.warn(text)
        if found is None:
            controller.fail(f"checkpoint {bad.number} is damaged, {damage}, and there is none before it", now)
            return
        controller.warn(f"checkpoint {bad.number} cannot be used, {damage}; falling back to {found.number}")
        self.complete, self._unpublished = [found], []
        controller.recovery.proceed(now)

    def restart(self) -> Callable[[Disk], None]:
        """Return what finishes all that was begun, before a new epoch goes on from the latest checkpoint."""
        manifests, folder = [*self._unpublished, *self.complete[-1:]], self.folder

        def do(disk: Disk) -> None:
            for manifest in manifests:
                checkpoints.publish(disk, folder, manifest)

        return do

    def restarted(self) -> None:
        """Note that all of it is done."""
        self._unpublished = []

    def _warn(self, problem: str) -> None:
        if problem != self.problem:
            self.controller.warn(f"checkpoint {self.number} did not come to its end: {problem}")
        self.problem = problem


@cache
def _version() -> str:
    return version("penstock")
