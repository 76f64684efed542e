"""Cost of exactly-once, and time to recover: checkpoints, recovery, and moves with both on.

    rate      maximum rate of word count with checkpoints every 5 s, relative to the rate without
    latency   p50 and p99 at half of that rate, with checkpoints and without
    recovery  duration of a checkpoint, and of a recovery after SIGKILL, by size of the state
    moves     latency added by a live move, over 1,000 moves at half of the maximum rate with checkpoints on

Three workers, not emulated, in one Spark session; alternatives that are compared alternate in it.
`python -m benchmarks.checkpoints rate moves` runs only those.
"""

import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import numpy as np

import penstock as ps
from benchmarks.streaming.penstock import measure
from penstock.pipeline.session import session
from penstock.runtime.config import Checkpointing, Execution, RunConfig, Telemetry
from penstock.runtime.run import Run
from penstock.runtime.spark.executors import embedded_master, spark_settings
from penstock.startup.start import start

WORKERS = 3
EVERY_S = 5.0
SECONDS = 15.0  # a run at the maximum rate; it contains three checkpoints
PAIRS = 5
SIZES_MB = (1, 10, 100)
KILLS = 5
MOVES = 1_000
WITHIN_S = 120.0  # for a condition to become true
ENTRY = 1_000  # bytes of state per key


def rate() -> float:
    """Print the maximum rate with checkpoints and without; return the median with them."""
    plain: list[float] = []
    saved: list[float] = []
    for pair in range(PAIRS):
        for rates, every in ((plain, 0.0), (saved, EVERY_S)) if pair % 2 else ((saved, EVERY_S), (plain, 0.0)):
            rates.append(measure(None, SECONDS, WORKERS, checkpoint_s=every).rate_reached)
        print(f"  without {plain[-1]:,.0f}, with {saved[-1]:,.0f} sentences/s", flush=True)
    ratios = sorted(one / other for one, other in zip(saved, plain, strict=True))
    print(f"maximum rate without checkpoints {statistics.median(plain):,.0f} sentences/s")
    print(
        f"every {EVERY_S:g} s {statistics.median(saved):,.0f} sentences/s, "
        f"{statistics.median(ratios):.2f} of without ({ratios[0]:.2f}–{ratios[-1]:.2f})"
    )
    return statistics.median(saved)


def latency(per_second: float) -> None:
    """Print latencies at a rate, with checkpoints and without."""
    found: dict[float, list[tuple[float, float]]] = {0.0: [], EVERY_S: []}
    for _ in range(3):
        for every, figures in found.items():
            seen = measure(per_second, SECONDS, WORKERS, checkpoint_s=every)
            figures.append((seen.p50_ms or 0.0, seen.p99_ms or 0.0))
    for every, figures in found.items():
        p50, p99 = (statistics.median(column) for column in zip(*figures, strict=True))
        name = f"checkpoints every {every:g} s" if every else "no checkpoints"
        worst = max(p99 for _, p99 in figures)
        print(f"at {per_second:,.0f}/s, {name}: p50 {p50:.2f}, p99 {p99:.2f} ms (p99 up to {worst:.2f})")


class Hoard(ps.Operator[int, int]):
    """Keeps some megabytes of state, of which every tuple changes a small part."""

    def __init__(self, megabytes: int) -> None:
        self._keys = megabytes * 1_000_000 // ENTRY
        self._held: dict[int, bytes] = {}

    def open(self, context: ps.TaskContext) -> None:
        """Fill it."""
        self._held = {key: os.urandom(ENTRY - 8) for key in range(self._keys)}

    def process(self, value: int) -> Iterable[int]:
        """Change one entry."""
        self._held[value % self._keys] = self._held[value % self._keys][::-1]
        return (value,)

    def snapshot(self) -> dict[int, bytes]:
        """Return the state."""
        return self._held

    def restore(self, state: dict[int, bytes]) -> None:
        """Take the state."""
        self._held = state


