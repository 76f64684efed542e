import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
import pytest
from pyspark import cloudpickle

from penstock.api.contracts import Operator, Sink, Source, TaskContext, Timed
from penstock.api.dataflow import Dataflow, Outlet
from penstock.api.keys import KEY_GROUPS, Named
from penstock.api.logic import FilterOperator, FlatMapOperator, MapOperator
from penstock.model.errors import InvalidInput, PenstockError, UnequalForward, UnknownName, UnreachableComponent
from penstock.model.topology import Application, Component, Distribution, Grouping, Kind, ServiceTime, Stream

T = TypeVar("T")


class Numbers(Source[int]):
    def __init__(self, rate: float | None = None) -> None:
        self.rate = rate

    def poll(self, now: float, limit: int) -> Sequence[int]:
        return range(limit)

    @property
    def rate_tps(self) -> float | None:
        return self.rate


class Total(Operator[int, tuple[int, float]]):
    def __init__(self) -> None:
        self.total = 0

    def process(self, value: int) -> Iterable[tuple[int, float]]:
        self.total += value
        return [(value, float(self.total))]


class Kept(Sink[Any]):
    def __init__(self) -> None:
        self.values: list[Any] = []

    def write(self, values: Sequence[Any]) -> None:
        self.values.extend(values)


class Word(msgspec.Struct, frozen=True):
    text: str
    length: int


class Pair(NamedTuple):
    one: int
    other: str


class Ordinary:
    """A class that msgspec knows nothing of."""


class Opaque(msgspec.Struct):
    inside: list[Ordinary]


class Tree(msgspec.Struct):
    children: list["Tree"] = []


def flow_with(name: str = "test") -> tuple[Dataflow, Outlet]:
    flow = Dataflow(name)
    return flow, flow.source("numbers", Numbers())


def test_gives_the_topology_that_one_would_write_by_hand() -> None:
    flow = Dataflow("sums")
    numbers = flow.source("numbers", Numbers(rate=50), parallelism=2, cpu=0.001)
    even = flow.filter("even", lambda n: n % 2 == 0, numbers.local_or_shuffle().costing(tuple_bytes=9), parallelism=3)
    total = flow.operator(
        "total",
        Total,
        even.fields(Named("number")).costing(selectivity=0.5),
        parallelism=4,
        service=ServiceTime(distribution=Distribution.EXPONENTIAL),
        memory_mb=64,
    )
    flow.sink("first", Kept, total.to_first(), pinned="m0")
    flow.sink("all", Kept(), total.partial_key(0, "real").all(), numbers.forward(), parallelism=2)
    assert flow.application == Application(
        name="sums",
        components=(
            Component(name="numbers", kind=Kind.SOURCE, parallelism=2, cpu=0.001),
            Component(name="even", parallelism=3),
            Component(
                name="total",
                parallelism=4,
                memory_mb=64,
                service=ServiceTime(distribution=Distribution.EXPONENTIAL),
            ),
            Component(name="first", kind=Kind.SINK, pinned="m0"),
            Component(name="all", kind=Kind.SINK, parallelism=2),
        ),
        streams=(
            Stream(source="numbers", target="even", grouping=Grouping.LOCAL_OR_SHUFFLE, tuple_bytes=9),
            Stream(source="even", target="total", grouping=Grouping.FIELDS, keys=("number",), selectivity=0.5),
            Stream(source="total", target="first", grouping=Grouping.GLOBAL),
            Stream(source="total", target="all", grouping=Grouping.ALL),
            Stream(source="numbers", target="all", grouping=Grouping.FORWARD),
        ),
        rate_tps={"numbers": 50},
    )


