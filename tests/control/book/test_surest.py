"""Routes that leave a path's rate as it is, and fail less often or take fewer links."""

import numpy as np
import pytest

from penstock.control.book import Admitted, admit
from penstock.control.book.surest import surest
from penstock.control.planner import Planner
from penstock.estimate.evaluator import Objective
from penstock.model.book import Book
from penstock.model.cluster import Cluster, Link, Machine
from penstock.model.placement import Placement
from penstock.model.topology import Application, Component, Kind, Stream
from penstock.policies.checks import violations
from penstock.workloads.sparcle import Scarcity, draw

CHAIN = Application(
    name="chain",
    components=(
        Component(name="in", kind=Kind.SOURCE, pinned="a"),
        Component(name="out", kind=Kind.SINK, cpu=1.0, pinned="d"),
    ),
    streams=(Stream(source="in", target="out", tuple_bytes=125_000.0),),  # 1 Mbit
)


def network(over_b: float, over_c: float, fails_b: float, direct: float | None = None) -> Cluster:
    """Join `a` and `d` over `b` and over `c`, and perhaps directly, by links of some bandwidth."""
    links = [("a", "b", over_b), ("b", "d", over_b), ("a", "c", over_c), ("c", "d", over_c)]
    links += [] if direct is None else [("a", "d", direct)]
    machines = [Machine(name=name, failure_probability=fails_b if name == "b" else 0.0) for name in "abcd"]
    made = tuple(Link(source=s, target=t, bandwidth_mbps=width) for s, t, width in links)
    return Cluster(name="square", machines=tuple(machines), links=made)


def route(cluster: Cluster) -> tuple[str, ...]:
    found = admit(Book(cluster=cluster), CHAIN)
    assert isinstance(found, Admitted)
    (only,) = found.booking.paths[0].plan.routes
    return only.links


def test_takes_the_way_that_fails_less_of_two_that_are_wide_enough() -> None:
    assert route(network(100.0, 50.0, fails_b=0.1)) == ("a--c", "c--d")
    assert route(network(50.0, 100.0, fails_b=0.0, direct=2.0)) == ("a--d",)


def test_takes_the_wide_way_where_the_sure_one_would_cost_rate() -> None:
    assert route(network(100.0, 0.5, fails_b=0.1)) == ("a--b", "b--d")


@pytest.mark.parametrize("seed", range(20))
def test_never_changes_the_rate_and_never_fails_more_often(seed: int) -> None:
    setting = draw("complete" if seed % 2 else "star", "diamond", Scarcity(), seed)
    planner = Planner(setting.application, setting.cluster, Objective.RATE)
    before = planner.decide("sparcle")
    after = surest(planner, before)
    assert isinstance(after.result, Placement)
    assert not violations(planner.view, after.result)
    assert before.evaluation is not None
    assert after.evaluation is not None
    assert after.evaluation.rate_tps == pytest.approx(before.evaluation.rate_tps, rel=1e-8)
    assert isinstance(before.result, Placement)
    links = [np.concatenate([*one.result.routes.values(), []]) for one in (before, after)]  # type: ignore[union-attr]
    assert len(links[1]) <= len(links[0])
