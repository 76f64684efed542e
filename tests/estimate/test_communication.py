from collections.abc import Iterable, Sequence
from typing import NamedTuple

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.estimate.communication import (
    Bottleneck,
    Capacity,
    CommunicationBound,
    Overload,
    communication_bound,
    largest_scale,
)
from penstock.model.cluster import Cluster
from penstock.model.errors import InvalidInput
from penstock.model.slotted import UNLIMITED, PlacedApplication, SlottedSystem, build_slotted_system
from penstock.model.taskgraph import Floats
from penstock.model.topology import Application
from tests.generators import applications, clusters, random_slots

FREE, KEYED, COPIES = "free", "keyed", "copies"


class Queue(NamedTuple):
    task: int
    lanes: Sequence[tuple[int, float]]  # target, cost
    emits: float = 1.0
    kind: str = FREE


def make(
    service: Sequence[float],
    queues: Sequence[Queue],
    limit: Sequence[int] | None = None,
    machine: Sequence[int] | None = None,
    capacity: Sequence[int] = (UNLIMITED,),
) -> SlottedSystem:
    """Build a system; a task of infinite service is a source. Queues come in the order of their tasks."""
    tasks = len(service)
    lanes = [lane for queue in queues for lane in queue.lanes]
    return SlottedSystem(
        application=np.zeros(tasks, dtype=np.int64),
        component=np.arange(tasks),
        machine=np.array(machine or [0] * tasks),
        source=np.isinf(service),
        service=np.array(service, dtype=np.float64),
        limit=np.array(limit or [UNLIMITED] * tasks),
        queues=np.searchsorted([queue.task for queue in queues], np.arange(tasks + 1)),
        emits=np.array([queue.emits for queue in queues]),
        copies=np.array([queue.kind == COPIES for queue in queues], dtype=bool),
        keyed=np.array([queue.kind == KEYED for queue in queues], dtype=bool),
        paired=np.zeros(len(queues), dtype=bool),
        lanes=np.cumsum([0] + [len(queue.lanes) for queue in queues]),
        target=np.array([target for target, _ in lanes], dtype=np.int64),
        cost=np.array([cost for _, cost in lanes]),
        onward=np.zeros(len(lanes)),
        senders=np.ones(len(lanes)),
        capacity=np.array(capacity),
    )


def random_system(rng: np.random.Generator, hops: int, plain: bool = False) -> SlottedSystem:
    """Draw layers of tasks, each sending to the next; plain: one tuple for each, whole numbers, no limits or kinds."""
    sizes = rng.integers(1, 4, hops + 1)
    first = np.concatenate([[0], np.cumsum(sizes)])
    machine = rng.integers(0, 3, first[-1])
    queues, service = [], []
    for layer, size in enumerate(sizes):
        kind = FREE if plain else str(rng.choice([FREE, FREE, FREE, KEYED, COPIES]))
        emits = 1.0 if plain else float(rng.uniform(0.3, 2.0))
        for task in range(first[layer], first[layer] + size):
            service.append(np.inf if layer == 0 else float(rng.integers(3, 9)))
            if layer < hops:
                ends = range(first[layer + 1], first[layer + 2])
                queues.append(Queue(task, [(end, float(rng.integers(0, 6))) for end in ends], emits, kind))
    limit = None if plain else rng.integers(6, 20, first[-1]).tolist()
    capacity = [UNLIMITED] * 3 if plain else rng.integers(10, 40, 3).tolist()
    return make(service, queues, limit, machine.tolist(), capacity)


def random_rates(rng: np.random.Generator, system: SlottedSystem) -> Floats:
    return np.where(system.source, rng.uniform(0.5, 3.0, system.tasks), 0.0)


class Carried(NamedTuple):
    flow: Floats
    processed: Floats
    left: Floats  # of a task
    out: Floats  # of a machine
    cost: float


def carry(system: SlottedSystem, rates: Floats, shares: Floats) -> Carried:
    """Forward tuples task by task; every task's number is above those of its senders."""
    flow, processed = np.zeros(len(system.target)), rates.copy()
    left, out = np.zeros(system.tasks), np.zeros(len(system.capacity))
    for task in range(system.tasks):
        for queue in range(system.queues[task], system.queues[task + 1]):
            emitted = processed[task] * system.emits[queue]
            left[task] += emitted
            out[system.machine[task]] += emitted
            for lane in range(system.lanes[queue], system.lanes[queue + 1]):
                flow[lane] = emitted * shares[lane]
                processed[system.target[lane]] += flow[lane]
    return Carried(flow, processed, left, out, float(flow @ system.cost))


