"""A sink that writes tuples as lines of JSON."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from penstock.api.sinks.part_file import PartFile
from penstock.api.sinks.parts import PartFiles
from penstock.model.errors import InvalidInput


class JsonLines(PartFiles):
    """Writes tuples to files of a folder, one JSON value a line: `JsonLines("output/counts")`.

    folder: a relative one is below the run's folder. Structs and dicts become objects, tuples and lists become arrays.
    roll_rows: how many rows a file may have before the next is begun; looked at about once a second.

    Files show when a checkpoint is complete, and at the end: so each tuple is in them exactly once, whatever fails.
    They are named `part-<component>-<task>-<number>-<run>.jsonl`, where the last stands for the run's name in six
    digits, so that runs may share a folder. A file that does not show yet begins with `_`.
    """

    ending = ".jsonl"

    def __init__(self, folder: str | Path, roll_rows: int = 1_000_000) -> None:
        super().__init__(folder, roll_rows)

    def begin(self, file: PartFile) -> None:
        """Begin a new file."""
        self._file = file
        self._encoder = msgspec.json.Encoder()

    def add(self, values: Sequence[Any]) -> None:
        """Write a line a tuple."""
        try:
            lines = self._encoder.encode_lines(list(values))
        except (TypeError, ValueError, OverflowError, RecursionError):
            raise self._not_json(values) from None
        self._file.write(lines)

    def finish(self) -> None:
        """Do nothing: a line is complete by itself."""

    def _not_json(self, values: Sequence[Any]) -> InvalidInput:
        """Return the complaint about the first tuple that JSON cannot hold."""
        for value in values:
            try:
                self._encoder.encode(value)
            except (TypeError, ValueError, OverflowError, RecursionError) as error:
                problem = f"expected what JSON can hold, got {repr(value)[:80]} ({error})"
                return InvalidInput(
                    self._context.name, f"{problem}; turn it into numbers, texts, lists or dicts before"
                )
        raise AssertionError("tuples that are encoded one by one are encoded together")
