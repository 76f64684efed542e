from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from penstock.estimate.communication import CommunicationBound, communication_bound
from penstock.model.cluster import Cluster, Machine
from penstock.model.errors import InvalidInput, UnknownName
from penstock.model.placement import Placement
from penstock.model.topology import Application, Component, Grouping, Kind, Stream
from penstock.planning.planner import Planner
from penstock.policies.registry import routing_policy
from penstock.sim.slotted import Arrivals, SlottedResult, simulate
from penstock.simulation.slotted import (
    LookAhead,
    RoutingComparison,
    RoutingResult,
    SlottedApplication,
    all_routings,
    arriving,
    own_arrivals,
    simulate_application,
)
from penstock.workloads.applications import application
from penstock.workloads.arrivals import Constant, OnOff, Poisson, Replay
from penstock.workloads.clusters import cluster


def chain(grouping: Grouping = Grouping.SHUFFLE, rate_tps: dict[str, float] | None = None) -> Application:
    """Two sources, three workers of 2 ms a tuple, a sink that costs nothing."""
    return Application(
        name="chain",
        components=(
            Component(name="in", kind=Kind.SOURCE, parallelism=2),
            Component(name="other", kind=Kind.SOURCE),
            Component(name="work", cpu=0.002, parallelism=3),
            Component(name="out", kind=Kind.SINK),
        ),
        streams=(
            Stream(source="in", target="work", grouping=grouping),
            Stream(source="other", target="work", grouping=grouping),
            Stream(source="work", target="out", grouping=grouping),
        ),
        rate_tps=rate_tps or {},
    )


def machines(*speeds: float) -> Cluster:
    return Cluster(name="few", machines=tuple(Machine(name=f"m{n}", speed=speed) for n, speed in enumerate(speeds)))


def setting(app: Application | None = None, speeds: Sequence[float] = (1, 1, 1, 1), **more: Any) -> SlottedApplication:
    """Sources and sink on the last machine, a worker on each of the others."""
    last = len(speeds) - 1
    return SlottedApplication(app or chain(), machines(*speeds), Placement((last, last, last, 0, 1, 2, last)), **more)


def test_the_largest_rate_is_that_of_the_workers_and_they_are_named() -> None:
    load = setting().load(10.0)
    assert load.offered_tps == pytest.approx(1000)
    assert load.carried_tps == pytest.approx(1500)  # three of 500 a second
    assert load.even_tps == pytest.approx(1500)
    assert load.even_limit == "component 'work'"
    assert not load.exceeded
    assert not load.uneven
    over = setting().load(20.0)
    assert over.exceeded
    assert over.limit == "component 'work'"
    assert over.carried_tps == pytest.approx(1500)
    assert over.least_cost is None


def test_a_slow_machine_limits_an_even_split_but_not_the_best_one() -> None:
    load = setting(speeds=(1, 1, 0.5, 1)).load(12.0)
    assert load.even_tps == pytest.approx(750)
    assert load.carried_tps == pytest.approx(1250)
    assert load.uneven
    assert not load.exceeded


def test_a_card_limits_what_leaves_its_machine() -> None:
    """All source tuples leave the last machine; each of the others sends what its worker processes."""
    load = setting(link=9).load(12.0)
    assert load.even_tps == pytest.approx(900)
    assert load.exceeded
    assert load.carried_tps == pytest.approx(900)
    assert load.limit == load.even_limit == "the card of machine 'm3'"


def test_the_least_cost_is_the_linear_programs() -> None:
    built = setting()
    bound = communication_bound(built.limited(10.0), 10.0 * built.shares)
    assert isinstance(bound, CommunicationBound)
    assert built.load(10.0).least_cost == pytest.approx(bound.cost)


def test_tasks_may_send_twice_what_comes_to_them_on_average() -> None:
    built = setting()
    assert built.system.limit[0] == 10  # twice the 5 tuples that a worker serves a slot
    assert (
        built.limited(100.0).limit[0] == 2 * 100.0 / 3 * 3 / 2
    )  # either source component has half of all, in two tasks
    assert built.limited(0.1).limit[0] == 10


def test_an_outcome_is_the_simulators_own() -> None:
    built, process = setting(), Poisson(rate=1000.0)
    found = simulate_application(built, ["shuffle", "potus"], arrivals=process, slots=500, warm_up=50, seeds=(4,))
    coming = arriving(built, process, 500, 4)
    offered = coming.counts[:, 50:].sum() / 450
    for result, name in zip(found.results, ("shuffle", "potus"), strict=True):
        again = simulate(built.limited(offered), coming, routing_policy(name), warm_up=50, seed=4)
        assert result.outcomes[0].response == again.response
        assert np.array_equal(result.outcomes[0].responses, again.responses)
    assert found.load.offered_tps == pytest.approx(offered * 100)