def fullest(system: SlottedSystem, carried: Carried) -> float:
    """Return the largest share of a capacity that is used."""
    works = ~system.source
    used = [
        carried.processed[works] / system.service[works],
        carried.left / system.limit,
        carried.out / system.capacity,
    ]
    return float(np.concatenate(used).max())


def each_queue(system: SlottedSystem, draw: Iterable[Floats]) -> Floats:
    """Return shares of all lanes, given those of every queue whose sender chooses."""
    given_ones, shares = iter(draw), np.zeros(len(system.target))
    for queue in range(len(system.emits)):
        lanes = slice(system.lanes[queue], system.lanes[queue + 1])
        width = system.lanes[queue + 1] - system.lanes[queue]
        if system.copies[queue]:
            shares[lanes] = 1.0
        else:
            shares[lanes] = 1.0 / width if system.keyed[queue] else next(given_ones)
    return shares


def random_shares(rng: np.random.Generator, system: SlottedSystem) -> Floats:
    free = np.diff(system.lanes)[~(system.copies | system.keyed)]
    return each_queue(system, [rng.dirichlet(np.full(width, 0.7)) for width in free])


def bound_of(system: SlottedSystem, rates: Floats) -> CommunicationBound:
    found = communication_bound(system, rates)
    assert isinstance(found, CommunicationBound)
    return found


