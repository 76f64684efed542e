"""Files in parts: what the sinks that write files have in common.

A part is written under a name that begins with `_`, which Spark and other readers leave out, and gets its own name when
it is complete, so that nobody sees half of one. Names say component, task and number. Numbers go on from the files that
are there, and through `snapshot` and `restore` where a sink moves to another machine, so that none is written over.
"""

import os
import re
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from penstock.api.contracts import Sink, TaskContext
from penstock.model.errors import FileProblem, InvalidInput


class PartFiles(Sink[Any]):
    """A sink that writes `part-<component>-<task>-<number>` files to a folder; a subclass says what is in them."""

    ending = ""

    def __init__(self, folder: str | Path, roll_seconds: float, roll_rows: int) -> None:
        if isinstance(roll_seconds, bool) or not isinstance(roll_seconds, int | float) or not roll_seconds > 0:
            raise InvalidInput("roll_seconds", f"expected a number > 0, got {roll_seconds!r}")
        if isinstance(roll_rows, bool) or not isinstance(roll_rows, int) or roll_rows < 1:
            raise InvalidInput("roll_rows", f"expected a whole number ≥ 1, got {roll_rows!r}")
        self.folder = Path(folder).expanduser()
        self.roll_seconds = roll_seconds
        self.roll_rows = roll_rows

    def check(self) -> None:
        """Refuse a folder that cannot be written; where it is relative, the run's folder decides."""
        if not self.folder.is_absolute():
            return
        nearest = next(path for path in (self.folder, *self.folder.parents) if path.exists())
        if not nearest.is_dir():
            raise FileProblem(f"{nearest}: expected a folder, this is a file; choose another place")
        if not os.access(nearest, os.W_OK | os.X_OK):
            raise FileProblem(f"{nearest}: cannot be written, permission denied; choose another place")

    def open(self, context: TaskContext) -> None:
        """Make the folder and find the next number."""
        self._context = context
        self._name = f"part-{context.component}-{context.task}"
        self._place = Path(context.folder) / self.folder
        try:
            self._place.mkdir(parents=True, exist_ok=True)
            self._number = self._after_last()
        except OSError as error:
            raise unwritable(self._place, error) from None
        self._temporary: Path | None = None
        self._rows = 0
        self._began = 0.0

    def write(self, values: Sequence[Any]) -> None:
        """Add a batch to the part, or begin one with it."""
        if not values:
            return
        try:
            if self._temporary is None:
                temporary = self._place / f"_{self._name}-{self._number:06}.{secrets.token_hex(4)}"
                self.begin(temporary)
                self._temporary, self._rows, self._began = temporary, 0, self._context.now()
            self.add(values)
        except OSError as error:
            raise unwritable(self._place, error) from None
        self._rows += len(values)

    def flush(self, now: float) -> None:
        """Finish the part where it is old or long enough."""
        if self._temporary is not None and (self._rows >= self.roll_rows or now - self._began >= self.roll_seconds):
            self._publish()

    def snapshot(self) -> int:
        """Return the number of the part that comes after what was written so far."""
        return self._number + (self._temporary is not None)

    def restore(self, state: int) -> None:
        """Go on with a number."""
        self._number = max(self._number, state)

    def close(self) -> None:
        """Finish the part."""
        if self._temporary is not None:
            self._publish()

    def begin(self, path: Path) -> None:
        """Open a new part."""
        raise NotImplementedError

    def add(self, values: Sequence[Any]) -> None:
        """Write tuples to the part."""
        raise NotImplementedError

    def finish(self) -> None:
        """Complete the part and close it."""
        raise NotImplementedError

    def _publish(self) -> None:
        temporary, self._temporary = self._temporary, None
        assert temporary is not None, "a part was begun"
        try:
            self.finish()
            if not temporary.exists():  # its first tuples were refused
                return
            self._give_name(temporary)
        except OSError as error:
            raise unwritable(self._place, error) from None
        self._number += 1

    def _give_name(self, temporary: Path) -> None:
        """Give a part the next number that is free: another run may write to the same folder, under the same names."""
        while True:
            final = self._place / f"{self._name}-{self._number:06}{self.ending}"
            try:
                os.link(temporary, final)  # unlike a renaming, it never replaces a file
            except FileExistsError:
                self._number += 1
                continue
            except OSError:  # a file system without links: a number that is taken in this instant is written over
                if final.exists():
                    self._number += 1
                    continue
                os.rename(temporary, final)
            else:
                os.unlink(temporary)
            return

    def _after_last(self) -> int:
        """Return the first number after those of the files that are there."""
        pattern = re.compile(re.escape(self._name) + r"-(\d+)" + re.escape(self.ending))
        found = (pattern.fullmatch(name) for name in os.listdir(self._place))
        return max((int(match[1]) + 1 for match in found if match), default=0)


def unwritable(path: Path, error: OSError) -> FileProblem:
    """Return the complaint about a folder that does not take what is written to it."""
    return FileProblem(f"{path}: cannot be written, {(error.strerror or str(error)).lower()}; choose another place")
