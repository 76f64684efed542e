"""A real embedded cluster under load, with a fault about every ten seconds: `python -m benchmarks.soak --seconds 1800`.

The application is `counted`, run by a driver in a process of its own. Faults are random, of all kinds, in between,
during a checkpoint or during a move. At the end the committed output is compared with the expected one.

A recovery is timed from outside, from the fault until the status reports written tuples in a new epoch. The status is
read 20 times per second and workers report 4 times per second: up to 0.3 s of a figure is measurement error.
"""

import argparse
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks import driven
from benchmarks.counted import Verdict, check
from benchmarks.faults import MOMENTS, SmallDisk, amid, cut, kill, links, stopped, wait_until
from penstock.model.errors import PenstockError
from penstock.model.status import Status
from penstock.runtime import control_socket as control
from penstock.runtime.storage.run_folder import RunInfo

RECOVER_S = 60.0
RESUME_S = 240.0  # including the start of a Spark session
ASK_S = 0.05
CHECKPOINT_S = 1.0
WORKERS = 3


class Soak:
    """One run, and the faults injected into it."""

    def __init__(self, runs: Path, seconds: float, rate: float, seed: int) -> None:
        self.runs = runs
        self.log = runs / "driver.log"
        self.count = int(seconds * rate)
        self.rate = rate
        self.rng = random.Random(seed)
        self.times: dict[str, list[float]] = {}
        self.faults = self.recovered = 0
        self.disk: SmallDisk | None = None
        self.kinds: dict[str, Callable[[int], AbstractContextManager[None]]] = {
            "worker killed": partial(self._kill, 1),
            "two workers killed": partial(self._kill, 2),
            "all workers killed": partial(self._kill, WORKERS),
            "connection cut": self._cut,
            "worker stopped past the time-out": self._stop,
            "driver killed": self._kill_driver,
            "disk full": self._fill,
        }
        options = ("--count", self.count, "--rate", rate)
        self._options = (*options, "--slots", WORKERS, "--checkpoint", CHECKPOINT_S)
        self.driver = driven.start(runs, self.log, *self._options)
        self.info = self._answer()
        with suppress(PermissionError):
            self.disk = SmallDisk(self.info.path / "checkpoints", size_mb=256)
        if self.disk is None:
            del self.kinds["disk full"]
            print("no permission to mount a file system: disk-full faults are skipped")

    def inject(self) -> None:
        """Inject one fault, and wait until the run has recovered."""
        kind, moment = self.rng.choice(list(self.kinds)), self.rng.choice(MOMENTS)
        wait_until(self._is_well, RECOVER_S, "three workers at work")
        self.faults += 1
        before, spared = self.status(), self._drawn(1)[0]
        with ExitStack() as after, amid(moment, spared, self.status, self._move):
            began = time.monotonic()
            after.enter_context(self.kinds[kind](spared))
        if kind not in ("disk full", "driver killed"):
            wait_until(lambda: self.status().recoveries > before.recoveries, RECOVER_S, "noticing it")
        self._flows(RESUME_S if kind == "driver killed" else RECOVER_S)
        took = time.monotonic() - began
        self.recovered += 1
        self.times.setdefault(kind, []).append(took)
        print(f"fault {self.faults}: {kind}, {moment}; {took:.2f} s", flush=True)

    def status(self) -> Status:
        """Return the status of the run."""
        return control.ask(self.info, control.GetStatus())

    def _answer(self) -> RunInfo:
        """Wait until the driver responds."""

        def answers() -> bool:
            if self.driver.poll() is not None:
                raise TimeoutError(f"the driver has ended: {self.log.read_text()[-2000:]}")
            return driven.answering(self.runs, self.driver.pid) is not None

        wait_until(answers, RESUME_S, "the start of a driver")
        info = driven.answering(self.runs, self.driver.pid)
        assert info is not None
        return info

    def _is_well(self) -> bool:
        status = self.status()
        busy = [machine for machine in status.machines if machine.alive and machine.tasks]
        return status.phase == "running" and len(busy) == WORKERS

    def _flows(self, within_s: float) -> None:
        """Wait until tuples are written."""
        seen: list[int] = []

        def flows() -> bool:
            time.sleep(ASK_S)
            status = self.status()
            if status.phase not in ("running", "draining", "stopped"):
                seen.clear()
                return False
            seen.append(status.written)
            return status.phase == "stopped" or seen[-1] > seen[0]

        wait_until(flows, within_s, "recovery")

    def _move(self, task: str, slot: str) -> None:
        with suppress(PenstockError):  # the target or the driver may be killed
            control.ask(self.info, control.MoveTask(task, slot), timeout=60)

    def _drawn(self, count: int) -> list[int]:
        """Return the processes of some random workers with tasks."""
        pids = [machine.pid for machine in self.status().machines if machine.alive and machine.tasks]
        return self.rng.sample(pids, min(count, len(pids)))

    # Kinds: each spares a worker until the others have done their part, and waits after that one is released

    @contextmanager
    def _kill(self, count: int, spared: int) -> Iterator[None]:
        pids = sorted(self._drawn(WORKERS), key=lambda pid: pid == spared)
        for pid in pids[:count]:
            kill(pid)
        yield

    @contextmanager
    def _cut(self, spared: int) -> Iterator[None]:
        found = links(self._drawn(WORKERS))
        cut(self.rng.choice([link for link in found if link.pid != spared] or found))
        yield

    @contextmanager
    def _stop(self, spared: int) -> Iterator[None]:
        pid = next(pid for pid in self._drawn(WORKERS) if pid != spared)
        with stopped(pid):
            yield
            wait_until(lambda: pid not in self._drawn(WORKERS), RECOVER_S, "giving it up")

    @contextmanager
    def _fill(self, _: int) -> Iterator[None]:
        assert self.disk is not None
        with self.disk.full():
            yield
            wait_until(lambda: "no space left" in _problem(self.status()), RECOVER_S, "a warning")
        wait_until(lambda: not _problem(self.status()), RECOVER_S, "a checkpoint")

    @contextmanager
    def _kill_driver(self, _: int) -> Iterator[None]:
        self.driver.kill()
        self.driver.wait(30)
        yield
        self.driver = driven.start(self.runs, self.log, *self._options[:4], "--resume", self.info.run)
        self.info = self._answer()

    def end(self, within_s: float) -> Verdict:
        """Wait for the end of the run, and compare its committed output with the expected one."""
        try:
            code = self.driver.wait(within_s)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"the run has not ended within {within_s:g} s") from None
        if code:
            raise TimeoutError(f"the run has failed: {self.log.read_text()[-2000:]}")
        return check(self.info.path, self.count)

    def close(self) -> None:
        """Stop all processes and unmount the disk."""
        self.driver.kill()
        self.driver.wait(30)
        if self.disk is not None:
            self.disk.close()


