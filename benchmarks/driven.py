"""A driver for `counted` in a process of its own, so that it can be killed: `python -m benchmarks.driven RUNS`.

It runs the application to its end, or resumes the run given with `--resume`, and exits with 1 if that failed.
"""

import argparse
import subprocess
import sys
from pathlib import Path

import penstock as ps
from benchmarks.counted import counted
from penstock.model.errors import PenstockError
from penstock.runtime.config import Checkpointing, Execution, Recovery, RunConfig
from penstock.runtime.storage.run_folder import RunInfo, load

ROOT = Path(__file__).parents[1]


def start(runs: Path, log: Path, *options: object) -> "subprocess.Popen[bytes]":
    """Start a driver; its output goes to a file."""
    command = [sys.executable, "-m", "benchmarks.driven", str(runs), *(str(option) for option in options)]
    with log.open("ab") as file:
        return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=file, stderr=file)


def answering(runs: Path, pid: int) -> RunInfo | None:
    """Return the run of a driver once the driver responds."""
    for path in runs.glob("*/run.json"):
        try:
            info = load(path.parent)
        except PenstockError:
            continue
        if info.pid == pid and info.socket:
            return info
    return None


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.driven")
    parser.add_argument("runs", type=Path)
    parser.add_argument("--count", type=int)
    parser.add_argument("--rate", type=float, default=500.0)
    parser.add_argument("--slots", type=int, default=3)
    parser.add_argument("--checkpoint", type=float, default=1.0)
    parser.add_argument("--resume")
    asked = parser.parse_args()
    flow = counted(asked.count, asked.rate)
    if asked.resume:
        run = ps.run(flow, resume=asked.resume, runs=asked.runs, callbacks=ps.StartCallbacks(notify=print))
    else:
        many = 10_000  # recoveries: faults are injected
        config = RunConfig(
            execution=Execution(slots=asked.slots),
            checkpointing=Checkpointing(interval_s=asked.checkpoint),
            recovery=Recovery(max_restarts=many),
        )
        run = ps.run(flow, config=config, runs=asked.runs)
    run.wait()
    if problem := run.status().error:
        sys.exit(problem)


if __name__ == "__main__":
    main()
