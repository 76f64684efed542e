"""Error policies: the guard by itself, and in a cluster with moves and crashes."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

import penstock as ps
from penstock.api.contracts import Operator, Sink, TaskContext
from penstock.api.on_error import ErrorPolicy
from penstock.runtime.worker.error_policy import Attempt, ErrorGuard
from penstock.runtime.worker.logic import UserError
from penstock.testing import ApplicationFailed, Captured, TestCluster, run, tiny_cluster
from tests.runtime.flows import Given


class Halves(Operator[int, int]):
    """Gives half of every even number, twice; raises on the others after the first."""

    def process(self, value: int) -> Iterator[int]:
        yield value // 2
        if value % 2:
            raise ValueError(f"{value} is odd")
        yield value // 2


class Flaky(Operator[int, int]):
    """Raises a number of times before it emits each number."""

    def __init__(self, times: int) -> None:
        self.times = times

    def open(self, context: TaskContext) -> None:
        self.context = context
        self.tried: Counter[int] = Counter()
        self.at: list[float] = []

    def process(self, value: int) -> Iterable[int]:
        self.tried[value] += 1
        self.at.append(self.context.now())
        if self.tried[value] <= self.times:
            raise ConnectionError("not now")
        return (value,)

    def snapshot(self) -> dict[int, int]:
        return dict(self.tried)

    def restore(self, state: dict[int, int]) -> None:
        self.tried = Counter(state)


class Picky(Sink[int]):
    """Adds numbers to a list, but for odd ones."""

    def __init__(self, taken: list[int]) -> None:
        self.taken = taken

    def write(self, values: Sequence[int]) -> None:
        for value in values:
            if value % 2:
                raise ValueError(f"{value} is odd")
            self.taken.append(value)

    def snapshot(self) -> None:
        """Return nothing: the list stays where it is."""


class Ticking(Operator[int, float]):
    """Has a timer at each of some times, and raises at those that fail."""

    def __init__(self, times: Sequence[float], fails: Callable[[float], bool]) -> None:
        self.times = times
        self.fails = fails

    def open(self, context: TaskContext) -> None:
        for time in self.times:
            context.at(context.now() + time)
        self.began = context.now()

    def process(self, value: int) -> None:
        return None

    def on_timer(self, when: float) -> Iterable[float]:
        if self.fails(when - self.began):
            raise RuntimeError("bad time")
        return (round(when - self.began, 6),)

    def snapshot(self) -> float:
        return self.began


def a_guard(policy: ErrorPolicy, logic: Any) -> tuple[ErrorGuard, list[ps.DeadLetter]]:
    letters: list[ps.DeadLetter] = []
    context = TaskContext("halves", 3, 4)
    logic.open(context)
    guard = ErrorGuard(policy, Captured(letters), logic, context)
    guard.open()
    return guard, letters


def test_skips_a_tuple_and_keeps_what_the_others_give() -> None:
    guard, letters = a_guard(ps.Skip(), Halves())
    assert guard.run([2, 5, 8], now=1.0) == Attempt([1, 1, 4, 4], 3, None)
    (letter,) = letters
    assert (letter.component, letter.task, letter.call, letter.tuple) == ("halves", 3, "process", 5)
    assert letter.error == "ValueError: 5 is odd"
    assert 'raise ValueError(f"{value} is odd")' in letter.traceback
    assert guard.take_counts() == (1, 0)
    assert guard.take_counts() == (0, 0)


def test_stops_at_a_tuple_that_is_to_be_retried_and_resumes_with_it() -> None:
    guard, _ = a_guard(ps.Retry(times=2, wait=0.5, factor=4.0), Flaky(2))
    assert guard.run([7, 8], now=1.0) == Attempt([], 0, 1.5)
    assert guard.run([7, 8], now=1.5) == Attempt([], 0, 3.5)
    assert guard.run([7, 8], now=3.5) == Attempt([7], 1, 4.0)  # the next tuple has tries of its own
    assert guard.run([8], now=4.0).retry_at == 6.0
    assert guard.run([8], now=6.0) == Attempt([8], 1, None)
    assert guard.retry_at == 0.0
    assert guard.take_counts() == (0, 4)


def test_gives_up_after_the_last_retry() -> None:
    guard, letters = a_guard(ps.Retry(times=1, wait=1.0, then=ps.Skip()), Flaky(9))
    assert guard.run([7], now=1.0).retry_at == 2.0
    assert guard.run([7], now=2.0) == Attempt([], 1, None)
    assert [letter.tuple for letter in letters] == [7]
    guard, _ = a_guard(ps.Retry(times=1), Flaky(9))
    guard.run([7], now=1.0)
    with pytest.raises(UserError, match="7"):
        guard.run([7], now=2.0)


def test_writes_tuples_to_a_sink_one_by_one() -> None:
    taken: list[int] = []
    guard, letters = a_guard(ps.Skip(), Picky(taken))
    assert guard.run([2, 3, 4], now=0.0) == Attempt([], 3, None)
    assert taken == [2, 4]
    assert [(letter.call, letter.tuple) for letter in letters] == [("write", 3)]


def test_timers_are_retried_apart_from_tuples() -> None:
    tries: list[float] = []

    def fails(when: float) -> bool:
        tries.append(when)
        return len(tries) < 3

    guard, letters = a_guard(ps.Retry(times=2, wait=1.0, factor=1.0, then=ps.Skip()), Ticking((5.0,), fails))
    assert guard.fire(5.0, now=5.0) == Attempt([], 0, 6.0)
    assert guard.fire(5.0, now=6.0) == Attempt([], 0, 7.0)
    assert guard.fire(5.0, now=7.0) == Attempt([5.0], 1, None)
    assert letters == []
    guard, letters = a_guard(ps.Skip(), Ticking((5.0,), lambda _: True))
    assert guard.fire(5.0, now=5.0) == Attempt([], 1, None)
    assert [(letter.call, letter.tuple) for letter in letters] == [("on_timer", 5.0)]


class Unshowable:
    def __repr__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ((1, "a"), (1, "a")),
        ({"k": [1.5]}, {"k": [1.5]}),
        ({1, 2}, {1, 2}),
        (1 + 2j, "(1+2j)"),
        ("\ud800", "'\\ud800'"),
        (Unshowable(), "<Unshowable that cannot be shown>"),
    ],
)
def test_writes_the_repr_of_a_tuple_that_json_cannot_hold(value: Any, written: Any) -> None:
    class Never(Operator[Any, Any]):
        def process(self, value: Any) -> None:
            raise ValueError("never")

    guard, letters = a_guard(ps.Skip(), Never())
    guard.run([value], now=0.0)
    assert letters[0].tuple == written
    assert msgspec.json.encode(letters[0])


def halving(count: int = 200, errors: ErrorPolicy | None = None, parallelism: int = 2) -> ps.Dataflow:
    flow = ps.Dataflow("halving")
    given = flow.source("numbers", Given(range(count)), emits=int, parallelism=2)
    halves = flow.operator("halves", Halves, given, emits=int, errors=errors, parallelism=parallelism)
    flow.sink("out", ps.JsonLines("output"), halves, parallelism=2)
    return flow


def halves_of_even(count: int) -> Counter[int]:
    return Counter({number // 2: 2 for number in range(0, count, 2)})


@pytest.mark.parametrize("emulated", [False, True])
@pytest.mark.parametrize("sample_tps", [-1.0, 0.0])
@pytest.mark.parametrize("seed", range(3))
def test_skips_in_a_cluster(seed: int, sample_tps: float, emulated: bool) -> None:
    emulate = tiny_cluster(3) if emulated else None
    result = run(halving(errors=ps.Skip()), workers=3, seed=seed, sample_tps=sample_tps, emulate=emulate)
    assert Counter(result["out"]) == halves_of_even(200)
    assert Counter(letter.tuple for letter in result.letters["halves"]) == Counter(range(1, 200, 2))
    assert {letter.task for letter in result.letters["halves"]} == {0, 1}


def test_names_the_tuple_if_the_policy_is_to_fail() -> None:
    with pytest.raises(ApplicationFailed, match="odd"):
        run(halving(errors=ps.Fail()))
    with pytest.raises(ApplicationFailed, match="odd"):
        run(halving(errors=ps.Retry(times=2, wait=0.01)))


def flaky(times: int, errors: ErrorPolicy, count: int = 30) -> ps.Dataflow:
    flow = ps.Dataflow("flaky")
    given = flow.source("numbers", Given(range(count)), emits=int)
    tried = flow.operator("tried", lambda: Flaky(times), given, emits=int, errors=errors)
    flow.sink("out", ps.Discard(), tried)
    other = flow.map("other", lambda n: n, given, emits=int)
    flow.sink("beside", ps.Discard(), other)
    return flow


@pytest.mark.parametrize("emulated", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_retries_in_a_cluster_and_keeps_the_order(seed: int, emulated: bool) -> None:
    emulate = tiny_cluster(3) if emulated else None
    policy = ps.Retry(times=2, wait=0.25, factor=2.0)
    result = run(flaky(2, policy), workers=3, seed=seed, emulate=emulate)
    assert result["out"] == list(range(30))
    assert result.status.seconds >= 30 * 0.75


@pytest.mark.slow
@pytest.mark.parametrize("emulated", [False, True])
def test_other_tasks_run_while_one_waits_for_a_retry(emulated: bool) -> None:
    emulate = tiny_cluster(1) if emulated else None
    placement = ["m0/0"] * 5 if emulated else ["w0/0"] * 5
    flow = flaky(1, ps.Retry(times=1, wait=100.0), count=8)
    cluster = TestCluster(flow, workers=1, emulate=emulate, placement=placement).start()
    cluster.advance(50.0)
    assert cluster.outputs["beside"] == list(range(8))
    assert cluster.outputs["out"] == []
    cluster.advance(60.0)
    assert cluster.outputs["out"] == [0]
    assert cluster.finish(2000.0)["out"] == list(range(8))


def test_a_barrier_waits_behind_a_tuple_that_is_retried() -> None:
    flow = flaky(1, ps.Retry(times=1, wait=10.0), count=2)
    cluster = TestCluster(flow, workers=2, checkpoint_s=1.0).start()
    cluster.advance(9.0)
    assert cluster.controller.checkpointing.latest is None
    cluster.advance(12.0)
    assert cluster.controller.checkpointing.latest is not None
    assert cluster.finish()["out"] == [0, 1]


@pytest.mark.parametrize("emulated", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_timers_are_under_the_policy_too(seed: int, emulated: bool) -> None:
    flow = ps.Dataflow("ticking")
    given = flow.source("numbers", ps.Generated(lambda n: n, rate=10, count=50), emits=int)
    ticks = flow.operator(
        "ticks", lambda: Ticking((1.0, 2.0, 3.0), lambda when: 1.5 < when < 2.5), given, emits=float, errors=ps.Skip()
    )
    flow.sink("out", ps.Discard(), ticks)
    result = run(flow, workers=2, seed=seed, emulate=tiny_cluster(2) if emulated else None)
    assert result["out"] == [1.0, 3.0]
    (letter,) = result.letters["ticks"]
    assert letter.call == "on_timer"
    assert isinstance(letter.tuple, float)


def test_a_timer_that_is_retried_blocks_the_next_one() -> None:
    failed: list[float] = []

    def fails(when: float) -> bool:
        failed.append(when)
        return len(failed) == 1

    flow = ps.Dataflow("ticking")
    given = flow.source("numbers", ps.Generated(lambda n: n, rate=10, count=100), emits=int)
    ticks = flow.operator(
        "ticks", lambda: Ticking((1.0, 2.0), fails), given, emits=float, errors=ps.Retry(times=1, wait=3.0)
    )
    flow.sink("out", ps.Discard(), ticks)
    cluster = TestCluster(flow, workers=1).start()
    cluster.advance(3.5)
    assert cluster.outputs["out"] == []
    cluster.advance(1.0)
    assert cluster.outputs["out"] == [1.0, 2.0]


def letters_in(folder: Path) -> list[dict[str, Any]]:
    files = sorted(folder.glob("letters-*.jsonl"))
    return [msgspec.json.decode(line) for file in files for line in file.read_bytes().splitlines()]


def numbers_in(folder: Path) -> Counter[int]:
    files = sorted(folder.glob("part-*.jsonl"))
    return Counter(int(line) for file in files for line in file.read_bytes().splitlines())


def check_files(folder: Path, count: int) -> None:
    assert numbers_in(folder / "output") == halves_of_even(count)
    letters = letters_in(folder / "dead-letters")
    assert Counter(letter["tuple"] for letter in letters) == Counter(range(1, count, 2))
    assert {letter["error"] for letter in letters} == {f"ValueError: {odd} is odd" for odd in range(1, count, 2)}


@pytest.mark.parametrize("checkpoint_s", [0.0, 0.05])
def test_writes_dead_letters_beside_the_output(tmp_path: Path, checkpoint_s: float) -> None:
    result = run(halving(errors=ps.Skip()), workers=2, capture=False, folder=str(tmp_path), checkpoint_s=checkpoint_s)
    assert result.status.phase == "stopped"
    check_files(tmp_path, 200)


def test_dead_letters_of_an_operator_that_has_ended_are_published_with_the_last_checkpoint(tmp_path: Path) -> None:
    cluster = TestCluster(
        halving(20, errors=ps.Skip()), workers=2, capture=False, folder=str(tmp_path), checkpoint_s=1000.0
    ).start()
    cluster.settle()
    assert letters_in(tmp_path / "dead-letters") == []
    cluster.finish()
    check_files(tmp_path, 20)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_moves_take_dead_letters_along(tmp_path: Path, seed: int) -> None:
    flow = ps.Dataflow("moving")
    given = flow.source("numbers", ps.Generated(lambda n: n, rate=100, count=400), emits=int)
    halves = flow.operator("halves", Halves, given, emits=int, errors=ps.Retry(1, 0.001, then=ps.Skip()), parallelism=2)
    flow.sink("out", ps.JsonLines("output"), halves, parallelism=2)
    cluster = TestCluster(flow, workers=3, capture=False, folder=str(tmp_path), checkpoint_s=0.7, seed=seed).start()
    for turn in range(8):
        cluster.advance(0.3)
        cluster.move(f"halves[{turn % 2}]", f"w{(turn + seed) % 3}/0")
    cluster.finish()
    check_files(tmp_path, 400)


def test_a_tuple_that_is_to_be_retried_moves_with_its_task(tmp_path: Path) -> None:
    flow = flaky(1, ps.Retry(times=1, wait=100.0), count=4)
    cluster = TestCluster(flow, workers=2, placement=["w0/0"] * 5).start()
    cluster.advance(10.0)
    cluster.move("tried[0]", "w1/0")
    cluster.advance(10.0)
    assert cluster.outputs["out"] == [0]  # it is tried at once where it has come to
    assert cluster.finish(2000.0)["out"] == [0, 1, 2, 3]


def test_counts_skipped_and_retried_tuples() -> None:
    result = run(halving(errors=ps.Retry(times=2, wait=0.01, then=ps.Skip())), workers=2)
    counts = {component.name: (component.skipped, component.retried) for component in result.status.components}
    assert counts == {"numbers": (0, 0), "halves": (100, 200), "out": (0, 0)}
