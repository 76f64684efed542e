"""Tasks move while tuples flow: none is lost, doubled or overtaken, whatever moves when."""

import random
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from penstock.api.contracts import Operator, Source, TaskContext
from penstock.api.dataflow import Dataflow
from penstock.api.sources.generated import Generated
from penstock.model.cluster import Cluster, Distances, Machine
from penstock.model.errors import UnknownName
from penstock.model.topology import Distribution, ServiceTime
from penstock.runtime.controller.operations import CannotMove, Operation
from penstock.runtime.protocol import controller_messages, encode
from penstock.runtime.protocol.frames import Data
from penstock.runtime.worker import task as tasks
from penstock.testing import Captured, TestCluster, tiny_cluster
from tests.runtime import flows

MOVES = 150

SETTINGS: dict[str, dict[str, Any]] = {
    "three slots": {"workers": 3},
    "two slots": {"workers": 2, "window": 8},
    "a slot a task": {"workers": 9},
    "window of one": {"workers": 3, "window": 1},
    "few in flight": {"workers": 3, "in_flight": 20},
    "one in flight": {"workers": 3, "in_flight": 1},
    "emulated": {"emulate": tiny_cluster(3, 2)},
    "emulated, few in flight": {"emulate": tiny_cluster(3, 2), "in_flight": 20, "window": 4},
}


@pytest.mark.slow
@pytest.mark.parametrize("setting", SETTINGS)
def test_word_counts_are_correct_after_many_moves(setting: str) -> None:
    count, moves, seed = 500, 0, 0
    while moves < MOVES:
        seed += 1
        cluster = TestCluster(flows.word_count(count, cpu=2e-3, most=1), seed=seed, **SETTINGS[setting]).start()
        moves += flows.move_about(cluster, MOVES - moves, seed, pause=1e-3 if "emulate" in SETTINGS[setting] else 0.0)
        result = cluster.finish()
        flows.check_counts(result["out"], count)
        flows.check_telemetry(result)
        assert result.status.emitted == count
        assert result.status.written == 3 * count


@pytest.mark.slow
@pytest.mark.parametrize("setting", SETTINGS)
def test_keeps_the_order_of_every_key_over_moves(setting: str) -> None:
    count, moves, seed = 500, 0, 100
    while moves < MOVES / 3:
        seed += 1
        cluster = TestCluster(flows.ordered(count, cpu=2e-3, most=1), seed=seed, **SETTINGS[setting]).start()
        moves += flows.move_about(cluster, MOVES, seed, pause=1e-3 if "emulate" in SETTINGS[setting] else 0.0)
        taken = cluster.finish()["out"]
        assert sorted(number for _, number in taken) == list(range(count))
        latest: dict[str, int] = {}
        for key, number in taken:
            assert number > latest.get(key, -1)
            latest[key] = number


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1020))
def test_random_applications_give_the_same_over_moves(seed: int) -> None:
    rng = random.Random(seed)
    nodes = flows.draw(seed)
    options: dict[str, Any] = {"window": rng.choice([1, 3, 64]), "in_flight": rng.choice([0, 2, 30])}
    options |= {"workers": rng.randint(2, 4)} if seed % 2 else {"emulate": tiny_cluster(2, 2)}
    cluster = TestCluster(flows.build(nodes), seed=seed, **options).start()
    flows.move_about(cluster, 25, seed, pause=0.0 if seed % 2 else 0.004)
    result = cluster.finish()
    assert {sink: Counter(map(repr, values)) for sink, values in result.outputs.items()} == flows.evaluate(nodes)
    flows.check_telemetry(result)


@pytest.mark.slow
def test_a_task_that_arrives_before_its_move_command_waits() -> None:
    ahead = 0
    for seed in range(30):
        cluster = TestCluster(flows.word_count(60, most=1), workers=3, seed=seed).start()
        ended: list[Operation] = []
        cluster.request([("count[1]", "w0/0"), ("lines[0]", "w2/0"), ("split[2]", "w0/0")], ended.append)
        while not ended and cluster.step():
            ahead += any(worker.arrivals.deferred is not None for worker in cluster.workers)
        assert ended
        assert ended[0].error is None
        flows.check_counts(cluster.finish()["out"], 60)
    assert ahead > 0


