"""Speed of the pipeline from telemetry to tables, its growth with the number of records, and its memory.

Grid: 0.1, 1 and 10 million records, batch; `python -m benchmarks.pipeline 100000 1000000` for others. The records are
synthetic and created with numpy: one run of word count on ten machines, trees of five hops per source tuple, tasks and
machines each second, clocks every five; a second of the run has 2,000 records whatever the size, so a larger size is a
longer run, with more files and windows. The time is that of the whole job after the session has started, also in
processor seconds; the first, unmeasured job warms Java up. Memory is the peak of the Java process, whose heap is
limited, and of the Python driver.
"""

import math
import os
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import SparkContext

from penstock.model.telemetry import arrow_schema
from penstock.pipeline.job import SETTINGS, run_pipeline
from penstock.pipeline.session import session

SIZES = (100_000, 1_000_000, 10_000_000)
BRIEF_RECORDS = 250_000  # as in `job.BRIEF_BYTES`
WARM_UP = 20_000
MACHINES = 10
PER_COMPONENT = 10
COMPONENTS = ("lines", "split", "count", "store")
STREAMS = ("lines->split", "split->count", "count->store")
TREE = ((0, 0), (1, 1), (1, 1), (2, 2), (2, 3))  # stream of each hop, and position of its parent: 0 is the root
RECORDS_A_SECOND = 2000
CLOCK_S = 5
OFFSET_S, DRIFT = 100.0, 2e-5  # of a machine's clock, times its number


class Spent(NamedTuple):
    """Cost of a job."""

    records: int
    seconds: float
    cpu: float  # seconds of processor


def main() -> None:
    """Print records per second at each size, the growth between sizes, and peak memory."""
    sizes = [int(size) for size in sys.argv[1:] if size.isdecimal()] or SIZES
    with (
        session("benchmark", settings=SETTINGS, brief=max(sizes) < BRIEF_RECORDS) as spark,
        tempfile.TemporaryDirectory() as place,
    ):
        folder = Path(place)
        write(WARM_UP, folder / "warm")
        run_pipeline(spark, folder / "warm", folder / "warm-tables")
        java = SparkContext._gateway.proc.pid  # type: ignore[union-attr]
        spent: list[Spent] = []
        print(f"heap at most {SETTINGS['spark.driver.memory']}, {os.cpu_count()} cores, {spark.sparkContext.master}")
        for size in sizes:
            made = write(size, folder / "telemetry")
            _forget_peak(java)
            begun, worked = time.perf_counter(), _cpu_s(java)
            summary = run_pipeline(spark, folder / "telemetry", folder / "tables")
            seconds, cpu = time.perf_counter() - begun, _cpu_s(java) - worked
            assert (summary.records, summary.quarantined) == (made, {}), f"{made} records became {summary}"
            spent.append(Spent(made, seconds, cpu))
            print(
                f"{made:>12,} records: {seconds:7.1f} s, {made / seconds:10,.0f} records/s, {cpu:7.1f} s of processor, "
                f"Java {_peak_mb(java):,.0f} MB, Python {_own_peak_mb():,.0f} MB",
                flush=True,
            )
            _empty(folder / "telemetry")
        more = spent[-1]
        for fewer in spent[:-1]:
            wall, cpu = _exponent(fewer, more, "seconds"), _exponent(fewer, more, "cpu")
            print(
                f"growth from {fewer.records:,} to {more.records:,}: exponent {wall:.2f}, {cpu:.2f} of processor time"
            )


def write(records: int, folder: Path) -> int:
    """Write the telemetry of a run in files of ten seconds each; return its number of records."""
    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(0)
    made = second = 0
    while made < records:
        table = _ten_seconds(rng, second)
        pq.write_table(table, folder / f"all-{second:08d}.parquet")
        when = 1_000_000 + second
        os.utime(folder / f"all-{second:08d}.parquet", (when, when))
        made += table.num_rows
        second += 10
    return made


def _ten_seconds(rng: np.random.Generator, second: int) -> pa.Table:
    hops = len(TREE)
    told = MACHINES + PER_COMPONENT * len(COMPONENTS)  # per second
    trees = 10 * (RECORDS_A_SECOND - told) // (hops + 2)
    parts = [*_trees(rng, trees, second), *(_intervals(rng, second + number) for number in range(10))]
    parts += [_clocks(second + number) for number in range(0, 10, CLOCK_S)]
    return pa.concat_tables([_filled(part) for part in parts])


