"""Errors in a dataflow are reported where they are made, by name."""

import pickle
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from penstock.api.dataflow import Dataflow, Outlet
from penstock.api.keys import KEY_GROUPS, Named
from penstock.model.errors import InvalidInput, PenstockError, UnequalForward, UnknownName, UnreachableComponent
from tests.api.flows import Bare, Kept, Numbers, Ordinary, Pair, Stating, Word, flow_with


def test_rejects_a_name_that_no_topology_can_have() -> None:
    with pytest.raises(InvalidInput, match=r"^name: expected a name without white space, .* got 'word count'"):
        Dataflow("word count")


def test_rejects_a_name_that_is_taken() -> None:
    flow, _ = flow_with()
    with pytest.raises(InvalidInput, match=r"^test\.numbers: this name is already used"):
        flow.source("numbers", Numbers)


@pytest.mark.parametrize(
    ("costs", "message"),
    [
        ({"parallelism": 0}, r"^test\.map\.parallelism: expected a whole number ≥ 1, got 0"),
        ({"cpu": -1.0}, r"^test\.map\.cpu: expected a number ≥ 0, got -1"),
        ({"paralellism": 2}, r"^test\.map\.paralellism: unknown keyword; did you mean parallelism or "),
        ({"kind": "sink"}, r"^test\.map\.kind: unknown keyword"),
    ],
)
def test_rejects_wrong_costs(costs: dict[str, Any], message: str) -> None:
    flow, numbers = flow_with()
    with pytest.raises(InvalidInput, match=message):
        flow.map("map", str, numbers, **costs)


def test_rejects_a_component_that_nothing_feeds() -> None:
    flow, _ = flow_with()
    with pytest.raises(InvalidInput, match=r"^test\.map: expected at least one input, got none"):
        flow.map("map", str)


@pytest.mark.parametrize("wrong", ["numbers", None, Numbers()])
def test_rejects_inputs_that_are_no_outlets(wrong: Any) -> None:
    flow, numbers = flow_with()
    with pytest.raises(InvalidInput, match=r"^test\.keep\.inputs\[1\]: expected what source\(\), .* returned, got"):
        flow.filter("keep", bool, numbers, wrong)


def test_rejects_an_outlet_of_another_dataflow() -> None:
    flow, _ = flow_with()
    other = Dataflow("other").source("elsewhere", Numbers)
    with pytest.raises(
        InvalidInput, match=r"^test\.map\.inputs\[0\]: 'elsewhere' belongs to another Dataflow; use what"
    ):
        flow.map("map", str, other)


def test_rejects_the_same_input_twice() -> None:
    flow, numbers = flow_with()
    with pytest.raises(InvalidInput, match=r"^test\.map\.inputs\[1\]: 'numbers' is already an input"):
        flow.map("map", str, numbers, numbers.all())


def test_rejects_wrong_costs_of_a_stream() -> None:
    flow, numbers = flow_with()
    with pytest.raises(InvalidInput, match=r"^test\.map\.inputs\[0\]\.selectivity: expected a number ≥ 0, got -1"):
        flow.map("map", str, numbers.costing(selectivity=-1))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (3, r"^operator: expected a Operator or a function that creates one, got 3"),
        (Kept, r"^operator: expected a subclass of Operator or a function that creates one, got class 'Kept'"),
        (lambda: Kept(), r"^operator: expected its factory to return a Operator, got "),
        (Stating, r"^operator: Stating cannot be called without arguments, missing a required argument: 'emits'"),
    ],
)
def test_rejects_what_makes_no_operator(given: Any, message: str) -> None:
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


def test_rejects_what_is_no_function() -> None:
    flow, numbers = flow_with()
    for add in (flow.map, flow.flat_map, flow.filter):
        with pytest.raises(InvalidInput, match=r"^part: expected a function, got 'text'"):
            add("part", "text", numbers)  # type: ignore[arg-type]


def test_rejects_an_outlet_of_another_dataflow_that_has_a_component_of_that_name() -> None:
    flow, _ = flow_with()
    _, foreign = flow_with()
    for outlet in (foreign, foreign.fields(), foreign.costing(selectivity=2)):
        with pytest.raises(InvalidInput, match=r"^test\.map\.inputs\[0\]: 'numbers' belongs to another Dataflow; use"):
            flow.map("map", str, outlet)


def test_a_copy_of_a_dataflow_takes_its_own_outlets() -> None:
    flow, numbers = flow_with()
    flow, numbers = pickle.loads(pickle.dumps((flow, numbers)))
    flow.map("map", str, numbers)


