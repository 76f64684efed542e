import os
from collections import Counter
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest

from penstock.estimate.evaluator import Evaluator
from penstock.estimate.flow import FlowEstimate
from penstock.model.cluster import Cluster, Link, Machine
from penstock.model.objective import Objective
from penstock.model.placement import Constraint, Infeasible, Placement
from penstock.model.topology import Application, Component, Grouping, Kind, Stream, Topology
from penstock.policies.api import PlacementView
from penstock.policies.checks import violations
from penstock.policies.placement import optimal
from penstock.policies.placement.exact.enumeration import count_up_to_tasks, placements
from penstock.policies.placement.exact.program import DEVELOPERS_LINE, without_developers_line
from penstock.policies.placement.optimal import Optimal
from tests.policies.cases import answer, chain, cluster, equal_machines, false_statements, machines_of, refused
from tests.policies.placement.small_cases import SMALL, small_case
from tests.shared_data import needs_shared
from tests.sparcle_cases import build, instances

EXACT = 1e-6  # relative


def view_of(topology: Topology, machines: Cluster, objective: Objective) -> PlacementView:
    reference = FlowEstimate(1.0, 1.0)
    return PlacementView(topology, machines, objective, Evaluator(topology, machines).scorer(objective, reference))


def proven(view: PlacementView, seed: int = 0) -> Placement:
    """Return the result of a case that can be placed, with a proof."""
    result = answer("optimal", view, seed)
    assert isinstance(result, Placement), result
    assert result.gap == 0.0
    return result


@pytest.mark.slow
@pytest.mark.parametrize("seed", SMALL)
def test_finds_the_same_optimum_as_an_enumeration(seed: int) -> None:
    case = small_case(seed)
    result = answer("optimal", case.view, seed)
    assert isinstance(result, Placement) == case.possible
    if isinstance(result, Placement):
        assert result.gap == 0.0
        assert case.value(result) == pytest.approx(case.best, rel=EXACT, abs=1e-9)
        return
    assert result.constraint is not Constraint.SIZE
    if len(case.fitting):  # then the offered load is too much
        assert result.constraint is Constraint.CPU
        assert result.available == pytest.approx(case.rates(case.fitting).max(), rel=EXACT)


@pytest.mark.slow
@needs_shared
@pytest.mark.parametrize("instance", instances(), ids=lambda instance: str(instance["id"]))
def test_equals_the_reference_optimum_with_joint_routing(instance: dict[str, dict[str, float]]) -> None:
    application, network = build(instance)
    placement = proven(view_of(application, network, Objective.THROUGHPUT))
    rate = Evaluator(application, network).evaluate(placement).throughput_tps
    assert rate == pytest.approx(instance["optimum_ii"]["rate"], rel=EXACT)


@pytest.mark.slow
@pytest.mark.parametrize("objective", [Objective.DELAY, Objective.THROUGHPUT, Objective.BALANCED])
@pytest.mark.parametrize("seed", range(12))
def test_scores_all_distinct_placements(seed: int, objective: Objective) -> None:
    case = small_case(seed)
    view = view_of(case.application, case.cluster, objective)
    assert view.evaluate is not None
    if not len(case.fitting):
        assert isinstance(answer("optimal", view), Infeasible)
        return
    placement = proven(view)
    evaluated = view.evaluate(np.array([placement.slots], dtype=np.int32))[0]
    assert evaluated == pytest.approx(view.evaluate(case.fitting).max(), rel=1e-9)


def test_has_one_placement_of_every_kind_and_few_more() -> None:
    every = placements(PlacementView(chain(4, 1), equal_machines(5)), 1000)
    assert every is not None
    kinds = set()
    for *sources, sink in every.tolist():
        alone = sorted(Counter(machine for machine in sources if machine != sink).values())
        kinds.add((sources.count(sink), *alone))
    assert len(kinds) == 5 + 3 + 2 + 1 + 1  # the partitions of the 4, 3, 2, 1, 0 sources that are not with the sink
    assert len(every) < 5**5 / 50


def test_stops_the_enumeration_at_the_limit() -> None:
    view = PlacementView(chain(4, 1), equal_machines(5))
    every = placements(view, 1000)
    assert every is not None
    assert placements(view, len(every) - 1) is None


