"""The contract of scaling policies, tested on all that are registered."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import is_dataclass, replace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.cluster import Cluster, Machine
from penstock.model.parallelism import forward_groups, parallelism_of
from penstock.model.topology import Application, Component, Grouping, Kind, Stream
from penstock.policies import registry
from penstock.policies.api import Resize, ScalingPolicy, ScalingView
from penstock.policies.registry import PolicyKind
from tests.generators import applications
from tests.policies.scaling.views import ROOMY, line, resized_by, view_of

NAMES = registry.names(PolicyKind.SCALING)
EVERY = pytest.mark.parametrize("name", NAMES)
ADAPTS = [name for name in NAMES if name != "fixed"]
SUITS_TPS = {"ds2": 950.0}  # rates that ten tasks of 100/s suit; 890/s for the others, which keep a reserve
TRUE = {"source": 1e6, "op1": 100.0, "op2": 100.0}


def check(view: ScalingView, answer: Resize) -> None:
    """An answer names every component, within its bounds, and its placement has a slot for every task."""
    assert set(answer.parallelism) == set(parallelism_of(view.topology))
    for name, number in answer.parallelism.items():
        assert isinstance(number, int)
        assert view.bounds[name].least <= number <= view.bounds[name].most
    for group in forward_groups(view.topology):
        assert len({answer.parallelism[name] for name in group}) == 1
    if answer.placement is not None:
        assert len(answer.placement.slots) == sum(answer.parallelism.values())


def under(load: float, *, width: int = 4, most: int | None = None, **more: Any) -> ScalingView:
    """Return a view of a line whose two operators are loaded to a share of their capacity, with what follows."""
    rate = load * width * 100.0
    overloaded = load > 1
    tasks = {
        "source": {task: {"blocked": 0.5 if overloaded else 0.0} for task in range(2)},
        "op1": {task: {"queue": 900.0 if overloaded else load} for task in range(width)},
        "op2": {task: {"queue": load} for task in range(width)},
    }
    return view_of(
        line(2, width, width),
        TRUE,
        target_tps=rate,
        tasks=tasks,
        arrived=np.full(40, int(rate * 60)),
        machines=2,
        most=most,
        **more,
    )


@EVERY
def test_is_a_frozen_slotted_dataclass_that_needs_no_arguments(name: str) -> None:
    kind = registry.policy_class(name, PolicyKind.SCALING)
    assert is_dataclass(kind)
    assert kind.__dataclass_params__.frozen  # type: ignore[attr-defined]
    assert isinstance(kind(), ScalingPolicy)
    assert not hasattr(kind(), "__dict__")


@EVERY
@pytest.mark.parametrize("load", [0.01, 0.5, 0.95, 3.0])
def test_stays_within_bounds(name: str, load: float) -> None:
    for most in (None, 5):
        view = under(load, most=most)
        check(view, resized_by(name, view))


@EVERY
def test_equal_views_and_seeds_give_equal_answers_and_leave_the_view_unchanged(name: str) -> None:
    view = under(3.0)
    before = deepcopy((view.loads, view.selectivity, view.arrived))
    assert resized_by(name, view, seed=5) == resized_by(name, under(3.0), seed=5)
    np.testing.assert_equal((view.loads, view.selectivity, view.arrived), before)


@EVERY
def test_keeps_a_parallelism_that_suits_the_load(name: str) -> None:
    rate = SUITS_TPS.get(name, 890.0)
    view = view_of(
        line(1, 10, 10),
        TRUE,
        target_tps=rate,
        tasks={part: {task: {"queue": 3.0} for task in range(10)} for part in ("op1", "op2")},
        arrived=np.full(40, int(rate * 60)),
    )
    assert resized_by(name, view).parallelism == view.parallelism


@pytest.mark.parametrize("name", ADAPTS)
def test_grows_what_is_overloaded_and_shrinks_what_is_idle(name: str) -> None:
    assert sum(resized_by(name, under(3.0)).parallelism.values()) > 10
    assert sum(resized_by(name, under(0.05)).parallelism.values()) < 10


@pytest.mark.parametrize("name", ADAPTS)
def test_gives_a_reason_for_a_change(name: str) -> None:
    assert "op1 4 -> " in resized_by(name, under(3.0)).note


@EVERY
def test_never_resizes_what_may_not_be_resized(name: str) -> None:
    app = line(2, 4, 4)
    source, first, second = app.components
    fixed = msgspec.structs.replace(
        app,
        components=(
            source,
            msgspec.structs.replace(first, pinned=("m0", "m1", "m2", "m3")),
            msgspec.structs.replace(second, min_parallelism=4, max_parallelism=4),
        ),
    )
    for load in (0.05, 3.0):
        found = resized_by(name, replace(under(load), topology=fixed)).parallelism
        assert (found["op1"], found["op2"]) == (4, 4)


@EVERY
def test_an_interval_without_tuples_changes_nothing_or_less(name: str) -> None:
    view = view_of(line(2, 4, 4), {}, target_tps=0.0, arrived=np.zeros(3, dtype=np.int64))
    answer = resized_by(name, view)
    check(view, answer)
    assert all(answer.parallelism[part] <= number for part, number in view.parallelism.items())


@EVERY
def test_handles_one_task_of_each_component_and_a_thousand(name: str) -> None:
    for width in (1, 1000):
        view = replace(under(3.0, width=width), cluster=Cluster(name="one", machines=(Machine(name="m", slots=8),)))
        check(view, resized_by(name, view))


@EVERY
def test_a_component_that_gets_every_tuple_in_every_task_is_left_alone(name: str) -> None:
    app = line(2, 4, 4)
    for grouping in (Grouping.ALL, Grouping.GLOBAL):
        streams = tuple(msgspec.structs.replace(stream, grouping=grouping) for stream in app.streams)
        view = replace(under(3.0), topology=msgspec.structs.replace(app, streams=streams))
        found = resized_by(name, view).parallelism
        assert (found["op1"], found["op2"]) == (4, 4)


@pytest.mark.slow
@EVERY
@settings(max_examples=30)
@given(app=applications(), data=st.data())
def test_answers_any_measurements(name: str, app: Application, data: st.DataObject) -> None:
    rates: Mapping[str, float] = {
        component.name: data.draw(st.floats(0.1, 1e4)) for component in app.components if data.draw(st.booleans())
    }
    shares = st.floats(0.0, 1.0)
    deviations = {
        component.name: {0: {"blocked": data.draw(shares), "queue": data.draw(st.floats(0.0, 1e5))}}
        for component in app.components
    }
    view = view_of(
        app,
        rates,
        target_tps=data.draw(st.floats(0.0, 1e5)),
        tasks=deviations,
        backlog=data.draw(st.integers(0, 10**7)),
        arrived=np.array(data.draw(st.lists(st.integers(0, 10**6), max_size=30)), dtype=np.int64),
        steady=data.draw(st.sampled_from([0.0, 5.0, float("inf")])),
        machines=data.draw(st.integers(1, 4)),
        cluster=ROOMY,
    )
    check(view, resized_by(name, view))


def test_an_unknown_policy_or_parameter_is_rejected() -> None:
    with pytest.raises(ValueError, match="no scaling policy is named 'ds3'; did you mean ds2"):
        registry.scaling_policy("ds3")
    with pytest.raises(ValueError, match=r"scaling.look-ahead.forecast: no forecast policy is named 'oracle'"):
        registry.scaling_policy("look-ahead:forecaster=oracle")
    with pytest.raises(ValueError, match=r"scaling.ds2.utilisation: expected a number > 0, got '?0"):
        registry.scaling_policy("ds2:utilisation=0")


def test_components_joined_by_forward_streams_get_the_larger_number() -> None:
    app = Application(
        name="forwarded",
        components=(
            Component(name="in", kind=Kind.SOURCE, parallelism=2),
            Component(name="a", parallelism=2),
            Component(name="b", parallelism=2),
            Component(name="out", kind=Kind.SINK),
        ),
        streams=(
            Stream(source="in", target="a"),
            Stream(source="a", target="b", grouping=Grouping.FORWARD),
            Stream(source="b", target="out"),
        ),
    )
    view = view_of(app, {"in": 1e6, "a": 100.0, "b": 50.0, "out": 1e4}, target_tps=250.0)
    assert resized_by("ds2", view).parallelism == {"in": 2, "a": 5, "b": 5, "out": 1}
