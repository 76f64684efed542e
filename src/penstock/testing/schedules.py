"""Runs schedules of faults by the thousand: `python -m penstock.testing.schedules --schedules 10000 --seed 1`.

Every schedule is determined by its seed, the first seed plus its number. Failed ones are listed at the end with their
seeds; `--replay SEED` repeats one and prints all events.
"""

import gc
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import Annotated

import typer

from penstock.testing.bugs import BUGS, inject_bug
from penstock.testing.fault_schedule import FAULTS, draw_schedule
from penstock.testing.faults import FaultyCluster
from penstock.testing.promises import Violation

BATCH = 50  # schedules per process between two progress reports
COLLECT = 10  # clusters between two garbage collections
SHOWN = 5  # failures
PROGRESS_S = 5.0


@dataclass
class Totals:
    """The results of schedules."""

    schedules: int = 0
    events: int = 0
    fewest: int = sys.maxsize  # minimum number of events of a schedule
    counts: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[int, str]] = field(default_factory=list)  # seed, and the problem

    def add(self, other: "Totals") -> None:
        """Add the results of others."""
        self.schedules += other.schedules
        self.events += other.events
        self.fewest = min(self.fewest, other.fewest)
        self.counts += other.counts
        self.failures += other.failures

    def line(self) -> str:
        """Return a summary in one line."""
        faults = ", ".join(f"{kind} {self.counts[kind]}" for kind in sorted({*FAULTS}) if self.counts[kind])
        mean = self.events / max(1, self.schedules)
        return (
            f"{self.schedules} schedules, {mean:.0f} events each (at least {self.fewest}); faults: {faults}; "
            f"recoveries {self.counts['recoveries']}, drivers resumed {self.counts['resumed']}, "
            f"with other numbers of tasks {self.counts['resized']}, "
            f"checkpoints {self.counts['checkpoints']}, moves {self.counts['moves']}, "
            f"switches {self.counts['switches']}, failures {len(self.failures)}"
        )


def run_schedule(seed: int, totals: Totals) -> str:
    """Run the schedule of a seed; return the problem, or an empty text."""
    problem = ""
    cluster = FaultyCluster(draw_schedule(seed))
    try:
        cluster.run()
    except Violation as violation:
        problem = str(violation)
    except Exception:  # a defect of the runtime or of the simulation
        problem = traceback.format_exc()
    totals.schedules += 1
    totals.events += cluster.events
    totals.counts += cluster.counts
    if problem:
        totals.failures.append((seed, problem))
    else:
        totals.fewest = min(totals.fewest, cluster.events)
    return problem


def run_schedules(seeds: range, bug: str = "") -> Totals:
    """Run schedules one after another, with a bug if one is named."""
    totals = Totals()
    gc.disable()  # clusters contain many cycles: collecting them together saves a tenth
    frozen = gc.get_freeze_count()
    gc.collect()
    gc.freeze()  # collections skip everything else in the process
    try:
        with inject_bug(bug):
            for number, seed in enumerate(seeds):
                run_schedule(seed, totals)
                if number % COLLECT == COLLECT - 1:
                    gc.collect()
    finally:
        if not frozen:
            gc.unfreeze()
        gc.enable()
    return totals


def run_all(seeds: range, processes: int, bug: str = "", seconds: float = 0.0) -> Iterator[Totals]:
    """Run schedules in several processes, and yield the results so far after every batch."""
    end = time.monotonic() + seconds if seconds else None
    batches = iter([seeds[start : start + BATCH] for start in range(0, len(seeds), BATCH)])
    totals = Totals()
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        running: set[Future[Totals]] = set()
        while True:
            while len(running) < 2 * processes and (end is None or time.monotonic() < end):
                batch = next(batches, None)
                if batch is None:
                    break
                running.add(pool.submit(run_schedules, batch, bug))
            if not running:
                return
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for one in done:
                totals.add(one.result())
                yield totals


def replay_schedule(seed: int, bug: str) -> int:
    """Run the schedule of a seed, and print all events; return the exit status."""
    schedule = draw_schedule(seed)
    print(schedule)
    cluster = FaultyCluster(schedule, print)
    with inject_bug(bug):
        try:
            cluster.run()
        except Violation as violation:
            print(f"seed {seed}: {violation}")
            return 1
    print(f"seed {seed}: correct after {cluster.events} events")
    return 0


def main(
    schedules: Annotated[int, typer.Option(help="Number of schedules.", min=1)] = 10_000,
    seed: Annotated[int, typer.Option(help="Seed of the first schedule; the others follow consecutively.")] = 1,
    bug: Annotated[str, typer.Option(help=f"Break a rule of the protocol: {', '.join(BUGS)}.")] = "",
    processes: Annotated[int, typer.Option(help="Number of processes. Default: one per core.", min=0)] = 0,
    seconds: Annotated[float, typer.Option(help="Time limit for starting schedules. Default: none.")] = 0.0,
    replayed: Annotated[int | None, typer.Option("--replay", help="Run one seed and print all events.")] = None,
) -> None:
    """Run applications on simulated clusters under faults, and check that their output is correct."""
    if bug and bug not in BUGS:
        raise typer.BadParameter(f"no bug is named {bug!r}; there are {', '.join(BUGS)}")
    if replayed is not None:
        raise typer.Exit(replay_schedule(replayed, bug))
    totals, printed = Totals(), time.monotonic()
    began = printed
    for totals in run_all(range(seed, seed + schedules), processes or os.cpu_count() or 1, bug, seconds):
        now = time.monotonic()
        if now - printed >= PROGRESS_S:
            printed = now
            rate = totals.schedules / (now - began)
            print(
                f"{totals.schedules} of {schedules}, {rate:.0f} per second, failures {len(totals.failures)}", flush=True
            )
    for failed, problem in sorted(totals.failures)[:SHOWN]:
        named = f" --bug {bug}" if bug else ""
        print(f"seed {failed}: {problem}\n  again: python -m penstock.testing.schedules --replay {failed}{named}")
    print(totals.line())
    raise typer.Exit(1 if totals.failures else 0)


if __name__ == "__main__":
    typer.run(main)
