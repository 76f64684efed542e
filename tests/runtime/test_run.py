"""Real runs on embedded Spark: real processes and sockets, one session for all of them."""

import json
import logging
import os
import random
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Thread
from time import monotonic, sleep
from typing import Any

import pytest
from pyspark.sql import SparkSession

import penstock as ps
from penstock.model.errors import InvalidInput, UnknownName
from penstock.model.tuples import TuplePolicies
from penstock.pipeline.ingest import read_telemetry
from penstock.pipeline.session import session
from penstock.runtime import control_socket as control
from penstock.runtime.controller.operations import CannotMove
from penstock.runtime.controller.state_machine import RunFailed
from penstock.runtime.handle import LogLine
from penstock.runtime.run import Run
from penstock.runtime.spark.executors import embedded_master, spark_settings
from penstock.runtime.storage.run_folder import alive, load
from tests.runtime.words import Count, InOrder, last_counts, truth, words
from tests.settings import arguments, changes

pytestmark = pytest.mark.spark

TRIO = ps.Cluster(
    name="trio",
    machines=tuple(ps.Machine(name=f"m{n}", cores=2, slots=2, speed=1.0 + n) for n in range(3)),
)


@pytest.fixture(scope="module", autouse=True)
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("session")
    with session("tests", embedded_master(4), settings=spark_settings(4, True), folder=folder) as made:
        yield made


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    """Start runs, and see that they have ended."""
    started: list[Run] = []

    def start(flow: ps.Dataflow, **settings: Any) -> Run:
        run = ps.run(flow, runs=tmp_path / "runs", **arguments(**settings))
        started.append(run)
        return run

    yield start
    for run in started:
        run.stop()


def wait_until(true: Callable[[], object]) -> None:
    deadline = monotonic() + 60
    while not true():
        assert monotonic() < deadline
        sleep(0.02)


def rows(folder: Path) -> list[tuple[str, int]]:
    """Return what the JSON sinks of a run wrote, sorted."""
    files = sorted((folder / "output").rglob("*.jsonl"))
    assert not [path for path in (folder / "output").rglob("_*") if path.is_file()]
    return sorted((word, count) for path in files for word, count in map(json.loads, path.read_text().splitlines()))


# What comes out


@pytest.mark.parametrize("place", [{"slots": 1}, {"slots": 3}, {"emulate": TRIO}], ids=["one", "three", "emulated"])
def test_a_source_that_ends_ends_the_run_and_the_output_is_the_truth(
    start: Callable[..., Run], place: dict[str, Any]
) -> None:
    run = start(words(count=600, sink=ps.JsonLines("output/counts")), **place)
    assert run.wait(30)
    status = run.status()
    assert (status.phase, status.error, status.emitted, status.written) == ("stopped", "", 600, 3000)
    assert rows(run.folder) == sorted((word, n) for word, most in truth(600).items() for n in range(1, most + 1))
    assert load(run.folder).ended is not None
    assert not run.folder.joinpath("spark").exists()  # the session was not its own


def test_counts_are_the_truth_and_in_order_over_a_thousand_moves_under_load(start: Callable[..., Run]) -> None:
    run = start(words(rate=1000), slots=3)
    placement, slots = dict(run.status().placement), run.cluster.slot_names
    rng = random.Random(7)
    for _ in range(1000):
        task = rng.choice(sorted(placement))
        slot = rng.choice([slot for slot in slots if slot != placement[task]])
        moved = run.move(task, slot)
        assert (moved.task, moved.before, moved.after) == (task, placement[task], slot)
        placement[task] = slot
    assert run.status().placement == placement
    wait_until(lambda: run.status().emitted > 500)
    run.drain()
    status = run.status()
    assert (status.phase, status.error) == ("stopped", "")
    assert status.written == 5 * status.emitted
    assert last_counts(run.folder) == truth(status.emitted)


def test_moves_keep_a_saturated_run_with_little_credit_in_order(start: Callable[..., Run]) -> None:
    run = start(words(), slots=3, window=16, in_flight=40)
    placement, slots = dict(run.status().placement), run.cluster.slot_names
    rng = random.Random(8)
    for _ in range(100):
        run.move(rng.choice(sorted(placement)), rng.choice(slots))
    run.drain()
    status = run.status()
    assert (status.phase, status.error) == ("stopped", "")
    assert last_counts(run.folder) == truth(status.emitted)


def test_moves_between_emulated_machines_keep_counts_and_order(start: Callable[..., Run]) -> None:
    run = start(words(rate=300), emulate=TRIO, policy="round-robin")
    tasks, slots = sorted(run.status().placement), run.cluster.slot_names
    rng = random.Random(9)
    for _ in range(100):
        run.move(rng.choice(tasks), rng.choice(slots))
    run.drain()
    assert run.status().error == ""
    assert last_counts(run.folder) == truth(run.status().emitted)


