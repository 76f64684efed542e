"""The types of tuples: what annotations say of them, and which can travel."""

from collections.abc import Callable, Generator, Iterable, Iterator
from functools import partial
from typing import Any, Generic, TypeVar

import msgspec
import pytest

from penstock.api.contracts import Operator, Source
from penstock.api.dataflow import Dataflow
from penstock.model.errors import InvalidInput
from tests.api.flows import Bare, Kept, Ordinary, Pair, Stating, Total, Word, flow_with

T = TypeVar("T")


class Opaque(msgspec.Struct):
    inside: list[Ordinary]


class Tree(msgspec.Struct):
    children: list["Tree"] = []


def returns_list(value: Any) -> list[str]:
    return [str(value)]


def returns_some(value: Any) -> Iterable[tuple[str, int]] | None:
    return None


def generates(value: Any) -> Generator[tuple[str, int], None, None]:
    yield "a", 1


def iterates(value: Any) -> Iterator[Word]:
    yield Word("a", 1)


def returns_pair(value: Any) -> tuple[str, int]:
    return "a", 1


def returns_many(value: Any) -> tuple[Word, ...]:
    return ()


def returns_either(value: Any) -> list[int] | tuple[str, ...]:
    return []


def returns_generic(value: T) -> list[T]:
    return [value]


def returns_hidden(value: Any) -> "list[NotThere]":  # type: ignore[name-defined]  # noqa: F821
    return []


class Halving:
    def __call__(self, value: Any) -> list[bytes]:
        return []


@pytest.mark.parametrize(
    ("function", "mapped", "flat"),
    [
        (returns_list, list[str], str),
        (generates, None, tuple[str, int]),
        (iterates, None, Word),
        (returns_pair, tuple[str, int], str | int),
        (returns_many, tuple[Word, ...], Word),
        (returns_generic, Any, Any),
        (returns_hidden, Any, Any),
        (partial(returns_list), list[str], str),
        (Halving(), list[bytes], bytes),
        (str, str, str),
        (lambda value: [value], Any, Any),
        (str.split, Any, Any),
    ],
)
def test_a_functions_annotation_determines_its_type(function: Callable[[Any], Any], mapped: Any, flat: Any) -> None:
    flow, numbers = flow_with()
    if mapped is not None:
        assert flow.stream_type(flow.map("map", function, numbers)) == mapped
    assert flow.stream_type(flow.flat_map("flat", function, numbers)) == flat


@pytest.mark.parametrize(("function", "flat"), [(returns_some, tuple[str, int]), (returns_either, int | str)])
def test_the_parts_of_a_choice_are_seen_through(function: Callable[[Any], Any], flat: Any) -> None:
    flow, numbers = flow_with()
    assert flow.stream_type(flow.flat_map("flat", function, numbers)) == flat


class Labelled(Operator[int, tuple[str, T]], Generic[T]):
    pass


class Same(Operator[T, T]):
    pass


class Words(Same[Word]):
    pass


class MoreWords(Words):
    pass


def make_total() -> Total:
    return Total()


@pytest.mark.parametrize(
    ("operator", "emits"),
    [
        (Total, tuple[int, float]),
        (Total(), tuple[int, float]),
        (make_total, tuple[int, float]),
        (lambda: Total(), Any),
        (Words, Word),
        (MoreWords(), Word),
        (Same, Any),
        (Labelled, Any),
        (Bare, Any),
        (Stating(bytes), bytes),
    ],
)
def test_the_base_of_a_class_determines_its_type(operator: Any, emits: Any) -> None:
    flow, numbers = flow_with()
    assert flow.stream_type(numbers) is int
    assert flow.stream_type(flow.operator("operator", operator, numbers)) == emits


def test_what_is_stated_comes_before_what_is_annotated() -> None:
    flow, numbers = flow_with()
    assert flow.stream_type(flow.map("map", returns_list, numbers, emits=list[bytes])) == list[bytes]


def test_a_filter_emits_its_input_type() -> None:
    flow, numbers = flow_with()
    words = flow.map("words", lambda n: Word("a", n), numbers, emits=Word)
    both = flow.operator("both", Bare, numbers, outputs=["w", "n"], emits={"w": Word, "n": int})
    assert flow.stream_type(flow.filter("one", bool, words)) is Word
    assert flow.stream_type(flow.filter("output", bool, both["n"])) is int
    assert flow.stream_type(flow.filter("equal", bool, both["w"], words)) is Word
    assert flow.stream_type(flow.filter("mixed", bool, words, numbers)) is Any


def test_with_a_named_task_or_output_the_type_is_that_of_the_value() -> None:
    class Sending(Operator[int, tuple[int, Word]]):
        pass

    class Sorting(Operator[int, tuple[str, Word]]):
        pass

    class SortingAndSending(Operator[int, tuple[str, tuple[int, Word]]]):
        pass

    flow, numbers = flow_with()
    assert flow.stream_type(flow.operator("a", Sending, numbers).direct()) is Word
    assert flow.stream_type(flow.operator("b", Sending, numbers, emits=Word).direct()) is Word
    assert flow.stream_type(flow.operator("c", Sorting, numbers, outputs=["x"])["x"]) is Word
    assert flow.stream_type(flow.operator("d", SortingAndSending, numbers, outputs=["x"])["x"].direct()) is Word
    assert flow.stream_type(flow.operator("e", Sorting, numbers, outputs=["x"], emits=int)["x"]) is int


def test_a_source_may_have_outputs_too() -> None:
    class Mixed(Source[tuple[str, Word]]):
        pass

    flow = Dataflow("mixed")
    mixed = flow.source("mixed", Mixed, outputs=["a", "b"])
    assert flow.stream_type(mixed["a"]) is Word
    flow.sink("sink", Kept, mixed["b"])
    assert [outlet.output for outlet, _ in flow.inputs()] == ["b"]


@pytest.mark.parametrize("kind", [Word, Pair, Tree, bytes, tuple[str, int], dict[str, list[float]], Any])
def test_takes_types_that_can_travel(kind: Any) -> None:
    flow, numbers = flow_with()
    assert flow.stream_type(flow.map("map", lambda n: n, numbers, emits=kind)) == kind


@pytest.mark.parametrize("kind", [Ordinary, list[Ordinary], dict[str, Ordinary], Opaque, Ordinary | None])
def test_rejects_types_that_cannot_travel(kind: Any) -> None:
    flow, numbers = flow_with()
    with pytest.raises(
        InvalidInput, match=r"^test\.map\.emits: objects of <class '.*Ordinary'> cannot be encoded; make it"
    ):
        flow.map("map", lambda n: n, numbers, emits=kind)


def test_rejects_a_type_that_nothing_can_be_read_as() -> None:
    flow, numbers = flow_with()
    with pytest.raises(
        InvalidInput, match=r"^test\.map\.emits: expected a type that can be encoded, got .*more than one"
    ):
        flow.map("map", lambda n: n, numbers, emits=list[int] | tuple[str, ...])
