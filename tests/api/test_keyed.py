"""Keyed operators: what a dataflow accepts and rejects, and the types that it derives."""

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

import penstock as ps
from penstock.api.keys import Named
from penstock.api.tuple_types import key_type
from penstock.model.errors import InvalidInput, UnknownName


class Visit(msgspec.Struct):
    user: str
    seconds: float


class Session(msgspec.Struct):
    visits: int = 0


class Sessions(ps.KeyedOperator[Session | None, Visit, tuple[str, int]]):
    def process(
        self, key: ps.KeyContext, state: Session | None, value: Visit
    ) -> tuple[Session, Iterable[tuple[str, int]] | None]:
        return state or Session(), None


def count(state: int, word: str) -> tuple[int, tuple[str, int]]:
    return state + 1, (word, state + 1)


def spread(state: Session, word: str) -> tuple[Session | None, list[str]]:
    return state, [word]


def words() -> tuple[ps.Dataflow, Any]:
    flow = ps.Dataflow("words")
    return flow, flow.source("words", ps.Generated(str, count=3), emits=str)


def test_the_types_follow_from_annotations() -> None:
    flow, given = words()
    flow.stateful_map("count", count, given.fields(), initial=0)
    flow.stateful_flat_map("spread", spread, given.fields(), initial=Session)
    visits = flow.map("visit", lambda word: Visit(word, 1.0), given, emits=Visit)
    flow.keyed_operator("sessions", Sessions, visits.fields("user"))
    found = {name: (part.state, part.emits) for name, part in flow.parts.items() if part.keyed}
    assert found == {
        "count": (int, tuple[str, int]),
        "spread": (Session | None, str),
        "sessions": (Session | None, tuple[str, int]),
    }


def test_a_lambda_needs_no_types_for_plain_states() -> None:
    flow, given = words()
    flow.stateful_map("count", lambda n, word: (n + 1, (word, n + 1)), given.fields(), initial=0)
    flow.stateful_map("session", lambda held, word: (held, word), given.fields(), initial=Session())
    flow.stateful_map("typed", lambda held, word: (held, word), given.fields(), state=tuple[int, int], emits=str)
    kinds = [(flow.parts[name].state, flow.parts[name].emits) for name in ("count", "session", "typed")]
    assert kinds == [(Any, Any), (Session, Any), (tuple[int, int], str)]


@pytest.mark.parametrize(
    ("group", "got"), [(lambda o: o, "shuffle"), (lambda o: o.partial_key(), "partial-key"), (lambda o: o.all(), "all")]
)
def test_an_input_without_keys_is_rejected(group: Any, got: str) -> None:
    flow, given = words()
    with pytest.raises(InvalidInput, match=rf"^words.count.inputs\[0\]: expected a stream grouped by key, got {got};"):
        flow.stateful_map("count", count, group(given), initial=0)


def test_invalid_arguments_are_rejected_in_one_line() -> None:
    flow, given = words()
    with pytest.raises(InvalidInput, match=r"^words.count.ttl: expected seconds > 0, or None, got 0$"):
        flow.stateful_map("count", count, given.fields(), initial=0, ttl=0)
    with pytest.raises(InvalidInput, match=r"^words.short.ttl: expected seconds > 0, or None, got -1$"):
        flow.keyed_operator("short", type("Short", (Sessions,), {"ttl": -1}), given.fields())
    with pytest.raises(InvalidInput, match=r"^words.count.state: .* cannot be encoded"):
        flow.stateful_map("count", count, given.fields(), state=InvalidInput)
    with pytest.raises(InvalidInput, match=r"^count: expected a function, got 3$"):
        flow.stateful_map("count", 3, given.fields())  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match=r"^sums: .* use stateful_map"):
        flow.keyed_operator("sums", ps.Discard, given.fields())  # type: ignore[arg-type]
    with pytest.raises(UnknownName, match=r"^words.count.word: unknown keyword"):
        flow.stateful_map("count", count, given.fields(), initial=0, word=1)


@pytest.mark.parametrize(
    ("keys", "kind", "expected"),
    [
        ((), str, str),
        (("user",), Visit, str),
        (("user", "seconds"), Visit, tuple[str, float]),
        ((0,), tuple[str, int], str),
        ((1, 0), tuple[str, int], tuple[int, str]),
        ((Named("whole"),), str, str),
        ((Named("user", "user"),), Visit, str),
        ((lambda visit: visit.user,), Visit, Any),
        ((0,), Any, Any),
        (("user",), dict[str, int], Any),
        ((0,), tuple[str, ...], Any),
    ],
)
def test_the_type_of_a_key_follows_from_that_of_the_tuples(keys: Any, kind: Any, expected: Any) -> None:
    assert key_type(keys, kind) == expected