def one_hop(services: Sequence[float], costs: Sequence[float]) -> SlottedSystem:
    ends = [(number + 1, cost) for number, cost in enumerate(costs)]
    return make([np.inf, *services], [Queue(0, ends)])


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), min_size=1, max_size=5), st.floats(0.01, 1.0))
def test_single_hop_fills_the_cheapest_first(ends: list[tuple[int, int]], load: float) -> None:
    services, costs = zip(*ends, strict=True)
    left = rate = load * sum(services)
    expected = 0.0
    for cost, service in sorted(zip(costs, services, strict=True)):
        expected += cost * min(left, service)
        left -= min(left, service)
    found = bound_of(one_hop(services, costs), np.array([rate] + [0.0] * len(ends)))
    assert found.cost == pytest.approx(expected, abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_equals_the_best_of_a_grid_of_splits(seed: int) -> None:
    """One source, then two tasks, then two more; a queue's tuples are split in hundredths."""
    rng = np.random.default_rng(seed)
    cost, service = rng.integers(0, 7, 6).astype(float), rng.uniform(2.0, 7.0, 5)
    queues = [
        Queue(0, [(1, cost[0]), (2, cost[1])], 0.8),
        Queue(1, [(3, cost[2]), (4, cost[3])], 1.5),
        Queue(2, [(3, cost[4]), (4, cost[5])], 1.5),
    ]
    system = make([np.inf, *service[1:]], queues, limit=[9, 5, 5, 9, 9])
    rate = 0.8 * largest_scale(system, [1, 0, 0, 0, 0])
    up, one, two = np.meshgrid(*[np.linspace(0, 1, 101)] * 3, indexing="ij")
    at_1, at_2 = 0.8 * rate * up, 0.8 * rate * (1 - up)
    from_1, from_2 = 1.5 * at_1, 1.5 * at_2
    at_3, at_4 = from_1 * one + from_2 * two, from_1 * (1 - one) + from_2 * (1 - two)
    fits = (at_1 <= service[1]) & (at_2 <= service[2]) & (at_3 <= service[3]) & (at_4 <= service[4])
    fits &= (0.8 * rate <= 9) & (from_1 <= 5) & (from_2 <= 5)
    costs = at_1 * cost[0] + at_2 * cost[1] + from_1 * (one * cost[2] + (1 - one) * cost[3])
    costs += from_2 * (two * cost[4] + (1 - two) * cost[5])
    best = float(costs[fits].min())
    found = bound_of(system, np.array([rate, 0, 0, 0, 0]))
    assert found.cost <= best + 1e-6
    assert found.cost == pytest.approx(best, rel=0.03, abs=0.1)


@pytest.mark.parametrize("seed", range(25))
def test_equals_the_cheapest_flow_if_the_system_is_a_plain_network(seed: int) -> None:
    rng = np.random.default_rng(seed)
    system = random_system(rng, hops=int(rng.integers(1, 5)), plain=True)
    rates = np.where(system.source, rng.integers(1, 5, system.tasks), 0)
    graph = nx.DiGraph()
    for task in range(system.tasks):
        graph.add_node(("in", task), demand=-int(rates[task]))
        room = {} if system.source[task] else {"capacity": int(system.service[task])}
        graph.add_edge(("in", task), ("out", task), weight=0, **room)
        if system.queues[task] == system.queues[task + 1]:
            graph.add_edge(("out", task), "end", weight=0)
        for lane in range(system.lanes[system.queues[task]], system.lanes[system.queues[task + 1]]):
            graph.add_edge(("out", task), ("in", int(system.target[lane])), weight=int(system.cost[lane]))
    graph.nodes["end"]["demand"] = int(rates.sum())
    found = communication_bound(system, rates)
    try:
        cheapest = nx.min_cost_flow_cost(graph)
    except nx.NetworkXUnfeasible:
        assert isinstance(found, Overload)
    else:
        assert isinstance(found, CommunicationBound)
        assert found.cost == pytest.approx(cheapest, abs=1e-6)


@pytest.mark.slow
@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(1, 4))
def test_no_split_that_fits_costs_less(seed: int, hops: int) -> None:
    rng = np.random.default_rng(seed)
    system = random_system(rng, hops)
    rates = random_rates(rng, system)
    most = largest_scale(system, rates)
    for _ in range(5):
        shares = random_shares(rng, system)
        fits = 1.0 / fullest(system, carry(system, rates, shares))
        assert fits <= most * (1 + 1e-6)
        done = carry(system, fits * rates, shares)
        assert bound_of(system, 0.999999 * fits * rates).cost <= done.cost + 1e-6


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.floats(0.1, 1.0))
def test_the_split_fits_and_has_the_cost(seed: int, hops: int, load: float) -> None:
    rng = np.random.default_rng(seed)
    system = random_system(rng, hops)
    rates = random_rates(rng, system)
    rates *= 0.999999 * load * largest_scale(system, rates)
    found = bound_of(system, rates)
    task = np.repeat(np.arange(system.tasks), np.diff(system.queues))
    queue = np.repeat(np.arange(len(task)), np.diff(system.lanes))
    emitted = found.processed[task] * system.emits
    shares = np.divide(found.flow, emitted[queue], out=np.zeros(len(queue)), where=emitted[queue] > 1e-9)
    done = carry(system, rates, shares)
    assert done.flow == pytest.approx(found.flow, abs=1e-6)
    assert done.processed == pytest.approx(found.processed, abs=1e-6)
    assert done.cost == pytest.approx(found.cost, abs=1e-5)
    assert fullest(system, done) <= 1 + 1e-6
    sums = np.bincount(queue, shares)
    whole = np.where(system.copies, np.diff(system.lanes), 1.0)
    assert sums[emitted > 1e-6] == pytest.approx(whole[emitted > 1e-6], abs=1e-4)
    for number in np.flatnonzero((system.copies | system.keyed) & (emitted > 1e-6)):
        assert np.ptp(shares[queue == number]) < 1e-4


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.floats(0.3, 0.999))
def test_prices_prove_the_cost(seed: int, hops: int, load: float) -> None:
    """By weak duality any prices give a lower bound: the priced cost of tuples minus the value of capacities."""
    rng = np.random.default_rng(seed)
    system = random_system(rng, hops)
    rates = random_rates(rng, system)
    rates *= load * largest_scale(system, rates)
    found = bound_of(system, rates)
    paid = 0.0
    for task in np.flatnonzero(system.source):
        for queue in range(system.queues[task], system.queues[task + 1]):
            lanes = slice(system.lanes[queue], system.lanes[queue + 1])
            each = (system.cost + found.onward)[lanes]
            cheapest = each.mean() if system.keyed[queue] else each.min()
            leaving = found.limit_price[task] + found.card_price[system.machine[task]]
            following = each.sum() if system.copies[queue] else cheapest
            paid += rates[task] * system.emits[queue] * (leaving + following)
    priced = found.price > 0
    earned = [
        found.price[priced] @ system.service[priced],
        found.limit_price @ system.limit,
        found.card_price @ system.capacity,
    ]
    assert min(found.price.min(), found.limit_price.min(), found.card_price.min()) >= 0
    assert paid - sum(earned) == pytest.approx(found.cost, rel=1e-6, abs=1e-6)


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(1, 4))
def test_lanes_in_use_are_the_cheapest_of_their_queue_at_these_prices(seed: int, hops: int) -> None:
    rng = np.random.default_rng(seed)
    system = random_system(rng, hops)
    rates = random_rates(rng, system)
    found = bound_of(system, 0.95 * largest_scale(system, rates) * rates)
    for queue in np.flatnonzero(~(system.keyed | system.copies)):
        lanes = slice(system.lanes[queue], system.lanes[queue + 1])
        each = (system.cost + found.onward)[lanes]
        assert each[found.flow[lanes] > 1e-6] == pytest.approx(each.min(), abs=1e-6)


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1), st.integers(1, 3))
def test_price_lies_between_the_slopes_of_the_cost(seed: int, hops: int) -> None:
    rng = np.random.default_rng(seed)
    system = random_system(rng, hops)
    rates = random_rates(rng, system)
    rates *= 0.9 * largest_scale(system, rates)
    found = bound_of(system, rates)
    task = int(rng.choice(np.flatnonzero(~system.source)))
    step = 1e-3
    changed = np.where(np.arange(system.tasks) == task, step, 0.0)
    more = bound_of(system._replace(service=system.service + changed), rates)
    less = bound_of(system._replace(service=system.service - changed), rates)
    assert (found.cost - more.cost) / step <= found.price[task] + 1e-4
    assert found.price[task] <= (less.cost - found.cost) / step + 1e-4