@pytest.mark.parametrize(
    ("choose", "grouping", "keys"),
    [
        (lambda outlet: outlet, Grouping.SHUFFLE, ()),
        (lambda outlet: outlet.all().shuffle(), Grouping.SHUFFLE, ()),
        (lambda outlet: outlet.fields(), Grouping.FIELDS, ()),
        (lambda outlet: outlet.fields(str), Grouping.FIELDS, ("str",)),
        (lambda outlet: outlet.partial_key("real"), Grouping.PARTIAL_KEY, ("real",)),
        (lambda outlet: outlet.fields(str).all(), Grouping.ALL, ()),
        (lambda outlet: outlet.to_first(), Grouping.GLOBAL, ()),
        (lambda outlet: outlet.direct(), Grouping.DIRECT, ()),
        (lambda outlet: outlet.forward(), Grouping.FORWARD, ()),
        (lambda outlet: outlet.local_or_shuffle(), Grouping.LOCAL_OR_SHUFFLE, ()),
    ],
)
def test_every_grouping_of_the_model_can_be_chosen(
    choose: Callable[[Outlet], Outlet], grouping: Grouping, keys: tuple[str, ...]
) -> None:
    flow, numbers = flow_with()
    flow.sink("sink", Kept, choose(numbers))
    [stream] = flow.application.streams
    assert (stream.grouping, stream.keys) == (grouping, keys)


def test_rates_are_given_only_where_every_source_has_one() -> None:
    flow = Dataflow("two")
    flow.sink("sink", Kept, flow.source("a", Numbers(rate=5)), flow.source("b", Numbers()))
    assert flow.application.rate_tps == {}


def test_costs_stated_one_after_the_other_add_up() -> None:
    outlet = Outlet("a").costing(selectivity=2).costing(tuple_bytes=7)
    assert (outlet.selectivity, outlet.tuple_bytes) == (2, 7)


def test_an_object_is_copied_for_each_task() -> None:
    flow, numbers = flow_with()
    kept = Kept()
    flow.sink("sink", kept, numbers, parallelism=2)
    one, other = flow.parts["sink"].logic(), flow.parts["sink"].logic()
    assert isinstance(one, Kept)
    assert isinstance(other, Kept)
    one.write([1])
    assert (one.values, other.values, kept.values) == ([1], [], [])


@pytest.mark.parametrize("given", [Total, lambda: Total(), partial(Total)])
def test_a_class_or_function_makes_the_object_of_each_task(given: Callable[[], Total]) -> None:
    flow, numbers = flow_with()
    flow.operator("total", given, numbers)
    made = [flow.parts["total"].logic() for _ in range(2)]
    assert isinstance(made[0], Total)
    assert made[0] is not made[1]


def test_functions_become_operators() -> None:
    assert list(MapOperator(str).process(3)) == ["3"]
    assert FlatMapOperator(str.split).process("a b") == ["a", "b"]
    keep = FilterOperator(lambda n: n > 2)
    assert (keep.process(3), keep.process(1)) == ((3,), None)


def test_with_its_functions_it_can_be_shipped_to_another_process() -> None:
    limit = 2
    flow, numbers = flow_with()
    flow.sink(
        "sink",
        Kept(),
        flow.filter("large", lambda n: n > limit, numbers),
        flow.map("twice", lambda n: 2 * n, numbers),
        flow.flat_map("many", lambda n: [n] * limit, numbers),
        flow.operator("total", lambda: Total(), numbers, gives=tuple[int, float]).fields(lambda pair: pair[0]),
    )
    there: Dataflow = cloudpickle.loads(cloudpickle.dumps(flow))  # type: ignore[no-untyped-call]
    assert there.application == flow.application
    assert [there.stream_type(outlet) for outlet, _ in there.inputs()] == [
        flow.stream_type(outlet) for outlet, _ in flow.inputs()
    ]
    made = {name: part.logic() for name, part in there.parts.items()}
    assert {n: list(o.process(3) or ()) for n, o in made.items() if isinstance(o, Operator)} == {
        "large": [3],
        "twice": [6],
        "many": [3, 3],
        "total": [(3, 3.0)],
    }


# Types of tuples


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
def test_a_functions_annotation_says_what_it_gives(function: Callable[[Any], Any], mapped: Any, flat: Any) -> None:
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


class Bare(Operator):  # type: ignore[type-arg]
    pass


class Stating(Operator[Any, Any]):
    def __init__(self, gives: Any) -> None:
        self.gives = gives


def make_total() -> Total:
    return Total()