def test_keeps_machines_apart_that_share_a_host() -> None:
    machines = cluster(Machine(name="a", host="h"), Machine(name="b", host="h"), Machine(name="c"))
    every = placements(PlacementView(chain(1, 1), machines), 100)
    assert every is not None
    assert [0, 1] in every.tolist()
    assert [0, 2] in every.tolist()


def test_refuses_more_placements_than_the_limit_with_an_alternative() -> None:
    view = view_of(chain(9, 9, 9, cpu=0.1), equal_machines(9, speed=2.0, slots=2), Objective.DELAY)
    refusal = refused("optimal:limit=1000", view)
    assert refusal.constraint is Constraint.SIZE
    assert refusal.needed == count_up_to_tasks(view)
    assert "local-search" in refusal.reason


def test_uses_a_search_for_local_streams_if_there_are_too_many_placements() -> None:
    """The traffic of these depends on where tasks are, which the program does not model."""
    topology, machines = chain(9, 9, 9, grouping=Grouping.LOCAL_OR_SHUFFLE, cpu=0.1), equal_machines(9, slots=2)
    result = answer("optimal:limit=1000", view_of(topology, machines, Objective.THROUGHPUT))
    assert isinstance(result, Placement)
    assert result.gap is None
    assert "not proven" in result.note


def test_requires_evaluate_to_score_placements() -> None:
    view = PlacementView(chain(1, 1), equal_machines(2), "delay")
    with pytest.raises(ValueError, match="evaluate"):
        Optimal().place(view, np.random.default_rng(0))


def test_places_for_the_rate_without_evaluate() -> None:
    result = answer("optimal", PlacementView(chain(2, 2, cpu=0.1), equal_machines(4), "throughput"))
    assert isinstance(result, Placement)
    assert sorted(result.slots) == [0, 1, 2, 3]


def medium(objective: Objective, seed: int) -> tuple[PlacementView, Evaluator]:
    """A case that takes the solver about a second."""
    rng = np.random.default_rng(seed)
    kinds = [Kind.SOURCE, Kind.OPERATOR, Kind.OPERATOR, Kind.SINK]
    components = tuple(
        Component(
            name=f"c{number}",
            kind=kind,
            parallelism=int(rng.integers(2, 7)),
            cpu=round(rng.uniform(0.1, 1.0), 3),
            memory_mb=round(rng.uniform(50.0, 300.0)),
        )
        for number, kind in enumerate(kinds)
    )
    streams = tuple(
        Stream(source=f"c{number}", target=f"c{number + 1}", tuple_bytes=round(rng.uniform(100.0, 1000.0)))
        for number in range(3)
    )
    speeds, memories = rng.uniform(0.5, 3.0, 5).round(2).tolist(), rng.uniform(600, 2000, 5).round().tolist()
    machines = tuple(
        Machine(name=f"m{number}", slots=2, speed=speed, memory_mb=memory)
        for number, (speed, memory) in enumerate(zip(speeds, memories, strict=True))
    )
    topology, mesh = Topology(name="t", components=components, streams=streams), Cluster(name="m", machines=machines)
    return view_of(topology, mesh, objective), Evaluator(topology, mesh)


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.0, 0.05])
@pytest.mark.parametrize("seed", range(3))
def test_reports_a_true_gap_when_stopped_early(seed: int, seconds: float) -> None:
    view, evaluator = medium(Objective.THROUGHPUT, seed)
    best = evaluator.evaluate(proven(view)).throughput_tps
    early = Optimal(seconds=seconds).place(view, np.random.default_rng(seed))
    assert isinstance(early, Placement)
    assert violations(view, early) == []
    assert early.gap is not None
    assert 1.0 - evaluator.evaluate(early).throughput_tps / best <= early.gap + EXACT
    assert seconds > 0 or early.gap > 0
    assert ("stopped" in early.note) == (early.gap > 0)


@pytest.mark.parametrize("seconds", [0.0, 0.05])
def test_reports_a_true_gap_of_the_traffic_when_stopped_early(seconds: float) -> None:
    view, evaluator = medium(Objective.TRAFFIC, 5)
    best = evaluator.evaluate(proven(view)).traffic.machines
    early = Optimal(seconds=seconds).place(view, np.random.default_rng(0))
    assert isinstance(early, Placement)
    assert early.gap is not None
    assert evaluator.evaluate(early).traffic.machines <= best * (1 + early.gap) * (1 + EXACT)


