import os
import subprocess
import sys
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.api.keys import KEY_GROUPS, Key, Named, check_keys, extractor, key_group, key_name, owner
from penstock.model.errors import InvalidInput


class Colour(StrEnum):
    RED = "red"


class Size(IntEnum):
    LARGE = 3


class Side(Enum):
    LEFT = (1, "left")


class Place(NamedTuple):
    row: int
    name: str


class Word(msgspec.Struct, frozen=True):
    text: str
    weight: float = 1.0


@dataclass(frozen=True)
class Seat:
    row: int
    number: int


NUMBERS = st.one_of(
    st.integers(-(2**70), 2**70),
    st.booleans(),
    st.floats(allow_nan=False),
    st.fractions(),
    st.decimals(allow_nan=False),
    st.integers(-100, 100).map(np.int32),
    st.floats(-1e6, 1e6, width=32).map(np.float32),
)
PLAIN = st.one_of(NUMBERS, st.text(), st.binary(), st.none(), st.sampled_from([*Colour, *Size, *Side]))
KEYS = st.recursive(
    PLAIN,
    lambda parts: st.one_of(st.lists(parts, max_size=3).map(tuple), st.frozensets(parts, max_size=3)),
    max_leaves=4,
)


@pytest.mark.slow
@given(KEYS)
def test_every_key_is_in_a_group_and_always_the_same(key: Hashable) -> None:
    assert 0 <= key_group(key) < KEY_GROUPS
    assert key_group(key) == key_group(key)


@given(NUMBERS)
def test_equal_numbers_of_other_types_are_in_the_same_group(number: Any) -> None:
    others = [*_as(int, number), *_as(float, number), *_as(Fraction, number), *_as(Decimal, number)]
    assert {key_group(other) for other in others if other == number} <= {key_group(number)}


def _as(kind: Any, number: Any) -> list[Any]:
    try:
        return [kind(number)]
    except (TypeError, ValueError, OverflowError):
        return []


@given(st.lists(st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False), max_size=4))
def test_equal_keys_of_many_parts_are_in_the_same_group(numbers: list[int | float]) -> None:
    exact = [Fraction(number) for number in numbers]
    assert key_group(tuple(exact)) == key_group(tuple(numbers))
    assert key_group(frozenset(exact)) == key_group(frozenset(numbers))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (True, 1),
        (2.0**60, 2**60),
        (1e300, int(1e300)),
        (-0.0, 0),
        (Decimal("1.10"), Decimal("1.1")),
        (Decimal("Infinity"), float("inf")),
        (Colour.RED, "red"),
        (Size.LARGE, 3),
        (np.str_("a"), "a"),
        (np.int64(7), 7),
        (np.bool_(True), 1),
        (Place(1, "a"), (1.0, "a")),
        (Word("a", 1), Word("a", 1.0)),
        (Seat(1, 2), Seat(1, 2)),
        (datetime(2026, 1, 1, 12, tzinfo=UTC), datetime(2026, 1, 1, 14, tzinfo=timezone(timedelta(hours=2)))),
    ],
)
def test_keys_that_python_calls_equal_are_in_the_same_group(one: Hashable, other: Hashable) -> None:
    assert one == other
    assert key_group(one) == key_group(other)


def test_a_key_is_in_the_same_group_in_every_process() -> None:
    program = (
        "from penstock.api.keys import key_group\n"
        "print([key_group(k) for k in ('word', b'word', 17, 0.5, ('a', 1, None), frozenset('abcdef'))])"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "2")
    }
    here = [key_group(k) for k in ("word", b"word", 17, 0.5, ("a", 1, None), frozenset("abcdef"))]
    assert printed == {f"{here}\n"}


def test_groups_are_the_ones_that_stored_state_was_cut_by() -> None:
    # A change here makes every checkpoint that was written before unreadable.
    assert [key_group(key) for key in ("word", 17, ("a", 1))] == [1094, 3967, 2836]


@pytest.mark.parametrize("key", [object(), 1j, "\ud800"])
def test_rejects_what_has_no_stable_form(key: Hashable) -> None:
    with pytest.raises(InvalidInput, match=r"^key: expected text, bytes, a number, .* got "):
        key_group(key)


@given(st.integers(1, KEY_GROUPS))
def test_every_task_owns_groups_of_about_equal_number(tasks: int) -> None:
    owned = Counter(owner(group, tasks) for group in range(KEY_GROUPS))
    assert sorted(owned) == list(range(tasks))
    assert max(owned.values()) - min(owned.values()) <= 1


def test_a_task_owns_one_range_of_groups() -> None:
    owners = [owner(group, 7) for group in range(KEY_GROUPS)]
    assert owners == sorted(owners)


@pytest.mark.parametrize("keys", [[f"word-{n}" for n in range(20_000)], list(range(20_000))])
def test_many_keys_are_spread_evenly(keys: list[Hashable]) -> None:
    tasks = 8
    owned = Counter(owner(key_group(key), tasks) for key in keys)
    expected = len(keys) / tasks
    # Were keys thrown at random, the sum would have mean 7; 40 is exceeded once in a million times.
    assert sum((owned[task] - expected) ** 2 / expected for task in range(tasks)) < 40


@pytest.mark.parametrize(
    ("keys", "value", "key"),
    [
        (("text",), Word("a"), "a"),
        ((0,), ("a", 3), "a"),
        ((-1,), ("a", 3), 3),
        ((str.lower,), "AbC", "abc"),
        (("text", "weight"), Word("a", 2.0), ("a", 2.0)),
        ((1, 0), ("a", 3), (3, "a")),
        ((0, len), ("a", 3), ("a", 2)),
        ((Named("word", 0),), ("a", 3), "a"),
        ((Named("word"), Named("size", len)), "abc", ("abc", 3)),
    ],
)
def test_takes_a_key_from_a_value(keys: tuple[Key, ...], value: object, key: Hashable) -> None:
    take = extractor(keys)
    assert take is not None
    assert take(value) == key


@pytest.mark.parametrize("keys", [(), (Named("word"),)])
def test_without_a_key_the_whole_value_is_the_key(keys: tuple[Key, ...]) -> None:
    assert extractor(keys) is None


def test_a_named_key_can_be_called_as_any_other_function() -> None:
    assert Named("word")("abc") == "abc"
    assert Named("word", "text")(Word("abc")) == "abc"


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("word", "word"),
        (0, "0"),
        (str.lower, "lower"),
        (lambda value: value, "key"),
        (partial(int, base=2), "key"),
        (Named("word", 0), "word"),
    ],
)
def test_a_key_has_a_name_in_the_topology(key: Key, name: str) -> None:
    assert key_name(key) == name


@pytest.mark.parametrize("key", [3.5, None, True, ["word"]])
def test_rejects_what_is_no_key(key: Any) -> None:
    with pytest.raises(
        InvalidInput, match=r"^keys\[1\]: expected a field's name, a position in a tuple or a function, got"
    ):
        check_keys("keys", ("word", key))