@pytest.mark.parametrize(
    ("operator", "gives"),
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
def test_a_class_says_by_its_base_what_it_gives(operator: Any, gives: Any) -> None:
    flow, numbers = flow_with()
    assert flow.stream_type(numbers) is int
    assert flow.stream_type(flow.operator("operator", operator, numbers)) == gives


def test_what_is_stated_comes_before_what_is_annotated() -> None:
    flow, numbers = flow_with()
    assert flow.stream_type(flow.map("map", returns_list, numbers, gives=list[bytes])) == list[bytes]


def test_a_filter_gives_what_it_gets() -> None:
    flow, numbers = flow_with()
    words = flow.map("words", lambda n: Word("a", n), numbers, gives=Word)
    both = flow.operator("both", Bare, numbers, outputs=["w", "n"], gives={"w": Word, "n": int})
    assert flow.stream_type(flow.filter("one", bool, words)) is Word
    assert flow.stream_type(flow.filter("output", bool, both["n"])) is int
    assert flow.stream_type(flow.filter("equal", bool, both["w"], words)) is Word
    assert flow.stream_type(flow.filter("mixed", bool, words, numbers)) is Any


def test_where_a_task_or_output_is_named_the_type_is_that_of_what_is_sent() -> None:
    class Sending(Operator[int, tuple[int, Word]]):
        pass

    class Sorting(Operator[int, tuple[str, Word]]):
        pass

    class SortingAndSending(Operator[int, tuple[str, tuple[int, Word]]]):
        pass

    flow, numbers = flow_with()
    assert flow.stream_type(flow.operator("a", Sending, numbers).direct()) is Word
    assert flow.stream_type(flow.operator("b", Sending, numbers, gives=Word).direct()) is Word
    assert flow.stream_type(flow.operator("c", Sorting, numbers, outputs=["x"])["x"]) is Word
    assert flow.stream_type(flow.operator("d", SortingAndSending, numbers, outputs=["x"])["x"].direct()) is Word
    assert flow.stream_type(flow.operator("e", Sorting, numbers, outputs=["x"], gives=int)["x"]) is int


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
    assert flow.stream_type(flow.map("map", lambda n: n, numbers, gives=kind)) == kind


@pytest.mark.parametrize("kind", [Ordinary, list[Ordinary], dict[str, Ordinary], Opaque, Ordinary | None])
def test_refuses_types_that_cannot_travel(kind: Any) -> None:
    flow, numbers = flow_with()
    with pytest.raises(
        InvalidInput, match=r"^test\.map\.gives: objects of <class '.*Ordinary'> cannot travel; make it"
    ):
        flow.map("map", lambda n: n, numbers, gives=kind)


def test_refuses_a_type_that_nothing_can_be_read_as() -> None:
    flow, numbers = flow_with()
    with pytest.raises(InvalidInput, match=r"^test\.map\.gives: expected a type that can travel, got .*more than one"):
        flow.map("map", lambda n: n, numbers, gives=list[int] | tuple[str, ...])


# Mistakes


def test_refuses_a_name_that_no_topology_can_have() -> None:
    with pytest.raises(InvalidInput, match=r"^name: expected a name without white space, .* got 'word count'"):
        Dataflow("word count")


def test_refuses_a_name_that_is_taken() -> None:
    flow, _ = flow_with()
    with pytest.raises(InvalidInput, match=r"^test\.numbers: a component has that name already"):
        flow.source("numbers", Numbers)


@pytest.mark.parametrize(
    ("costs", "message"),
    [
        ({"parallelism": 0}, r"^test\.map\.parallelism: expected a whole number ≥ 1, got 0"),
        ({"cpu": -1.0}, r"^test\.map\.cpu: expected a number ≥ 0, got -1"),
        ({"paralellism": 2}, r"^test\.map\.paralellism: unknown keyword; expected one of .*parallelism"),
        ({"kind": "sink"}, r"^test\.map\.kind: unknown keyword"),
    ],
)
def test_refuses_wrong_costs(costs: dict[str, Any], message: str) -> None:
    flow, numbers = flow_with()
    with pytest.raises(InvalidInput, match=message):
        flow.map("map", str, numbers, **costs)


def test_refuses_a_component_that_nothing_feeds() -> None:
    flow, _ = flow_with()
    with pytest.raises(InvalidInput, match=r"^test\.map: expected at least one input, got none"):
        flow.map("map", str)


@pytest.mark.parametrize("wrong", ["numbers", None, Numbers()])
def test_refuses_inputs_that_are_no_outlets(wrong: Any) -> None:
    flow, numbers = flow_with()
    with pytest.raises(InvalidInput, match=r"^test\.keep\.inputs\[1\]: expected what source\(\), .* returned, got"):
        flow.filter("keep", bool, numbers, wrong)


def test_refuses_an_outlet_of_another_dataflow() -> None:
    flow, _ = flow_with()
    other = Dataflow("other").source("elsewhere", Numbers)
    with pytest.raises(UnknownName, match=r"^test\.map\.inputs\[0\]: 'elsewhere' is not in 'test'; add it first"):
        flow.map("map", str, other)


def test_refuses_the_same_input_twice() -> None:
    flow, numbers = flow_with()
    with pytest.raises(InvalidInput, match=r"^test\.map\.inputs\[1\]: 'numbers' is an input already"):
        flow.map("map", str, numbers, numbers.all())


def test_refuses_wrong_costs_of_a_stream() -> None:
    flow, numbers = flow_with()
    with pytest.raises(InvalidInput, match=r"^test\.map\.inputs\[0\]\.selectivity: expected a number ≥ 0, got -1"):
        flow.map("map", str, numbers.costing(selectivity=-1))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (3, r"^operator: expected a Operator or a function that makes one, got 3"),
        (Kept, r"^operator: expected its maker to return a Operator, got "),
        (Stating, r"^operator: Stating cannot be made without arguments, missing a required argument: 'gives'"),
    ],
)
def test_refuses_what_makes_no_operator(given: Any, message: str) -> None:
    flow, numbers = flow_with()
    with pytest.raises(PenstockError, match=message):
        made_by(flow, given, numbers)