def _problem(status: Status) -> str:
    return status.checkpoint.problem if status.checkpoint is not None else ""


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        yield keep
        return
    made = Path(tempfile.mkdtemp(prefix="penstock-soak-"))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--every", type=float, default=10.0, help="seconds between faults")
    parser.add_argument("--rate", type=float, default=500.0, help="sentences per second")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="folder that keeps the run; default: a temporary one")
    asked = parser.parse_args()
    with _folder(asked.keep) as runs:
        soak = Soak(runs, asked.seconds, asked.rate, asked.seed)
        problem, verdict = "", None
        try:
            began = time.monotonic()
            while began + asked.seconds - time.monotonic() > asked.every:
                time.sleep(asked.every * soak.rng.uniform(0.5, 1.0))
                soak.inject()
            print("waiting for the last tuples, which faults have delayed", flush=True)
            verdict = soak.end(asked.seconds + 300.0)
        except (TimeoutError, PenstockError, OSError) as error:
            problem = str(error)
        finally:
            soak.close()
    report(soak, verdict, problem)
    if problem or verdict != Verdict(0, 0) or soak.recovered < soak.faults:
        sys.exit(1)


def report(soak: Soak, verdict: Verdict | None, problem: str) -> None:
    """Print the outcome of the faults: one line per kind, and one for all that led to a new epoch."""
    for kind, times in sorted(soak.times.items()):
        print(f"{kind}: {len(times)}, p50 {np.percentile(times, 50):.2f} s, worst {max(times):.2f} s")
    if problem:
        print(f"not recovered: {problem}")
    every = [each for kind, times in soak.times.items() if kind != "disk full" for each in times] or [0.0]
    p50, p99 = np.percentile(every, 50), np.percentile(every, 99)
    counts = f"faults {soak.faults}, recovered {soak.recovered}, recovery p50 {p50:.2f} p99 {p99:.2f} s"
    lost, doubled = ("unknown", "unknown") if verdict is None else verdict
    print(f"{counts}, lost {lost}, doubled {doubled}")


if __name__ == "__main__":
    main()
