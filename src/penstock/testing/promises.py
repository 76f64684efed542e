"""The guarantees of a run under all faults, and their verification in a simulated cluster.

- The visible output always equals the input covered by the latest published checkpoint: no tuple more or less, and
those of a key in order. At the end it equals the output of a run without faults. - No worker acts after an epoch has
started without it. - A checkpoint is aborted only after a fault. - No worker detects a violation of the protocol:
numbers are complete and in order, whatever fails.
"""

from collections import Counter

from penstock.runtime.protocol import worker_messages
from penstock.runtime.storage import checkpoints
from penstock.runtime.worker.input import BrokenProtocol
from penstock.testing.applications import KnownApplication, Rows, visible_rows
from penstock.testing.disk import MemoryDisk


class Violation(AssertionError):
    """A guarantee of the runtime that was violated."""


class Promises:
    """The guarantees of one run, checked on a disk."""

    def __init__(self, known: KnownApplication, disk: MemoryDisk, folder: str, checkpoints: str) -> None:
        self._known = known
        self._disk = disk
        self._folder = folder
        self._checkpoints = checkpoints
        self._epoch = 0  # the latest epoch in which a worker of this driver has acted
        self._published: tuple[str, ...] = ()

    def begin(self) -> None:
        """Reset for another driver, which has other workers."""
        self._epoch = 0

    def check_turn(self, worker: str, epoch: int) -> None:
        """Check that a worker that acts is in the latest epoch."""
        if epoch > self._epoch:
            self._epoch = epoch
        elif epoch < self._epoch:
            raise Violation(f"{worker} acts in epoch {epoch} after epoch {self._epoch} has started")

    def check_message(self, worker: str, message: worker_messages.WorkerMessage) -> None:
        """Check that no worker reports frames that violate the protocol."""
        if isinstance(message, worker_messages.Failure) and message.error.startswith(BrokenProtocol.__name__):
            raise Violation(f"{worker} reports {message.error}")

    def check_output(self) -> None:
        """Check that the visible output belongs to the latest published checkpoint, if that is a new one."""
        marks = tuple(
            number
            for number in self._disk.listed(self._checkpoints)
            if number.isdecimal() and checkpoints.PUBLISHED in self._disk.listed(f"{self._checkpoints}/{number}")
        )
        if not marks or marks == self._published:
            return
        self._published = marks
        number = int(marks[-1])
        try:
            manifest = checkpoints.load_manifest(self._disk, self._checkpoints, number)
        except FileNotFoundError:
            raise Violation(f"checkpoint {number} is published without a manifest") from None
        self._compare(manifest, f"after checkpoint {number}")

    def check_end(self, drained: bool) -> None:
        """Check that the output is complete."""
        manifest, _ = checkpoints.find_latest(self._disk, self._checkpoints)
        if manifest is None or not manifest.last:
            raise Violation("stopped without a last checkpoint")
        given, all_of_them = self._given(manifest), self._known.sources
        if not drained and given != all_of_them:
            raise Violation(f"stopped when the sources had emitted {given} of {all_of_them}")
        if checkpoints.PUBLISHED not in self._disk.listed(checkpoints.folder_of(self._checkpoints, manifest.number)):
            raise Violation("stopped before its last checkpoint was published")
        self._compare(manifest, "at the end")

    def _given(self, manifest: checkpoints.CheckpointManifest) -> dict[str, int]:
        return {saved.task: saved.counted for saved in manifest.tasks if saved.task in self._known.sources}

    def _compare(self, manifest: checkpoints.CheckpointManifest, when: str) -> None:
        expected = self._known.expected(self._given(manifest), manifest.last)
        found = visible_rows(self._disk, self._folder, self._known.group)
        if not self._known.prompt and not manifest.last:  # some tuples are emitted later
            cut = {key: rows[: len(found.get(key, ()))] for key, rows in expected.items()}
            expected = {key: rows for key, rows in cut.items() if rows}
        if found != expected:
            raise Violation(f"{when}: {difference(found, expected)}")


def difference(found: Rows, expected: Rows) -> str:
    """Describe the difference between rows."""
    for key in sorted({*found, *expected}, key=str):
        have, want = found.get(key, []), expected.get(key, [])
        if have != want:
            missing = list((Counter(want) - Counter(have)).elements())
            more = list((Counter(have) - Counter(want)).elements())
            what = f"missing {missing[:6]}, too many {more[:6]}" if missing or more else f"order {have}"
            return f"group {key!r}: {what}; {len(have)} of {len(want)} rows"
    return "no difference"
