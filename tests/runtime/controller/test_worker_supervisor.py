"""The supervisor of workers: when and where jobs are launched that end, hang or lose their executor."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest
from pyspark.sql import SparkSession

from penstock.model.cluster import Machine
from penstock.runtime.config import Recovery, RunConfig
from penstock.runtime.controller.process import Driver, listen_for_workers
from penstock.runtime.controller.run_spec import RunSpec, Site
from penstock.runtime.controller.state_machine import Controller
from penstock.runtime.controller.worker_supervisor import EXECUTORS_S, HEALTHY_S, REGISTER_S, WorkerSupervisor
from penstock.runtime.protocol import worker_messages
from penstock.runtime.spark.executors import Executor
from penstock.runtime.spark.jobs import Job
from penstock.runtime.spark.slot import UNLOADABLE
from tests.runtime.controller.test_process import PATIENCE, SECRET, layout, wait_for
from tests.runtime.controllers import ONLY_LAST

A, B, C, D = (Executor("one", "0", 2), Executor("two", "1", 2), Executor("one", "2", 2), Executor("three", "3", 3))
SITES = (Site("w0", ("w0",)), Site("w1", ("w1",)))
START = 1000.0


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write the journal to a temporary folder."""
    monkeypatch.chdir(tmp_path)


class Held(Job):
    """A job that runs until a test ends it."""

    def __init__(self, name: str, executor: Executor | None) -> None:
        super().__init__(cast(SparkSession, None), name, name, executor)
        self.where = executor.id if executor is not None else None

    def cancel(self) -> None:
        self.cancelled = True
        self.done.set()

    def end(self, error: str | None = None) -> None:
        self.error = error
        self.done.set()

    def found_on(self) -> str | None:
        return self.where


class Scene:
    """A supervisor, a controller without workers, and the executors."""

    def __init__(self, homes: tuple[Executor | None, ...], grows: bool) -> None:
        patient = RunConfig(checkpointing=ONLY_LAST, recovery=Recovery(start_s=1e9, silence_s=1e9, lease_s=1e9))
        spec = RunSpec("r", SITES, ("w0", "w0", "w1"), patient)
        self.driver = Driver(Controller(layout(), spec, START), SECRET, listen_for_workers("127.0.0.1"))
        self.launched: list[Held] = []
        self.machines: list[Machine] = []
        self.executors = [home for home in homes if home is not None]
        registered: Callable[[], list[Executor]] | None = (lambda: self.executors) if self.executors else None
        places = list(zip(SITES, homes, strict=True))
        self.supervisor = WorkerSupervisor(
            self.driver, self._launch, places, registered, self.machines.append if grows else None
        )
        self.now = START
        self.heard: list[str] = []
        self.driver.on_log(lambda line: self.heard.append(line.text))

    def _launch(self, name: str, executor: Executor | None) -> Job:
        self.launched.append(Held(name, executor))
        return self.launched[-1]

    def run(self) -> None:
        """Let both workers come, and tuples flow."""
        self.driver.start()
        self.supervisor.launch_all(self.now)
        for site in SITES:
            self.come(site.name)

        def flow(_: float) -> None:
            self.driver.controller.state.phase = "running"

        self.driver.ask(flow)
        self.tend()

    def come(self, name: str) -> None:
        """Let a worker register."""
        found = self.driver.ask(
            lambda now: self.driver.controller.register(worker_messages.Register(name, "h", 1, 2), now)
        )
        assert found is not None

    def go(self, name: str) -> None:
        """Let a worker be lost."""
        controller = self.driver.controller
        number = controller.members.by_name[name]
        self.driver.ask(lambda now: controller.members.lose(number, now))

    def tend(self, seconds: float = 0.0) -> list[str]:
        """Let time pass; return the names of what was launched."""
        before = len(self.launched)
        self.now += seconds
        self.supervisor.tick(self.now)
        return [job.name for job in self.launched[before:]]

    def last(self, name: str) -> Held:
        return [job for job in self.launched if job.name == name][-1]


@contextmanager
def scene(*homes: Executor | None, grows: bool = False) -> Iterator[Scene]:
    made = Scene(homes or (None, None), grows)
    made.run()
    try:
        yield made
    finally:
        made.driver.ask(made.driver.controller.stop)
        assert made.driver.ended.wait(PATIENCE)
        made.driver.end_log()


def test_launches_nothing_while_workers_are_alive() -> None:
    with scene() as one:
        assert [job.name for job in one.launched] == ["w0", "w1"]
        assert one.tend(1000.0) == []


def test_launches_a_job_again_at_once_and_then_after_growing_delays() -> None:
    with scene() as one:
        delays = []
        for _ in range(8):
            one.go("w0")
            one.last("w0").end()
            one.tend()
            delay = 0.0
            while one.tend(0.25) == []:
                delay += 0.25
            delays.append(delay)
        assert delays == [0.0, 0.25, 0.75, 1.75, 3.75, 7.75, 9.75, 9.75]
        one.come("w0")
        one.tend()
        one.tend(HEALTHY_S + 1)
        one.go("w0")
        one.last("w0").end()
        one.tend()
        assert one.tend() == ["w0"]


def test_launches_a_lost_worker_if_spark_does_not_replace_it() -> None:
    with scene() as one:
        one.go("w1")
        first = one.last("w1")
        assert one.tend(REGISTER_S - 1) == []
        one.come("w1")
        assert one.tend(1.0) == []
        one.go("w1")
        one.tend(REGISTER_S + 1)
        assert first.cancelled
        assert one.tend() == ["w1"]


