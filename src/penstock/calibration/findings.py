"""Results of a calibration: three files, the uncertainty of each figure, and what stays as described."""

from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from penstock.model.cluster import Cluster
from penstock.model.costs import Costs
from penstock.model.files import make_folder, save
from penstock.model.topology import Application

FILES = {"application": "application.toml", "cluster": "cluster.toml", "costs": "costs.toml"}


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """One figure."""

    what: str
    value: float
    unit: str
    spread: float = 0.0  # standard deviation over the tasks, slots or moves measured; or standard error
    count: int = 0  # number of tuples or moves measured
    described: float | None = None  # the value before; None: none


class Unmeasured(msgspec.Struct, frozen=True, kw_only=True):
    """Something that could not be measured and stays as described."""

    what: str
    why: str


@dataclass(frozen=True)
class Findings:
    """What has been measured so far, and what has not."""

    measured: list[Measured] = field(default_factory=list)
    left: list[Unmeasured] = field(default_factory=list)

    def add(
        self, what: str, value: float, unit: str, *, spread: float = 0.0, count: int = 0, described: float | None = None
    ) -> None:
        """Add a figure."""
        one = Measured(what=what, value=value, unit=unit, spread=spread, count=count, described=described)
        self.measured.append(one)

    def leave(self, what: str, why: str) -> None:
        """Add something that stays as described."""
        self.left.append(Unmeasured(what=what, why=why))


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """An application and a cluster with measured costs, and the engine's costs."""

    application: Application
    cluster: Cluster
    costs: Costs
    emulated: bool
    seconds: float  # of the run that counted
    measured: tuple[Measured, ...]
    left: tuple[Unmeasured, ...] = ()
    lag_s: float = 0.0  # maximum lag of workers, caused by the host and included in the figures

    def save(self, folder: Path) -> dict[str, Path]:
        """Write the three files, each atomically, and return their paths."""
        make_folder(folder, "choose another --output")
        for part, name in FILES.items():
            save(getattr(self, part), folder / name)
        return {part: folder / name for part, name in FILES.items()}
