"""Applications on the runtime without I/O: where tasks run, and what runs them, changes nothing of what comes out."""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import pytest

from penstock.api.contracts import Operator, Sink, Source, TaskContext, Timed
from penstock.api.dataflow import Dataflow
from penstock.api.sources.generated import Generated
from penstock.model.telemetry import RecordKind
from penstock.runtime.worker import output as channels
from penstock.runtime.worker.input import Delivery
from penstock.runtime.worker.output import FULL
from penstock.runtime.worker.task import Task
from penstock.testing import ApplicationFailed, Captured, TestCluster, run, tiny_cluster
from tests.runtime import flows


def outputs(cluster: TestCluster) -> dict[str, Counter[str]]:
    result = cluster.start().finish()
    flows.check_telemetry(result)
    assert len(cluster.controller.progress.trees) == 0
    return {sink: Counter(map(repr, values)) for sink, values in result.outputs.items()}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
def test_output_equals_that_of_a_plain_evaluation_under_any_placement(seed: int) -> None:
    rng = random.Random(seed)
    nodes = flows.draw(seed)
    flow, expected = flows.build(nodes), flows.evaluate(nodes)
    tasks = sum(node.parallelism for node in nodes)
    options: dict[str, Any] = {
        "seed": seed,
        "window": rng.choice([1, 2, 5, 64]),
        "in_flight": rng.choice([0, 0, 1, 3, 40]),
    }
    assert outputs(TestCluster(flow, workers=1, **options)) == expected
    assert outputs(TestCluster(flow, workers=tasks, **options)) == expected
    emulated = tiny_cluster(rng.randint(1, 3), rng.randint(1, 3))
    assert outputs(TestCluster(flow, emulate=emulated, **options)) == expected


def tasks_of(cluster: TestCluster) -> list[Task]:
    return [task for worker in cluster.workers for task in worker.tasks.values()]


def wide(count: int, cpu: float) -> Dataflow:
    """Return a source, three words for each of its tuples, and a sink that takes so long for each."""
    flow = Dataflow("wide")
    numbers = flow.source("numbers", flows.Given(range(count), most=50), emits=int, parallelism=2)
    thrice = flow.flat_map("thrice", lambda number: [number] * 3, numbers, emits=int, parallelism=2)
    flow.sink("out", Captured([]), thrice.fields(), parallelism=2, cpu=cpu)
    return flow


class Watched(TestCluster):
    """A cluster that is looked at after every step."""

    def __init__(self, look: Callable[[list[Task]], None], flow: Dataflow, **options: Any) -> None:
        super().__init__(flow, **options)
        self.look = look

    def step(self) -> bool:
        done = super().step()
        self.look(tasks_of(self))
        return done


def check_bounds(found: list[Task], window: int, most: int) -> None:
    for task in found:
        assert task.inbox.queued <= window * len(task.inbox.channels)
        assert task.inbox.queued == sum(len(item) for item in task.inbox.waiting if isinstance(item, Delivery))
        for queue in task.queues:
            assert queue.backlog <= most
            assert all(0 <= lane.credits <= window for lane in queue.lanes)


def test_a_slow_sink_blocks_everything_upstream_and_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "FULL", 100)
    look = partial(check_bounds, window=16, most=100 + 2)
    cluster = Watched(look, wide(30_000, cpu=0.01), emulate=tiny_cluster(3), window=16, sample_tps=1.0)
    cluster.start().advance(2.0)
    sources = [task for task in tasks_of(cluster) if task.is_source]
    assert all(task.full() for task in sources)
    records = flows.of_kind(cluster.records, RecordKind.TASK)
    assert sum(record.blocked or 0.0 for record in records if record.task == "numbers[0]") > 1.0
    result = cluster.drain()
    assert 100 < result.status.emitted < 30_000
    assert Counter(Counter(result["out"]).values()) == {3: result.status.emitted}


@pytest.mark.slow
def test_queues_stay_within_their_windows_if_workers_run_unevenly() -> None:
    for seed in range(4):
        look = partial(check_bounds, window=8, most=FULL + 150)
        cluster = Watched(look, wide(3_000, cpu=0.0), workers=4, window=8, seed=seed, sample_tps=0.0)
        assert len(cluster.start().finish()["out"]) == 9_000


