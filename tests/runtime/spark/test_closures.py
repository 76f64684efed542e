"""Functions that travel as bytes, with the structs they use."""

import pickle
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec
import pytest

from penstock.model.errors import InvalidInput
from penstock.runtime.spark.closures import pack

T = TypeVar("T")


def travelled(function: Callable[..., Any]) -> Callable[..., Any]:
    answer: Callable[..., Any] = pickle.loads(pack(function))
    return answer


def test_a_struct_of_a_script_keeps_its_fields_defaults_and_options() -> None:
    class Base(msgspec.Struct, frozen=True):
        key: str

    class Reading(Base, frozen=True, rename="camel", tag="reading"):
        at_ms: float = 0.5
        values: list[int] = msgspec.field(default_factory=list)

        def twice(self) -> "Reading":
            return Reading(self.key, 2 * self.at_ms)

    made, text = travelled(lambda: (Reading("a").twice(), msgspec.json.encode(Reading("a", 1.0, [2]))))()
    assert type(made) is not Reading
    assert (made.key, made.at_ms, made.values) == ("a", 1.0, [])
    assert text == msgspec.json.encode(Reading("a", 1.0, [2]))
    assert msgspec.json.decode(text, type=type(made)).values == [2]
    with pytest.raises(AttributeError):
        made.key = "b"


def test_a_struct_of_keywords_keeps_its_order_and_what_has_no_default() -> None:
    class Reading(msgspec.Struct, kw_only=True, array_like=True):
        low: int = 1
        high: int

    kind = travelled(lambda: Reading)()
    assert msgspec.msgpack.encode(kind(high=2)) == msgspec.msgpack.encode(Reading(high=2))
    with pytest.raises(TypeError, match="high"):
        kind(low=1)
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(msgspec.msgpack.encode([1, "two"]), type=kind)


def test_a_generic_struct_can_be_decoded_for_a_type() -> None:
    class Box(msgspec.Struct, Generic[T]):
        held: T

    kind: Any = travelled(lambda: Box)()
    assert msgspec.json.decode(b'{"held": 1}', type=kind[int]).held == 1
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"held": "one"}', type=kind[int])


def test_rejects_a_struct_that_refers_to_itself_with_a_remedy() -> None:
    space: dict[str, Any] = {"msgspec": msgspec, "__name__": "__main__"}
    exec("class Tree(msgspec.Struct):\n    below: 'list[Tree]'\n", space)
    tree = space["Tree"]
    with pytest.raises(InvalidInput, match="cannot be sent to the executors"):
        pack(lambda: tree)


def test_rejects_what_cannot_be_serialized_with_a_remedy() -> None:
    lock = threading.Lock()
    with pytest.raises(
        InvalidInput, match=r"application: cannot be sent to the executors, .*lock.*; create it in `open`"
    ):
        pack(lambda: lock.acquire())
