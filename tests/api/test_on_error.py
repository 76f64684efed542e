from typing import Any

import pytest

import penstock as ps
from penstock.api.on_error import Fail, Retry, Skip, letters_folder
from penstock.model.errors import InvalidInput


def numbers(flow: ps.Dataflow) -> Any:
    return flow.source("numbers", ps.Generated(lambda n: n, count=10), emits=int)


def test_every_component_takes_a_policy() -> None:
    flow = ps.Dataflow("all")
    given = flow.source("numbers", ps.Generated(lambda n: n, count=10), emits=int, errors=ps.Skip())
    made = [
        flow.operator("operator", ps.Operator, given, errors=ps.Skip()),
        flow.map("map", str, given, errors=ps.Skip()),
        flow.flat_map("flat", lambda n: [n], given, errors=ps.Skip()),
        flow.filter("filter", bool, given, errors=ps.Skip()),
    ]
    flow.sink("sink", ps.Discard(), *made, errors=ps.Skip())
    policies = {name: part.errors for name, part in flow.parts.items()}
    assert policies == dict.fromkeys(("numbers", "operator", "map", "flat", "filter", "sink"), ps.Skip())


def test_a_component_that_fails_has_no_policy_so_that_it_costs_nothing() -> None:
    flow = ps.Dataflow("failing")
    flow.map("explicit", str, numbers(flow), errors=ps.Fail())
    flow.map("default", str, flow.map("before", str, flow.source("more", ps.Generated(str, count=1))))
    assert flow.parts["explicit"].errors is flow.parts["default"].errors is None
    assert flow.parts["explicit"].letters is None


@pytest.mark.parametrize(
    ("errors", "problem"),
    [
        (ps.Skip, r"got the class; write ps.Skip\(\)"),
        ("skip", r"expected ps.Fail\(\), ps.Skip\(\) or ps.Retry\(\), got 'skip'"),
        (3, "got 3"),
    ],
)
def test_rejects_what_is_no_policy(errors: Any, problem: str) -> None:
    flow = ps.Dataflow("wrong")
    with pytest.raises(InvalidInput, match=rf"wrong\.parse\.errors: .*{problem}"):
        flow.map("parse", str, numbers(flow), errors=errors)


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: Retry(times=0), "times"),
        (lambda: Retry(times=True), "times"),
        (lambda: Retry(times=1.5), "times"),  # type: ignore[arg-type]
        (lambda: Retry(wait=-1), "wait"),
        (lambda: Retry(wait=float("inf")), "wait"),
        (lambda: Retry(wait=float("nan")), "wait"),
        (lambda: Retry(factor=0.5), "factor"),
        (lambda: Retry(factor="2"), "factor"),  # type: ignore[arg-type]
        (lambda: Retry(then=Retry()), "then"),  # type: ignore[arg-type]
        (lambda: Skip(folder=""), "folder"),
        (lambda: Skip(folder=None), "folder"),  # type: ignore[arg-type]
    ],
)
def test_rejects_settings_that_make_no_sense(make: Any, field: str) -> None:
    with pytest.raises(InvalidInput, match=f"^{field}: expected"):
        make()


def test_waits_grow_by_their_factor() -> None:
    retry = Retry(times=4, wait=0.5, factor=3.0)
    assert [retry.delay(tries) for tries in range(3)] == [0.5, 1.5, 4.5]


def test_knows_the_folders_of_skipped_tuples() -> None:
    assert letters_folder(Skip()) == "dead-letters"
    assert letters_folder(Retry(then=Skip("bad"))) == "bad"
    assert letters_folder(Retry()) is None
    assert letters_folder(Fail()) is None
