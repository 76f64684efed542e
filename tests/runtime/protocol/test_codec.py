"""Tuples arrive as their stream declares them, and those that cannot be sent or read are named."""

from typing import Any

import msgspec
import pytest

from penstock.model.errors import InvalidInput, shown
from penstock.runtime.protocol.codec import Codec


class Point(msgspec.Struct):
    x: int
    y: float


def test_declared_types_arrive_as_they_were_sent() -> None:
    for kind, value in [(Point, Point(1, 2.0)), (tuple[str, int], ("a", 1)), (bytes, b"x"), (int, -(2**63))]:
        codec = Codec("a->b", kind)
        assert codec.decode(codec.encode([value])) == [value]
        values = [value]
        assert codec.hand_over(values) is values


def test_undeclared_types_arrive_as_messagepack_types_within_a_process_too() -> None:
    codec = Codec("a->b", Any)
    assert codec.hand_over([("a", 1), Point(1, 2.0)]) == [["a", 1], {"x": 1, "y": 2.0}]


@pytest.mark.parametrize("value", [2**70, object(), {1, object()}])
def test_names_a_tuple_that_cannot_be_sent(value: Any) -> None:
    with pytest.raises(InvalidInput) as raised:
        Codec("a->b", Any).encode([1, value, 3])
    assert str(raised.value).startswith(f"a->b: tuple {shown(value)} cannot be sent")
    assert "emit numbers (64 bits)" in str(raised.value)


def test_names_a_tuple_that_is_not_of_the_declared_type() -> None:
    sent = Codec("a->b", Any).encode([1, "two", 3])
    with pytest.raises(InvalidInput, match=r"a->b\.emits: tuple 'two' is not of the declared type"):
        Codec("a->b", int).decode(sent)