def test_all_routings_get_the_same_tuples_and_seeds_differ() -> None:
    found = simulate_application(setting(), ["shuffle", "least-loaded"], slots=400, seeds=(0, 1))
    first, second = found.results
    assert [one.tuples for one in first.outcomes] == [one.tuples for one in second.outcomes]
    assert first.outcomes[0].tuples != first.outcomes[1].tuples
    assert first.mean("response") == pytest.approx(np.mean([one.response for one in first.outcomes]))
    assert first.deviation("response") == pytest.approx(np.std([one.response for one in first.outcomes], ddof=1))
    assert found.warm_up == 40


def test_sources_share_arrivals_by_their_rates() -> None:
    built = setting(chain(rate_tps={"in": 300.0, "other": 100.0}))
    counts = arriving(built, Poisson(rate=40_000.0), 200, 0).counts
    assert counts.shape == (7, 200)
    assert not counts[3:].any()
    shares = counts.sum(axis=1) / counts.sum()
    assert shares[:3] == pytest.approx([0.375, 0.375, 0.25], abs=0.01)
    assert counts.sum() == pytest.approx(40_000 * 2.0, rel=0.02)  # 200 slots of 10 ms


def test_constant_arrivals_are_dealt_evenly() -> None:
    counts = arriving(setting(), Constant(rate=1200.0), 100, 0).counts
    assert set(counts.sum(axis=0)) == {12}
    assert set(counts[0]) == set(counts[1]) == {3}
    assert set(counts[2]) == {6}


def test_the_length_of_a_slot_is_the_settings() -> None:
    built = replace(setting(), slot_ms=1.0)
    counts = arriving(built, Poisson(rate=1000.0), 2000, 0).counts
    assert counts.sum() == pytest.approx(2000, rel=0.1)


def test_an_application_without_a_rate_gets_most_of_what_it_can_carry() -> None:
    assert own_arrivals(setting(chain(rate_tps={"in": 3.0, "other": 4.0}))).rate == pytest.approx(7.0)
    assert own_arrivals(setting()).rate == pytest.approx(0.8 * 1500)


def test_an_unlimited_application_needs_a_rate() -> None:
    free = Application(
        name="free",
        components=(Component(name="in", kind=Kind.SOURCE), Component(name="out", kind=Kind.SINK)),
        streams=(Stream(source="in", target="out"),),
    )
    built = SlottedApplication(free, machines(1.0), Placement((0, 0)))
    with pytest.raises(InvalidInput, match=r"arrivals: expected a rate, as 'free' has none .* poisson:rate=NUMBER"):
        own_arrivals(built)


def test_perfect_look_ahead_shortens_response_times() -> None:
    process = Poisson(rate=1200.0)
    blind, seeing = (
        simulate_application(setting(look=look), ["potus"], arrivals=process, slots=2000).results[0].outcomes[0]
        for look in (LookAhead(), LookAhead(5))
    )
    assert seeing.response < blind.response - 1.0


def test_a_forecaster_that_expects_nothing_is_no_look_ahead() -> None:
    found = arriving(setting(look=LookAhead(4, "none")), Poisson(rate=1200.0), 300, 0)
    assert found.predicted is not None
    assert not found.predicted.any()
    assert found.lead is not None
    assert found.lead.tolist() == [4, 4, 4, 0, 0, 0, 0]


def test_a_forecaster_predicts_each_source_separately() -> None:
    found = arriving(setting(look=LookAhead(1, "moving-average:window=1")), Poisson(rate=1200.0), 300, 0)
    assert found.predicted is not None
    assert np.array_equal(found.predicted[:3, 1:], found.counts[:3, :-1])


def test_sending_needs_a_card_with_a_limit() -> None:
    with pytest.raises(InvalidInput, match=r"sending: fifo has nothing to decide .*; add --link TUPLES"):
        setting(sends="fifo")
    held = "longest-backlog-first:tau=20,conserving=false"
    process = Poisson(rate=900.0)
    usual, idle = (
        simulate_application(setting(link=12, sends=sends), ["shuffle"], arrivals=process, slots=1000)
        .results[0]
        .outcomes[0]
        for sends in (None, held)
    )
    assert idle.response > 2 * usual.response


