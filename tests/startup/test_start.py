"""Starting runs: what is refused, in one line and with nothing left behind, and where workers go."""

import json
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession

import penstock as ps
from penstock.model.cluster import machine_of
from penstock.model.errors import FileProblem, InvalidInput, PenstockError, UnknownMachine
from penstock.model.slotgraph import expand_slots
from penstock.pipeline.session import NoSpark, running_session
from penstock.planning.planner import NoPlacement
from penstock.runtime.spark.executors import Executor
from penstock.runtime.storage.run_folder import RunInfo, RunInUse, load
from penstock.startup.executor_discovery import discover, host_capacity, worker_places
from penstock.startup.prepared_run import StartCallbacks
from penstock.startup.resume import AlreadyCompleted
from tests.runtime.words import last_counts, sentence, split, truth, words
from tests.settings import arguments, changes

TRIO = ps.Cluster(name="trio", machines=tuple(ps.Machine(name=f"m{n}", slots=2) for n in range(3)))


def plan_for(flow: ps.Dataflow, cluster: ps.Cluster) -> ps.Plan:
    planner = ps.Planner(flow.application, cluster)
    return planner.plan(planner.decide("round-robin"))


@pytest.fixture
def taken() -> Iterator[int]:
    """Give a port that is taken."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def free_port() -> int:
    """Return a port that nobody has: below those that the system gives, so that nobody else gets it meanwhile."""
    for port in range(20_000, 30_000):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError("all ports are taken")


# What needs no Spark to be refused


def refused(kind: type[PenstockError], tmp_path: Path, flow: ps.Dataflow | None = None, **settings: Any) -> str:
    """Return the one line by which a start is refused; there must be nothing left of it."""
    before = running_session()
    with pytest.raises(kind) as error:
        ps.run(flow or words(rate=10), **arguments(**{"runs": tmp_path / "runs", **settings}))
    assert running_session() is before
    assert not list(tmp_path.glob("runs/*"))
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_policy_and_a_plan_are_one_too_many(tmp_path: Path) -> None:
    plan = plan_for(words(rate=10), TRIO)
    reported = refused(InvalidInput, tmp_path, emulate=TRIO, policy="heft", plan=plan)
    assert reported == "policy: expected a policy or a plan, got 'heft' and a plan; leave one out"


def test_a_plan_for_another_application_or_cluster_is_refused(tmp_path: Path) -> None:
    other = ps.dataflow("word-count")
    reported = refused(InvalidInput, tmp_path, emulate=TRIO, plan=plan_for(other, TRIO))
    assert reported == "application: the plan is for 'word-count', not for 'words'; plan again"
    duo = ps.Cluster(name="duo", machines=TRIO.machines[:2])
    reported = refused(InvalidInput, tmp_path, emulate=TRIO, plan=plan_for(words(rate=10), duo))
    assert reported == "cluster: the plan is for 'duo', not for 'trio'; plan again"


def test_a_run_is_noted_with_its_folder_before_spark_is_asked_and_is_none_where_that_fails(tmp_path: Path) -> None:
    found = []

    def note(info: RunInfo) -> None:
        found.append(load(info.path).application)
        raise PenstockError("the disk is full")

    assert refused(PenstockError, tmp_path, emulate=TRIO, callbacks=StartCallbacks(created=note)) == "the disk is full"
    assert found == ["words"]


def test_a_plan_with_an_unknown_slot_is_refused(tmp_path: Path) -> None:
    plan = plan_for(words(rate=10), TRIO)
    astray = msgspec.structs.replace(plan, tasks={**plan.tasks, "lines": ("m9/0",)})
    reported = refused(UnknownMachine, tmp_path, emulate=TRIO, plan=astray)
    assert reported == "tasks.lines[0]: cluster 'trio' has no slot 'm9/0'; slots are named machine/number"


def test_a_routing_for_all_streams_says_which_it_leaves_to_their_grouping(tmp_path: Path) -> None:
    plan, notes = plan_for(words(rate=10), TRIO), list[str]()
    astray = msgspec.structs.replace(plan, tasks={**plan.tasks, "lines": ("m9/0",)})
    refused(
        UnknownMachine,
        tmp_path,
        emulate=TRIO,
        plan=astray,
        routing="potus",
        callbacks=StartCallbacks(notify=notes.append),
    )
    assert notes == ["routing potus does not apply to: split->count (fields), count->out (fields)"]


def test_a_policy_that_finds_no_place_says_why(tmp_path: Path) -> None:
    flow = ps.Dataflow("heavy")
    flow.sink("out", ps.Discard(), flow.source("in", ps.Generated(abs, rate=1)), memory_mb=1e9)
    reported = refused(NoPlacement, tmp_path, flow, emulate=TRIO, policy="r-storm")
    assert reported.startswith("policy: r-storm finds no placement on 'trio': ")


def one_part(cost: float = 1.0, pinned: str | None = None) -> ps.Dataflow:
    flow = ps.Dataflow("one")
    flow.sink("out", ps.Discard(), flow.source("in", ps.Generated(abs, rate=1)), memory_mb=cost, pinned=pinned)
    return flow


@pytest.fixture
def no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a start fail that gets as far as Spark."""

    def opened(*_: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("penstock.startup.start.open_session", opened)


@pytest.mark.usefixtures("no_session")
def test_what_can_be_known_of_this_host_is_checked_before_spark_starts(tmp_path: Path) -> None:
    reported = refused(UnknownMachine, tmp_path, one_part(pinned="hall"))
    assert reported.startswith(
        "components[1].pinned: cluster 'embedded' has no 'hall'; there are local; this host is its"
    )
    reported = refused(NoPlacement, tmp_path, one_part(1e9), policy="r-storm")
    assert reported.startswith("policy: r-storm finds no placement on 'embedded': ")
    plan = plan_for(one_part(), discover((), True, 2))
    astray = msgspec.structs.replace(plan, tasks={**plan.tasks, "out": ("m9/0",)})
    reported = refused(UnknownMachine, tmp_path, one_part(), plan=astray)
    assert reported == "tasks.out[0]: cluster 'embedded' has no slot 'm9/0'; slots are named machine/number"


@pytest.mark.usefixtures("no_session")
def test_code_that_no_worker_could_receive_is_refused_before_spark_starts(tmp_path: Path) -> None:
    held = threading.Lock()
    flow = ps.Dataflow("held")
    numbers = flow.source("in", ps.Generated(abs, rate=1), emits=int)
    flow.sink("out", ps.Discard(), flow.map("map", lambda number: (held, number)[1], numbers, emits=int))
    reported = refused(InvalidInput, tmp_path, flow, emulate=TRIO)
    assert reported.startswith("application: cannot be sent to the executors, cannot pickle '_thread.lock' object")


@pytest.mark.parametrize("name", ["slots", "in_flight", "window"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True])
def test_counts_must_be_whole_numbers_from_one(tmp_path: Path, name: str, value: Any) -> None:
    reported = refused(InvalidInput, tmp_path, **{name: value})
    assert reported.partition(": ")[0].rpartition(".")[2] == name
    assert ": expected a whole number" in reported
    assert f", got {value!r}; " in reported


def test_a_source_that_could_not_run_is_named(tmp_path: Path) -> None:
    flow = ps.Dataflow("lines")
    flow.sink("out", ps.Discard(), flow.source("in", ps.Lines(tmp_path / "none.txt")))
    assert str(tmp_path / "none.txt") in refused(PenstockError, tmp_path, flow)


def test_folders_that_cannot_be_written_are_refused_before_anything_is_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    reported = refused(FileProblem, tmp_path, folder=str(tmp_path / "file" / "t"))
    assert reported == f"{tmp_path}/file/t: cannot be made, {tmp_path}/file is not a folder; choose another telemetry"
    reported = refused(FileProblem, tmp_path, runs=tmp_path / "file" / "r")
    assert reported == f"{tmp_path}/file/r: cannot be made, {tmp_path}/file is not a folder; choose another runs"


@pytest.mark.parametrize("listen", ["", ":7077", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:65536"])
def test_what_is_no_address_is_refused(tmp_path: Path, listen: str) -> None:
    reported = refused(InvalidInput, tmp_path, listen=listen)
    assert reported == f"execution.listen: expected HOST or HOST:PORT, got {listen!r}"


def test_a_port_that_is_taken_is_refused(tmp_path: Path, taken: int) -> None:
    reported = refused(InvalidInput, tmp_path, listen=f"127.0.0.1:{taken}")
    assert reported == f"listen: port {taken} on 127.0.0.1 is in use; choose another"


def test_an_address_of_another_machine_is_refused(tmp_path: Path) -> None:
    reported = refused(InvalidInput, tmp_path, listen="192.0.2.1")  # reserved for documents: nobody has it
    assert reported.startswith("listen: '192.0.2.1' is not an address of this machine, ")
    assert reported.endswith("; choose another")


def test_a_master_that_does_not_answer_is_refused(tmp_path: Path) -> None:
    port = free_port()
    reported = refused(NoSpark, tmp_path, master=f"spark://127.0.0.1:{port}")
    url = f"spark://127.0.0.1:{port}"
    assert reported == (
        f"master: '{url}' does not answer, no connection to 127.0.0.1:{port}; check the URL and that it runs"
    )


def test_a_guarantee_that_cannot_be_kept_is_refused(tmp_path: Path) -> None:
    flow = ps.Dataflow("lines")
    flow.sink("out", ps.JsonLines("output"), flow.source("in", ps.TcpLines("localhost", 9)))
    reported = refused(InvalidInput, tmp_path, flow, guarantee="exactly-once")
    assert reported.startswith("lines.in: expected a source that rewinds, for exactly-once; TcpLines cannot")
    reported = refused(InvalidInput, tmp_path, guarantee="at-most-twice")
    assert reported.startswith("checkpointing.guarantee: expected one of any, exactly-once, got 'at-most-twice'")


@pytest.mark.parametrize("value", [-1, 1e-9, 0.09, float("nan"), float("inf"), True, "5"])
def test_the_time_between_checkpoints_must_be_one(tmp_path: Path, value: Any) -> None:
    assert refused(InvalidInput, tmp_path, interval_s=value).startswith("checkpointing.interval_s: expected ")


@pytest.mark.parametrize("value", [-1, 1.5, True, "5"])
def test_the_restart_limit_must_be_a_number(tmp_path: Path, value: Any) -> None:
    reported = refused(InvalidInput, tmp_path, max_restarts=value)
    assert reported.startswith("recovery.max_restarts: expected a whole number")
    assert reported.endswith(f", got {value!r}; default: 10")
    reported = refused(InvalidInput, tmp_path, restart_window_s=-1.0)
    assert reported == "recovery.restart_window_s: expected a number > 0, got -1.0; default: 600 s"


# Where workers go


FOUR = [Executor("one", "0", 4), Executor("two", "1", 2), Executor("three", "2", 3)]


def test_executors_are_machines_with_one_core_kept_free() -> None:
    cluster = discover(FOUR, local=False)
    assert [(machine.name, machine.host, machine.slots) for machine in cluster.machines] == [
        ("one-0", "one", 3),
        ("two-1", "two", 1),
        ("three-2", "three", 2),
    ]
    found = worker_places(cluster, FOUR, emulated=False)
    assert [(site.name, site.slots, executor.id) for site, executor in found] == [
        ("one-0/0", ("one-0/0",), "0"),
        ("one-0/1", ("one-0/1",), "0"),
        ("one-0/2", ("one-0/2",), "0"),
        ("two-1/0", ("two-1/0",), "1"),
        ("three-2/0", ("three-2/0",), "2"),
        ("three-2/1", ("three-2/1",), "2"),
    ]


@pytest.mark.parametrize(("local", "slots"), [(False, None), (False, 4), (True, 3)])
def test_workers_tell_of_their_machine_what_policies_are_told_of_it(local: bool, slots: int | None) -> None:
    cluster = discover(FOUR, local=local, slots=slots)
    described = expand_slots(cluster)
    found = {machine_of(site.name): site.capacity for site, _ in worker_places(cluster, FOUR, emulated=False)}
    assert [found[machine.name] for machine in cluster.machines] == list(
        zip(described.machine_cpu.tolist(), described.machine_memory_mb.tolist(), strict=True)
    )
    assert found[cluster.machines[0].name] == (host_capacity() if local else (3.0, 1e6))


@pytest.mark.parametrize(
    ("slots", "expected"),
    [(1, {"0": 1}), (2, {"0": 1, "1": 1}), (4, {"0": 2, "1": 1, "2": 1}), (6, {"0": 3, "1": 1, "2": 2})],
)
def test_a_number_of_slots_is_dealt_to_the_executors_in_turn(slots: int, expected: dict[str, int]) -> None:
    found = worker_places(discover(FOUR, local=False, slots=slots), FOUR, emulated=False)
    ids = [executor.id for _, executor in found]
    assert {number: ids.count(number) for number in sorted(set(ids))} == expected


def test_emulated_machines_go_where_most_cores_are_free() -> None:
    cluster = ps.Cluster(name="six", machines=tuple(ps.Machine(name=f"m{n}", slots=2) for n in range(6)))
    found = worker_places(cluster, FOUR, emulated=True)
    assert found[0][0].slots == ("m0/0", "m0/1")
    ids = [executor.id for _, executor in found]
    assert {number: ids.count(number) for number in "012"} == {"0": 3, "1": 1, "2": 2}


# With sessions


@pytest.mark.spark
def test_a_run_starts_a_session_of_its_own_and_ends_it(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT)
    with ps.run(words(rate=100), config=changes(slots=2, listen="127.0.0.1"), runs=tmp_path) as run:
        assert signal.getsignal(signal.SIGINT) is before
        spark = running_session()
        assert spark is not None
        assert spark.conf.get("spark.local.dir") == str(run.folder / "spark" / "local")
        while not run.status().written:
            assert not run.wait(0.05)
    assert running_session() is None
    assert last_counts(run.folder) == truth(run.status().emitted)
    assert load(run.folder).ended is not None


@pytest.fixture(scope="module")
def foreign() -> Iterator[SparkSession]:
    """Give a session that is not ours, with settings of its own."""
    made = SparkSession.builder.master("local[3]").config("spark.ui.enabled", "false").appName("theirs").getOrCreate()
    yield made
    made.stop()


@pytest.mark.spark
def test_a_run_uses_the_session_that_is_there_and_leaves_it(foreign: SparkSession, tmp_path: Path) -> None:
    port = free_port()
    run = ps.run(words(count=100), config=changes(slots=2, listen=f"localhost:{port}"), runs=tmp_path)
    assert run._driver.address == ("127.0.0.1", port)
    assert run.wait(60)
    assert last_counts(run.folder) == truth(100)
    assert run.status().master == "local[3]"
    assert running_session() is foreign
    assert foreign.sparkContext.parallelize([1, 2]).sum() == 3


@pytest.mark.spark
def test_a_run_that_was_stopped_goes_on_with_what_it_was_started_with(foreign: SparkSession, tmp_path: Path) -> None:
    flow = words(rate=300)
    run = ps.run(flow, config=changes(slots=2, interval_s=0.2, sample_tps=0, in_flight=500), runs=tmp_path)
    while (latest := run.status().checkpoint) is None or latest.number < 3:  # by which tuples have gone all the way
        assert not run.wait(0.05)
    with pytest.raises(RunInUse, match="is being run by process"):
        ps.run(flow, resume=run.folder)
    run.stop()
    assert load(run.folder).ended is not None
    again = ps.run(flow, resume=run.folder, policy="random")
    again.drain()
    counts = last_counts(run.folder)
    assert counts
    assert counts == truth(sum(counts.values()) // 5)
    info = load(run.folder)
    assert (info.resumed, info.policy, again.status().policy) == (1, "random", "random")
    assert run.info.config is not None
    assert info.config == run.info.config.changed(changes(policy="random"))
    with pytest.raises(AlreadyCompleted, match="there is nothing to resume"):
        ps.run(flow, resume=run.folder)


@pytest.mark.spark
def test_a_run_is_resumed_with_other_numbers_of_tasks(foreign: SparkSession, tmp_path: Path) -> None:
    flow = ps.Dataflow("words")
    lines = flow.source("lines", ps.Generated(sentence, rate=400, count=5000))
    word = flow.flat_map("split", split, lines, parallelism=2)
    counts = flow.stateful_map("count", lambda n, word: (n + 1, (word, n + 1)), word.fields(), initial=0)
    flow.sink("out", ps.JsonLines("output/counts"), counts)
    run = ps.run(flow, config=changes(slots=2, interval_s=0.2, sample_tps=0), runs=tmp_path)
    for counted in ({"count": 3, "split": 1, "out": 2}, {"count": 2, "lines": 2}):
        first = 0 if (latest := run.status().checkpoint) is None else latest.number
        while (latest := run.status().checkpoint) is None or latest.number < first + 3:
            assert not run.wait(0.05)
        run.stop()
        run = ps.run(flow, resume=run.folder, config={"execution": {"parallelism": counted}})
    assert run.wait(60)
    status = run.status()
    assert {row.name: row.tasks for row in status.components} == {"lines": 2, "split": 1, "count": 2, "out": 2}
    found: dict[str, list[int]] = {}
    for file in (run.folder / "output/counts").glob("part-*"):
        for name, count in map(json.loads, file.read_text().splitlines()):
            found.setdefault(name, []).append(count)
    assert all(sorted(counts) == list(range(1, len(counts) + 1)) for counts in found.values())
    assert {name: len(counts) for name, counts in found.items()} == truth(5000)


@pytest.mark.spark
def test_workers_call_back_where_a_wildcard_listens(foreign: SparkSession, tmp_path: Path) -> None:
    run = ps.run(words(count=10), config=changes(slots=1, listen="0.0.0.0"), runs=tmp_path)
    assert run.wait(60)
    assert last_counts(run.folder) == truth(10)


@pytest.mark.spark
def test_too_few_cores_are_refused_with_both_numbers(foreign: SparkSession, tmp_path: Path) -> None:
    reported = refused(NoSpark, tmp_path, emulate=TRIO)
    assert reported.startswith("master: 'local[3]' offers 3 cores, the plan needs 4: 3 workers and one kept free")
    reported = refused(NoSpark, tmp_path, slots=5)
    assert "the plan needs 6: 5 workers" in reported


@pytest.mark.spark
def test_another_master_than_that_of_the_session_is_refused(foreign: SparkSession, tmp_path: Path) -> None:
    reported = refused(NoSpark, tmp_path, master="local[9]")
    assert reported == "master: a session on 'local[3]' is running; stop it to use 'local[9]'"


@pytest.mark.spark
def test_a_plan_for_another_cluster_than_is_found_is_refused(foreign: SparkSession, tmp_path: Path) -> None:
    reported = refused(InvalidInput, tmp_path, slots=2, plan=plan_for(words(rate=10), TRIO))
    assert reported == "cluster: the plan is for 'trio', not for 'embedded'; plan again"
