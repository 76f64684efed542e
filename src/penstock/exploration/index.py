"""The index of an exploration: which run in a telemetry folder had which placement and load."""

from pathlib import Path

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


def run_name(number: int) -> str:
    """Return the name of a placement's run."""
    return f"explore-{number:03d}"