def test_a_machine_without_a_limit_is_not_held_up() -> None:
    found = simulate_application(setting(), ["shuffle"], arrivals=Constant(rate=300.0), slots=200, check=True)
    assert np.median(found.results[0].outcomes[0].responses) == 3  # sent, served, sent on, served


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"slots": 0}, "slots: expected 1 or more, got 0"),
        ({"slots": 50, "warm_up": 50}, "warm_up: expected 0 to 49 of the 50 slots, got 50; add slots"),
        ({"warm_up": -1}, "warm_up: expected 0 to 9999"),
        ({"arrivals": Constant(rate=0.01), "slots": 5}, "arrivals: no tuple arrives in 5 slots"),
        ({"arrivals": Poisson(rate=1e9)}, "slots: expected at most 10,000,000 source tuples"),
        ({"arrivals": Replay(path="/nowhere.csv")}, "/nowhere.csv: cannot be read"),
    ],
)
def test_errors_are_one_line(given: dict[str, object], message: str) -> None:
    with pytest.raises(Exception, match=message.replace("(", r"\(")):
        simulate_application(setting(), ["shuffle"], **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("slot_ms", "link", "field"), [(0.0, None, "slot_ms"), (float("nan"), None, "slot_ms"), (1.0, 0, "link")]
)
def test_a_setting_that_makes_no_sense_is_rejected(slot_ms: float, link: int | None, field: str) -> None:
    with pytest.raises(InvalidInput, match=field):
        SlottedApplication(chain(), machines(1.0), Placement((0,) * 7), slot_ms, link)


def test_a_negative_look_ahead_is_rejected() -> None:
    with pytest.raises(InvalidInput, match="look_ahead: expected 0 slots or more, got -1"):
        setting(look=LookAhead(-1))


def test_an_unknown_routing_is_answered_with_the_choices() -> None:
    with pytest.raises(UnknownName, match="no routing policy is named 'shufle'; did you mean shuffle"):
        simulate_application(setting(), ["shufle"])


def test_all_are_those_that_have_something_to_decide() -> None:
    free, keyed = setting(), setting(chain(Grouping.FIELDS))
    assert "fields" not in all_routings(free)
    assert {"shuffle", "potus", "potus-plus", "least-loaded"} <= set(all_routings(free))
    assert all_routings(keyed) == ["fields", "partial-key"]
    named = all_routings(free, ["potus:v=9", "potus:v=1", "fields"])
    assert [spec for spec in named if spec.startswith("potus:")] == ["potus:v=9", "potus:v=1"]
    assert "potus" not in named
    assert "fields" in named


def test_a_routing_is_rejected_if_keys_decide_everything() -> None:
    keyed = setting(chain(Grouping.FIELDS))
    with pytest.raises(InvalidInput, match=r"routing: potus has nothing to decide: every stream of 'chain' uses keys"):
        simulate_application(keyed, ["fields", "potus"], slots=50)
    assert simulate_application(keyed, ["fields"], slots=50, check=True).results[0].outcomes[0].tuples > 0


def outcome(response: float, cost: float) -> SlottedResult:
    empty = simulate_application(setting(), ["shuffle"], arrivals=Constant(rate=300.0), slots=20).results[0].outcomes[0]
    return empty._replace(response=response, cost=cost)


def test_the_best_has_the_least_response_and_of_equals_the_least_cost() -> None:
    results = tuple(
        RoutingResult(name, (outcome(response, cost),))
        for name, response, cost in (("slow", 9.0, 1.0), ("dear", 5.00, 8.0), ("cheap", 5.04, 7.0))
    )
    assert RoutingComparison(setting().load(1.0), 10.0, 100, 10, results).best.routing == "cheap"


def test_bursts_make_responses_longer() -> None:
    steady, bursty = (
        simulate_application(setting(), ["least-loaded"], arrivals=process, slots=3000).results[0].outcomes[0].response
        for process in (Poisson(rate=900.0), OnOff(rate=900.0, burst=0.5))
    )
    assert bursty > 2 * steady


def test_built_in_applications_are_simulated_as_they_are_placed() -> None:
    app, few = application("log-processing"), cluster("hetero-small")
    placed = Planner(app, few).decide("r-storm").result
    assert isinstance(placed, Placement)
    built = SlottedApplication(app, few, placed)
    heard: list[str] = []
    found = simulate_application(built, all_routings(built), slots=300, check=True, on_result=heard.append)
    assert heard == [result.routing for result in found.results]
    assert all(isinstance(result.outcomes[0].response, float) for result in found.results)
    assert found.best.mean("response") <= 1.01 * min(result.mean("response") for result in found.results)
    assert not found.load.exceeded


def test_arrivals_have_no_predictions_without_look_ahead() -> None:
    found = arriving(setting(), Poisson(rate=100.0), 50, 0)
    assert isinstance(found, Arrivals)
    assert found.predicted is None
    assert found.lead is None