def test_price_is_the_extra_cost_of_the_next_best() -> None:
    system = one_hop([2.0, 5.0, 5.0], [1.0, 4.0, 9.0])
    found = bound_of(system, np.array([6.0, 0, 0, 0]))
    assert found.flow == pytest.approx([2.0, 4.0, 0.0])
    assert found.price == pytest.approx([0.0, 3.0, 0.0, 0.0])
    assert found.onward == pytest.approx([3.0, 0.0, 0.0])
    assert found.binding == (Bottleneck(Capacity.SERVICE, 1),)


def test_prices_of_limits_and_cards_are_part_of_the_cost_of_descendants() -> None:
    """Task 1 and machine 1 may forward few tuples, so that some must use the expensive task 2."""
    queues = [Queue(0, [(1, 0.0), (2, 5.0)]), Queue(1, [(3, 0.0)]), Queue(2, [(3, 0.0)])]
    services, machine = [np.inf, 9.0, 9.0, 9.0], [0, 1, 2, 3]
    rates = np.array([4.0, 0, 0, 0])
    by_limit = bound_of(make(services, queues, [9, 3, 9, 9], machine, [UNLIMITED] * 4), rates)
    by_card = bound_of(make(services, queues, [9, 9, 9, 9], machine, [UNLIMITED, 3, UNLIMITED, UNLIMITED]), rates)
    for found in (by_limit, by_card):
        assert found.cost == pytest.approx(5.0)
        assert found.onward == pytest.approx([5.0, 0.0, 0.0, 0.0])
    assert by_limit.limit_price == pytest.approx([0, 5, 0, 0])
    assert by_limit.binding == (Bottleneck(Capacity.LIMIT, 1),)
    assert by_card.card_price == pytest.approx([0, 5, 0, 0])
    assert by_card.binding == (Bottleneck(Capacity.CARD, 1),)


def test_keys_split_evenly_at_any_cost() -> None:
    ends = [(1, 0.0), (2, 6.0)]
    free, keyed, copied = (
        bound_of(make([np.inf, 9.0, 9.0], [Queue(0, ends, 2.0, kind)]), np.array([3.0, 0, 0]))
        for kind in (FREE, KEYED, COPIES)
    )
    assert free.flow == pytest.approx([6, 0])
    assert keyed.flow == pytest.approx([3, 3])
    assert copied.flow == pytest.approx([6, 6])
    assert [free.cost, keyed.cost, copied.cost] == pytest.approx([0, 18, 36])


def test_copies_leave_their_queue_once() -> None:
    system = make([np.inf, 9.0, 9.0], [Queue(0, [(1, 1.0), (2, 2.0)], 1.0, COPIES)], limit=[5, 9, 9], capacity=[4])
    assert largest_scale(system, [1.0, 0, 0]) == pytest.approx(4.0)
    assert bound_of(system, np.array([3.0, 0, 0])).cost == pytest.approx(9.0)


@pytest.mark.parametrize("factor", [1e-6, 1.0, 1e6])
def test_the_unit_of_rates_does_not_matter(factor: float) -> None:
    system = one_hop([2.0 * factor, 5.0 * factor], [1.0, 4.0])
    found = bound_of(system, np.array([6.0 * factor, 0, 0]))
    assert found.cost == pytest.approx(18.0 * factor)
    assert found.price == pytest.approx([0.0, 3.0, 0.0])
    assert largest_scale(system, [factor, 0, 0]) == pytest.approx(7.0)


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.integers(1, 4))
def test_rates_fit_up_to_the_largest_scale(seed: int, hops: int) -> None:
    rng = np.random.default_rng(seed)
    system = random_system(rng, hops)
    rates = random_rates(rng, system)
    scale = largest_scale(system, rates)
    assert isinstance(communication_bound(system, 0.9999 * scale * rates), CommunicationBound)
    beyond = communication_bound(system, 1.0001 * scale * rates)
    assert isinstance(beyond, Overload)
    assert beyond.scale == pytest.approx(1 / 1.0001)
    assert beyond.binding


