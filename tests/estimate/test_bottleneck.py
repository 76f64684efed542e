import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.estimate import bottleneck as bottleneck_module
from penstock.estimate.bottleneck import bottleneck_rates, elements, machine_traffic
from penstock.estimate.evaluator import Evaluator, memory_fits
from penstock.model import routes as routes_module
from penstock.model.cluster import Cluster, Link, Machine
from penstock.model.kernel import interpreted
from penstock.model.objective import Objective
from penstock.model.placement import Hop, Placement
from penstock.model.topology import Application, Component, Kind, Stream
from tests.generators import applications, clusters, random_slots
from tests.shared_data import needs_shared
from tests.sparcle_cases import build, instances


def camera(bits: float = 8e6) -> Application:
    return Application(
        name="camera",
        components=(
            Component(name="eye", kind=Kind.SOURCE, cpu=1.0),
            Component(name="brain", cpu=4.0, resources={"gpu": 2.0}),
            Component(name="hand", kind=Kind.SINK, cpu=0.5),
        ),
        streams=(
            Stream(source="eye", target="brain", tuple_bytes=bits / 8),
            Stream(source="brain", target="hand", tuple_bytes=bits / 80),
        ),
    )


def line(bandwidth: float, directed: bool = False) -> Cluster:
    return Cluster(
        name="line",
        machines=tuple(Machine(name=name, speed=8.0, resources={"gpu": 100.0}) for name in "abc"),
        links=(
            Link(source="a", target="b", bandwidth_mbps=bandwidth, directed=directed),
            Link(source="b", target="c", bandwidth_mbps=bandwidth, directed=directed),
            *((Link(source="c", target="b", bandwidth_mbps=bandwidth, directed=True),) if directed else ()),
        ),
    )


def mesh(card_mbps: float | None, receive_mbps: float | None = None) -> Cluster:
    machines = tuple(
        Machine(name=name, speed=80.0, network_mbps=card_mbps, receive_mbps=receive_mbps, resources={"gpu": 9.0})
        for name in "ab"
    )
    return Cluster(name=f"mesh-{card_mbps}-{receive_mbps}", machines=machines)


def rate_and_limit(application: Application, cluster: Cluster, placement: Placement) -> tuple[object, str, str]:
    limit = Evaluator(application, cluster).evaluate(placement).bottleneck
    assert limit is not None
    return limit.rate_tps, limit.kind, limit.name


def test_a_machine_limits_by_the_cost_of_its_tasks() -> None:
    together = Placement((0, 0, 2), {Hop(1, 0, 2): (0, 1)})
    assert rate_and_limit(camera(), line(1000.0), together) == (pytest.approx(8 / 5), "machine", "a")


def test_a_link_limits_by_the_bits_on_it_and_relays_count() -> None:
    far = Placement((0, 2, 0), {Hop(0, 0, 2): (0, 1), Hop(1, 2, 0): (1, 0)})
    rate, kind, _ = rate_and_limit(camera(), line(4.4), far)
    assert (rate, kind) == (pytest.approx(4.4 / 8.8), "link")  # 8 Mbit there and 0.8 Mbit back share each link


def test_directed_links_do_not_share() -> None:
    there_and_back = Placement((1, 2, 1), {Hop(0, 1, 2): (1,), Hop(1, 2, 1): (2,)})
    rate, kind, name = rate_and_limit(camera(), line(4.4, directed=True), there_and_back)
    assert (rate, kind, name) == (pytest.approx(4.4 / 8), "link", "b->c")


def test_any_other_resource_may_limit() -> None:
    cluster = Cluster(name="one", machines=(Machine(name="a", cores=100, slots=3, resources={"gpu": 1.0}),))
    assert rate_and_limit(camera(), cluster, Placement((0, 1, 2))) == (pytest.approx(0.25), "slot", "a/1")
    scarce = Cluster(name="one", machines=(Machine(name="a", cores=100, slots=3, speed=100, resources={"gpu": 0.5}),))
    assert rate_and_limit(camera(), scarce, Placement((0, 1, 2))) == (pytest.approx(0.25), "gpu", "a")


def test_a_network_card_limits_on_a_mesh() -> None:
    rate, kind, name = rate_and_limit(camera(), mesh(4.0), Placement((0, 1, 1)))
    assert (rate, kind) == (pytest.approx(0.5), "network")
    assert name in ("a (out)", "b (in)")


def test_a_card_may_receive_at_another_rate_than_it_sends() -> None:
    there = Placement((0, 1, 1))
    assert rate_and_limit(camera(), mesh(4.0, 2.0), there) == (pytest.approx(2 / 8), "network", "b (in)")
    assert rate_and_limit(camera(), mesh(4.0, 6.0), there) == (pytest.approx(4 / 8), "network", "a (out)")


