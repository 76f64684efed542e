import msgspec
import pytest

from penstock.estimate.evaluator import Evaluator
from penstock.model.cluster import Cluster, Link, Machine
from penstock.model.errors import InvalidInput, UnknownName
from penstock.model.objective import Objective
from penstock.model.part import part_of, used_part
from penstock.model.plan import Plan, digest, to_placement
from penstock.model.topology import Application, Component, Kind, Stream
from penstock.planning.planner import plan_by
from penstock.workloads.applications import application as built_in
from penstock.workloads.clusters import cluster as described


def pipe() -> Application:
    return Application(
        name="pipe",
        components=(
            Component(name="in", kind=Kind.SOURCE, cpu=0.001, pinned="a"),
            Component(name="out", kind=Kind.SINK, cpu=0.002, pinned="c"),
        ),
        streams=(Stream(source="in", target="out", tuple_bytes=1000),),
    )


def line(*, directed: bool = False) -> Cluster:
    """Return machines a, b, c, d in a line behind a switch; tasks use only the ends."""
    ways = [("a", "s"), ("s", "b"), ("b", "c"), ("c", "d")]
    ways += [(to, of) for of, to in ways] if directed else []
    return Cluster(
        name="line",
        machines=tuple(Machine(name=name, speed=1.0 + number) for number, name in enumerate("abcd")),
        switches=("s",),
        links=tuple(Link(source=a, target=b, bandwidth_mbps=10.0, latency_ms=1.0, directed=directed) for a, b in ways),
    )


def planned(application: Application, cluster: Cluster, policy: str = "round-robin") -> Plan:
    return plan_by(policy, application, cluster, Objective.THROUGHPUT)


def test_keeps_machines_with_tasks_and_makes_switches_of_those_that_only_pass_on() -> None:
    smaller = used_part(line(), planned(pipe(), line()))
    assert [machine.name for machine in smaller.machines] == ["a", "c"]
    assert set(smaller.switches) == {"s", "b"}
    assert [link.label for link in smaller.links] == ["a--s", "s--b", "b--c"]
    assert smaller.machines[1] == line().machines[2], "as it was"


def test_keeps_the_return_path_if_links_are_directed() -> None:
    smaller = used_part(line(directed=True), planned(pipe(), line(directed=True)))
    assert {link.label for link in smaller.links} == {"a->s", "s->b", "b->c", "s->a", "b->s", "c->b"}


def test_tasks_on_one_machine_need_no_network() -> None:
    both = tuple(msgspec.structs.replace(component, pinned="b") for component in pipe().components)
    alone = msgspec.structs.replace(pipe(), components=both)
    smaller, plan = part_of(line(), alone, planned(alone, line()))
    assert ([machine.name for machine in smaller.machines], smaller.switches, smaller.links) == (["b"], (), ())
    assert to_placement(plan, alone, smaller).slots == (0, 0)


@pytest.mark.parametrize("spec", ["fat-tree", "line-8", "field-and-cloud", "star-8", "li-10", "hetero-medium"])
@pytest.mark.parametrize("policy", ["round-robin", "r-storm", "vne"])
def test_a_plan_performs_the_same_on_the_part_as_on_the_whole(spec: str, policy: str) -> None:
    application, cluster = built_in("log-processing"), described(spec)
    if policy == "vne" and not cluster.routed:
        policy = "t-storm"
    plan = planned(application, cluster, policy)
    smaller, translated = part_of(cluster, application, plan)
    assert translated.cluster_digest == digest(smaller)
    assert (translated.tasks, translated.routes) == (plan.tasks, plan.routes)
    before = Evaluator(application, cluster).evaluate(to_placement(plan, application, cluster))
    after = Evaluator(application, smaller).evaluate(to_placement(translated, application, smaller))
    assert after.throughput_tps == pytest.approx(before.throughput_tps, rel=1e-12)
    assert len(smaller.machines) <= len(cluster.machines)


def test_the_part_of_a_part_is_the_part() -> None:
    smaller, plan = part_of(line(), pipe(), planned(pipe(), line()))
    assert part_of(smaller, pipe(), plan) == (smaller, plan)


def test_rejects_a_plan_for_another_cluster() -> None:
    plan = planned(pipe(), line())
    with pytest.raises(InvalidInput, match="has changed since the plan was made"):
        part_of(line(directed=True), pipe(), plan)
    with pytest.raises(UnknownName, match="has no slot 'a/0'"):
        used_part(described("star-8"), plan)
    with pytest.raises(UnknownName, match="link 'a--s' is unknown"):
        used_part(line(directed=True), plan)