@pytest.mark.slow
@pytest.mark.parametrize("limit", [1, 5, 100])
@pytest.mark.parametrize("options", [{"workers": 3}, {"emulate": tiny_cluster(2, 2)}])
def test_no_source_task_has_more_in_flight_than_it_may(limit: int, options: dict[str, Any]) -> None:
    most = 0

    def look(found: list[Task]) -> None:
        nonlocal most
        done = Counter(number % 2 for number in cluster.outputs["out"])
        for task in found:
            if task.is_source:
                most = max(most, task.counted - done[task.context.task])
                assert most <= limit

    flow = Dataflow("limited")
    numbers = flow.source("numbers", flows.Given(range(400)), emits=int, parallelism=2, cpu=1e-4)
    same = flow.map("same", int, numbers.forward(), parallelism=2, cpu=3e-4)
    flow.sink("out", Captured([]), same, parallelism=2, cpu=1e-4)
    cluster = Watched(look, flow, in_flight=limit, **options)
    result = cluster.start().finish()
    assert most >= min(limit, 5)
    assert sorted(result["out"]) == list(range(400))
    assert result.status.in_flight == 0


@pytest.mark.slow
def test_a_sampling_rate_traces_about_that_many_tuples_per_second() -> None:
    flow = Dataflow("paced")
    numbers = flow.source("numbers", Generated(int, rate=2_000.0))
    flow.sink("out", Captured([]), numbers)
    cluster = TestCluster(flow, sample_tps=20.0).start()
    cluster.advance(10.0)
    result = cluster.drain()
    flows.check_telemetry(result)
    assert len(flows.of_kind(result.records, RecordKind.ROOT)) == pytest.approx(200, rel=0.2)
    assert len(result["out"]) == pytest.approx(20_000, rel=0.01)
    assert result.status.latency is not None
    assert result.status.latency.worst_ms >= 0.0


class Last(Operator[int, str]):
    def open(self, context: TaskContext) -> None:
        self.total = 0

    def process(self, value: int) -> Iterable[str]:
        self.total += value
        return (f"+{value}",)

    def finish(self) -> Iterable[str]:
        yield f"={self.total}"


@pytest.mark.parametrize("options", [{"workers": 1}, {"workers": 3}, {"emulate": tiny_cluster(2)}])
def test_the_last_tuples_follow_all_others_and_precede_the_end(options: dict[str, Any]) -> None:
    flow = Dataflow("last")
    numbers = flow.source("numbers", flows.Given(range(100)), emits=int)
    summed = flow.operator("sum", Last, numbers)
    again = flow.map("again", str, summed)
    flow.sink("out", Captured([]), again)
    taken = run(flow, window=4, **options)["out"]
    assert taken == [f"+{number}" for number in range(100)] + ["=4950"]


@pytest.mark.parametrize("options", [{"workers": 3, "window": 2}, {"emulate": tiny_cluster(3)}])
def test_a_drain_loses_nothing_that_is_in_flight(options: dict[str, Any]) -> None:
    for seed in range(5):
        cluster = TestCluster(flows.word_count(3_000, most=3), seed=seed, **options).start()
        for _ in range(50 * seed + 20):
            cluster.step()
        result = cluster.drain()
        assert 0 < result.status.emitted < 3_000
        assert result.status.written == 3 * result.status.emitted


def failing(operator: Any, *, emits: Any = None, direct: bool = False, outputs: Sequence[str] = ()) -> Dataflow:
    flow = Dataflow("failing")
    numbers = flow.source("numbers", flows.Given(range(50)), emits=int)
    odd = flow.operator("odd", operator, numbers, emits=emits, outputs=outputs, parallelism=2)
    outlet = odd["a"] if outputs else odd
    flow.sink("out", Captured([]), outlet.direct() if direct else outlet.to_first())
    return flow