def recovery() -> None:
    """Print the duration of checkpoints and recoveries, by size of the state."""
    for megabytes in SIZES_MB:
        flow = ps.Dataflow("hoard")
        numbers = flow.source("numbers", ps.Generated(int, rate=1000.0), emits=int)
        kept = flow.operator("hoard", partial(Hoard, megabytes), numbers.fields(), emits=int)
        flow.sink("out", ps.Discard(), kept)
        with tempfile.TemporaryDirectory() as folder, _running(flow, folder, checkpoint_s=2.0) as run:
            saved: list[float] = []
            times: list[float] = []
            for _ in range(KILLS):
                _until(partial(_has_checkpoint, run, _checkpoint(run) + 2))
                checkpoint = run.status().checkpoint
                assert checkpoint is not None
                saved.append(checkpoint.seconds)
                before = run.status().recoveries
                _kill(run, "hoard[0]")
                _until(partial(_has_recovered, run, before))
                times.append(run.status().last_recovery_s)
            print(
                f"{megabytes:>4} MB of state: a checkpoint takes {1e3 * statistics.median(saved):,.0f} ms, "
                f"a recovery {statistics.median(times):.2f} s ({min(times):.2f}–{max(times):.2f}, {KILLS} of them)",
                flush=True,
            )


def moves(per_second: float) -> None:
    """Print the latency that live moves add to tuples, under load and with checkpoints."""
    flow = ps.Dataflow("moves")
    sentences = flow.source("sentences", ps.Generated(_sentence, rate=per_second), emits=str)
    words = flow.flat_map("split", str.split, sentences, parallelism=2, emits=str)
    counts = flow.operator("count", Tally, words.fields(), parallelism=2, emits=tuple[str, int])
    flow.sink("out", ps.Discard(), counts, parallelism=1)
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder, _running(flow, folder, checkpoint_s=EVERY_S) as run:
        time.sleep(3.0)
        held: list[float] = []
        for _ in range(MOVES):
            status = run.status()
            task = ("split[0]", "split[1]", "count[0]", "count[1]")[rng.integers(4)]
            others = [f"local/{slot}" for slot in range(WORKERS) if f"local/{slot}" != status.placement[task]]
            held.append(1e3 * run.move(task, others[rng.integers(len(others))]).seconds)
        reached = run.status().components[0].rate_tps
    p50, p99 = np.percentile(held, (50, 99))
    print(
        f"{MOVES:,} moves at {reached:,.0f} sentences/s: tuples held up p50 {p50:.2f}, p99 {p99:.2f}, "
        f"worst {max(held):.1f} ms"
    )


class Tally(ps.Operator[str, tuple[str, int]]):
    """Counts words."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def process(self, value: str) -> Iterable[tuple[str, int]]:
        """Count one word."""
        count = self._counts[value] = self._counts.get(value, 0) + 1
        return ((value, count),)

    def snapshot(self) -> dict[str, int]:
        """Return the counts."""
        return self._counts

    def restore(self, state: dict[str, int]) -> None:
        """Continue from restored counts."""
        self._counts = state


def _sentence(number: int) -> str:
    from benchmarks.streaming.work import POOL, texts

    return texts()[number % POOL]


def _running(flow: ps.Dataflow, folder: str, checkpoint_s: float) -> Run:
    config = RunConfig(
        execution=Execution(slots=WORKERS),
        checkpointing=Checkpointing(interval_s=checkpoint_s),
        telemetry=Telemetry(enabled=False, sample_tps=0.0),
    )
    return start(flow, config=config, runs=folder)


def _checkpoint(run: Run) -> int:
    checkpoint = run.status().checkpoint
    return 0 if checkpoint is None else checkpoint.number


def _has_checkpoint(run: Run, number: int) -> bool:
    return _checkpoint(run) >= number


def _has_recovered(run: Run, before: int) -> bool:
    status = run.status()
    return status.recoveries > before and status.phase == "running"


def _kill(run: Run, task: str) -> None:
    """Kill the process in which a task runs."""
    status = run.status()
    os.kill(next(m.pid for m in status.machines if status.placement[task] in m.slots), signal.SIGKILL)


def _until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError(f"condition not met within {WITHIN_S:g} s")
        time.sleep(0.05)


def main() -> None:
    """Run all parts, or those given as arguments."""
    wanted = [name for name in sys.argv[1:] if name in ("rate", "latency", "recovery", "moves")]
    wanted = wanted or ["rate", "latency", "recovery", "moves"]
    with (
        tempfile.TemporaryDirectory() as folder,
        session(
            "checkpoints",
            embedded_master(WORKERS),
            settings=spark_settings(WORKERS, embedded=True),
            folder=Path(folder) / "spark",
        ),
    ):
        measure(None, 1.0, WORKERS)  # start processes and import modules
        most = rate() if {"rate", "latency", "moves"}.intersection(wanted) else 0.0
        if "latency" in wanted:
            latency(round(most / 2, -3))
        if "recovery" in wanted:
            recovery()
        if "moves" in wanted:
            moves(round(most / 2, -3))


if __name__ == "__main__":
    main()
