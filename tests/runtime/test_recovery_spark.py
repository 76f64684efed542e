"""Faults done to real runs on Spark: processes killed and stopped, connections cut, disks filled, drivers killed.

Whatever is done to them, what they have committed is the truth to the tuple. Each fault also comes in the middle of a
checkpoint and in the middle of a move: one worker is stopped for a moment, so that these cannot come to their end.
"""

import math
import os
import random
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from benchmarks import driven
from benchmarks.counted import Verdict, check, counted, given
from benchmarks.faults import SmallDisk, cut, executors, kill, links, stopped, wait_until, workers
from pyspark.sql import SparkSession

import penstock as ps
from penstock.model.errors import PenstockError
from penstock.pipeline.session import session
from penstock.runtime import members
from penstock.runtime import run as run_module
from penstock.runtime import socket as control
from penstock.runtime.folder import load
from penstock.runtime.handle import LogLine
from penstock.runtime.run import Run
from penstock.runtime.spark.executors import embedded_master, spark_settings
from penstock.runtime.terms import Terms
from tests.standalone import SETTINGS, standalone

pytestmark = pytest.mark.spark

ME = os.getpid()
IMPATIENT = partial(Terms, lease_s=1.5, silent_s=2.5)  # so that a worker that was stopped is given up soon
CHECKPOINT_S = 0.5
MOMENTS = ["in between", "during a checkpoint", "during a move"]


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("session")
    settings = spark_settings(3, True) | {"spark.python.task.killTimeout": "30s"}  # zombies may come back to life
    with session("tests", embedded_master(4), settings=settings, folder=folder) as made:
        yield made


