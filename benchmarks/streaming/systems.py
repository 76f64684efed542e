"""The systems to compare, and the process that runs one of them once."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from importlib import import_module

from benchmarks.streaming.work import Measured, NotAvailable

LIMIT_S = 240
"""A run that takes longer than this beyond its measured time is stopped."""


@dataclass(frozen=True)
class System:
    """Location of a system's `measure(rate, seconds, **options)`."""

    title: str
    module: str
    options: dict[str, int] = field(default_factory=dict)


SYSTEMS = {
    "penstock": System("Penstock, 3 workers", "penstock", {"workers": 3}),
    "penstock_one": System("Penstock, all in one worker", "penstock", {"workers": 1}),
    "bytewax_one": System("bytewax 0.21, 1 process", "bytewax_cluster", {"processes": 1}),
    "bytewax_two": System("bytewax 0.21, 2 processes", "bytewax_cluster", {"processes": 2}),
    "structured": System("Structured Streaming, micro-batches", "structured"),
    "realtime": System("Structured Streaming, real-time mode", "realtime"),
}


def measure_apart(name: str, rate: float | None, seconds: float) -> Measured:
    """Measure a system in a process of its own, so that no run affects another."""
    command = [sys.executable, "-m", "benchmarks.streaming.systems", name, str(rate or 0), str(seconds)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        output, errors = process.communicate(timeout=LIMIT_S + seconds)
    except subprocess.TimeoutExpired:
        raise NotAvailable(f"no result within {LIMIT_S + seconds:g} s") from None
    finally:
        stop_group(process)
    if process.returncode:
        raise NotAvailable((errors.strip() or "no reason given").splitlines()[-1])
    answer = json.loads(output.splitlines()[-1])
    if "refused" in answer:
        raise NotAvailable(answer["refused"])
    return Measured(**answer)


def stop_group(process: subprocess.Popen[str]) -> None:
    """End a run and its descendants: a JVM would keep the machine busy."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def main(name: str, rate: str, seconds: str) -> None:
    """Run one system once and print the result as the last line."""
    system = SYSTEMS[name]
    measure: Callable[..., Measured] = import_module(f"benchmarks.streaming.{system.module}").measure
    try:
        answer = asdict(measure(float(rate) or None, float(seconds), **system.options))
    except NotAvailable as refusal:
        answer = {"refused": str(refusal)}
    print(json.dumps(answer))


if __name__ == "__main__":
    main(*sys.argv[1:])