def made_by(flow: Dataflow, given: Any, numbers: Outlet) -> object:
    flow.operator("operator", given, numbers)
    return flow.parts["operator"].logic()


def test_says_what_to_do_with_an_object_that_cannot_be_copied() -> None:
    class Locked(Kept):
        def __init__(self) -> None:
            self.lock = threading.Lock()

    flow, numbers = flow_with()
    flow.sink("sink", Locked(), numbers)
    with pytest.raises(InvalidInput, match=r"^sink: Locked cannot be copied for each task, .* lambda: Locked\(…\)"):
        flow.parts["sink"].logic()


def test_refuses_what_is_no_function() -> None:
    flow, numbers = flow_with()
    for add in (flow.map, flow.flat_map, flow.filter):
        with pytest.raises(InvalidInput, match=r"^part: expected a function, got 'text'"):
            add("part", "text", numbers)  # type: ignore[arg-type]


def test_refuses_an_output_that_is_not_there() -> None:
    flow, numbers = flow_with()
    both = flow.operator("both", Bare, numbers, outputs=["x", "y"])
    with pytest.raises(UnknownName, match=r"^output: 'both' has no output 'z'; it has x, y"):
        both["z"]
    with pytest.raises(
        InvalidInput, match=r"^test\.map\.inputs\[0\]: 'both' has several outputs; choose one as in outlet"
    ):
        flow.map("map", str, both)


@pytest.mark.parametrize(
    ("outputs", "gives", "message"),
    [
        ("xy", None, r"^test\.both\.outputs: expected a list of names, got 'xy'"),
        (["x", ""], None, r"^test\.both\.outputs: expected a list of names"),
        (["x", "x"], None, r"^test\.both\.outputs\[1\]: 'x' is already at"),
        (["x"], {"z": int}, r"^test\.both\.gives\.z: no output is named 'z'; it has x"),
        ([], {"z": int}, r"^test\.both\.gives\.z: no output is named 'z'; it has none"),
        (["x"], {"x": Ordinary}, r"^test\.both\.gives\.x: objects of .* cannot travel"),
    ],
)
def test_refuses_wrong_outputs(outputs: Sequence[str], gives: Any, message: str) -> None:
    flow, numbers = flow_with()
    with pytest.raises(InvalidInput, match=message):
        flow.operator("both", Bare, numbers, outputs=outputs, gives=gives)


