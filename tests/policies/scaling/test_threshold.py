"""The band of utilisation, worked by hand: 10 tasks of 100/s carry 1,000/s."""

from typing import Any

import pytest

from tests.policies.scaling.views import line, resized_by, view_of

TRUE = {"source": 1e6, "op1": 100.0, "op2": 100.0}


def after(rate: float, spec: str = "threshold", **more: Any) -> dict[str, int]:
    view = view_of(line(1, 10, 10), TRUE, target_tps=rate, **more)
    return dict(resized_by(spec, view).parallelism)


@pytest.mark.parametrize("rate", [400.0, 700.0, 1000.0])
def test_leaves_components_in_the_band_alone(rate: float) -> None:
    assert after(rate) == {"source": 1, "op1": 10, "op2": 10}


@pytest.mark.parametrize(("rate", "tasks"), [(1001.0, 15), (2100.0, 30), (399.0, 6), (350.0, 5)])
def test_returns_to_the_utilisation_in_the_middle(rate: float, tasks: int) -> None:
    assert after(rate)["op1"] == tasks  # rate / (0.7 × 100), rounded up


def test_limits_a_reduction() -> None:
    assert after(70.0)["op1"] == 4  # 1 would do, and 60 % at most are removed
    assert after(70.0, "threshold:max_reduction=1")["op1"] == 1


def test_adds_tasks_for_a_backlog() -> None:
    # 36,000 tuples in 6 intervals of 60 s are another 100/s, which takes one task at full use
    assert after(1000.0, backlog=36_000)["op1"] == 16  # 1000 / 70 + 1, rounded up
    assert after(800.0, backlog=36_000)["op1"] == 10  # 8 + 1 tasks at the band's end still suffice


def test_a_reduction_waits_after_a_change_and_growth_does_not() -> None:
    assert after(350.0, steady=11.0)["op1"] == 10
    assert after(350.0, steady=12.0)["op1"] == 5
    assert after(1001.0, steady=0.0)["op1"] == 15


def test_one_component_outside_the_band_resizes_all() -> None:
    view = view_of(line(1, 10, 10), {"source": 1e6, "op1": 100.0, "op2": 50.0}, target_tps=600.0)
    answer = resized_by("threshold", view)
    assert answer.parallelism == {"source": 1, "op1": 9, "op2": 18}
    assert answer.note == "op1 10 -> 9, op2 10 -> 18; op2 at 600/s leaves its band"


def test_a_source_is_resized_too() -> None:
    view = view_of(line(2, 10, 10), {"source": 350.0, "op1": 100.0, "op2": 100.0}, target_tps=800.0)
    assert resized_by("threshold", view).parallelism["source"] == 4  # 800 / (0.7 × 350), rounded up
