"""Keyed operators in a run: states, timers, time to live, errors, moves; on the simulated cluster."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

import penstock as ps
from penstock.api.keyed import KeyContext, KeyedOperator
from penstock.testing import ApplicationFailed, TestCluster, run
from tests.runtime.flows import Given

Pair = tuple[str, int]


def pairs(count: int) -> list[Pair]:
    return [(f"k{number * number % 11}", number) for number in range(count)]


def keyed(values: Iterable[Any], add: Any, rate: float | None = None, emits: Any = Pair) -> ps.Dataflow:
    """Return a flow of values, and what `add` makes of them."""
    values = list(values)
    flow = ps.Dataflow("keyed")
    source = Given(values) if rate is None else ps.Generated(lambda i: values[i], rate=rate, count=len(values))
    flow.sink("out", ps.Discard(), add(flow, flow.source("given", source, emits=emits)))
    return flow


def test_every_key_has_a_state_of_its_own() -> None:
    values = pairs(300)
    flow = keyed(
        values,
        lambda flow, given: flow.stateful_map(
            "sum", lambda s, v: (s + v[1], (v[0], s + v[1])), given.fields(0), initial=0, parallelism=3, emits=Pair
        ),
    )
    found = run(flow, workers=3)["out"]
    sums: Counter[str] = Counter()
    expected: list[Pair] = []
    for key, number in values:
        sums[key] += number
        expected.append((key, sums[key]))
    for key in sums:  # in order for each key
        assert [pair for pair in found if pair[0] == key] == [pair for pair in expected if pair[0] == key]


def test_none_removes_a_key_and_an_initial_list_is_not_shared() -> None:
    def gather(held: list[int], value: Pair) -> tuple[list[int] | None, list[tuple[str, list[int]]]]:
        held.append(value[1])
        return (None, [(value[0], held)]) if len(held) == 3 else (held, [])

    flow = keyed(
        [(f"k{n % 4}", n) for n in range(30)],
        lambda flow, given: flow.stateful_flat_map("gather", gather, given.fields(0), initial=[], parallelism=2),
    )
    found = run(flow, workers=2)["out"]
    assert sorted(found) == [(f"k{k}", [k + 12 * i + 4 * j for j in range(3)]) for k in range(4) for i in range(2)]


def test_streams_may_have_different_keys() -> None:
    flow = ps.Dataflow("join")
    left = flow.source("left", Given([("a", 1), ("b", 2), ("a", 3)]), emits=Pair)
    right = flow.source("right", Given([(10, "a"), (20, "b"), (30, "a")]), emits=tuple[int, str])
    both = flow.stateful_map(
        "both",
        lambda seen, value: (seen + 1, (value[0] if isinstance(value[0], str) else value[1], seen + 1)),
        left.fields(0),
        right.fields(1),
        initial=0,
        parallelism=2,
        emits=Pair,
    )
    flow.sink("out", ps.Discard(), both)
    for seed in range(5):
        assert sorted(run(flow, workers=3, seed=seed)["out"]) == [("a", n) for n in (1, 2, 3, 4)] + [("b", 1), ("b", 2)]


class Pauses(KeyedOperator[int, Pair, Pair]):
    """Counts the tuples of a key, and emits the count some time after the last of them."""

    def initial(self) -> int:
        return 0

    def process(self, key: KeyContext, state: int, value: Pair) -> tuple[int, None]:
        key.at(key.now() + 1.3)
        return state + 1, None

    def on_timer(self, key: KeyContext, state: int) -> tuple[None, list[Pair]]:
        return None, [(key.key, state)]


def test_a_timer_belongs_to_a_key_and_moves_with_it() -> None:
    values = [("a", 0), ("b", 0), ("a", 0), ("a", 0)]  # at 0, 0.5, 1 and 1.5 s
    flow = keyed(
        [*values, *[("end", 0)] * 20],
        lambda flow, given: flow.keyed_operator("pauses", Pauses, given.fields(0), parallelism=2),
        rate=2.0,
    )
    cluster = TestCluster(flow, workers=3, checkpoint_s=0.3).start()
    cluster.advance(1.2)
    for task in ("pauses[0]", "pauses[1]"):
        cluster.move(task, "w2/0")
    cluster.advance(0.2)
    assert cluster.result()["out"] == []
    cluster.advance(0.5)
    assert cluster.result()["out"] == [("b", 1)]
    cluster.advance(1.5)
    assert cluster.result()["out"] == [("b", 1), ("a", 3)]
    cluster.advance(20.0)
    assert cluster.finish()["out"] == [("b", 1), ("a", 3)]  # the last timers are dropped at the end


def test_a_timer_can_be_removed_and_set_earlier() -> None:
    class Alarm(KeyedOperator[int | None, Pair, Pair]):
        def process(self, key: KeyContext, state: int | None, value: Pair) -> tuple[int, list[Pair]]:
            before = key.timer
            key.at(None if value[1] < 0 else key.now() + value[1])
            return 1, [("set", value[1])] if before is None else []

        def on_timer(self, key: KeyContext, state: int | None) -> tuple[int | None, list[Pair]]:
            return state, [("due", round(10 * (key.now() - 1000.0)))]

    values = [("a", 9), ("a", 5), ("b", 2), ("b", -1), ("c", 7), ("c", 1), *[("end", -1)] * 200]
    flow = keyed(
        values, lambda flow, given: flow.keyed_operator("alarm", Alarm, given.fields(0), emits=Pair), rate=10.0
    )
    cluster = TestCluster(flow, workers=1).start()
    cluster.advance(12.0)
    found = cluster.result()["out"]
    assert [pair for pair in found if pair[0] == "due"] == [("due", 15), ("due", 51)]
    assert [pair for pair in found if pair[0] == "set"][:3] == [("set", 9), ("set", 2), ("set", 7)]


def test_a_key_expires_after_its_last_tuple() -> None:
    values = [("a", 0), ("b", 0), ("a", 0), ("a", 0), *[("c", 0)] * 4, ("a", 0), ("b", 0), *[("c", 0)] * 20]
    flow = keyed(
        values,
        lambda flow, given: flow.stateful_map(
            "count", lambda n, v: (n + 1, (v[0], n + 1)), given.fields(0), initial=0, ttl=2.5, emits=Pair
        ),
        rate=1.0,
    )
    cluster = TestCluster(flow, workers=2, checkpoint_s=0.7).start()
    cluster.advance(2.2)
    cluster.move("count[0]", "w1/0" if cluster.result().status.placement["count[0]"] == "w0/0" else "w0/0")
    cluster.advance(3.0)
    kept = [key for worker in cluster.workers for task in worker.tasks.values() if task.keyed for key in keys_of(task)]
    assert sorted(kept) == ["a", "c"]
    found = cluster.finish()["out"]
    assert found[:3] == [("a", 1), ("b", 1), ("a", 2)]
    assert [pair for pair in found if pair[0] in "ab"] == [("a", 1), ("b", 1), ("a", 2), ("a", 3), ("a", 1), ("b", 1)]
    assert max(count for key, count in found if key == "c") == 20  # after 3 s without a tuple


def test_a_key_expires_before_its_timer_is_due() -> None:
    class Forgotten(Pauses):
        ttl = 0.5

    flow = keyed(
        [("a", 0), ("b", 0), *[("end", 0)] * 40],
        lambda flow, given: flow.keyed_operator("pauses", Forgotten, given.fields(0)),
        rate=10.0,
    )
    cluster = TestCluster(flow, workers=1).start()
    cluster.advance(3.0)
    (kept,) = [keys_of(task) for worker in cluster.workers for task in worker.tasks.values() if task.keyed]
    assert kept == ["end"]
    assert cluster.result()["out"] == []


def keys_of(task: Any) -> list[Any]:
    return [key for group in task.keyed.state.groups() for key in group.states]


class Total(KeyedOperator[int, Pair, Pair]):
    def initial(self) -> int:
        return 0

    def process(self, key: KeyContext, state: int, value: Pair) -> tuple[int, None]:
        return state + value[1], None

    def finish(self, key: KeyContext, state: int) -> list[Pair]:
        return [(key.key, state)]


def test_the_last_tuples_of_every_key_come_at_the_end() -> None:
    flow = keyed(pairs(200), lambda flow, given: flow.keyed_operator("total", Total, given.fields(0), parallelism=3))
    expected: Counter[str] = Counter()
    for key, number in pairs(200):
        expected[key] += number
    assert dict(run(flow, workers=2, checkpoint_s=0.01)["out"]) == expected


def failing(function: Any, **options: Any) -> ps.Dataflow:
    return keyed(
        [("a", 1), ("b", 2), ("a", 3), ("b", 4)],
        lambda flow, given: flow.stateful_map("count", function, given.fields(0), initial=0, **options),
    )


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (lambda n, v: n + 1, r"result: expected a pair of the key's next state and the output, got 1 "),
        (lambda n, v: (n, 1, 2), r"result: expected a pair of the key's next state and the output, got \(0, 1, 2\) "),
        (lambda n, v: ({1}, v), r"count: the state of key 'a' is a set and is decoded as \[1\]; declare its type "),
        (lambda n, v: (object(), v), r"count: the state of key 'a' cannot be encoded, .*; use numbers, texts, bytes"),
        (lambda n, v: 1 // n, r"ZeroDivisionError: .* on tuple \('a', 1\)"),
    ],
)
def test_an_error_names_the_task_the_tuple_and_the_key(function: Any, problem: str) -> None:
    with pytest.raises(ApplicationFailed, match=rf"^count\[0\]: {problem}"):
        run(failing(function), workers=1)


def test_a_wrong_result_for_a_later_tuple_is_found_too() -> None:
    with pytest.raises(ApplicationFailed, match=r"^count\[0\]: result: expected a pair .*, got 5 on tuple \('a', 3\)"):
        run(failing(lambda n, v: 5 if n else (1, v)), workers=1)


def test_outputs_of_a_flat_map_are_iterable() -> None:
    flow = keyed([("a", 1)], lambda flow, given: flow.stateful_flat_map("count", lambda n, v: (1, 5), given.fields(0)))
    with pytest.raises(
        ApplicationFailed, match=r"result: expected a list of tuples to emit, .* got 5; use stateful_map"
    ):
        run(flow, workers=1)


def test_a_skipped_tuple_leaves_the_state_as_it_was() -> None:
    def add(total: int, value: Pair) -> tuple[int, Pair]:
        if value[1] % 3 == 0:
            raise ValueError("no threes")
        return total + value[1], (value[0], total + value[1])

    result = run(failing(add, errors=ps.Skip(), emits=Pair), workers=2)
    assert sorted(result["out"]) == [("a", 1), ("b", 2), ("b", 6)]
    assert [letter.tuple for letter in result.letters["count"]] == [("a", 3)]


class Unsteady(KeyedOperator[int, Pair, Pair]):
    """Its timers raise: always for key `bad`, the first time for others."""

    tries: Counter[str] = Counter()

    def initial(self) -> int:
        return 0

    def process(self, key: KeyContext, state: int, value: Pair) -> tuple[int, None]:
        key.at(key.now() + 0.5)
        return state + 1, None

    def on_timer(self, key: KeyContext, state: int) -> tuple[int, list[Pair]]:
        self.tries[key.key] += 1
        if key.key == "bad" or self.tries[key.key] == 1:
            raise ValueError("not now")
        return state, [(key.key, state)]


@pytest.mark.parametrize("policy", [ps.Skip(), ps.Retry(times=2, wait=0.1, then=ps.Skip())])
def test_a_timer_that_raises_is_skipped_or_retried(policy: Any) -> None:
    Unsteady.tries = Counter()
    values = [("a", 0), ("bad", 0), ("b", 0), *[("a", 0)] * 3]
    flow = ps.Dataflow("unsteady")
    given = flow.source("given", ps.Generated(lambda i: values[min(i, 5)], rate=100.0, count=6), emits=Pair)
    waits = flow.source("waits", ps.Generated(lambda i: ("late", i), rate=0.2, count=3), emits=Pair)
    alarms = flow.keyed_operator("alarm", Unsteady, given.fields(0), waits.fields(0), errors=policy)
    flow.sink("out", ps.Discard(), alarms)
    cluster = TestCluster(flow, workers=2).start()
    cluster.advance(4.0)
    result = cluster.result()
    retried = isinstance(policy, ps.Retry)
    assert sorted(result["out"]) == ([("a", 4), ("b", 1), ("late", 1)] if retried else [])
    assert Unsteady.tries == (
        {"a": 2, "b": 2, "late": 2, "bad": 3} if retried else {"a": 1, "b": 1, "late": 1, "bad": 1}
    )
