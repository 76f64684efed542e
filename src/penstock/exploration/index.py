"""How an exploration tries placements, and its index: which run in a telemetry folder had which placement and load."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from penstock.model.files import write_whole

INDEX = "placements.json"
RUNS = "explore-*"  # pattern of their names


class Explored(msgspec.Struct, frozen=True, kw_only=True):
    """One placement that was tried."""

    placement: dict[str, str]  # task -> slot
    rates: dict[str, float]  # tuples per second of each source
    machines: int  # used by it
    seed: int  # random seed it was drawn with
    mean_s: float | None = None  # latency while it was held; None: no tuple completed


class Index(msgspec.Struct, frozen=True, kw_only=True):
    """All placements that were tried, by the name of their run."""

    application: str
    cluster: str
    live: bool  # on a run, not on the twin
    settle_s: float  # before each is held; part of no run
    hold_s: float
    window_s: float
    runs: dict[str, Explored]
    stopped: str = ""  # why it ended before all were tried; empty if it did not
    left: str = ""  # tasks that could not be moved back, and why; empty if none

    def save(self, folder: Path) -> Path:
        """Write the index into the telemetry folder."""
        path = folder / INDEX
        write_whole(path, msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n")
        return path


@dataclass(frozen=True)
class Trials:
    """How many placements are tried, for how long, and which."""

    placements: int
    hold_s: float
    settle_s: float  # before each is held
    window_s: float = 30.0  # of the pipeline
    margin: float = 0.2  # capacity that a placement must have beyond its load, as a share of the load
    seed: int = 0
    tried: Callable[[str, Explored], None] = lambda *_: None  # called after each placement

    def index(self, application: str, cluster: str, **found: Any) -> Index:
        """Return the index of what was found."""
        found |= {"settle_s": self.settle_s, "hold_s": self.hold_s, "window_s": self.window_s}
        return Index(application=application, cluster=cluster, **found)


def run_name(number: int) -> str:
    """Return the name of a placement's run."""
    return f"explore-{number:03d}"
