"""The index of an exploration: which run in a folder of telemetry had which placement and load."""

from pathlib import Path

import msgspec

from penstock.model.files import write_whole

INDEX = "placements.json"
RUNS = "explore-*"  # how they are called, as a pattern


class Explored(msgspec.Struct, frozen=True, kw_only=True):
    """One placement that was tried."""

    placement: dict[str, str]  # task -> slot
    rates: dict[str, float]  # tuples a second of each source
    machines: int  # that it uses
    seed: int  # that it was drawn with
    mean_s: float | None = None  # latency while it was held; None: nothing ended


class Index(msgspec.Struct, frozen=True, kw_only=True):
    """All placements that were tried, by the name of their run."""

    application: str
    cluster: str
    live: bool  # tried on a run, not on the twin
    settle_s: float  # before each is held, in no run
    hold_s: float
    window_s: float
    runs: dict[str, Explored]
    stopped: str = ""  # why it ended before all were tried; empty: it did not
    left: str = ""  # tasks that could not be put back where they were, and why; empty: none

    def save(self, folder: Path) -> Path:
        """Write it into the folder of the telemetry."""
        path = folder / INDEX
        write_whole(path, msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n")
        return path


def run_name(number: int) -> str:
    """Return the name of the run of a placement."""
    return f"explore-{number:03d}"