def test_reports_where_packing_fails_if_no_arrangement_fits() -> None:
    machines = equal_machines(2, memory_mb=100.0)
    refusal = refused("optimal", PlacementView(chain(2, 1, memory_mb=60.0), machines, "throughput"))
    assert refusal.constraint is Constraint.MEMORY
    assert "no arrangement" in refusal.reason
    assert (refusal.needed, len(refusal.placed)) == (60.0, 2)


def loaded(topology: Topology, load: float) -> Application:
    return Application(
        name=topology.name, components=topology.components, streams=topology.streams, rate_tps={"c0": load}
    )


def test_refuses_a_load_that_no_placement_sustains_with_the_possible_rate() -> None:
    view = view_of(loaded(chain(1, 1, cpu=0.5), 3.0), equal_machines(2), Objective.TRAFFIC)
    refusal = refused("optimal", view)
    assert refusal.constraint is Constraint.CPU
    assert refusal.needed == 3.0
    assert refusal.available == pytest.approx(2.0)


def test_colocates_tasks_as_far_as_the_load_allows() -> None:
    machines = equal_machines(3, cores=2, slots=2)
    for load, used in ((1.0, 1), (2.0, 2)):
        view = view_of(loaded(chain(1, 2, 1, cpu=0.5), load), machines, Objective.TRAFFIC)
        assert len(set(machines_of(view, proven(view).slots))) == used


def test_refuses_a_resource_that_no_machine_has() -> None:
    view = PlacementView(chain(1, 1, resources={"gpu": 1.0}), equal_machines(2), "throughput")
    refusal = refused("optimal", view)
    assert "gpu" in refusal.reason
    assert false_statements(view, refusal) == []
    for policy in ("round-robin", "r-storm", "greedy-sorted", "flink"):
        assert refused(policy, view).constraint is Constraint.RESOURCE


def island() -> Cluster:
    """Machines a and b are joined, c is not; the fastest by far."""
    return Cluster(
        name="island",
        machines=(Machine(name="a"), Machine(name="b"), Machine(name="c", speed=9.0)),
        links=(Link(source="a", target="b", bandwidth_mbps=1.0), Link(source="b", target="c", bandwidth_mbps=0.0)),
    )


@pytest.mark.parametrize("objective", [Objective.THROUGHPUT, Objective.TRAFFIC])
def test_places_tasks_on_connected_machines(objective: Objective) -> None:
    topology = chain(1, 1, cpu=0.1)
    at_a = Component(name="c0", kind=Kind.SOURCE, cpu=0.1, pinned="a", memory_mb=4000.0)
    pinned = Topology(name="pinned", components=(at_a, topology["c1"]), streams=topology.streams)
    view = view_of(pinned, island(), objective)
    assert machines_of(view, proven(view).slots)[1] != 2


@pytest.mark.parametrize("objective", [Objective.THROUGHPUT, Objective.TRAFFIC])
def test_refuses_pinned_ends_that_are_not_connected(objective: Objective) -> None:
    ends = (Component(name="c0", kind=Kind.SOURCE, pinned="a"), Component(name="c1", kind=Kind.SINK, pinned="c"))
    topology = Topology(name="ends", components=ends, streams=(Stream(source="c0", target="c1"),))
    assert refused("optimal", view_of(topology, island(), objective)).constraint is Constraint.ROUTE


def test_hides_only_the_line_for_developers(capfd: pytest.CaptureFixture[str]) -> None:
    with without_developers_line():
        os.write(1, b"kept\n" + DEVELOPERS_LINE + b"\nalso kept\n")
    assert capfd.readouterr().out == "kept\nalso kept\n"


def test_the_time_to_compile_kernels_is_not_part_of_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    view = small_case(0).view
    monkeypatch.setattr(optimal, "BATCH", 1)
    scored = PlacementView(
        view.topology, view.cluster, Objective.DELAY, lambda placed: -placed.sum(axis=1).astype(float)
    )
    hurried = Optimal(seconds=0).place(scored, np.random.default_rng(0))
    monkeypatch.setattr(optimal, "preparing", lambda: nullcontext(SimpleNamespace(seconds=1e6)))
    patient = Optimal(seconds=0).place(scored, np.random.default_rng(0))
    assert isinstance(hurried, Placement)
    assert hurried.gap is None
    assert isinstance(patient, Placement)
    assert patient.gap == 0.0
