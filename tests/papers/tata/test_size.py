"""The figure of reward against time: its instances, a case of it, and what its claims say of rows."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure as Picture

from penstock.experiments.figure import Claim
from penstock.learn.instances import sized_pair
from penstock.papers.tata.size import SIZE, policies


def rows(greedy: float, heuristic: float, started: float = 0.7) -> pd.DataFrame:
    """Return rows of one instance; a search ends with 0.7, one that starts from the network with `started`."""
    values = dict.fromkeys(policies(quick=True), (0.1, 0.001))
    values |= {"greedy-sorted": (heuristic, 0.002), "neural:samples=1": (greedy, 0.01)}
    values |= {name: (0.7, 0.1) for name in values if name.startswith("local-search")}
    values |= {name: (started, 0.1) for name in values if name.startswith("neural-search")}
    return pd.DataFrame(
        {"tasks": 100, "seed": 0, "policy": name, "reward": reward, "seconds": seconds}
        for name, (reward, seconds) in values.items()
    )


def claim(found: pd.DataFrame, part: str) -> Claim:
    [one] = [one for one in SIZE.claims(found) if part in one.claim]
    return one


@pytest.mark.slow
@pytest.mark.parametrize("tasks", [100, 1000])
def test_an_instance_has_the_number_of_tasks_asked_for(tasks: int) -> None:
    job, cluster = sized_pair(np.random.default_rng(0), tasks)
    assert 0.9 * tasks <= job.task_count <= 1.1 * tasks
    assert len(cluster.machines) <= tasks // 10
    assert tasks // 4 <= cluster.slot_count <= tasks // 3


@pytest.mark.slow
def test_every_policy_places_an_instance_within_about_its_time() -> None:
    [case] = SIZE.cases(True)
    found = pd.DataFrame([dict(row) for row in SIZE.run(case)])
    assert list(found["policy"]) == policies(quick=True)
    reward = found.set_index("policy")["reward"]
    assert reward[["i-storm", "flink"]].mean() == pytest.approx(0.0, abs=1e-6)  # (13) is relative to those that fit
    assert reward["local-search:seconds=0.1"] > reward[["i-storm", "greedy-sorted", "random"]].max()


def test_the_network_is_compared_with_what_decides_as_quickly() -> None:
    assert claim(rows(greedy=0.5, heuristic=0.4), "decides as quickly").holds
    lower = claim(rows(greedy=0.3, heuristic=0.4), "decides as quickly")
    assert not lower.holds
    assert "1: +0.300 in 0.01 s, greedy-sorted +0.400" in lower.ours


def test_searches_are_compared_at_equal_time() -> None:
    assert claim(rows(0.5, 0.4, started=0.71), "at no time limit worse").holds
    assert not claim(rows(0.5, 0.4, started=0.6), "at no time limit worse").holds


def test_its_picture_has_an_axis_per_size() -> None:
    picture = Picture()
    SIZE.draw(rows(0.5, 0.4), picture)
    assert picture.axes[0].get_title() == "100 tasks"