@needs_shared
def test_rates_of_the_reference_placements_and_routes_are_exact() -> None:
    checked = 0
    for instance in instances():
        application, cluster = build(instance)
        for answer in (instance["sparcle"], instance["optimum_i"], instance["optimum_ii"]):
            host = [cluster.machine_index[f"m{number}"] for number in answer["host"]]
            routes = {
                Hop(edge, host[a], host[b]): tuple(answer["routes"][edge])
                for edge, (a, b, _) in enumerate(instance["edges"])
                if answer["routes"][edge]
            }
            rate, _, _ = rate_and_limit(application, cluster, Placement(tuple(host), routes))
            assert rate == pytest.approx(answer["rate"], rel=1e-9)
            checked += 1
    assert checked == 300


@pytest.mark.slow
@given(applications(), clusters(), st.integers(0, 2**32 - 1))
def test_the_kernel_agrees_with_the_list_of_elements(application: Application, cluster: Cluster, seed: int) -> None:
    evaluator = Evaluator(application, cluster)
    placed = random_slots(np.random.default_rng(seed), application, cluster)
    listed = elements(evaluator.tasks, evaluator.slots, cluster, Placement(tuple(placed[0].tolist())))
    assert bottleneck_rates(evaluator.rate_net, placed)[0] == pytest.approx(listed[0].rate_tps)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    "cluster", [line(7.0), line(7.0, directed=True), mesh(4.0), mesh(4.0, 2.5), mesh(None)], ids=lambda c: c.name
)
def test_compiled_equals_interpreted(seed: int, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluator = Evaluator(camera(), cluster)
    placed = np.random.default_rng(seed).integers(0, len(cluster.machines), (6, 3), dtype=np.int32)
    compiled = bottleneck_rates(evaluator.rate_net, placed, True), machine_traffic(evaluator.rate_net, placed)
    for module in (bottleneck_module, routes_module):
        for name, value in list(vars(module).items()):
            if hasattr(value, "py_func"):
                monkeypatch.setattr(module, name, interpreted(value))
    plain = interpreted(bottleneck_rates)(evaluator.rate_net, placed, True)
    np.testing.assert_allclose(plain, compiled[0])
    np.testing.assert_allclose(interpreted(machine_traffic)(evaluator.rate_net, placed), compiled[1])


@pytest.mark.slow
@given(applications(), clusters(), st.integers(0, 2**32 - 1))
def test_memory_fits_if_no_slot_or_machine_exceeds_its_capacity(
    application: Application, cluster: Cluster, seed: int
) -> None:
    evaluator = Evaluator(application, cluster)
    slots, memory = evaluator.slots, evaluator.tasks.memory_mb
    placed = random_slots(np.random.default_rng(seed), application, cluster, rows=3)
    arguments = (memory, slots.memory_mb, slots.machine_memory_mb, slots.machine, placed)
    expected = [
        bool(
            (np.bincount(row, memory, slots.number) <= slots.memory_mb * (1 + 1e-9)).all()
            and (np.bincount(slots.machine[row], memory, slots.machines) <= slots.machine_memory_mb * (1 + 1e-9)).all()
        )
        for row in placed
    ]
    assert memory_fits(*arguments).tolist() == expected
    assert interpreted(memory_fits)(*arguments).tolist() == expected


def test_throughput_is_limited_by_cards_and_other_resources() -> None:
    evaluator = Evaluator(camera(), mesh(4.0))
    placement = Placement((0, 1, 1))
    found = evaluator.evaluate(placement)
    assert found.throughput_tps == pytest.approx(0.5)
    scored = evaluator.scorer(Objective.THROUGHPUT)(np.array([placement.slots], dtype=np.int32))
    assert scored[0] == pytest.approx(0.5)


@pytest.mark.slow
@given(applications(), clusters(), st.integers(0, 2**32 - 1))
def test_utilisation_reaches_one_at_the_rate_of_the_bottleneck(
    application: Application, cluster: Cluster, seed: int
) -> None:
    evaluator = Evaluator(application, cluster)
    placed = random_slots(np.random.default_rng(seed), application, cluster)[0]
    found = evaluator.evaluate(Placement(tuple(placed.tolist())))
    busiest = max(element.utilisation(found.throughput_tps) for element in found.limits)
    assert busiest == pytest.approx(1.0)
    assert all(element.utilisation(found.throughput_tps / 2) <= 0.5 + 1e-9 for element in found.limits)