def test_rejects_a_class_that_makes_no_operator_with_what_to_use_instead() -> None:
    flow, numbers = flow_with()
    problem = r"^a: expected a subclass of Operator or a function that creates one, got class 'dict'"
    with pytest.raises(InvalidInput, match=f"{problem}; for a function of a tuple use map, flat_map or filter"):
        flow.operator("a", dict, numbers)  # type: ignore[arg-type]
    with pytest.raises(
        InvalidInput, match=r"^a: .* cannot be called without arguments.*; for a function of a tuple use"
    ):
        flow.operator("a", str.split, numbers)  # type: ignore[arg-type]
    with pytest.raises(
        InvalidInput, match=r"^b: expected a subclass of Sink or a function that creates one, got class"
    ):
        flow.sink("b", list, numbers)  # type: ignore[arg-type]


def test_rejects_an_output_that_is_not_there() -> None:
    flow, numbers = flow_with()
    both = flow.operator("both", Bare, numbers, outputs=["x", "y"])
    with pytest.raises(UnknownName, match=r"^output: 'both' has no output 'z'; there are x, y"):
        both["z"]
    with pytest.raises(
        InvalidInput, match=r"^test\.map\.inputs\[0\]: 'both' has several outputs; choose one as in outlet"
    ):
        flow.map("map", str, both)


@pytest.mark.parametrize(
    ("outputs", "emits", "message"),
    [
        ("xy", None, r"^test\.both\.outputs: expected a list of names, got 'xy'"),
        (["x", ""], None, r"^test\.both\.outputs: expected a list of names"),
        (["x", "x"], None, r"^test\.both\.outputs\[1\]: 'x' is already at"),
        (["x"], {"z": int}, r"^test\.both\.emits\.z: no output is named 'z'; there are x"),
        ([], {"z": int}, r"^test\.both\.emits\.z: no output is named 'z'; it has none"),
        (["x"], {"x": Ordinary}, r"^test\.both\.emits\.x: objects of .* cannot be encoded"),
    ],
)
def test_rejects_wrong_outputs(outputs: Sequence[str], emits: Any, message: str) -> None:
    flow, numbers = flow_with()
    with pytest.raises(InvalidInput, match=message):
        flow.operator("both", Bare, numbers, outputs=outputs, emits=emits)


@pytest.mark.parametrize(
    ("kind", "key", "message"),
    [
        (Word, "txet", r"^test\.sink\.inputs\[0\]\.keys\[0\]: Word has no field 'txet'; did you mean text\?"),
        (str, "word", r"tuples of type str have no field 'word'; use a position such as 0, or no key"),
        (tuple[str, int], 2, r"tuples of 2 values have no position 2; positions start at 0"),
        (tuple[str, int], "word", r"have no field 'word'"),
        (Word, Named("word", "txet"), r"Word has no field 'txet'"),
        (
            Any,
            3.5,
            r"^test\.sink\.inputs\[0\]\.keys\[0\]: expected a field's name, a position in a tuple or a function",
        ),
    ],
)
def test_rejects_keys_that_the_tuples_do_not_have(kind: Any, key: Any, message: str) -> None:
    flow, numbers = flow_with()
    values = flow.map("values", lambda n: n, numbers, emits=kind)
    with pytest.raises(InvalidInput, match=message):
        flow.sink("sink", Kept, values.fields(key))


@pytest.mark.parametrize(
    ("kind", "key"),
    [(Word, "text"), (Pair, "other"), (tuple[str, int], -2), (tuple[int, ...], 9), (Any, "x"), (Word, len)],
)
def test_takes_keys_that_the_tuples_may_have(kind: Any, key: Any) -> None:
    flow, numbers = flow_with()
    flow.sink("sink", Kept, flow.map("values", lambda n: n, numbers, emits=kind).fields(key))
    assert len(flow.application.streams[1].keys) == 1


def test_rejects_more_tasks_than_there_are_groups_of_keys() -> None:
    flow, numbers = flow_with()
    with pytest.raises(InvalidInput, match=r"keys can be distributed to at most 4096 tasks, 'sink' has 4097"):
        flow.sink("sink", Kept, numbers.fields(), parallelism=KEY_GROUPS + 1)


def test_rejects_direct_beside_another_grouping_of_the_same_output() -> None:
    flow, numbers = flow_with()
    flow.sink("one", Kept, numbers.direct())
    with pytest.raises(InvalidInput, match=r"'numbers' sends to 'one' by direct, .*define named outputs of 'numbers'"):
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
