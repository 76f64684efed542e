"""Run every system at every load, alternating, and print a table.

Grid: 1,000 and 5,000 sentences per second, and each system's maximum; 15 s after a warm-up of 5 s, 3 times. Each run is
a process of its own, one after another; every second round visits the systems in reverse order, so that a machine that
slows down does not always slow the same one. Figures are medians, with minimum and maximum.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from statistics import median

from benchmarks.streaming.systems import SYSTEMS, measure_apart
from benchmarks.streaming.work import WARM_UP_S, WORDS, Measured, NotAvailable

RATES: tuple[float | None, ...] = (1_000.0, 5_000.0, None)
SECONDS = 15.0
REPEATS = 3
QUICK_SECONDS = 5.0
KEEPS_UP = 0.9
"""Minimum share of the rate; a system below it has fallen behind, and its latencies grow with time."""
QUIET = 0.25
"""Load per core above which the machine is not idle."""

Results = dict[str, dict[float | None, list[Measured]]]
Refusals = dict[str, dict[float | None, str]]


def compare(arguments: list[str]) -> None:
    """Measure the systems given as arguments, and print the results."""
    asked = parse(arguments)
    seconds, repeats = (QUICK_SECONDS, 1) if asked.quick else (asked.seconds, asked.repeats)
    names = asked.systems or list(SYSTEMS)
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    print(f"word count, {WORDS} words a sentence; {seconds:g} s after {WARM_UP_S:g} s of warm-up, {repeats} times")
    if load > QUIET * cores:
        print(f"load average {load:.1f} on {cores} cores: other processes will affect these figures")
    results, refusals = run_all(names, seconds, repeats)
    print("\n".join(table(names, results, refusals)))
    if asked.json:
        machine = {"cores": cores, "load_average": load, "seconds": seconds, "warm_up_s": WARM_UP_S}
        Path(asked.json).write_text(
            json.dumps({**machine, "runs": list(rows(names, results, refusals))}, indent=2) + "\n"
        )


def parse(arguments: list[str]) -> argparse.Namespace:
    """Parse the arguments."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.streaming", description=__doc__)
    parser.add_argument("systems", nargs="*", metavar="SYSTEM", help=f"of {', '.join(SYSTEMS)}; default: all")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_SECONDS:g} s each, once")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each run, after the warm-up")
    parser.add_argument("--repeats", type=int, default=REPEATS, help="number of runs")
    parser.add_argument("--json", metavar="FILE", help="file for the figures of every run")
    asked = parser.parse_args(arguments)
    for name in asked.systems:
        if name not in SYSTEMS:
            parser.error(f"system: none is named {name!r}; there are {', '.join(SYSTEMS)}")
    return asked


def run_all(names: list[str], seconds: float, repeats: int) -> tuple[Results, Refusals]:
    """Measure the systems, alternating; one that has rejected a load is not tried again with it."""
    results: Results = {name: {rate: [] for rate in RATES} for name in names}
    refusals: Refusals = {name: {} for name in names}
    for turn in range(repeats):
        for name in names if turn % 2 == 0 else reversed(names):
            for rate in RATES:
                if rate in refusals[name]:
                    continue
                try:
                    results[name][rate].append(measure_apart(name, rate, seconds))
                    outcome = latest(results[name][rate][-1])
                except NotAvailable as refusal:
                    refusals[name][rate] = outcome = str(refusal)
                print(f"  {turn + 1}/{repeats} {name} at {load_name(rate)}: {outcome}", file=sys.stderr, flush=True)
    return results, refusals


def latest(measured: Measured) -> str:
    """Describe the result of a run."""
    if measured.p50_ms is None or measured.p99_ms is None:
        return f"{measured.rate_reached:,.0f} sentences/s"
    return f"p50 {measured.p50_ms:.2f} ms, p99 {measured.p99_ms:.2f} ms"


def load_name(rate: float | None) -> str:
    """Name a load in the table."""
    return "max sentences/s" if rate is None else f"{rate:,.0f}/s, p50 / p99 ms"


def table(names: list[str], results: Results, refusals: Refusals) -> Iterable[str]:
    """Format the figures as a table, followed by the reasons for missing ones."""
    yield ""
    yield "| | " + " | ".join(map(load_name, RATES)) + " |"
    yield "|---" * (1 + len(RATES)) + "|"
    for name in names:
        cells = [cell(rate, results[name][rate]) for rate in RATES]
        yield f"| {SYSTEMS[name].title} | " + " | ".join(cells) + " |"
    for name in names:
        for rate, reason in refusals[name].items():
            yield f"{SYSTEMS[name].title}, {load_name(rate)}: skipped: {reason}"


def cell(rate: float | None, runs: list[Measured]) -> str:
    """Return a cell: median and range."""
    if not runs:
        return "–"
    reached = [run.rate_reached for run in runs]
    if rate is None:
        return spread(reached)
    halves = [spread([run.p50_ms or 0.0 for run in runs]), spread([run.p99_ms or 0.0 for run in runs])]
    behind = f", falls behind: {median(reached):,.0f}/s" if median(reached) < KEEPS_UP * rate else ""
    return " / ".join(halves) + behind


def spread(values: list[float]) -> str:
    """Format the median, and the range if there are several values."""
    middle = figure(median(values))
    return middle if len(values) == 1 else f"{middle} ({figure(min(values))}–{figure(max(values))})"


def figure(value: float) -> str:
    """Format a figure with two or three significant digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def rows(names: list[str], results: Results, refusals: Refusals) -> Iterable[dict[str, object]]:
    """Return every run as a record, including refusals."""
    for name in names:
        for rate in RATES:
            for turn, run in enumerate(results[name][rate]):
                yield {"system": name, "rate": rate, "turn": turn, **asdict(run)}
            if rate in refusals[name]:
                yield {"system": name, "rate": rate, "refused": refusals[name][rate]}
