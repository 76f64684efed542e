"""Look ahead, with an estimator that is written down here: a task carries 100/s, a machine 4 tasks."""

from typing import Any

import numpy as np

from penstock.model.placement import Constraint, Infeasible, Placement
from penstock.policies.api import Resize, ScalingView, Sized
from tests.policies.scaling.views import line, resized_by, view_of

TRUE = {"source": 1e6, "op1": 100.0, "op2": 1e6}
CONSTANT = "look-ahead:forecaster=moving-average:window=1,margin=0,horizon=6,hold=12"


def size(rate: float) -> Sized:
    tasks = max(int(np.ceil(rate / 100.0 - 1e-9)), 1)
    machines = -(-tasks // 4)
    slots = (0, *(8 * (task // 4) for task in range(tasks)), 0)
    return Sized({"source": 1, "op1": tasks, "op2": 1}, Placement(slots), tasks * 100.0, machines)


def after(arrived: list[float], tasks: int = 8, spec: str = CONSTANT, **more: Any) -> Resize:
    """Return the answer for tuples per second that arrived in intervals of 60 s."""
    view = view_of(
        line(1, tasks, 1),
        TRUE,
        target_tps=arrived[-1],
        arrived=np.array([round(60 * rate) for rate in arrived]),
        **{"predicted_tps": tasks * 100.0, "machines": -(-tasks // 4), "size": size, **more},
    )
    return resized_by(spec, view)


def test_keeps_what_carries_the_next_interval() -> None:
    assert after([700.0] * 20).parallelism["op1"] == 8


def test_resizes_and_places_when_the_next_interval_needs_more() -> None:
    answer = after([*[700.0] * 19, 730.0])
    assert answer.parallelism["op1"] == 9  # 730 / 0.9 / 100, rounded up
    assert answer.placement is not None
    assert len(answer.placement.slots) == 11
    assert answer.note == "op1 8 -> 9; the next interval needs 730/s"


def test_adds_capacity_for_a_backlog() -> None:
    answer = after([700.0] * 20, backlog=18_000)  # in 3 intervals of 60 s, another 100/s
    assert answer.parallelism["op1"] == 9


def test_sizes_for_the_largest_of_the_last_intervals() -> None:
    assert after([*[700.0] * 15, 900.0, *[700.0] * 3, 730.0]).parallelism["op1"] == 10


def test_a_rising_trend_is_met_before_it_arrives() -> None:
    rising = [20.0 * interval for interval in range(1, 37)]
    ahead = after(rising, spec="look-ahead:forecaster=kalman:trend=true,margin=0,horizon=6,hold=12")
    assert ahead.parallelism["op1"] == 10  # 720/s now; 740/s next, 840/s in six intervals, at 90 %
    sooner = after(rising, spec="look-ahead:forecaster=kalman:trend=true,margin=0,horizon=1")
    assert sooner.parallelism["op1"] == 9


def test_an_uncertain_forecast_gets_a_margin() -> None:
    noisy = [*np.random.default_rng(3).normal(600.0, 60.0, 60).tolist(), 600.0]
    sure, careful = (after(noisy, spec=f"look-ahead:forecaster=empirical,margin={q}") for q in (0.0, 0.99))
    assert sure.parallelism["op1"] == 8
    assert careful.parallelism["op1"] > 8


def test_shrinks_only_if_that_frees_enough_machines_and_nothing_has_just_changed() -> None:
    low = [300.0] * 20
    assert after(low, steady=12.0).parallelism["op1"] == 4
    assert after(low, steady=11.0).parallelism["op1"] == 8
    assert after([450.0] * 20).parallelism["op1"] == 8  # 5 tasks still need 2 machines
    assert after([*[700.0] * 12, *[300.0] * 11]).parallelism["op1"] == 8  # what arrived must still be carried
    assert after([*[700.0] * 12, *[300.0] * 12]).parallelism["op1"] == 4


def test_without_an_estimator_true_rates_decide() -> None:
    grown = after([*[700.0] * 19, 1000.0], predicted_tps=None, size=None)
    assert (grown.parallelism["op1"], grown.placement) == (12, None)
    assert after([700.0] * 20, predicted_tps=None, size=None).parallelism["op1"] == 8
    assert after([300.0] * 20, predicted_tps=None, size=None).parallelism["op1"] == 4


def test_a_refusal_keeps_the_parallelism_and_states_the_reason() -> None:
    refusal = Infeasible(Constraint.MEMORY, "no memory is left", 2.0, 1.0)

    def refuse(_rate: float) -> Infeasible:
        return refusal

    answer = after([*[700.0] * 19, 900.0], size=refuse)
    assert answer.parallelism["op1"] == 8
    assert answer.note == "the next interval needs 900/s, but no memory is left"


def test_the_first_interval_needs_the_target_rate() -> None:
    view = view_of(line(1, 1, 1), TRUE, target_tps=500.0, predicted_tps=100.0, machines=1, size=size)
    assert isinstance(view, ScalingView)
    assert resized_by(CONSTANT, view).parallelism["op1"] == 6


def test_expects_what_came_a_season_ago_relative_to_the_level_now() -> None:
    yesterday = [*[300.0] * 12, *[600.0] * 12]
    today = [*[350.0] * 11, 355.0]  # a little more than at this time yesterday, and 600/s are to come
    spec = "look-ahead:forecaster=moving-average:window=1,margin=0,horizon=6,hold=12"
    assert after([*yesterday, *today], tasks=4, spec=spec).parallelism["op1"] == 4
    rising = after([*yesterday, *today[:-1], 365.0], tasks=4, spec=f"{spec},season=24")
    assert rising.parallelism["op1"] == 8  # 600/s × 351 / 300, at 90 %
    assert after([*yesterday, *today[:-1], 365.0], tasks=4, spec=spec).parallelism["op1"] == 5