def test_a_move_reports_both_slots_and_how_long_tuples_waited() -> None:
    distances = Distances(same_slot_ms=0.0, same_process_ms=0.0, same_host_ms=0.0, other_host_ms=20.0)
    machines = tuple(Machine(name=f"m{number}", host=f"h{number}") for number in range(2))
    cluster = TestCluster(
        flows.word_count(200, most=1), emulate=Cluster(name="far", machines=machines, distances=distances)
    ).start()
    cluster.advance(0.01)
    outcome = cluster.move("count[1]", "m1/0")
    assert (outcome.task, outcome.before, outcome.after) == ("count[1]", "m0/0", "m1/0")
    assert 0.02 <= outcome.seconds <= 0.06
    assert cluster.controller.status(cluster.clock()).placement["count[1]"] == "m1/0"
    flows.check_counts(cluster.finish()["out"], 200)


def test_a_task_on_its_target_slot_does_not_move() -> None:
    cluster = TestCluster(flows.word_count(30)).start()
    assert cluster.apply([("count[1]", "w0/0")]) == []


def test_a_task_that_gets_another_slot_continues_there_after_its_current_tuple() -> None:
    flow = Dataflow("slots")
    numbers = flow.source("numbers", flows.Given(range(300)), emits=int)
    uneven = ServiceTime(distribution=Distribution.EXPONENTIAL)
    same = flow.map("same", int, numbers, cpu=0.01, service=uneven)
    flow.sink("out", Captured([]), same)
    cluster = TestCluster(flow, emulate=tiny_cluster(1, 4), placement=["m0/0", "m0/1", "m0/0"]).start()
    for step in range(300):
        cluster.advance(0.005)
        cluster.move("same[0]", f"m0/{1 + step % 3}")
    assert cluster.finish()["out"] == list(range(300))


class Forgetful(Operator[str, str]):
    def __init__(self) -> None:
        self.seen: list[str] = []

    def process(self, value: str) -> Iterable[str]:
        self.seen.append(value)
        return (value,)


def shout(text: str) -> str:
    return text.upper()


class Careless(Operator[str, str]):
    """Keeps its context, and nothing else that changes."""

    def open(self, context: TaskContext) -> None:
        self.context, self.shout = context, shout

    def process(self, value: str) -> Iterable[str]:
        return (self.shout(value),)


class Stuck(Source[str]):
    def open(self, context: TaskContext) -> None:
        self.left = 50

    def poll(self, now: float, limit: int) -> list[str] | None:
        self.left -= 1
        return [f"w{self.left}"] if self.left >= 0 else None


def refused(operator: Any = Forgetful, source: Any = Stuck, **options: Any) -> TestCluster:
    flow = Dataflow("refused")
    words = flow.source("words", source, emits=str)
    kept = flow.operator("keep", operator, words)
    flow.sink("out", Captured([]), kept)
    cluster = TestCluster(flow, **options).start()
    for _ in range(20):
        cluster.step()
    return cluster


def test_rejects_a_move_of_an_operator_with_state_but_no_snapshot_and_resumes_it() -> None:
    cluster = refused()
    with pytest.raises(CannotMove, match=r"keep\[0\].*Forgetful has state but no snapshot; give it snapshot"):
        cluster.move("keep[0]", "w0/0")
    assert len(cluster.finish()["out"]) == 50


def test_any_task_moves_to_another_slot_of_its_own_machine() -> None:
    cluster = refused(emulate=tiny_cluster(1, slots=3), placement=["m0/0", "m0/1", "m0/1"])
    for task in ("words[0]", "keep[0]"):
        assert cluster.move(task, "m0/2").after == "m0/2"
    assert len(cluster.finish()["out"]) == 50


