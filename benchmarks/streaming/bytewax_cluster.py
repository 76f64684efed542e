"""bytewax in one process or several: its environment, its start, and the output of its sinks."""

import os
import socket
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from benchmarks.streaming.work import WARM_UP_S, Measured, NotAvailable, load, paced, unpaced

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = ROOT / ".bench" / "bytewax"
REQUIREMENTS = Path(__file__).with_name("requirements.txt")
INSTALL_S = 300
START_S = 60


def measure(rate: float | None, seconds: float, *, processes: int) -> Measured:
    """Run word count on a bytewax cluster of processes on this machine."""
    python = environment()
    with tempfile.TemporaryDirectory() as folder:
        run(python, Path(folder), rate, seconds, processes)
        seen = load(sorted(Path(folder).glob("*.npz")))
    return unpaced(seen.times, seen.words, seen.counted) if rate is None else paced(seen, rate, seconds)


def environment() -> Path:
    """Return the Python that has bytewax, installed on first use, because the project does not depend on it."""
    python = ENVIRONMENT / "bin" / "python"
    ready = ENVIRONMENT / REQUIREMENTS.name
    if ready.is_file() and ready.read_text() == REQUIREMENTS.read_text():
        return python
    make = [sys.executable, "-m", "venv", "--clear", str(ENVIRONMENT)]
    install = [str(python), "-m", "pip", "install", "-qq", "--disable-pip-version-check", "-r", str(REQUIREMENTS)]
    for command in (make, install):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_S, check=False)
        except subprocess.TimeoutExpired:
            raise NotAvailable(f"{ENVIRONMENT}: installing {REQUIREMENTS.name} took over {INSTALL_S} s") from None
        if done.returncode:
            reason = (done.stderr.strip() or "no reason given").splitlines()[-1]
            raise NotAvailable(f"{ENVIRONMENT}: {REQUIREMENTS.name} could not be installed: {reason}")
    ready.write_text(REQUIREMENTS.read_text())
    return python


def run(python: Path, folder: Path, rate: float | None, seconds: float, processes: int) -> None:
    """Run the dataflow to its end."""
    variables = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "BENCH_RATE": str(rate or 0),
        "BENCH_SECONDS": str(seconds),
        "BENCH_FOLDER": str(folder),
    }
    command = [str(python), "-m", "bytewax.run", "benchmarks.streaming.bytewax_flow:flow()"]
    addresses = ";".join(f"127.0.0.1:{port}" for port in free_ports(processes))
    started = []
    try:
        for number in range(processes):
            cluster = ["-i", str(number), "-a", addresses] if processes > 1 else []
            with (folder / f"{number}.log").open("w") as log:
                started.append(subprocess.Popen(command + cluster, env=variables, stdout=log, stderr=log))
        for number, process in enumerate(started):
            if process.wait(timeout=START_S + WARM_UP_S + 2 * seconds):
                lines = (folder / f"{number}.log").read_text().strip().splitlines()
                raise RuntimeError(f"bytewax process {number} failed: {lines[-1] if lines else 'no reason given'}")
    finally:
        for process in started:
            process.kill()
            process.wait()


def free_ports(number: int) -> list[int]:
    """Return ports that are free now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]