@pytest.mark.parametrize(
    ("kind", "key", "message"),
    [
        (Word, "txet", r"^test\.sink\.inputs\[0\]\.keys\[0\]: Word has no field 'txet'; it has length, text"),
        (str, "word", r"tuples of type str have no field 'word'; use a place such as 0, or no key"),
        (tuple[str, int], 2, r"tuples of 2 values have no place 2; places count from 0"),
        (tuple[str, int], "word", r"have no field 'word'"),
        (Word, Named("word", "txet"), r"Word has no field 'txet'"),
        (Any, 3.5, r"^test\.sink\.inputs\[0\]\.keys\[0\]: expected a field's name, a place in a tuple or a function"),
    ],
)
def test_refuses_keys_that_the_tuples_do_not_have(kind: Any, key: Any, message: str) -> None:
    flow, numbers = flow_with()
    values = flow.map("values", lambda n: n, numbers, gives=kind)
    with pytest.raises(InvalidInput, match=message):
        flow.sink("sink", Kept, values.fields(key))


@pytest.mark.parametrize(
    ("kind", "key"),
    [(Word, "text"), (Pair, "other"), (tuple[str, int], -2), (tuple[int, ...], 9), (Any, "x"), (Word, len)],
)
def test_takes_keys_that_the_tuples_may_have(kind: Any, key: Any) -> None:
    flow, numbers = flow_with()
    flow.sink("sink", Kept, flow.map("values", lambda n: n, numbers, gives=kind).fields(key))
    assert len(flow.application.streams[1].keys) == 1


def test_refuses_more_tasks_than_there_are_groups_of_keys() -> None:
    flow, numbers = flow_with()
    with pytest.raises(InvalidInput, match=r"keys are spread over at most 4096 tasks, 'sink' has 4097"):
        flow.sink("sink", Kept, numbers.fields(), parallelism=KEY_GROUPS + 1)


def test_refuses_direct_beside_another_grouping_of_the_same_output() -> None:
    flow, numbers = flow_with()
    flow.sink("one", Kept, numbers.direct())
    with pytest.raises(InvalidInput, match=r"'numbers' sends to 'one' by direct, .*give 'numbers' named outputs"):
        flow.sink("other", Kept, numbers)


def test_the_topologys_own_checks_are_made() -> None:
    flow, numbers = flow_with()
    flow.sink("sink", Kept, numbers.forward(), parallelism=2)
    with pytest.raises(UnequalForward, match="'numbers' has 1 tasks and 'sink' 2"):
        flow.application  # noqa: B018
    loose, numbers = flow_with()
    loose.map("map", str, numbers)
    with pytest.raises(UnreachableComponent, match="no stream leads on from 'map'"):
        loose.application  # noqa: B018


# Contracts


def test_a_task_knows_its_name_its_clock_and_its_timers() -> None:
    woken = []
    context = TaskContext("count", 2, 4, clock=lambda: 7.5, wake=lambda: woken.append(True))
    context.at(8.0)
    context.wake()
    assert (context.name, context.now(), context.timers, woken) == ("count[2]", 7.5, [8.0], [True])


def test_a_context_works_without_a_clock_and_a_loop() -> None:
    context = TaskContext("count", 0, 1)
    context.wake()
    assert context.now() == 0.0


def test_what_an_author_leaves_out_does_nothing() -> None:
    operator, sink, source = Bare(), Kept(), Numbers()
    context = TaskContext("c", 0, 1)
    for part in (operator, sink, source):
        part.open(context)
        part.close()
    assert operator.finish() is None
    assert operator.on_timer(1.0) is None
    assert (operator.snapshot(), sink.snapshot()) == (None, None)
    assert source.next_due(2.0) > 2.0
    assert not source.rewinds


def test_values_may_carry_their_dues() -> None:
    polled = Timed(["a", "b"], [0.5, 0.75])
    assert dict(zip(polled.values, polled.dues, strict=True)) == {"a": 0.5, "b": 0.75}
