"""A sink that writes tuples as lines of JSON."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from penstock.api.sinks.parts import PartFiles
from penstock.model.errors import InvalidInput


class JsonLines(PartFiles):
    """Writes tuples to files of a folder, one JSON value a line: `JsonLines("output/counts")`.

    folder: a relative one is below the run's folder. Structs and dicts become objects, tuples and lists become arrays.
    roll_seconds: how old a file grows before it is finished and shows; looked at about once a second.
    roll_rows: how many rows it may have by then before it is finished earlier.

    Files are named `part-<component>-<task>-<number>.jsonl`. A file that is still being written begins with `_`. A
    folder that holds files already keeps them.
    """

    ending = ".jsonl"

    def __init__(self, folder: str | Path, roll_seconds: float = 5.0, roll_rows: int = 1_000_000) -> None:
        super().__init__(folder, roll_seconds, roll_rows)

    def begin(self, path: Path) -> None:
        """Open a new file."""
        self._file = path.open("wb")
        self._encoder = msgspec.json.Encoder()

    def add(self, values: Sequence[Any]) -> None:
        """Write a line a tuple."""
        try:
            lines = self._encoder.encode_lines(list(values))
        except (TypeError, ValueError, OverflowError, RecursionError):
            raise self._not_json(values) from None
        self._file.write(lines)

    def finish(self) -> None:
        """Close the file."""
        self._file.close()

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
