"""The manifest of a store: the valid parts of its tables, and the runs in each.

It is separate from the store, so that reading the tables of a run needs no Spark session.
"""

from pathlib import Path
from urllib.parse import unquote

import msgspec

from penstock.model.decoding import Undecodable, decode_json
from penstock.model.errors import FileProblem

MANIFEST = "manifest.json"
FORMAT = 3


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The valid parts of a store, and the settings they were made with."""

    mode: str  # batch or stream
    input: str
    window_s: float
    lateness_s: float
    format: int = FORMAT
    batch: int = -1  # last micro-batch that was taken
    parts: int = 0  # number of parts ever made, and the number of the next
    taken: list[str] = []  # the parts of growing tables
    touched: list[str] = []  # runs with records that arrived since their tables were derived
    derived: dict[str, str] = {}  # the part of each run's derived tables
    schemas: dict[str, str] = {}  # by table

    @property
    def next_part(self) -> str:
        """Name of the next part; an existing part with that name was never valid."""
        return f"{self.parts:06d}"


def read_manifest(folder: Path) -> Manifest | None:
    """Return the manifest of a folder; None if nothing was ever published."""
    path = folder / MANIFEST
    try:
        found: Manifest = decode_json(path.read_bytes(), Manifest)
    except FileNotFoundError:
        return None
    except (OSError, Undecodable) as error:
        raise FileProblem(f"{path}: cannot be read, {error}; run the pipeline into another folder") from None
    if found.format != FORMAT:
        raise FileProblem(f"{path}: expected format {FORMAT}, found {found.format}; run the pipeline again")
    return found


def run_of(path: Path) -> str:
    """Return the run whose rows are in a folder of a part."""
    return unquote(path.name.partition("=")[2])
