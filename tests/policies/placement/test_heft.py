from itertools import combinations
from typing import Any, cast

import networkx as nx
import numpy as np
import pytest

from penstock.model.cluster import Machine
from penstock.model.kernel import interpreted
from penstock.model.placement import Constraint
from penstock.model.taskgraph import expand_edges
from penstock.model.topology import Component, Kind, Stream, Topology
from penstock.policies.api import PlacementView
from penstock.policies.placement.heft import (
    Schedule,
    arrivals,
    book,
    earliest_finish,
    execution_times,
    upward_ranks,
    usual_bits,
)
from penstock.policies.placement.transfer_times import (
    TransferTimes,
    between_machines,
    inside_machine,
    mean_transfer,
    quickest_ways,
    transfer_times,
)
from tests.policies.cases import chain, cluster, equal_machines, placed, refused
from tests.policies.placement.random_cases import Case, arcs_of, random_mesh, random_network
from tests.sparcle_cases import Instance, build

CASES = pytest.mark.parametrize("case", [random_mesh, random_network])

# Fig. 1 and Table 1 of Topcuoglu et al.: the time of each task on each of three processors, and of each message.
PAPER_TIMES = [
    (14, 16, 9),
    (13, 19, 18),
    (11, 13, 19),
    (13, 8, 17),
    (12, 13, 10),
    (13, 16, 9),
    (7, 15, 11),
    (5, 11, 14),
    (18, 12, 20),
    (21, 7, 16),
]
PAPER_MESSAGES = [
    *[(0, 1, 18), (0, 2, 12), (0, 3, 9), (0, 4, 11), (0, 5, 14)],
    *[(1, 7, 19), (1, 8, 16), (2, 6, 23), (3, 7, 27), (3, 8, 23), (4, 8, 13), (5, 7, 15)],
    *[(6, 9, 17), (7, 9, 11), (8, 9, 13)],
]


def paper_example() -> PlacementView:
    """The paper's example: processor p has one unit per second of resource p, and more than enough of the others."""
    instance: Instance = {
        "id": "paper",
        "topology": "complete",
        "tasks": [(0.0, *times) for times in PAPER_TIMES],
        "machines": [(1.0, *(1.0 if other == p else 1e9 for other in range(3))) for p in range(3)],
        "links": [(a, b, 1.0) for a, b in combinations(range(3), 2)],
        "directed": False,
        "edges": [list(message) for message in PAPER_MESSAGES],
        "pins": {},
    }
    return PlacementView(*build(instance))


def scheduled(view: PlacementView, batch: float) -> Schedule:
    """Run HEFT and keep its timetable."""
    times = transfer_times(view, usual_bits(view) * batch)
    schedule = Schedule(view, batch, times)
    rank = upward_ranks(view, batch, times)[view.tasks.component]
    for task in np.argsort(-rank, kind="stable").tolist():
        schedule.add(task, np.ones(view.slots.number, dtype=np.bool_))
    return schedule


def test_ranks_of_the_papers_example_are_the_papers() -> None:
    view = paper_example()
    ranks = upward_ranks(view, 1.0, transfer_times(view, 1.0))
    assert ranks == pytest.approx([108, 77, 80, 80, 69, 190 / 3, 128 / 3, 107 / 3, 133 / 3, 44 / 3])


def test_schedule_of_the_papers_example_is_the_papers() -> None:
    view = paper_example()
    table = scheduled(view, 1.0).table
    assert table.start_s == pytest.approx([0, 27, 9, 18, 28, 26, 38, 57, 56, 73])
    assert table.finish_s == pytest.approx([9, 40, 28, 26, 38, 42, 49, 62, 68, 80])
    assert table.slot.tolist() == [2, 0, 2, 1, 2, 1, 2, 0, 1, 1]
    assert placed("heft", view) == table.slot.tolist()


def seconds(view: PlacementView, times: TransferTimes, here: int, there: int, bits: float) -> float:
    """The time between two slots."""
    source, target = int(view.slots.machine[here]), int(view.slots.machine[there])
    return inside_machine(times, here, there) if source == target else between_machines(times, source, target, bits)