def test_applying_a_plan_moves_what_differs_and_only_that(start: Callable[..., Run]) -> None:
    planner = ps.Planner(words(rate=200).application, TRIO)
    one, other = (planner.plan(planner.decide(name)) for name in ("round-robin", "r-storm"))
    run = start(words(rate=200), emulate=TRIO, plan=one)
    wanted = {move.task: move.after for move in ps.moves(one, other)}
    assert wanted
    assert {outcome.task: outcome.after for outcome in run.apply(other)} == wanted
    assert run.apply(other) == []
    assert run.status().policy == other.policy
    run.drain()
    assert last_counts(run.folder) == truth(run.status().emitted)


@pytest.mark.parametrize("place", [{"slots": 3}, {"emulate": TRIO}], ids=["three", "emulated"])
def test_tuple_policies_are_switched_under_load_and_counts_are_the_truth(
    start: Callable[..., Run], place: dict[str, Any]
) -> None:
    run = start(words(rate=200), routing="round-robin", sending="random", slot_ms=2.0, **place)
    for routing, sending in (("potus", "none"), ("potus-plus:v=1", "longest-backlog-first:tau=5"), ("none", "none")):
        sleep(0.4)
        run.switch(routing=routing, sending=sending)
    assert run.status().tuples == TuplePolicies(slot_ms=2.0)
    run.drain()
    assert run.status().error == ""
    assert last_counts(run.folder) == truth(run.status().emitted)


# How it ends


def test_draining_loses_nothing_and_leaves_the_session(start: Callable[..., Run], spark: SparkSession) -> None:
    with start(words(rate=2000), slots=3) as run:
        wait_until(lambda: run.status().written > 200)
    status = run.status()
    assert status.phase == "stopped"
    assert last_counts(run.folder) == truth(status.emitted)
    assert spark.sparkContext.parallelize(range(10)).count() == 10


def test_stop_ends_at_once(start: Callable[..., Run]) -> None:
    run = start(words(), slots=3)
    run.stop()
    assert run.status().phase == "stopped"
    assert run.wait(0)
    assert load(run.folder).ended is not None
    with pytest.raises(CannotMove, match=r"move split\[0\] to local/0: the application is stopped"):
        run.move("split[0]", "local/0")


def test_a_block_that_raises_stops_the_run_and_keeps_its_error(start: Callable[..., Run]) -> None:
    with pytest.raises(ZeroDivisionError), start(words(rate=10), slots=1) as run:
        _ = 1 / 0
    assert run.status().phase == "stopped"


def test_answers_requests_on_the_socket_when_the_run_has_ended(
    start: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "CLOSE_SECONDS", 3600.0)  # a socket that waits for its own answer never ends
    run = start(words(rate=100), slots=2)
    info = load(run.folder)
    assert control.ask(info, control.GetStatus()).phase == "running"
    before = run.status().placement["count[0]"]
    after = "local/1" if before == "local/0" else "local/0"
    (moved,) = control.ask(info, control.MoveTask("count[0]", after))
    assert (moved.before, moved.after) == (before, after)
    assert control.ask(info, control.DrainRun(), timeout=60) == control.Acknowledgement()
    assert run.wait(30)
    assert not Path(info.socket).exists()
    assert last_counts(run.folder) == truth(run.status().emitted)


def test_rejects_unknown_tasks_and_slots_without_effect(start: Callable[..., Run]) -> None:
    run = start(words(rate=10), slots=2)
    before = run.status().placement
    with pytest.raises(UnknownName, match="slot: this run has no slot 'local/9'; did you mean local/"):
        run.move("count[0]", "local/9")
    with pytest.raises(UnknownName, match=r"task: no task is named 'cuont\[0\]'; did you mean count"):
        run.move("cuont[0]", "local/1")
    assert run.status().placement == before


EMITTED = WRITTEN = 0
MOST = 12


class Counting(ps.Generated[int]):
    """Counts what it gives, in the process that it shares with the sink."""

    def poll(self, now: float, limit: int) -> Any:
        global EMITTED
        given = super().poll(now, limit)
        EMITTED += len(given or ())
        return given


class Limit(ps.Sink[int]):
    """Raises if more tuples are in flight than the limit."""

    def write(self, values: Sequence[int]) -> None:
        global WRITTEN
        if EMITTED - WRITTEN > MOST:
            raise InvalidInput("in_flight", f"{EMITTED - WRITTEN} tuples are in flight")
        WRITTEN += len(values)


def same(value: int) -> int:
    return value