def _trees(rng: np.random.Generator, count: int, second: int) -> list[dict[str, Any]]:
    due = second + np.sort(rng.uniform(0, 10, count))
    root = rng.integers(1, 2**62, count)
    task = [rng.integers(0, PER_COMPONENT, count)]  # of each position in the tree
    ids, free = [root], [due + 1e-4]
    done = due.copy()
    made: list[dict[str, Any]] = []
    for stream, parent in TREE:
        task.append(rng.integers(0, PER_COMPONENT, count))
        ids.append(rng.integers(1, 2**62, count))
        waits = rng.exponential(1e-3, (4, count))
        emitted = free[parent]
        sent, arrived = emitted + waits[0], emitted + waits[:2].sum(0)
        started, finished = arrived + waits[2], arrived + waits[2:].sum(0)
        free.append(finished)
        done = np.maximum(done, finished)
        source, target = _machine(stream, task[parent]), _machine(stream + 1, task[-1])
        made.append(
            {
                "kind": "hop", "worker": _names("m", target), "at": _shown(finished, target), "root": root,
                "id": ids[-1], "parent": ids[parent], "stream": STREAMS[stream], "bytes": 40,
                "source": _tasks(stream, task[parent]), "task": _tasks(stream + 1, task[-1]),
                "source_worker": _names("m", source), "source_incarnation": 1, "emitted": _shown(emitted, source),
                "sent": _shown(sent, source), "arrived": _shown(arrived, target),
                "started": _shown(started, target), "finished": _shown(finished, target),
            }
        )  # fmt: skip
    where = _machine(0, task[0])
    shown: dict[str, Any] = {"due": _shown(due, where), "emitted": _shown(free[0], where), "at": _shown(free[0], where)}
    made.append(
        {"kind": "root", "worker": _names("m", where), "root": root, "id": root, "task": _tasks(0, task[0])} | shown
    )
    made.append({"kind": "done", "worker": "controller", "root": root, "due": due, "finished": done, "at": done})
    return made


def _intervals(rng: np.random.Generator, second: int) -> dict[str, Any]:
    """Return a record of every task and every machine."""
    number = np.tile(np.arange(PER_COMPONENT), len(COMPONENTS))
    stage = np.repeat(np.arange(len(COMPONENTS)), PER_COMPONENT)
    machine = np.concatenate([_machine(stage, number), np.arange(MACHINES)])
    tasks, machines = len(number), MACHINES
    names = np.char.add(np.char.add(np.array(COMPONENTS)[stage], "["), np.char.add(number.astype(str), "]"))
    processed = pa.array([*rng.integers(0, 500, tasks).tolist(), *[None] * machines], pa.int64())
    zero = pa.array([0] * tasks + [None] * machines, pa.int64())
    return {
        "kind": ["task"] * tasks + ["machine"] * machines, "worker": _names("m", machine),
        "at": _shown(np.full(len(machine), second + 1.0), machine), "interval": 1.0,
        "task": [*names.tolist(), *[None] * machines], "processed": processed, "given": zero, "queue": zero,
        "busy": rng.uniform(0, 1, len(machine)), "memory_mb": [None] * tasks + [500.0] * machines,
    }  # fmt: skip


def _clocks(second: int) -> dict[str, Any]:
    machine = np.arange(MACHINES)
    shown = _shown(np.full(MACHINES, float(second)), machine)
    return {"kind": "clock", "worker": _names("m", machine), "at": shown, "offset": shown - second, "drift": 0.0}


def _machine(stage: int | np.ndarray, number: np.ndarray) -> np.ndarray:
    return (stage + number) % MACHINES


def _shown(true: np.ndarray, machine: np.ndarray) -> np.ndarray:
    return true + machine * (OFFSET_S + DRIFT * true)


def _names(prefix: str, number: np.ndarray) -> np.ndarray:
    return np.char.add(prefix, number.astype(str))


def _tasks(stage: int, number: np.ndarray) -> np.ndarray:
    return np.char.add(_names(f"{COMPONENTS[stage]}[", number), "]")


def _filled(columns: dict[str, Any]) -> pa.Table:
    """Return a table with every column of the schema; scalars are repeated in every row."""
    rows = max(len(value) for value in columns.values() if isinstance(value, np.ndarray | list))
    always = {"run": "bench", "incarnation": 1, "version": 1, "epoch": 1, "emulated": True}
    made = []
    for field in arrow_schema():
        value = (always | columns).get(field.name)
        if isinstance(value, np.ndarray | list | pa.Array):
            made.append(pa.array(value, field.type))
        else:
            made.append(pa.nulls(rows, field.type) if value is None else pa.repeat(pa.scalar(value, field.type), rows))
    return pa.table(made, schema=arrow_schema())


def _exponent(fewer: Spent, more: Spent, what: str) -> float:
    return math.log(getattr(more, what) / getattr(fewer, what)) / math.log(more.records / fewer.records)


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()


def _forget_peak(process: int) -> None:
    Path(f"/proc/{process}/clear_refs").write_text("5")


def _peak_mb(process: int) -> float:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024


def _own_peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _cpu_s(process: int) -> float:
    spent = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(spent[11]) + int(spent[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