def longest_path(view: PlacementView, times: TransferTimes, batch: float, component: int) -> float:
    """The upward rank by trying every path to a sink."""
    pairs = [(a, b) for a in range(view.slots.number) for b in range(view.slots.number) if a != b]
    width = np.diff(view.slots.first)
    execution = [
        np.average(execution_times(view, int(view.tasks.first[c]), batch), weights=width)
        for c in range(len(view.tasks.position))
    ]
    graph = nx.DiGraph()
    graph.add_nodes_from(range(len(view.tasks.position)))
    for flow in view.tasks.flows:
        bits = view.tasks.gain[view.tasks.first[flow.source]] * flow.share * flow.tuple_bytes * 8 * batch
        graph.add_edge(flow.source, flow.target, time=np.mean([seconds(view, times, a, b, bits) for a, b in pairs]))
    ends = [node for node in graph if not graph.out_degree(node)]
    paths = [path for end in ends for path in nx.all_simple_paths(graph, component, end)] or [[component]]
    return max(
        float(
            sum(execution[node] for node in path) + sum(graph.edges[edge]["time"] for edge in nx.utils.pairwise(path))
        )
        for path in paths
    )


@CASES
@pytest.mark.parametrize("seed", range(5))
def test_upward_rank_is_the_longest_path_to_a_sink(case: Case, seed: int) -> None:
    view = case(seed)
    times = transfer_times(view, 1e5)
    ranks = upward_ranks(view, 2.0, times)
    expected = [longest_path(view, times, 2.0, component) for component in range(len(ranks))]
    assert ranks == pytest.approx(expected, rel=1e-9)


@CASES
@pytest.mark.parametrize("seed", range(8))
def test_every_task_runs_where_it_finishes_earliest(case: Case, seed: int) -> None:
    view = case(seed)
    batch = 3.0
    times = transfer_times(view, usual_bits(view) * batch)
    table = scheduled(view, batch).table
    edges = expand_edges(view.tasks)
    bits = view.tasks.gain[edges.source] * edges.share * edges.tuple_bytes * 8 * batch
    rank = upward_ranks(view, batch, times)[view.tasks.component]
    busy: dict[int, list[tuple[float, float]]] = {slot: [] for slot in range(view.slots.number)}
    for task in np.argsort(-rank, kind="stable").tolist():
        inputs = [(int(edges.source[e]), float(bits[e])) for e in np.flatnonzero(edges.target == task)]
        finish = {}
        for slot, taken in busy.items():
            came = [table.finish_s[a] + seconds(view, times, int(table.slot[a]), slot, b) for a, b in inputs]
            duration = execution_times(view, task, batch)[view.slots.machine[slot]]
            ready = max(came, default=0.0)
            starts = [max(ready, end) for _, end in [(0.0, 0.0), *taken]]
            finish[slot] = duration + min(
                start for start in starts if all(start + duration <= begin or start >= end for begin, end in taken)
            )
        assert table.finish_s[task] == pytest.approx(min(finish.values()), rel=1e-9), f"seed {seed}, task {task}"
        assert table.finish_s[task] == pytest.approx(finish[int(table.slot[task])], rel=1e-9)
        busy[int(table.slot[task])].append((float(table.start_s[task]), float(table.finish_s[task])))


@CASES
@pytest.mark.parametrize("seed", range(6))
def test_mean_transfer_is_the_mean_over_all_pairs_of_slots(case: Case, seed: int) -> None:
    view = case(seed)
    times = transfer_times(view, 1e5)
    pairs = [(a, b) for a in range(view.slots.number) for b in range(view.slots.number) if a != b]
    latency, bit = mean_transfer(times)
    assert latency == pytest.approx(np.mean([seconds(view, times, a, b, 0.0) for a, b in pairs]))
    assert latency + 1e6 * bit == pytest.approx(np.mean([seconds(view, times, a, b, 1e6) for a, b in pairs]))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("bits", [0.0, 1e3, 1e6])
