import msgspec
import numpy as np
import pytest

from penstock.model.cluster import Cluster, Link, Machine
from penstock.model.errors import InvalidInput, UnknownName
from penstock.model.objective import Objective
from penstock.model.placement import Infeasible, Placement
from penstock.model.plan import to_placement
from penstock.model.topology import Application, Component, Grouping, Kind, Stream
from penstock.planning.advice import advise
from penstock.planning.planner import NoPlacement, Planner, latency_model, plan_by
from penstock.workloads.applications import application
from penstock.workloads.clusters import cluster
from tests.estimate.latency_cases import random_model

CHAIN = Application(
    name="chain",
    components=(
        Component(name="in", kind=Kind.SOURCE, cpu=0.1),
        Component(name="work", cpu=1.0, parallelism=2, memory_mb=100),
        Component(name="out", kind=Kind.SINK, cpu=0.1),
    ),
    streams=(Stream(source="in", target="work"), Stream(source="work", target="out")),
    rate_tps={"in": 2.0},
)
PAIR = Cluster(name="pair", machines=(Machine(name="slow"), Machine(name="fast", speed=9.0)))


@pytest.mark.parametrize("objective", list(Objective))
def test_the_best_decision_is_the_best_by_the_objective(objective: Objective) -> None:
    planner = Planner(application("word-count"), cluster("li-10"), objective)
    names = ("round-robin", "flink", "r-storm", "local-search:steps=500,seconds=none")
    decisions = [planner.decide(name) for name in names]
    best = planner.best(decisions)
    assert best is not None
    measures = {
        Objective.THROUGHPUT: lambda e: e.throughput_tps,
        Objective.DELAY: lambda e: -e.delay_ms,
        Objective.TRAFFIC: lambda e: -e.traffic.machines,
    }
    if objective is Objective.BALANCED:
        reference = planner.reference
        measures[objective] = lambda e: (
            0.8 * (e.throughput_tps / reference.throughput_tps - 1) + 0.2 * (1 - e.delay_ms / reference.delay_ms)
        )
    values = [measures[objective](decision.evaluation) for decision in decisions]
    assert measures[objective](best.evaluation) == pytest.approx(max(values))


def test_the_reference_of_the_balanced_objective_is_the_mean_of_storm_and_flink() -> None:
    planner = Planner(application("log-processing"), cluster("li-10"), Objective.BALANCED)
    storm, flink = (Planner(planner.topology, planner.cluster).decide(name).evaluation for name in ("i-storm", "flink"))
    assert storm is not None
    assert flink is not None
    assert planner.reference.throughput_tps == pytest.approx((storm.throughput_tps + flink.throughput_tps) / 2)
    assert planner.reference.delay_ms == pytest.approx((storm.delay_ms + flink.delay_ms) / 2)


def test_a_decision_survives_conversion_to_a_plan_and_back() -> None:
    planner = Planner(CHAIN, PAIR)
    decision = planner.decide("round-robin")
    plan = planner.plan(decision)
    assert isinstance(decision.result, Placement)
    assert to_placement(plan, CHAIN, PAIR).slots == decision.result.slots
    assert plan.expected["throughput_tps"] == pytest.approx(decision.evaluation.throughput_tps)  # type: ignore[union-attr]


def test_what_cannot_be_placed_is_a_decision_with_a_reason() -> None:
    tiny = Cluster(name="tiny", machines=(Machine(name="m", memory_mb=150.0),))
    planner = Planner(CHAIN, tiny)
    decision = planner.decide("round-robin")
    assert isinstance(decision.result, Infeasible)
    assert decision.result.needed > decision.result.available
    assert planner.best([decision]) is None
    assert planner.score(decision) == -np.inf


def test_only_a_refusal_without_proof_names_a_policy_that_finds_a_placement() -> None:
    planner = Planner(CHAIN, Cluster(name="one", machines=(Machine(name="m"),)))
    assert planner.another(planner.decide("flink")) == "round-robin"  # two tasks of work, one slot
    with pytest.raises(NoPlacement, match=r"^policy: flink finds no placement on 'one': .*; round-robin finds one$"):
        plan_by("flink", CHAIN, planner.cluster)
    small = Cluster(name="small", machines=(Machine(name="m", memory_mb=150.0),))
    assert Planner(CHAIN, small).another(Planner(CHAIN, small).decide("t-storm")) == ""
    with pytest.raises(NoPlacement) as raised:
        plan_by("t-storm", CHAIN, small)
    assert "finds one" not in str(raised.value)