def test_rejects_a_move_of_a_source_that_cannot_rewind_and_resumes_it() -> None:
    cluster = refused()
    with pytest.raises(CannotMove, match=r"words\[0\]: Stuck cannot rewind"):
        cluster.move("words[0]", "w1/0")
    assert len(cluster.finish()["out"]) == 50


def test_moves_an_operator_that_keeps_only_its_context_and_functions() -> None:
    cluster = refused(Careless)
    cluster.move("keep[0]", "w0/0")
    assert sorted(cluster.finish()["out"]) == sorted(f"W{number}" for number in range(50))


class Numbering(Operator[int, int]):
    """Numbers what comes, and forgets how far it was when it moves."""

    def open(self, context: TaskContext) -> None:
        self.n = 0

    def process(self, value: int) -> Iterable[int]:
        self.n += 1
        return (self.n,)


def numbering() -> Dataflow:
    flow = Dataflow("numbering")
    numbers = flow.source("numbers", flows.Given(range(40), most=1), emits=int, cpu=0.0)
    numbered = flow.operator("number", Numbering, numbers, cpu=0.0)
    flow.sink("out", Captured([]), numbered)
    return flow


@pytest.mark.slow
@pytest.mark.parametrize("emulated", [False, True])
def test_state_without_snapshot_is_never_lost_by_a_move(emulated: bool) -> None:
    moved = refusals = 0
    near = Distances(same_slot_ms=0.0, same_process_ms=0.0, same_host_ms=0.0, other_host_ms=0.0)
    machines = tuple(Machine(name=f"m{number}") for number in range(2))
    cluster_of_two = Cluster(name="near", machines=machines, distances=near)  # all happens at the same time
    slots: dict[str, Any] = {"emulate": cluster_of_two} if emulated else {"workers": 2}
    for seed in range(60):
        cluster = TestCluster(numbering(), seed=seed, **slots).start()
        for _ in range(random.Random(seed).randrange(12)):
            cluster.step()
        try:
            cluster.move("number[0]", cluster.controller.placement[0])
            moved += 1
        except CannotMove:
            refusals += 1
        assert cluster.finish()["out"] == list(range(1, 41))
    assert moved
    assert refusals


@pytest.mark.parametrize("task", ["numbers[0]", "number[0]", "out[0]"])
@pytest.mark.parametrize("options", [{"workers": 2}, {"emulate": tiny_cluster(2)}])
def test_a_task_is_suspended_between_its_answer_and_its_release(options: dict[str, Any], task: str) -> None:
    cluster = TestCluster(numbering(), in_flight=5, **options).start()
    number = cluster.layout.by_name[task]
    host = next(worker for worker in cluster.workers if number in worker.tasks)
    host.command(controller_messages.PrepareMove(host.epoch, 1, number))
    assert host.tasks[number].suspended
    cluster.advance(3.0)
    assert cluster.outputs["out"] == []
    host.command(controller_messages.ReleaseTask(host.epoch, 2, number))
    assert host.tasks[number].suspended
    cluster.controller.outbox.send(host.directory.me, controller_messages.ReleaseTask(host.epoch, 1, number))
    assert cluster.finish()["out"] == list(range(1, 41))


def test_rejects_a_move_of_a_state_too_large_for_a_frame_and_resumes_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tasks, "LARGEST_STATE", 100)
    flow = Dataflow("large")
    counted = flow.operator("count", flows.Count, flow.source("words", flows.Given(["x" * 300] * 40), emits=str))
    flow.sink("out", Captured([]), counted)
    cluster = TestCluster(flow).start()
    cluster.settle(lambda: len(cluster.outputs["out"]) > 0)
    with pytest.raises(CannotMove, match=r"count\[0\]: its state takes 0\.0 MiB, and at most 0\.0 MiB can move"):
        cluster.move("count[0]", "w0/0")
    assert cluster.finish()["out"][-1] == ("x" * 300, 40)