def test_a_worker_has_twice_the_time_to_register_after_each_failed_launch() -> None:
    with scene() as one:
        one.go("w1")
        times = []
        for _ in range(6):
            launched, waited = one.last("w1"), 0.0
            while not launched.cancelled:
                one.tend(1.0)
                waited += 1.0
            times.append(waited)
            while one.last("w1") is launched:
                one.tend(0.25)
        assert times == [limit + 1.0 for limit in (10.0, 20.0, 40.0, 80.0, 80.0, 80.0)]


def test_a_worker_that_hangs_is_replaced_without_waiting() -> None:
    with scene() as one:
        controller = one.driver.controller
        one.driver.ask(lambda now: controller.drop(0, "it sent no heartbeat", now))
        wait_for(one.driver, lambda: one.driver.dropped)  # at the end of the controller's turn
        first = one.last("w0")
        one.tend()
        assert first.cancelled
        assert one.tend() == ["w0"]
        assert one.tend(1.0) == []


def test_an_excluded_site_gets_no_job() -> None:
    with scene() as one:
        member = one.driver.controller.members[0]
        one.go("w0")
        member.excluded_until = float("inf")
        one.last("w0").end()
        one.tend()
        assert one.tend(100.0) == []
        member.excluded_until = 0.0
        assert one.tend() == ["w0"]


def test_an_application_that_cannot_be_loaded_ends_the_run() -> None:
    error = f"{UNLOADABLE}: no module named 'x'"
    with scene() as one:
        one.go("w0")
        one.last("w0").end(error)
        one.tend()
        assert one.driver.controller.phase == "failed"
        assert one.driver.controller.error == f"worker 'w0': {error}"
        assert one.tend(100.0) == []


def test_logs_why_a_job_ended_and_launches_it_again() -> None:
    with scene() as one:
        one.go("w0")
        one.last("w0").end("the stage was cancelled")
        one.tend()
        assert one.tend() == ["w0"]
        one.driver.end_log()
        assert "the job of worker w0 has ended, the stage was cancelled" in one.heard


def test_places_a_worker_without_executor_on_a_free_core_of_the_same_host_first() -> None:
    with scene(A, B) as one:
        one.executors = [B, D, C]
        one.supervisor._alive |= {"2": C, "3": D}  # known, and spare
        one.go("w0")
        one.last("w0").end()
        one.tend(EXECUTORS_S)
        one.tend()
        assert one.last("w0").executor == C
        one.executors = [B]
        one.go("w0")
        one.last("w0").end()
        one.tend(EXECUTORS_S)
        one.tend(1.0)
        assert one.last("w0").executor == B
        one.go("w1")
        one.last("w1").end()
        one.executors = []
        one.tend(EXECUTORS_S)
        one.tend()
        assert one.last("w1").executor is None


def test_a_replaced_executor_gets_its_workers() -> None:
    with scene(A, B) as one:
        one.executors = [B]
        one.tend(EXECUTORS_S)
        first = one.last("w0")
        first.where = B.id  # Spark has started it there
        one.executors = [B, C]
        one.tend(EXECUTORS_S)
        wait_for(one.driver, lambda: not one.driver.controller.outbox.commands)  # Stop is sent
        one.go("w0")
        first.end()
        one.tend()
        one.tend()
        assert one.last("w0").executor == C
        assert one.machines == []


def test_relocates_a_worker_once_to_its_replaced_executor() -> None:
    with scene(A, B) as one:
        one.go("w0")
        first = one.last("w0")
        first.where = None  # Spark has not started it again yet
        one.executors = [B]
        one.tend(EXECUTORS_S)
        one.executors = [B, C]
        one.tend(EXECUTORS_S)
        first.where = A.id  # Spark reports it with a delay
        one.come("w0")
        one.tend()
        first.where = B.id
        one.tend()
        one.tend()
        one.go("w0")
        first.end()
        one.tend()
        one.tend()
        assert one.last("w0").executor == C
        one.driver.end_log()
        assert [text for text in one.heard if "leaves" in text] == ["worker w0 leaves executor 1 for 2"]


def test_an_additional_executor_gets_workers() -> None:
    with scene(A, B, grows=True) as one:
        one.executors = [A, B, D]
        assert one.tend(EXECUTORS_S) == ["three-3/0", "three-3/1"]
        assert [machine.name for machine in one.machines] == ["three-3"]
        reported = {member.site.capacity for member in one.driver.controller.members if "three" in member.site.name}
        assert reported == {(machine.cpu, machine.memory_mb) for machine in one.machines}
        assert one.driver.controller.members.slots["three-3/1"] == 3
    with scene(A, B) as other:
        other.executors = [A, B, D]
        other.tend(EXECUTORS_S)
        assert len(other.launched) == 2


def test_warns_of_a_worker_on_another_executor() -> None:
    with scene(A, B) as one:
        one.go("w0")
        one.last("w0").end()
        one.tend()
        one.tend()
        one.last("w0").where = B.id
        one.come("w0")
        one.tend()
        one.tend()
        one.driver.end_log()
        assert [text for text in one.heard if "runs on executor 1, not on 0 as planned" in text]
        assert len([text for text in one.heard if "as planned" in text]) == 1
