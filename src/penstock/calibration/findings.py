"""What a calibration found: three files' worth, how sure it is of each figure, and what it leaves as described."""

from pathlib import Path

import msgspec

from penstock.model.cluster import Cluster
from penstock.model.costs import Costs
from penstock.model.errors import FileProblem
from penstock.model.files import save
from penstock.model.topology import Application

FILES = {"application": "application.toml", "cluster": "cluster.toml", "costs": "costs.toml"}


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """One figure."""

    what: str
    value: float
    unit: str
    spread: float = 0.0  # standard deviation over the tasks, slots or moves it was measured on; or standard error
    count: int = 0  # tuples, or moves, behind it
    described: float | None = None  # what was said before; None: nothing


class Left(msgspec.Struct, frozen=True, kw_only=True):
    """Something that could not be measured and stays as it was described."""

    what: str
    why: str


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """An application and a cluster as measured, and what the engine takes beside."""

    application: Application
    cluster: Cluster
    costs: Costs
    emulated: bool
    seconds: float  # of the run that counted
    measured: tuple[Measured, ...]
    left: tuple[Left, ...] = ()
    lag_s: float = 0.0  # how late workers were at worst; the host's doing, and in the figures

    def save(self, folder: Path) -> dict[str, Path]:
        """Write the three files, each whole or not at all, and return where they are."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise FileProblem(f"{folder}: cannot be made, {why}; choose another --output") from None
        for part, name in FILES.items():
            save(getattr(self, part), folder / name)
        return {part: folder / name for part, name in FILES.items()}