def test_names_the_element_that_cannot_carry_the_rates() -> None:
    found = communication_bound(one_hop([2.0, 3.0], [0.0, 1.0]), [10.0, 0, 0])
    assert isinstance(found, Overload)
    assert found.reason == (
        "the service of task 2 and the service of task 1 cannot carry the rates; "
        "multiply the rates by at most 0.5, or raise that"
    )
    assert found.scale == pytest.approx(0.5)
    assert found.binding == (Bottleneck(Capacity.SERVICE, 2), Bottleneck(Capacity.SERVICE, 1))


@pytest.mark.parametrize(
    ("system", "reason"),
    [
        (make([np.inf, 9.0], [Queue(0, [(1, 1.0)])], limit=[2, 5]), "the limit of task 0 cannot"),
        (make([np.inf, 9.0], [Queue(0, [(1, 1.0)])], capacity=[2]), "the card of machine 0 cannot"),
        (make([np.inf, 9.0, 1.0], [Queue(0, [(1, 1.0), (2, 1.0)], 1.0, KEYED)]), "the service of task 2 cannot"),
        (make([np.inf, 0.0], [Queue(0, [(1, 1.0)])]), "the service of task 1 cannot carry the rates; it is 0"),
        (one_hop([0.1] * 9, [1.0] * 9), "and 5 more cannot"),
    ],
    ids=["limit", "card", "keys", "nothing", "many"],
)
def test_reason_names_the_kind_of_capacity(system: SlottedSystem, reason: str) -> None:
    found = communication_bound(system, [4.0] + [0.0] * (system.tasks - 1))
    assert isinstance(found, Overload)
    assert reason in found.reason
    assert found.scale < 1


def test_scale_is_infinite_without_a_limit() -> None:
    assert largest_scale(one_hop([2.0], [1.0]), [0.0, 0.0]) == np.inf
    assert largest_scale(make([np.inf, np.inf], [Queue(0, [(1, 1.0)])]), [1.0, 0.0]) == np.inf
    assert bound_of(one_hop([2.0], [1.0]), np.zeros(2)).cost == 0.0


@settings(max_examples=40)
@given(applications(), clusters(), st.integers(0, 2**32 - 1))
def test_costs_the_cheapest_paths_if_capacity_suffices(application: Application, cluster: Cluster, seed: int) -> None:
    """No element is full, so every tuple follows `System.onward`."""
    rng = np.random.default_rng(seed)
    placed = random_slots(rng, application, cluster)[0]
    system = build_slotted_system(
        [PlacedApplication(application, placed.tolist())], cluster, slot_s=1000.0, limit=UNLIMITED
    )
    rates = np.where(system.source, rng.uniform(0.1, 1.0, system.tasks), 0.0)
    found = bound_of(system, 0.0001 * rates * largest_scale(system, rates))
    assert found.binding == ()
    assert found.onward == pytest.approx(system.onward)


def test_several_applications_share_capacities() -> None:
    """Two applications share a machine whose card sends seven tuples per slot; one has an expensive detour."""
    queues = [Queue(0, [(2, 1.0)]), Queue(1, [(2, 1.0), (3, 2.0)])]
    system = make([np.inf, np.inf, 4.0, 9.0], queues, capacity=[7])
    assert bound_of(system, np.array([3.0, 3.0, 0, 0])).cost == pytest.approx(3 + 1 + 2 * 2)
    assert largest_scale(system, [3.0, 3.0, 0, 0]) == pytest.approx(7 / 6)


def test_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    system = one_hop([2.0, 3.0], [0.0, 1.0])
    for rate in (1.0, 4.0, 6.0):
        communication_bound(system, [rate, 0, 0])
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize(
    ("rates", "message"),
    [
        ([1.0], r"rates: expected one per task, 2, got an array of shape \(1,\)"),
        ([1.0, -2.0], r"rates\[1\]: expected a finite number >= 0, got -2.0"),
        ([np.nan, 0.0], r"rates\[0\]: expected a finite number >= 0, got nan"),
    ],
)
def test_rejects_wrong_rates(rates: list[float], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        communication_bound(one_hop([2.0], [1.0]), rates)