class Trial:
    """A run, faults that are done to it, and what must be true in the end."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.rng = random.Random(11)
        self.heard: list[LogLine] = []
        run.on_log(self.heard.append)
        self.wait_for_checkpoint()

    @property
    def _recoveries(self) -> tuple[int, int]:
        recovery = self.run._driver.controller.recovery
        return self.run._driver.ask(lambda _: (recovery.count, len(recovery.times)))

    def alive(self) -> dict[str, int]:
        """Return the processes of the workers, by site."""
        members = self.run._driver.controller.members.all
        return self.run._driver.ask(lambda _: {member.site.name: member.pid for member in members if member.alive})

    def checkpoint(self) -> int:
        latest = self.run._driver.controller.checkpointing.latest
        return 0 if latest is None else latest.number

    def wait_for_checkpoint(self) -> None:
        """Wait until tuples have gone all the way, and a checkpoint says so."""
        before = self.checkpoint()
        wait_until(lambda: self._failed() or self.checkpoint() > before, what="a checkpoint")

    def _failed(self) -> bool:
        assert self.run.status().error == ""
        return False

    def do(self, fault: Callable[[], None], moment: str = MOMENTS[0], spared: int | None = None) -> None:
        """Do something to the run that it has to recover from, and wait until it has."""
        before, _ = self._recoveries
        with self._moment(moment, spared):
            fault()
            wait_until(lambda: self._failed() or self._recoveries[0] > before, what="noticing the fault")

        def recovered() -> bool:
            begun, ended = self._recoveries
            return begun == ended and self.run.status().phase == "running"

        wait_until(lambda: self._failed() or recovered(), what="recovery")
        self.wait_for_checkpoint()

    @contextmanager
    def _moment(self, moment: str, spared: int | None) -> Iterator[None]:
        if moment == MOMENTS[0]:
            yield
            return
        assert spared is not None
        with stopped(spared) if moment == MOMENTS[1] else nullcontext():
            if moment == MOMENTS[1]:
                wait_until(lambda: self.run.status().operation == "checkpoint", what="a checkpoint")
                yield
                return
            with self._moving(spared):
                yield

    @contextmanager
    def _moving(self, spared: int) -> Iterator[None]:
        """Have a task on its way: one that gets tuples from the worker that is stopped."""
        status = self.run.status()
        slots = [slot for slot in self.alive() if slot != status.placement["count[0]"]]
        asked = Thread(target=self._move, args=("count[0]", self.rng.choice(slots)), daemon=True)
        with stopped(spared):
            asked.start()
            with suppress(TimeoutError):  # it may have been there before the worker stood still
                wait_until(lambda: self.run.status().operation.startswith("move"), 1.0)
            yield
        asked.join(60)
        assert not asked.is_alive()

    def _move(self, task: str, slot: str) -> None:
        with suppress(PenstockError):  # its slot may have been lost for good
            self.run.move(task, slot)

    def drawn(self) -> tuple[int, int, int]:
        """Return the processes of three workers, in any order."""
        wait_until(lambda: len(self.alive()) == 3, what="three workers")
        one, two, three = self.rng.sample(sorted(self.alive().values()), 3)
        return one, two, three

    def end(self) -> None:
        """Drain it, and see that everything was committed exactly once."""
        self.run.drain()
        status = self.run.status()
        assert (status.phase, status.error) == ("stopped", "")
        sentences = given(self.run.folder)
        assert sentences > 0
        assert check(self.run.folder, sentences) == Verdict(lost=0, doubled=0)


@pytest.fixture
def trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Trial]]:
    monkeypatch.setattr(run_module, "Terms", IMPATIENT)
    monkeypatch.setattr(members, "FAILURES", math.inf)  # nobody is left out, though all of them keep failing
    monkeypatch.setattr(members, "LATES", math.inf)
    started: list[Run] = []

    def start(**settings: Any) -> Trial:
        settings = {"checkpoint_s": CHECKPOINT_S, **settings}
        started.append(ps.run(counted(rate=300), runs=tmp_path / "runs", **settings))
        return Trial(started[0])

    yield start
    for run in started:
        run.stop()


def test_killed_workers_are_replaced_and_nothing_is_lost_or_doubled(
    embedded: SparkSession, trial: Callable[..., Trial]
) -> None:
    one = trial(slots=3)
    for moment in MOMENTS * 5:
        victim, _, spared = one.drawn()
        one.do(partial(kill, victim), moment, spared)
    one.end()


def test_several_workers_may_be_killed_at_once(embedded: SparkSession, trial: Callable[..., Trial]) -> None:
    one = trial(slots=3)

    def kill_two(victims: tuple[int, ...]) -> None:
        for victim in victims:
            kill(victim)

    for moment in MOMENTS * 2:
        *victims, spared = one.drawn()
        one.do(partial(kill_two, tuple(victims)), moment, spared)
    for _ in range(2):
        one.do(partial(kill_two, one.drawn()))
    one.end()


def test_a_connection_that_is_cut_between_two_living_workers_is_a_new_epoch(
    embedded: SparkSession, trial: Callable[..., Trial]
) -> None:
    one = trial(slots=3)
    pids = set(one.alive().values())

    def cut_one(spared: int) -> None:
        wait_until(lambda: links(sorted(pids)), what="a connection")
        cut(one.rng.choice([link for link in links(sorted(pids)) if link.pid != spared]))

    for moment in MOMENTS * 6:
        _, _, spared = one.drawn()
        one.do(partial(cut_one, spared), moment, spared)
    assert set(one.alive().values()) == pids
    one.end()


def test_a_worker_that_was_given_up_and_wakes_again_does_no_harm(
    embedded: SparkSession, trial: Callable[..., Trial]
) -> None:
    one = trial(slots=3)

    def stop_until_it_is_given_up(victim: int) -> None:
        with stopped(victim):
            wait_until(lambda: victim not in one.alive().values(), what="giving it up")

    for moment in MOMENTS * 2:
        victim, _, spared = one.drawn()
        one.do(partial(stop_until_it_is_given_up, victim), moment, spared)
    assert any("gives no sign of life" in line.text for line in one.heard)
    one.end()


def test_a_full_disk_stops_checkpoints_and_not_the_application(
    embedded: SparkSession, trial: Callable[..., Trial]
) -> None:
    one = trial(slots=3, checkpoint_s=1.0)
    try:
        disk = SmallDisk(one.run.folder / "checkpoints")
    except PermissionError as refused:
        pytest.skip(f"may not mount a file system: {refused}")
    try:
        for moment in MOMENTS:
            _, _, spared = one.drawn()
            before, written = one.checkpoint(), one.run.status().written
            warned = len(one.heard)
            with one._moment(moment, spared), disk.full():
                pass
            with disk.full():
                wait_until(lambda: len(one.heard) > warned, what="a warning")  # noqa: B023
                wait_until(lambda: one.run.status().written > written + 100, what="tuples")  # noqa: B023
            wait_until(lambda: one.checkpoint() > before, what="a checkpoint")  # noqa: B023
        assert one._recoveries[0] == 0
        assert any("no space left on device" in line.text for line in one.heard)
        victim, _, _ = one.drawn()
        with disk.full():
            kill(victim)
            wait_until(lambda: one._recoveries[0] == 1, what="noticing")
            wait_until(lambda: any("epoch cannot be begun" in line.text for line in one.heard), what="a warning")
        one.wait_for_checkpoint()
        one.end()
    finally:
        one.run.stop()
        disk.close()


# Executors


def test_executors_that_are_killed_come_back_and_are_used_again(
    tmp_path_factory: pytest.TempPathFactory, trial: Callable[..., Trial]
) -> None:
    folder = tmp_path_factory.mktemp("cluster")
    settings = {**spark_settings(2, False), **SETTINGS}
    with (
        standalone(folder / "spark") as master,
        session("tests", master, settings=settings, folder=folder / "driver"),
    ):
        one = trial()

        def home() -> bool:
            """Whether both executors have a worker again."""
            found = [job.found_on() for job in one.run._jobs.jobs if not job.done.is_set()]
            return len(one.alive()) == 2 and len(set(found)) == 2 and None not in found

        def kill_with_worker(java: int) -> None:
            kill(java)
            for pid in one.alive().values():
                kill(pid)

        for moment in MOMENTS:
            wait_until(home, what="a worker on each executor")
            java = one.rng.choice(executors(ME))
            own = set(workers(java))
            (spared,) = set(one.alive().values()) - own
            one.do(partial(kill, java), moment, spared)
        wait_until(home, what="a worker on each executor")
        one.do(partial(kill_with_worker, one.rng.choice(executors(ME))))
        wait_until(home, what="a worker on each executor")
        assert any("takes the place of" in line.text for line in one.heard)
        one.end()


# Drivers


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_run_whose_driver_was_killed_is_resumed(tmp_path: Path, moment: str) -> None:
    log, count = tmp_path / "driver.log", 3000
    options = ("--count", count, "--rate", 400, "--checkpoint", CHECKPOINT_S)
    started: list[subprocess.Popen[bytes]] = [driven.start(tmp_path, log, *options)]
    try:
        name = _hurt(tmp_path, started[0], moment)
        started.append(driven.start(tmp_path, log, *options[:4], "--resume", name))
        assert started[1].wait(120) == 0, log.read_text()
    finally:
        for process in started:
            process.kill()
            process.wait(30)
    assert f"run {name} goes on from checkpoint" in log.read_text()
    assert check(tmp_path / name, count) == Verdict(lost=0, doubled=0)


def _hurt(runs: Path, driver: "subprocess.Popen[bytes]", moment: str) -> str:
    """Kill a driver some checkpoints after its start; return the name of its run."""
    wait_until(lambda: driver.poll() is None and driven.answering(runs, driver.pid), 120, "the start of a driver")
    info = driven.answering(runs, driver.pid)
    assert info is not None
    wait_until(lambda: any(runs.glob("*/checkpoints/000003/manifest.json")), what="three checkpoints")
    pid = random.Random(5).choice(workers(driver.pid))
    with stopped(pid) if moment != MOMENTS[0] else nullcontext():
        if moment == MOMENTS[2]:
            placement = control.ask(info, control.GetStatus()).placement
            other = next(slot for slot in sorted(placement.values()) if slot != placement["count[0]"])
            asked = Thread(target=_ask, args=(info, control.MoveTask("count[0]", other)), daemon=True)
            asked.start()
        if moment != MOMENTS[0]:
            wait_until(lambda: control.ask(info, control.GetStatus()).operation, what="an operation")
        driver.kill()
        driver.wait(30)
    assert load(info.path).ended is None
    return info.run


def _ask(info: Any, request: Any) -> None:
    with suppress(PenstockError):
        control.ask(info, request)
