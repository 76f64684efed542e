"""Routes that keep a path's rate, and fail less often or use fewer links."""

import math

import numpy as np
import pytest

from penstock.admission import Admitted, admit
from penstock.admission.book.reliable_routes import improve_routes
from penstock.model.book import Book
from penstock.model.cluster import Cluster, Link, Machine
from penstock.model.objective import Objective
from penstock.model.placement import Placement
from penstock.model.topology import Application, Component, Kind, Stream
from penstock.planning.planner import Planner
from penstock.policies.checks import violations
from penstock.workloads.sparcle import Scarcity, draw_instance

CHAIN = Application(
    name="chain",
    components=(
        Component(name="in", kind=Kind.SOURCE, pinned="a"),
        Component(name="out", kind=Kind.SINK, cpu=1.0, pinned="d"),
    ),
    streams=(Stream(source="in", target="out", tuple_bytes=125_000.0),),  # 1 Mbit
)


CASES = 300


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


def test_takes_the_more_reliable_of_two_wide_routes() -> None:
    assert route(network(100.0, 50.0, fails_b=0.1)) == ("a--c", "c--d")
    assert route(network(50.0, 100.0, fails_b=0.0, direct=2.0)) == ("a--d",)


def test_takes_the_wide_route_if_the_reliable_one_reduces_the_rate() -> None:
    assert route(network(100.0, 0.5, fails_b=0.1)) == ("a--b", "b--d")


def two_ways(narrow: float, fails_wide: float, fails_narrow: float) -> Cluster:
    """Join `a` and `b` over the switch `r`, by wide links, and over the switch `q`; the links of `a` may fail."""
    ends = [("a", "r", 100.0, fails_wide), ("r", "b", 100.0, 0.0), ("a", "q", narrow, fails_narrow)]
    links = [Link(source=s, target=t, bandwidth_mbps=w, failure_probability=f) for s, t, w, f in ends]
    links.append(Link(source="q", target="b", bandwidth_mbps=narrow))
    machines = (Machine(name="a"), Machine(name="b"))
    return Cluster(name="two-ways", machines=machines, switches=("r", "q"), links=tuple(links))


THERE_AND_BACK = Application(
    name="there-and-back",
    components=(
        Component(name="in", kind=Kind.SOURCE, pinned="a"),
        Component(name="work", cpu=1.0, pinned="b"),
        Component(name="out", kind=Kind.SINK, pinned="a"),
    ),
    streams=(
        Stream(source="in", target="work", tuple_bytes=1_000_000.0),  # 8 Mbit
        Stream(source="work", target="out", tuple_bytes=10_000.0),
    ),
    guaranteed_tps=1.0,
)


def test_a_hop_stays_on_what_the_path_needs_anyway() -> None:
    """The return route over `q` is more reliable than that over `r`, which the path needs anyway."""
    found = admit(Book(cluster=two_ways(0.5, 0.02, 0.019)), THERE_AND_BACK)
    assert isinstance(found, Admitted)
    assert found.booking.achieved_availability == pytest.approx(0.98)
    assert [set(one.links) for one in found.booking.paths[0].plan.routes] == [{"a--r", "r--b"}] * 2


def test_hops_move_together_to_a_more_reliable_route_with_room_for_both() -> None:
    found = admit(Book(cluster=two_ways(50.0, 0.02, 0.019)), THERE_AND_BACK)
    assert isinstance(found, Admitted)
    assert found.booking.achieved_availability == pytest.approx(1 - 0.019)


def drawn_network(rng: np.random.Generator) -> Cluster:
    """Draw a small connected network with unreliable machines and links."""
    machines, switches = int(rng.integers(2, 6)), int(rng.integers(0, 3))
    nodes = [f"m{n}" for n in range(machines)] + [f"s{n}" for n in range(switches)]
    pairs = {(later, int(rng.integers(later))) for later in range(1, len(nodes))}
    for _ in range(int(rng.integers(0, 5))):
        one, other = sorted(rng.choice(len(nodes), 2, replace=False).tolist(), reverse=True)
        pairs.add((one, other))
    return Cluster(
        name="drawn",
        machines=tuple(
            Machine(
                name=name, speed=float(rng.uniform(0.5, 2.0)), failure_probability=float(rng.choice([0, 0.05, 0.1]))
            )
            for name in nodes[:machines]
        ),
        switches=tuple(nodes[machines:]),
        links=tuple(
            Link(
                source=nodes[one],
                target=nodes[other],
                bandwidth_mbps=float(rng.uniform(1.0, 20.0)),
                failure_probability=float(rng.choice([0, 0.05, 0.1])),
            )
            for one, other in sorted(pairs)
        ),
    )


