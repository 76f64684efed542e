"""What whole commands cost from a cold start: seconds, and processor seconds of all their processes, Java's included.

`python -m benchmarks commands` measures this source tree. Other trees can be named, and take turns with it, so that a
change is compared in one run: `python -m benchmarks.commands ../before/src src --repeats 3`. Commands: a plan with
nothing compiled, and with everything; a run of 8 s, its report, and its tables. `--only report` leaves others out.
"""

import ctypes
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

REPEATS = 3
SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER: orphans, such as the Java process of a command, become our children
PLAN = "plan word-count hetero-small"
RUN = "run word-count --emulate hetero-small --rate 100 --duration 8 --policy round-robin --then local-search"
COMMANDS = {
    "plan, one policy, nothing compiled": f"{PLAN} --policy round-robin",
    "plan, all policies, nothing compiled": f"{PLAN} --policy all",
    "plan, all policies": f"{PLAN} --policy all",
    "run of 8 s": f"{RUN} --runs {{folder}}",
    "report": "report --runs {folder}",
    "models tables": "models tables --input {run} --output {folder}/tables",
}


class Cost(NamedTuple):
    """Cost of one command."""

    seconds: float
    cpu: float


def main() -> None:
    """Print the median cost of every command for every source tree."""
    words = sys.argv[1:]
    repeats = int(words[words.index("--repeats") + 1]) if "--repeats" in words else REPEATS
    wanted = words[words.index("--only") + 1] if "--only" in words else ""
    trees = [Path(word).resolve() for word in words if Path(word).is_dir()] or [Path("src").resolve()]
    ctypes.CDLL(None).prctl(SUBREAPER, 1)
    spent: dict[tuple[str, Path], list[Cost]] = {}
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}", flush=True)
    for _ in range(repeats):
        for tree in trees:
            with tempfile.TemporaryDirectory() as place:
                for name, command in COMMANDS.items():
                    if wanted in name or name == "run of 8 s":
                        spent.setdefault((name, tree), []).append(_measure(name, command, tree, Path(place)))
    for (name, tree), costs in spent.items():
        seconds, cpu = ([getattr(cost, what) for cost in costs] for what in Cost._fields)
        print(
            f"{name:<38}{tree.parent.name:<20}"
            f"{statistics.median(seconds):6.1f} s ({min(seconds):.1f}-{max(seconds):.1f})"
            f"{statistics.median(cpu):7.1f} s of processor ({min(cpu):.1f}-{max(cpu):.1f})"
        )
    print(f"load {os.getloadavg()[0]:.1f}")


def _measure(name: str, command: str, tree: Path, folder: Path) -> Cost:
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    if "nothing compiled" in name:
        environment["NUMBA_CACHE_DIR"] = str(folder / name)
    run = max((path.parent for path in folder.glob("*/run.json")), default=folder)
    words = command.format(folder=folder, run=run).split()
    began, before = time.perf_counter(), _children_cpu()
    start = [sys.executable, "-c", "from penstock.cli import main; main()"]
    with tempfile.TemporaryFile("w+") as errors:  # not a pipe: Java would hold it open after the command
        done = subprocess.run([*start, *words], env=environment, stdout=subprocess.DEVNULL, stderr=errors, check=False)
        seconds = time.perf_counter() - began
        errors.seek(0)
        if done.returncode:
            print(f"{name} failed: {errors.read().strip().splitlines()[-1:]}", file=sys.stderr)
    while True:  # Java ends after the command
        try:
            os.wait()
        except ChildProcessError:
            break
    return Cost(seconds, _children_cpu() - before)


def _children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