def test_no_more_are_in_flight_than_the_limit(start: Callable[..., Run]) -> None:
    flow = ps.Dataflow("limited")
    flow.sink("out", Limit(), flow.map("same", same, flow.source("in", Counting(same, count=3000))))
    run = start(flow, slots=1, in_flight=MOST)
    assert run.wait(30)
    assert (run.status().error, run.status().written) == ("", 3000)


# What is heard of it


class Talking(Count):
    """A count that says what it does."""

    def open(self, context: ps.TaskContext) -> None:
        print("opened", context.name)

    def process(self, value: str) -> list[tuple[str, int]]:
        if value == "w1":
            logging.getLogger("mine").warning("w1 came")
            print("half a line", end="")
        return super().process(value)

    def close(self) -> None:
        print(" and its end")


def test_what_operators_log_and_print_arrives_with_component_and_task(start: Callable[..., Run]) -> None:
    heard: list[LogLine] = []
    run = start(words(rate=100, operator=Talking), slots=2)
    run.on_log(heard.append)
    wait_until(lambda: [line for line in heard if line.level == "warning"])
    run.drain()
    log = (run.folder / "run.log").read_text()
    assert "info    count[0]: opened count[0]\n" in log
    assert "info    count[1]: opened count[1]\n" in log
    (owner,) = {(line.component, line.task) for line in heard if line.text == "w1 came"}
    assert owner in [("count", 0), ("count", 1)]
    assert f"warning count[{owner[1]}]: w1 came\n" in log
    assert any(line.text.endswith("half a line and its end") for line in heard)


def test_a_listener_that_raises_is_dropped_and_the_run_continues(start: Callable[..., Run]) -> None:
    heard: list[LogLine] = []

    def raises(line: LogLine) -> None:
        raise ValueError("not today")

    run = start(words(rate=100, operator=Talking), slots=2)
    run.on_log(raises)
    run.on_log(heard.append)
    wait_until(lambda: any("not today" in line.text for line in heard))
    run.drain()
    assert run.status().error == ""


class Fussy(Count):
    """A count that accepts a limited number of w3."""

    def process(self, value: str) -> list[tuple[str, int]]:
        if value == "w3" and self.counts.get(value) == 20:
            raise ValueError("three\nis too many")
        return super().process(value)


def test_an_operator_that_raises_ends_the_run_with_component_task_and_tuple(
    start: Callable[..., Run], spark: SparkSession
) -> None:
    with pytest.raises(RunFailed) as failed, start(words(rate=200, operator=Fussy), slots=3) as run:
        assert run.wait(30)
    error = str(failed.value)
    assert error in [f"count[{n}]: ValueError: three is too many on tuple 'w3'" for n in (0, 1)]
    assert run.status().phase == "failed"
    assert run.status().error == error
    log = (run.folder / "run.log").read_text()
    assert "Traceback (most recent call last)" in log
    assert 'raise ValueError("three\\nis too many")' in log
    assert load(run.folder).ended is not None
    assert spark.sparkContext.parallelize(range(10)).count() == 10


class NoOpening(Count):
    """A count that never opens."""

    def open(self, context: ps.TaskContext) -> None:
        raise OSError(2, "no such valve", "/valve")


def test_the_start_raises_if_an_operator_cannot_open(tmp_path: Path) -> None:
    with pytest.raises(
        RunFailed, match=r"^count\[[01]\]: FileNotFoundError: \[Errno 2\] no such valve: '/valve' in open$"
    ):
        ps.run(words(rate=10, operator=NoOpening), config=changes(slots=2), runs=tmp_path)
    (folder,) = tmp_path.iterdir()
    assert load(folder).ended is not None
    assert "Traceback" in (folder / "run.log").read_text()


def test_the_start_raises_if_the_application_cannot_be_serialized(tmp_path: Path) -> None:
    lock = Thread()  # holds locks, which nobody can pickle
    flow = ps.Dataflow("stuck")
    flow.sink("out", ps.Discard(), flow.map("map", lambda value: (lock, value), flow.source("in", ps.Generated(same))))
    with pytest.raises(InvalidInput, match="application: cannot be sent to the executors"):
        ps.run(flow, config=changes(slots=1), runs=tmp_path)
    assert not any(tmp_path.iterdir())


