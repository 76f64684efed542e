"""Measures of an interval of a run, from the pipeline's tables."""

from collections.abc import Mapping
from typing import NamedTuple

import pandas as pd

from penstock.papers.predictive.windows import Key, Tables

MILLISECOND = 1e-3
HOP_COLUMNS = ("stream", "target_component", "emitted", "started", "processing")


class Stretch(NamedTuple):
    """Latencies of the source tuples that were due in an interval."""

    mean_ms: float
    p99_ms: float
    halves_ms: tuple[float, float]  # the means of its two halves, which differ by chance
    tuples: int
    unfinished: int


def latencies_between(tuples: pd.DataFrame, start: float, end: float) -> Stretch:
    """Return the latencies of the source tuples that were due between two times."""
    own = tuples[(tuples["due"] >= start) & (tuples["due"] < end)]
    done = own[own["complete"] & own["latency"].notna()]
    latency = done["latency"] / MILLISECOND
    early = done["due"] < (start + end) / 2
    return Stretch(
        mean_ms=float(latency.mean()),
        p99_ms=float(latency.quantile(0.99)) if len(done) else float("nan"),
        halves_ms=(float(latency[early].mean()), float(latency[~early].mean())),
        tuples=len(own),
        unfinished=len(own) - len(done),
    )


def path_ms(tables: Tables, hops: pd.DataFrame, start: float, end: float) -> float:
    """Return the longest path (2.5) of the mean times between two times; NaN if a stream had no tuples."""
    times = mean_times(hops, start, end)
    if any(("stream", stream) not in times for stream in tables.labels):
        return float("nan")
    return tables.longest(times) / MILLISECOND


def mean_times(hops: pd.DataFrame, start: float, end: float) -> dict[Key, float]:
    """Return the mean time at each component (2.2) and over each stream (2.3), of tuples processed between two times.

    The pipeline's windows contain these for training; here the interval may have any length.
    """
    own = hops[(hops["started"] >= start) & (hops["started"] < end)]
    at = own.groupby("target_component")["processing"].mean()
    over = (own["started"] - own["emitted"]).groupby(own["stream"]).mean()
    times: dict[Key, float] = {("component", str(name)): float(seconds) for name, seconds in at.items()}
    return times | {("stream", str(name)): float(seconds) for name, seconds in over.items()}


def carried_tps(ends: pd.DataFrame, gains: Mapping[str, float], start: float, end: float) -> float:
    """Return the rate of source tuples from the output between two times, at the sink with the lowest one.

    gains: by sink, the tuples that it processes per source tuple. While queues fill, few source tuples complete, but a
    placement's bottleneck has its full output.
    """
    counts = ends[(ends["finished"] >= start) & (ends["finished"] < end)]["component"].value_counts()
    return min(float(counts.get(sink, 0)) / gain for sink, gain in gains.items()) / (end - start)