def drawn_application(rng: np.random.Generator, cluster: Cluster) -> Application:
    """Draw a chain with one or two sources; some of its ends are pinned."""
    places = [machine.name for machine in cluster.machines] + [None]
    sources, workers = int(rng.integers(1, 3)), int(rng.integers(1, 4))

    def drawn_place() -> str | None:
        return places[int(rng.integers(len(places)))]

    def stream(source: str, target: str) -> Stream:
        return Stream(source=source, target=target, tuple_bytes=float(rng.uniform(1e3, 2e5)))

    return Application(
        name="drawn",
        components=(
            *(Component(name=f"in{n}", kind=Kind.SOURCE, pinned=drawn_place()) for n in range(sources)),
            *(Component(name=f"work{n}", cpu=float(rng.uniform(0.05, 1.0))) for n in range(workers)),
            Component(name="out", kind=Kind.SINK, cpu=0.01, pinned=drawn_place()),
        ),
        streams=(
            *(stream(f"in{n}", "work0") for n in range(sources)),
            *(stream(f"work{n}", f"work{n + 1}") for n in range(workers - 1)),
            stream(f"work{workers - 1}", "out"),
        ),
    )


def works(planner: Planner, placement: Placement) -> float:
    """Return the chance that all machines and links of a placement work, each counted once."""
    cluster = planner.cluster
    links = [cluster.links[number] for route in placement.routes.values() for number in route]
    machines = {machine.name: machine.failure_probability for machine in cluster.machines}
    homes = {cluster.machines[planner.evaluator.slots.machine[slot]].name for slot in placement.slots}
    needed = {
        name: machines[name] for name in homes | {e for k in links for e in (k.source, k.target)} & machines.keys()
    }
    needed |= {link.label: link.failure_probability for link in links}
    return math.prod(1.0 - fails for fails in needed.values())


@pytest.mark.slow
def test_a_path_never_fails_more_often_than_by_its_policys_routes_nor_loses_rate() -> None:
    rng = np.random.default_rng(1)
    surer = routed = 0
    for _ in range(CASES):
        cluster = drawn_network(rng)
        planner = Planner(drawn_application(rng, cluster), cluster, Objective.THROUGHPUT)
        before = planner.decide("sparcle")
        after = improve_routes(planner, before)
        assert isinstance(before.result, Placement)
        assert isinstance(after.result, Placement)
        assert not violations(planner.view, after.result)
        assert before.evaluation is not None
        assert after.evaluation is not None
        assert after.evaluation.even_tps >= before.evaluation.even_tps * (1 - 1e-8)
        then, now = works(planner, before.result), works(planner, after.result)
        assert now >= then - 1e-9
        surer += now > then + 1e-9
        routed += bool(before.result.routes)
    assert routed > CASES // 2
    assert surer > CASES // 10  # and it is worth the while


@pytest.mark.parametrize("seed", range(20))
def test_keeps_rate_and_number_of_links_if_nothing_fails(seed: int) -> None:
    setting = draw_instance("complete" if seed % 2 else "star", "diamond", Scarcity(), seed)
    planner = Planner(setting.application, setting.cluster, Objective.THROUGHPUT)
    before = planner.decide("sparcle")
    after = improve_routes(planner, before)
    assert isinstance(after.result, Placement)
    assert not violations(planner.view, after.result)
    assert before.evaluation is not None
    assert after.evaluation is not None
    assert after.evaluation.even_tps == pytest.approx(before.evaluation.even_tps, rel=1e-8)
    assert isinstance(before.result, Placement)
    links = [np.concatenate([*one.result.routes.values(), []]) for one in (before, after)]  # type: ignore[union-attr]
    assert len(links[1]) <= len(links[0])