def test_a_killed_worker_is_replaced_and_the_counts_are_the_truth(start: Callable[..., Run]) -> None:
    heard: list[LogLine] = []
    run = start(words(rate=500), slots=3, interval_s=0)  # none before the last: it starts from the beginning
    run.on_log(heard.append)
    killed = run._driver.controller.members[1]
    before, pid = killed.incarnation, killed.pid
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: killed.incarnation > before and run.status().phase == "running")
    written = run.status().written
    wait_until(lambda: run.status().written > written)
    run.drain()
    assert (run.status().phase, run.status().error) == ("stopped", "")
    wait_until(lambda: not alive(pid))
    assert any("going back to the beginning" in line.text for line in heard)
    counts = last_counts(run.folder)
    assert counts
    assert counts == truth(sum(counts.values()) // 5)  # sentences that came again after the failure count once


# Telemetry


def test_without_telemetry_none_is_written(start: Callable[..., Run]) -> None:
    run = start(words(count=100), slots=2, enabled=False)
    assert run.wait(30)
    assert last_counts(run.folder) == truth(100)
    assert list((run.folder / "telemetry").iterdir()) == []


def test_the_pipeline_reads_the_telemetry_of_a_run(
    start: Callable[..., Run], spark: SparkSession, tmp_path: Path
) -> None:
    run = start(words(count=300), slots=3, folder=str(tmp_path / "telemetry"), sample_tps=-1)
    run.mark("note", "seen")
    assert run.wait(30)
    good, quarantined = read_telemetry(spark, tmp_path / "telemetry")
    assert quarantined.count() == 0
    found = good.select("kind", "event", "root").orderBy("at").collect()
    counts = Counter(row["kind"] for row in found)
    assert counts["root"] == counts["done"] == 300
    assert counts["hop"] == 300 + 2 * 1500  # a sentence, then each word twice
    assert counts["clock"] >= 3
    assert counts["task"] >= 7
    assert counts["machine"] >= 3
    assert len({row["root"] for row in found if row["kind"] == "root"}) == 300
    events = [row["event"] for row in found if row["kind"] == "event"]
    assert events[:3] == ["registered"] * 3
    assert {"start", "stop"} <= set(events)
    assert not [path for path in (tmp_path / "telemetry").iterdir() if path.name.startswith("_")]


def test_a_run_warns_of_a_missing_telemetry_folder_and_continues(start: Callable[..., Run], tmp_path: Path) -> None:
    heard: list[LogLine] = []
    run = start(words(rate=200), slots=2, folder=str(tmp_path / "telemetry"))
    run.on_log(heard.append)
    (tmp_path / "telemetry").rename(tmp_path / "gone")  # at once, whatever is being written there
    wait_until(lambda: {"local/0", "local/1", "controller"} <= {line.worker for line in heard})
    run.drain()
    assert all(line.text.startswith("telemetry: records are lost") and line.level == "warning" for line in heard)
    assert len(heard) == 3
    assert last_counts(run.folder) == truth(run.status().emitted)


def test_a_run_can_be_started_from_another_thread_than_the_session(start: Callable[..., Run]) -> None:
    made: list[Run] = []
    thread = Thread(target=lambda: made.append(start(words(count=50), slots=2)))
    thread.start()
    thread.join(60)
    assert made[0].wait(30)
    assert last_counts(made[0].folder) == truth(50)


def test_two_runs_share_a_session(start: Callable[..., Run]) -> None:
    one, other = start(words(rate=300), slots=2), start(words(rate=300), slots=2)
    assert one.folder != other.folder
    one.move("count[0]", "local/1")
    for run in (one, other):
        run.drain()
        assert last_counts(run.folder) == truth(run.status().emitted)


def test_in_order_refuses_a_count_that_was_skipped(tmp_path: Path) -> None:
    """The sink that these tests rely on sees what it is there to see."""
    sink = InOrder()
    sink.write([("a", 1), ("b", 1), ("a", 2)])
    with pytest.raises(InvalidInput, match="expected 3 after 2, got 4"):
        sink.write([("a", 4)])


# Overload


def test_a_slow_operator_at_three_times_its_capacity_is_checkpointed_and_moved(start: Callable[..., Run]) -> None:
    flow = ps.Dataflow("overload")
    numbers = flow.source("in", ps.Generated(lambda i: i, rate=300), emits=int)
    slow = flow.map("slow", _take_10_ms, numbers, emits=int)
    flow.sink("out", ps.Discard(), slow)
    run = start(flow, slots=3, interval_s=1.0)
    wait_until(lambda: (latest := run.status().checkpoint) is not None and latest.number >= 3)
    status = run.status()
    target = next(slot for slot in ("local/0", "local/1", "local/2") if status.placement["slow[0]"] != slot)
    assert run.move("slow[0]", target).after == target
    last = run.status().checkpoint
    assert last is not None
    wait_until(lambda: (latest := run.status().checkpoint) is not None and latest.number >= last.number + 2)
    status = run.status()
    assert (status.recoveries, status.warnings) == (0, [])
    assert {one.name: one.rate_tps for one in status.components}["slow"] > 0.0


def _take_10_ms(number: int) -> int:
    sleep(0.01)
    return number
