"""Faults done to real runs on embedded Spark: processes killed and stopped, connections cut, disks filled.

Whatever is done to them, what they have committed is the truth to the tuple.
"""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from threading import Thread

import pytest
from benchmarks import driven
from benchmarks.counted import Verdict, check, given
from benchmarks.faults import (
    MOMENTS,
    Link,
    SmallDisk,
    below,
    command,
    cut,
    kill,
    links,
    stopped,
    wait_until,
    workers,
)
from pyspark.sql import SparkSession

from penstock.model.errors import PenstockError
from penstock.pipeline.session import session
from penstock.runtime import control_socket as control
from penstock.runtime.spark.executors import embedded_master, spark_settings
from penstock.runtime.storage.run_folder import RunInfo, load
from tests.patience import PATIENT
from tests.runtime.trial import CHECKPOINT_S, Trial, trials

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("session")
    settings = spark_settings(3, True) | {"spark.python.task.killTimeout": "30s"}  # zombies may come back to life
    with session("tests", embedded_master(4), settings=settings, folder=folder) as made:
        yield made


@pytest.fixture
def trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Trial]]:
    with trials(tmp_path, monkeypatch) as start:
        yield start


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
    one = trial(slots=3, patience=PATIENT)
    pids = set(one.alive().values())

    def cut_one(spared: int) -> None:
        found: list[Link] = []

        def there() -> bool:
            found[:] = [link for link in links(sorted(pids)) if link.pid != spared]
            return bool(found)

        wait_until(there, what="a connection")
        cut(one.rng.choice(found))

    for moment in MOMENTS * 7:
        _, _, spared = one.drawn()
        one.do(partial(cut_one, spared), moment, spared)
    assert set(one.alive().values()) == pids
    one.end()


def test_a_dropped_worker_that_resumes_has_no_effect(embedded: SparkSession, trial: Callable[..., Trial]) -> None:
    one = trial(slots=3)

    def stop_until_it_is_given_up(victim: int) -> None:
        with stopped(victim):
            wait_until(lambda: victim not in one.alive().values(), what="giving it up")

    for moment in MOMENTS * 2:
        victim, _, spared = one.drawn()
        one.do(partial(stop_until_it_is_given_up, victim), moment, spared)
    assert any("sends no heartbeat" in line.text for line in one.heard)
    one.end()


def test_a_full_disk_stops_checkpoints_and_not_the_application(
    embedded: SparkSession, trial: Callable[..., Trial]
) -> None:
    one = trial(slots=3, patience=PATIENT)
    try:
        disk = SmallDisk(one.run.folder / "checkpoints")
    except PermissionError as refused:
        pytest.skip(f"may not mount a file system: {refused}")
    try:
        for moment in MOMENTS:
            written = one.run.status().written
            with one.at(moment, one.drawn()[2]), disk.full():
                pass
            with disk.full():
                wait_until(one.has_problem, what="a checkpoint that fails")
                wait_until(partial(one.has_written_more, written + 100), what="tuples")
            one.wait_for_checkpoint()
            assert not one.has_problem()
            assert moment != MOMENTS[0] or one.recoveries[0] == 0
        assert any("no space left on device" in line.text for line in one.heard)
        before = one.recoveries[0]
        with disk.full():
            kill(one.drawn()[0])
            wait_until(lambda: any("epoch cannot start" in line.text for line in one.heard), what="a warning")
        one.wait_for_checkpoint()
        assert one.recoveries[0] > before
        one.end()
    finally:
        one.run.stop()
        disk.close()


# Drivers


def test_a_run_whose_driver_or_session_is_killed_again_and_again_is_resumed_to_its_end(tmp_path: Path) -> None:
    log = tmp_path / "driver.log"
    driver = driven.start(tmp_path, log, "--rate", 400, "--checkpoint", CHECKPOINT_S)
    try:
        for moment in MOMENTS:
            name = _kill(tmp_path, driver, moment, log)
            driver = driven.start(tmp_path, log, "--rate", 400, "--resume", name)
        _answering(tmp_path, driver, log)
        kill(next(pid for pid in below(driver.pid) if "java" in command(pid).partition(" ")[0]))
        assert driver.wait(120) == 1, log.read_text()
        remedy = f"continue from its last checkpoint with penstock runs resume {tmp_path / name}"
        assert log.read_text().endswith(f"the Spark session has ended, its Java process has ended; {remedy}\n")
        driver = driven.start(tmp_path, log, "--rate", 400, "--resume", name)
        control.ask(_answering(tmp_path, driver, log), control.DrainRun(), timeout=120)
        assert driver.wait(120) == 0, log.read_text()
    finally:
        driver.kill()
        driver.wait(30)
    assert log.read_text().count(f"run {name} continues from checkpoint") == len(MOMENTS) + 1
    sentences = given(tmp_path / name)
    assert sentences > 0
    assert check(tmp_path / name, sentences) == Verdict(lost=0, doubled=0)


def _kill(runs: Path, driver: "subprocess.Popen[bytes]", moment: str, log: Path) -> str:
    """Kill a driver some checkpoints after its start; return the name of its run."""
    info = _answering(runs, driver, log)
    first = max(_checkpoints(info), default=0)
    wait_until(lambda: max(_checkpoints(info), default=0) > first + 1, what="two checkpoints")
    wait_until(lambda: len(workers(driver.pid)) == 3, what="three workers")
    with stopped(workers(driver.pid)[0]) if moment != MOMENTS[0] else nullcontext():
        if moment == MOMENTS[2]:
            placement = control.ask(info, control.GetStatus()).placement
            other = next(slot for slot in sorted(placement.values()) if slot != placement["count[0]"])
            Thread(target=_move, args=(info, other), daemon=True).start()
        if moment != MOMENTS[0]:
            wait_until(lambda: control.ask(info, control.GetStatus()).operation, what="an operation")
        driver.kill()
        driver.wait(30)
    assert load(info.path).ended is None
    return info.run


def _answering(runs: Path, driver: "subprocess.Popen[bytes]", log: Path) -> RunInfo:
    """Return the run of a driver, once its socket is open."""
    found: list[RunInfo] = []

    def answers() -> bool:
        assert driver.poll() is None, log.read_text()
        if (info := driven.answering(runs, driver.pid)) is not None:
            found.append(info)
        return bool(found)

    wait_until(answers, 300, "the start of a driver")
    return found[0]


def _checkpoints(info: RunInfo) -> list[int]:
    return [int(path.parent.name) for path in info.path.glob("checkpoints/*/manifest.json")]


def _move(info: RunInfo, slot: str) -> None:
    with suppress(PenstockError):  # the driver is killed before it can answer
        control.ask(info, control.MoveTask("count[0]", slot))
