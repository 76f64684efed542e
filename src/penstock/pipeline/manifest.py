"""The manifest of a store: which parts of its tables are valid, and which run's rows are in which.

It is apart from the store, so that whoever only looks at the tables of a run needs no Spark session.
"""

from pathlib import Path
from urllib.parse import unquote

import msgspec

from penstock.model.decoding import Undecodable, decode_json
from penstock.model.errors import FileProblem

MANIFEST = "manifest.json"
FORMAT = 3


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What is valid in a store, and how it came to be."""

    mode: str  # batch or stream
    input: str
    window_s: float
    lateness_s: float
    format: int = FORMAT
    batch: int = -1  # the last of the stream's that was taken
    parts: int = 0  # how many were ever made: the number of the next
    taken: list[str] = []  # the parts of growing tables
    touched: list[str] = []  # runs of which records came since their tables were derived
    derived: dict[str, str] = {}  # by run, the part of its derived tables
    schemas: dict[str, str] = {}  # by table

    @property
    def next_part(self) -> str:
        """The name of a part that is about to be made; a part of that name which is there already was never valid."""
        return f"{self.parts:06d}"


def read_manifest(folder: Path) -> Manifest | None:
    """Return what is valid in a folder; None where nothing was ever published."""
    path = folder / MANIFEST
    try:
        found: Manifest = decode_json(path.read_bytes(), Manifest)
    except FileNotFoundError:
        return None
    except (OSError, Undecodable) as error:
        raise FileProblem(f"{path}: cannot be read, {error}; run the pipeline into another folder") from None
    if found.format != FORMAT:
        raise FileProblem(f"{path}: expected format {FORMAT}, found {found.format}; run the pipeline anew")
    return found


def run_of(path: Path) -> str:
    """Return the run whose rows a folder of a part holds."""
    return unquote(path.name.partition("=")[2])
