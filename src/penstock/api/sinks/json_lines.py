"""A sink that writes tuples as lines of JSON."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from penstock.api.sinks.parts import PartFile, PartFiles
from penstock.model.errors import InvalidInput


class JsonLines(PartFiles):
    """Writes tuples to files in a folder, one JSON value per line: `JsonLines("output/counts")`.

    folder: a relative one is inside the run's folder. Structs and dicts become objects, tuples and lists become arrays.
    roll_rows: number of rows after which a new file is started; checked about once per second.

    Files become visible when a checkpoint is complete, and at the end, so each tuple is in them exactly once, whatever
    fails. They are named `part-<component>-<task>-<number>-<run>.jsonl`, where the last part is a hash of the run's
    name in six digits, so that runs may share a folder. The name of an incomplete file starts with `_`.
    """

    ending = ".jsonl"

    def __init__(self, folder: str | Path, roll_rows: int = 1_000_000) -> None:
        super().__init__(folder, roll_rows)

    def begin(self, file: PartFile) -> None:
        """Start a new file."""
        self._file = file
        self._encoder = msgspec.json.Encoder()

    def add(self, values: Sequence[Any]) -> None:
        """Write one line per tuple."""
        try:
            lines = self._encoder.encode_lines(list(values))
        except (TypeError, ValueError, OverflowError, RecursionError):
            raise self._not_json(values) from None
        self._file.write(lines)

    def finish(self) -> None:
        """Do nothing: every line is complete."""

    def _not_json(self, values: Sequence[Any]) -> InvalidInput:
        """Return the error about the first tuple that JSON cannot represent."""
        for value in values:
            try:
                self._encoder.encode(value)
            except (TypeError, ValueError, OverflowError, RecursionError) as error:
                problem = f"expected a value that JSON supports, got {repr(value)[:80]} ({error})"
                return InvalidInput(self._context.name, f"{problem}; convert it to numbers, texts, lists or dicts")
        raise AssertionError("tuples that can be encoded individually can be encoded together")
