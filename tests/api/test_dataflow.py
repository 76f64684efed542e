"""Dataflows give the topology that one would write by hand, and the logic of every task."""

from collections.abc import Callable
from functools import partial

import pytest
from pyspark import cloudpickle

from penstock.api.contracts import Operator
from penstock.api.dataflow import Dataflow, Outlet
from penstock.api.keys import Named
from penstock.api.logic import FilterOperator, FlatMapOperator, MapOperator
from penstock.model.topology import Application, Component, Distribution, Grouping, Kind, ServiceTime, Stream
from tests.api.flows import Kept, Numbers, Total, flow_with


def test_the_topology_equals_one_written_by_hand() -> None:
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


def test_rates_are_known_only_if_every_source_has_one() -> None:
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
        flow.operator("total", lambda: Total(), numbers, emits=tuple[int, float]).fields(lambda pair: pair[0]),
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