def test_a_state_that_was_too_large_at_the_last_checkpoint_is_not_saved_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "LARGEST_STATE", 100)
    flow = Dataflow("large")
    words = flow.source("words", Generated(lambda _: "x" * 300, rate=100.0), emits=str)
    flow.sink("out", Captured([]), flow.operator("count", flows.Count, words))
    cluster = TestCluster(flow, checkpoint_s=0.5).start()
    cluster.advance(0.9)
    (host,) = (worker for worker in cluster.workers if 1 in worker.tasks)
    saved: list[str] = []
    monkeypatch.setattr(host.tasks[1].logic, "snapshot", lambda: saved.append("again"))
    with pytest.raises(CannotMove, match=r"count\[0\]: its state took 0\.0 MiB when it was last saved, and at most"):
        cluster.move("count[0]", "w0/0")
    assert not saved


def test_rejects_unknown_tasks_and_slots() -> None:
    cluster = TestCluster(flows.word_count(30)).start()
    with pytest.raises(UnknownName, match=r"no task is named 'count\[9\]'"):
        cluster.move("count[9]", "w0/0")
    with pytest.raises(UnknownName, match="this run has no slot 'w7/0'; did you mean w1/0 or w0/0"):
        cluster.move("count[0]", "w7/0")


def test_rejects_moves_once_it_is_draining() -> None:
    cluster = TestCluster(flows.word_count(500)).start()
    cluster.controller.drain(cluster.clock())
    with pytest.raises(CannotMove, match="the application is draining"):
        cluster.move("count[0]", "w0/0")
    cluster.finish()


@pytest.mark.slow
@pytest.mark.parametrize("emulated", [False, True])
def test_a_drain_in_the_middle_of_moves_loses_nothing(emulated: bool) -> None:
    for seed in range(8):
        rng = random.Random(seed)
        slots: dict[str, Any] = {"emulate": tiny_cluster(3)} if emulated else {"workers": 3}
        cluster = TestCluster(flows.word_count(5_000, cpu=2e-3, most=1), seed=seed, **slots).start()
        for _ in range(rng.randrange(100)):
            cluster.step()
        if emulated:
            cluster.advance(0.01)
        ended: list[Operation] = []
        slot = cluster.workers[0].assigned.placement
        cluster.request([("lines[0]", slot[1]), ("lines[1]", slot[2]), ("out[0]", slot[0])], ended.append)
        for _ in range(rng.randrange(20)):
            cluster.step()
        result = cluster.drain()
        assert ended
        given = result.status.emitted
        assert result.status.written == 3 * given
        assert len({tuple(worker.directory.placement) for worker in cluster.workers}) == 1
        assert list(result.status.placement.values()) == cluster.workers[0].directory.placement
        flows.check_telemetry(result)


def test_a_source_that_moves_at_the_start_of_a_drain_ends() -> None:
    cluster = TestCluster(flows.word_count(5_000, most=1), workers=3).start()
    cluster.request([("lines[0]", "w2/0")], lambda _: None)
    cluster.settle(lambda: not any(0 in worker.tasks for worker in cluster.workers))
    result = cluster.drain()
    assert result.status.emitted < 500
    assert result.status.written == 3 * result.status.emitted


def test_tasks_that_have_ended_move_without_their_logic() -> None:
    opened: list[str] = []

    class Noted(flows.Given):
        def open(self, context: TaskContext) -> None:
            opened.append(context.name)
            super().open(context)

    flow = Dataflow("ended")
    first = flow.source("short", lambda: Noted(["a"]), emits=str)
    second = flow.source("long", lambda: Noted([f"w{n}" for n in range(200)], most=1), emits=str)
    flow.sink("out", Captured([]), first, second, cpu=0.05)
    cluster = TestCluster(flow, emulate=tiny_cluster(2), window=4, in_flight=20).start()
    cluster.advance(2.0)
    assert cluster.move("short[0]", "m1/0").after == "m1/0"
    assert cluster.move("long[0]", "m0/0").after == "m0/0"
    assert len(cluster.finish()["out"]) == 201
    assert sorted(opened) == ["long[0]", "long[0]", "short[0]"]


