"""Dhalion's diagnoses, each from its symptoms."""

from collections.abc import Mapping
from typing import Any

import pytest

from penstock.policies.api import Resize
from tests.policies.scaling.views import line, resized_by, view_of

TRUE = {"source": 1e6, "op1": 100.0, "op2": 100.0}
Tasks = Mapping[str, Mapping[int, Mapping[str, float]]]


def after(tasks: Tasks, spec: str = "dhalion", **more: Any) -> Resize:
    return resized_by(spec, view_of(line(1, 10, 10), TRUE, target_tps=500.0, tasks=tasks, **more))


def every(**values: float) -> dict[int, dict[str, float]]:
    return dict.fromkeys(range(10), values)


LONG = every(queue=50.0)


@pytest.mark.parametrize(("share", "tasks"), [(0.2, 13), (0.5, 20), (0.95, 20)])
def test_grows_by_the_time_for_which_others_were_blocked(share: float, tasks: int) -> None:
    answer = after({"source": {0: {"blocked": share}}, "op1": LONG, "op2": LONG})
    assert answer.parallelism == {"source": 1, "op1": tasks, "op2": 10}  # 1 + share / (1 - share), at most twice
    assert answer.note.startswith(f"op1 blocks others for {share:.0%} of the time")


def test_grows_the_component_that_causes_back_pressure_not_the_one_that_passes_it_on() -> None:
    answer = after({"source": {0: {"blocked": 0.5}}, "op1": every(queue=50.0, blocked=0.5), "op2": LONG})
    assert answer.parallelism == {"source": 1, "op1": 10, "op2": 20}


def test_slow_tasks_are_reported_and_not_resized() -> None:
    slow = {**every(queue=5.0), 3: {"queue": 500.0, "processed_tps": 10.0}}
    answer = after({"source": {0: {"blocked": 0.5}}, "op1": slow, "op2": LONG})
    assert answer.parallelism["op1"] == 10
    assert answer.note == "op1 causes back-pressure: slow tasks op1[3]; its parallelism is kept"


def test_skewed_keys_are_reported_and_not_resized() -> None:
    skewed = {**every(queue=5.0), 3: {"queue": 500.0, "processed_tps": 100.0}}
    answer = after({"source": {0: {"blocked": 0.5}}, "op1": skewed, "op2": LONG})
    assert answer.parallelism["op1"] == 10
    assert "skewed keys at op1[3]" in answer.note


def test_shrinks_the_component_with_the_shortest_queues() -> None:
    answer = after({"op1": every(queue=0.5), "op2": every(queue=0.2)})
    assert answer.parallelism == {"source": 1, "op1": 10, "op2": 8}


def test_long_queues_or_a_recent_change_prevent_a_reduction() -> None:
    assert after({"op1": LONG, "op2": LONG}).parallelism["op1"] == 10
    assert after({"op1": every(queue=0.0), "op2": LONG}, steady=1.0).parallelism["op1"] == 10


def test_a_component_with_one_task_left_gives_way_to_the_next() -> None:
    view = view_of(line(1, 1, 5), TRUE, target_tps=5.0, tasks={"op2": {task: {"queue": 0.5} for task in range(5)}})
    assert resized_by("dhalion", view).parallelism == {"source": 1, "op1": 1, "op2": 4}