def test_errors_name_the_field() -> None:
    with pytest.raises(UnknownName, match="no policy is named 'fastest'"):
        Planner(CHAIN, PAIR).decide("fastest")
    tiny = Cluster(name="tiny", machines=(Machine(name="m", memory_mb=150.0),))
    with pytest.raises(InvalidInput, match="balanced needs a reference"):
        Planner(CHAIN, tiny, Objective.BALANCED).decide("random")


def test_advice_names_the_bottleneck_its_users_and_what_would_relieve_it() -> None:
    keyed = msgspec.structs.replace(CHAIN.streams[0], grouping=Grouping.FIELDS)  # its sender cannot avoid the slow task
    planner = Planner(msgspec.structs.replace(CHAIN, streams=(keyed, CHAIN.streams[1])), PAIR)
    decision = planner.decide("round-robin")  # in on slow, work on fast and slow, out on fast
    advice = advise(planner, decision)
    assert advice is not None
    assert (advice.bottleneck.kind, advice.bottleneck.name) == ("machine", "slow")
    assert [task for task, _ in advice.users] == ["work[1]", "in[0]"]
    assert sum(share for _, share in advice.users) == pytest.approx(1.0)
    move = next(relief for relief in advice.reliefs if relief.change == "moving work[1] to fast/0")
    moved = planner.evaluator.evaluate(Placement((0, 1, 1, 1)))
    assert move.rate_tps == pytest.approx(moved.throughput_tps)


def test_advice_for_a_link_names_who_sends_over_it() -> None:
    line = Cluster(
        name="line",
        machines=(Machine(name="a", speed=9.0), Machine(name="b", speed=9.0)),
        links=(Link(source="a", target="b", bandwidth_mbps=1e-3),),
    )
    planner = Planner(CHAIN, line)
    decision = planner.decide("round-robin")
    advice = advise(planner, decision)
    assert advice is not None
    assert (advice.bottleneck.kind, advice.bottleneck.name) == ("link", "a--b")
    assert {task for task, _ in advice.users} == {"in[0]", "work[1]"}
    assert all(relief.rate_tps > advice.bottleneck.rate_tps for relief in advice.reliefs)


def test_advises_more_tasks_if_one_task_fills_its_core() -> None:
    single = Application(
        name="single",
        components=(
            Component(name="in", kind=Kind.SOURCE, cpu=0.1),
            Component(name="work", cpu=1.0),
            Component(name="out", kind=Kind.SINK, cpu=0.1),
        ),
        streams=CHAIN.streams,
    )
    three = Cluster(name="three", machines=(Machine(name="m", cores=3, slots=3),))
    planner = Planner(single, three)
    advice = advise(planner, planner.decide("round-robin"))
    assert advice is not None
    assert any("parallelism 2 for work" in relief.change for relief in advice.reliefs)


def test_with_latency_models_the_least_predicted_latency_is_the_best() -> None:
    model = random_model(3)
    planner = Planner(model.instance.topology, model.instance.cluster, latency=model)
    decisions = [planner.decide(name) for name in ("round-robin", "random", "predictive", "predictive-search")]
    predicted = {d.policy: p.expected_s for d in decisions if (p := planner.predict(d)) is not None}
    best = planner.best(decisions)
    assert best is not None
    assert len(predicted) == 4
    assert predicted[best.policy] == min(predicted.values())
    assert planner.view.objective == "latency"
    assert planner.plan(best).expected["latency_ms"] == pytest.approx(1e3 * predicted[best.policy])
    assert Planner(model.instance.topology, model.instance.cluster).predict(best) is None


def test_rejects_latency_models_of_another_application() -> None:
    with pytest.raises(InvalidInput, match="was trained for 'random'"):
        latency_model(random_model(3).models, CHAIN, PAIR)


def test_what_costs_nothing_has_a_best_placement_too() -> None:
    free = Application(
        name="free",
        components=(Component(name="in", kind=Kind.SOURCE), Component(name="out", kind=Kind.SINK)),
        streams=(Stream(source="in", target="out", tuple_bytes=0.0),),
    )
    joined = Cluster(
        name="joined",
        machines=(Machine(name="a"), Machine(name="b")),
        links=(Link(source="a", target="b", bandwidth_mbps=1.0),),
    )
    planner = Planner(free, joined)
    assert planner.best([planner.decide("round-robin"), planner.decide("sparcle")]) is not None