class Ticking(Operator[int, tuple[str, float]]):
    """Says when each number's timer came, and counts the timers."""

    def open(self, context: TaskContext) -> None:
        self.context, self.fired = context, 0

    def process(self, value: int) -> None:
        self.context.at(self.context.now() + value)

    def on_timer(self, when: float) -> Iterable[tuple[str, float]]:
        self.fired += 1
        yield f"{self.fired}", when - 1000.0

    def snapshot(self) -> int:
        return self.fired

    def restore(self, state: int) -> None:
        self.fired = state


def ticking() -> Dataflow:
    class Endless(flows.Given):
        def poll(self, now: float, limit: int) -> list[Any]:
            return super().poll(now, limit) or []

    flow = Dataflow("ticking")
    waits = flow.source("waits", Endless([5, 1, 3, 2, 4]), emits=int)
    ticks = flow.operator("tick", Ticking, waits)
    flow.sink("out", Captured([]), ticks)
    return flow


@pytest.mark.parametrize("options", [{"workers": 2}, {"emulate": tiny_cluster(2)}])
def test_timers_fire_in_order_and_move_with_their_task(options: dict[str, Any]) -> None:
    cluster = TestCluster(ticking(), **options).start()
    home = cluster.controller.placement[1]
    away = cluster.controller.placement[0]
    cluster.advance(2.5)
    cluster.move("tick[0]", away)
    cluster.advance(1.0)
    cluster.move("tick[0]", home)
    cluster.advance(5.0)
    assert [name for name, _ in cluster.outputs["out"]] == ["1", "2", "3", "4", "5"]
    assert [when for _, when in cluster.outputs["out"]] == pytest.approx([1, 2, 3, 4, 5], abs=0.05)
    cluster.drain()


def test_timers_that_are_not_due_at_the_end_never_fire() -> None:
    cluster = TestCluster(ticking()).start()
    cluster.advance(1.5)
    assert len(cluster.drain()["out"]) == 1


def test_a_second_operation_waits_for_the_first() -> None:
    cluster = TestCluster(flows.word_count(300, most=1), workers=3).start()
    order: list[str] = []
    cluster.request([("count[0]", "w1/0"), ("count[1]", "w1/0")], lambda done: order.append(f"first {len(done.done)}"))
    cluster.request([("count[0]", "w0/0")], lambda done: order.append(f"second {len(done.done)}"))
    flows.check_counts(cluster.finish()["out"], 300)
    assert order == ["first 2", "second 1"]


def test_frames_of_another_epoch_are_dropped() -> None:
    cluster = TestCluster(flows.word_count(50), workers=2).start()
    worker = cluster.workers[0]
    target = next(task for task in worker.tasks.values() if not task.is_source)
    stream, source = next(iter(target.inbox.channels))
    stale = Data(worker.epoch - 1, stream, source, target.number, 999, 1, 0.0, b"\x91\xa1x")
    worker.frame(encode(stale))
    worker.command(controller_messages.Drain(worker.epoch + 1))
    assert not worker.draining
    flows.check_counts(cluster.finish()["out"], 50)


def test_a_repeated_frame_starts_a_new_epoch() -> None:
    cluster = TestCluster(flows.word_count(50), workers=2).start()
    while not any(key[0] >= 0 for key in cluster._wires):
        cluster.step()
    (sender, receiver), frames = next((key, frames) for key, frames in cluster._wires.items() if key[0] >= 0)
    frames.append(frames[0])
    cluster.settle(lambda: cluster.controller.epoch > 1)
    assert cluster.controller.epoch == 2
    assert "expected tuple" in cluster.controller.recovery.reason
    assert sender != receiver