class Emits(Operator[int, Any]):
    """Gives one thing for the number 17, and nothing else."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def process(self, value: int) -> Iterable[Any]:
        if value == 17:
            if isinstance(self.value, Exception):
                raise self.value
            return (self.value,)
        return ()


EMITTED: dict[str, tuple[Any, dict[str, Any], str]] = {
    "raises": (KeyError("lost"), {}, r"odd\[[01]\]: KeyError: 'lost' on tuple 17\n"),
    "too large": (
        2**70,
        {},
        r"odd\[[01]\]: odd->out: tuple 1180591620717411303424 cannot be sent, can't serialize ints",
    ),
    "an object": (object, {}, r"odd\[[01]\]: odd->out: tuple <class 'object'> cannot be sent"),
    "not as declared": ("x", {"emits": int}, r"out\[0\]: odd->out.emits: tuple 'x' is not of the declared type"),
    "no such output": (
        ("c", 1),
        {"outputs": ("a", "b")},
        r"odd\[[01]\]: .*no output 'c', got \('c', 1\); there are a, b",
    ),
    "no output": (5, {"outputs": ("a", "b")}, r"odd\[[01]\]: .*expected pairs \(output, value\), got 5"),
    "no such task": ((4, 1), {"direct": True}, r"odd\[[01]\]: direct: there is no task 4 to send to"),
    "no pair": (4, {"direct": True}, r"odd\[[01]\]: direct: expected a pair \(task, value\)"),
}


@pytest.mark.parametrize("case", EMITTED)
def test_an_operators_error_ends_the_run_and_names_it(case: str) -> None:
    value, options, expected = EMITTED[case]
    cluster = TestCluster(failing(lambda: Emits(value), **options), workers=4).start()
    with pytest.raises(ApplicationFailed, match=expected) as raised:
        cluster.finish()
    assert "Traceback" in str(raised.value)
    status = cluster.controller.status(cluster.clock())
    assert status.phase == "failed"
    assert "\n" not in status.error
    cluster.settle()
    assert all(worker.phase in ("stopped", "failed") and not worker.tasks for worker in cluster.workers)


def test_an_error_shows_where_the_authors_code_raised() -> None:
    with pytest.raises(ApplicationFailed, match=r"raise self\.value"):
        run(failing(lambda: Emits(KeyError("lost"))))


class Mistaken(Source[int]):
    """Emits given values once, and returns when it is due again."""

    def __init__(self, given: Any, due: Any = 0.0) -> None:
        self.given, self.due = given, due

    def poll(self, now: float, limit: int) -> Any:
        return self.given

    def next_due(self, now: float) -> Any:
        return self.due


INVALID_SOURCES: dict[str, tuple[Any, str]] = {
    "no next due": (Mistaken([], None), r"odd\[0\]: next_due: expected a time in seconds, got None"),
    "not a number": (Mistaken([], float("nan")), r"odd\[0\]: next_due: expected a time in seconds, got nan"),
    "a text": (Mistaken([], "soon"), r"odd\[0\]: next_due: expected a time in seconds, got 'soon'"),
    "too few dues": (Mistaken(Timed([1, 2], [1.0])), r"odd\[0\]: poll: expected a due for each of 2 values, got 1"),
    "a due of none": (Mistaken(Timed([1], [None])), r"odd\[0\]: poll: expected times in seconds as dues, got \[None\]"),  # type: ignore[list-item]
    "a due of nan": (Mistaken(Timed([1], [float("nan")])), r"odd\[0\]: poll: expected times in seconds as dues"),
}


@pytest.mark.parametrize("options", [{"workers": 2}, {"emulate": tiny_cluster(2)}])
@pytest.mark.parametrize("case", INVALID_SOURCES)
def test_a_sources_error_ends_the_run_and_names_it(case: str, options: dict[str, Any]) -> None:
    source, expected = INVALID_SOURCES[case]
    flow = Dataflow("mistaken")
    flow.sink("out", Captured([]), flow.source("odd", source, emits=int))
    cluster = TestCluster(flow, **options).start()
    with pytest.raises(ApplicationFailed, match=expected):
        cluster.finish()
    assert "\n" not in cluster.controller.error


class Untimely(Operator[int, int]):
    def __init__(self, when: Any) -> None:
        self.when = when

    def open(self, context: TaskContext) -> None:
        self.context = context

    def process(self, value: int) -> None:
        self.context.at(self.when)


@pytest.mark.parametrize("when", ["x", None, float("nan")])
def test_a_timer_without_a_valid_time_ends_the_run_and_names_the_operator(when: Any) -> None:
    with pytest.raises(
        ApplicationFailed, match=rf"odd\[[01]\]: at: expected a time in seconds, got {when!r}; .* on tuple"
    ):
        run(failing(lambda: Untimely(when), emits=int))


class Bursting(Operator[int, int]):
    """Gives nothing but by its timers, many of which are due at the same time, and twenty tuples each."""

    def open(self, context: TaskContext) -> None:
        self.context = context

    def process(self, value: int) -> None:
        self.context.at(self.context.now() // 0.5 * 0.5 + 0.5)

    def on_timer(self, when: float) -> Iterable[int]:
        return range(20)


@pytest.mark.parametrize("options", [{"workers": 2}, {"emulate": tiny_cluster(2)}])
def test_timers_wait_for_room(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "FULL", 30)
    flow = Dataflow("bursting")
    numbers = flow.source("numbers", Generated(int, rate=400.0), cpu=1e-4)
    burst = flow.operator("burst", Bursting, numbers, emits=int, cpu=1e-4)
    flow.sink("out", Captured([]), burst, cpu=0.005)
    most = 0

    def look(found: list[Task]) -> None:
        nonlocal most
        most = max(most, *(queue.backlog for task in found for queue in task.queues), 0)

    cluster = Watched(look, flow, window=4, sample_tps=0.0, **options).start()
    cluster.advance(2.0)
    assert 20 <= most < 50
    assert len(cluster.outputs["out"]) > 250


class Restless(Operator[int, int]):
    """Asks for a timer at once, again and again."""

    def open(self, context: TaskContext) -> None:
        self.context, self.left = context, 1000

    def process(self, value: int) -> None:
        self.context.at(0.0)

    def on_timer(self, when: float) -> Iterable[int]:
        self.left -= 1
        if self.left > 0:
            self.context.at(when)
        return (self.left,)


@pytest.mark.parametrize("options", [{"workers": 1}, {"emulate": tiny_cluster(1)}])
def test_a_timer_that_sets_another_does_not_starve_others(options: dict[str, Any]) -> None:
    flow = Dataflow("restless")
    restless = flow.operator("restless", Restless, flow.source("numbers", Generated(int, rate=1.0)), emits=int)
    flow.sink("out", Captured([]), restless)
    cluster = TestCluster(flow, **options).start()
    cluster.settle(lambda: bool(cluster.outputs["out"]) and cluster.outputs["out"][-1] < 990, steps=5_000)
    before = cluster.workers[0].turns
    cluster.advance(2.0)
    assert cluster.workers[0].turns > before + 900
    assert cluster.outputs["out"][:1000] == list(range(999, -1, -1))


class Shut(Sink[Any]):
    """Notes when it is opened and closed."""

    def __init__(self, notes: list[str], fails: str = "") -> None:
        self.notes, self.fails = notes, fails

    def __deepcopy__(self, memo: Any) -> "Shut":
        return self

    def open(self, context: TaskContext) -> None:
        self.note("open")

    def write(self, values: Sequence[Any]) -> None:
        self.note("write")

    def flush(self, now: float) -> None:
        self.note("flush")

    def close(self) -> None:
        self.note("close")

    def note(self, what: str) -> None:
        self.notes.append(what)
        if what == self.fails:
            raise OSError("disk full")


@pytest.mark.parametrize("fails", ["open", "write", "flush", "close"])
def test_names_a_sink_that_raises_in_any_method(fails: str) -> None:
    notes: list[str] = []
    flow = Dataflow("shut")
    flow.sink("out", Shut(notes, fails), flow.source("numbers", Generated(int, rate=10.0, count=30)))
    with pytest.raises(ApplicationFailed, match=r"out\[0\]: OSError: disk full"):
        run(flow, capture=False)
    assert notes.count("close") == (fails != "open")


def test_what_was_opened_is_closed_when_another_task_fails() -> None:
    notes: list[str] = []
    flow = Dataflow("shut")
    numbers = flow.source("numbers", flows.Given(range(50)), emits=int)
    flow.sink("out", Shut(notes), flow.operator("odd", lambda: Emits(KeyError("lost")), numbers))
    cluster = TestCluster(flow, workers=2, capture=False).start()
    with pytest.raises(ApplicationFailed):
        cluster.finish()
    cluster.settle()
    assert (notes[0], notes[-1]) == ("open", "close")


def test_a_run_that_is_stopped_closes_what_it_opened() -> None:
    notes: list[str] = []
    flow = Dataflow("shut")
    flow.sink("out", Shut(notes), flow.source("numbers", Generated(int, rate=10.0)))
    cluster = TestCluster(flow, capture=False).start()
    cluster.advance(3.0)
    cluster.controller.stop(cluster.clock())
    cluster.settle()
    assert notes[-1] == "close"
    assert notes.count("flush") >= 2
    assert all(worker.phase == "stopped" for worker in cluster.workers)


def test_the_status_names_the_slots_of_every_machine_the_empty_ones_too() -> None:
    cluster = TestCluster(flows.word_count(30), emulate=tiny_cluster(2, 3), placement=["m0/0"] * 9).start()
    status = cluster.controller.status(cluster.clock())
    assert {machine.name: machine.slots for machine in status.machines} == {
        f"m{number}": tuple(f"m{number}/{slot}" for slot in range(3)) for number in range(2)
    }


def test_forward_streams_have_their_own_progress() -> None:
    """A task that a source task has no way to must not be waited for."""
    flow = Dataflow("forward")
    numbers = flow.source("numbers", flows.Given(range(200)), emits=int, parallelism=2)
    same = flow.map("same", int, numbers.forward(), parallelism=2)
    flow.sink("near", Captured([]), same.forward(), parallelism=2)
    flow.sink("any", Captured([]), same, parallelism=3)
    result = run(flow, workers=3, in_flight=2)
    assert sorted(result["near"]) == sorted(result["any"]) == list(range(200))