def test_fastest_paths_are_the_shortest_in_seconds(seed: int, bits: float) -> None:
    view = random_network(seed)
    machines = view.slots.machines
    latency, bit = quickest_ways(view.links, machines, bits)
    shortest = dict(
        nx.all_pairs_dijkstra_path_length(
            arcs_of(view), weight=lambda a, b, arcs: min(x["latency_s"] + bits / x["bandwidth"] for x in arcs.values())
        )
    )
    expected = [[shortest[a].get(b, np.inf) for b in range(machines)] for a in range(machines)]
    assert latency + bits * bit == pytest.approx(np.array(expected))
    for ours, plain in zip((latency, bit), interpreted(quickest_ways)(view.links, machines, bits), strict=True):
        assert ours.tolist() == plain.tolist()


def fork() -> Topology:
    """A source and two branches of unequal length."""
    return Topology(
        name="fork",
        components=(
            Component(name="in", kind=Kind.SOURCE, cpu=1.0),
            Component(name="long", kind=Kind.SINK, cpu=9.0),
            Component(name="short", kind=Kind.SINK, cpu=3.0),
        ),
        streams=(Stream(source="in", target="long"), Stream(source="in", target="short")),
    )


def test_runs_branches_in_parallel_if_that_finishes_earlier() -> None:
    assert placed("heft", PlacementView(fork(), equal_machines(2))) == [0, 0, 1]
    assert (
        placed("heft", PlacementView(fork(), cluster(Machine(name="slow"), Machine(name="fast", speed=9.0)))) == [1] * 3
    )


def test_a_larger_batch_makes_hops_cheap_compared_to_work() -> None:
    view = PlacementView(chain(1, 2, cpu=0.001), equal_machines(2))
    assert placed("heft:batch=1", view) == [0, 0, 0]  # half a millisecond of work is not worth a hop of 4 ms
    assert sorted(placed("heft:batch=100", view)[1:]) == [0, 1]


def test_counts_a_core_that_slots_share_only_once() -> None:
    crowded, roomy = Machine(name="crowded", cores=1, slots=4), Machine(name="roomy", cores=1, slots=2)
    view = PlacementView(chain(1, 1, cpu=1.0), cluster(crowded, roomy))
    assert execution_times(view, 0, 1.0).tolist() == [4.0, 2.0]
    assert placed("heft", view) == [4, 4]


def test_keeps_room_for_pinned_tasks() -> None:
    topology = Topology(
        name="pinned",
        components=(
            Component(name="in", kind=Kind.SOURCE, cpu=1.0, memory_mb=60.0),
            Component(name="out", kind=Kind.SINK, cpu=1.0, memory_mb=60.0, pinned="m0"),
        ),
        streams=(Stream(source="in", target="out"),),
    )
    assert placed("heft", PlacementView(topology, equal_machines(2, memory_mb=100.0))) == [1, 0]
    refusal = refused("heft", PlacementView(topology, equal_machines(1, memory_mb=100.0)))
    assert refusal.constraint is Constraint.MEMORY


@pytest.mark.slow
@CASES
def test_compiled_kernels_equal_interpreted_ones(case: Case) -> None:
    view = case(3)
    times = transfer_times(view, 1e5)
    order = range(view.tasks.number - 1)
    durations, room = execution_times(view, order.stop, 1.0), np.ones(view.slots.number, dtype=np.bool_)

    def add_last(arrive: Any, find: Any, enter: Any) -> list[Any]:
        schedule = Schedule(view, 1.0, times)
        for task in order:
            schedule.add(task, room)
        table, at_machine, at_slot = schedule.table, np.zeros(view.slots.machines), np.zeros(view.slots.number)
        arrive(times, table.slot[:-1], table.finish_s[:-1], np.full(order.stop, 1e5), at_machine, at_slot)
        slot, start = find(table, times.slot_machine, durations, at_machine / 2, at_slot / 2, room)
        enter(table, order.stop, slot, start, start + 1.0)
        return [slot, start, at_machine.tolist(), at_slot.tolist(), *(column.tolist() for column in table)]

    kernels = (arrivals, earliest_finish, book)
    assert add_last(*kernels) == add_last(*(interpreted(cast(Any, kernel)) for kernel in kernels))
