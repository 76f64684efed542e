import json
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import linprog

from penstock.estimate.evaluator import Evaluator, Objective
from penstock.estimate.flow import PLANNING, TATA, FlowModel, estimate_flow
from penstock.estimate.flow_kernels import estimate_flows
from penstock.model.cluster import Cluster, Machine
from penstock.model.formats.tata import read_slot_graphs, read_task_graphs
from penstock.model.topology import Application, Component, Grouping, Kind, Stream
from tests.generators import applications, clusters, random_slots
from tests.interpreting import wholly_interpreted
from tests.shared_data import SHARED, needs_shared


@needs_shared
def test_agrees_with_all_600_answers_of_the_authors_estimator() -> None:
    graphs = read_task_graphs(SHARED / "tata" / "task_graphs.json", "train")
    slots = read_slot_graphs(SHARED / "tata" / "slot_graphs.json")
    cases: list[dict[str, Any]] = json.loads((SHARED / "tata" / "estimator_cases.json").read_text())["cases"]
    assert len(cases) == 600
    for case in cases:
        evaluator = Evaluator(graphs[case["task_graph"]], slots[case["slot_graph"]], TATA)
        for answer in (case, case["storm"], case["flink"]):
            found = estimate_flow(evaluator.flow_net, answer["placement"])
            assert found.throughput_tps == pytest.approx(answer["throughput"], rel=1e-9)
            assert found.delay_ms == pytest.approx(answer["delay"], rel=1e-9)
        fits = evaluator.scorer(Objective.RATE)(np.array([case["placement"]], dtype=np.int32))[0] > -np.inf
        assert fits == case["fits_memory"]


def chain(*cpu: float, parallelism: int = 1, grouping: Grouping = Grouping.SHUFFLE) -> Application:
    kinds = [Kind.SOURCE, *[Kind.OPERATOR] * (len(cpu) - 2), Kind.SINK]
    width = [1, *[parallelism] * (len(cpu) - 2), 1]
    return Application(
        name="chain",
        components=tuple(
            Component(name=f"c{i}", kind=kinds[i], cpu=cost, parallelism=width[i]) for i, cost in enumerate(cpu)
        ),
        streams=tuple(Stream(source=f"c{i}", target=f"c{i + 1}", grouping=grouping) for i in range(len(cpu) - 1)),
    )


def machines(*speeds: float) -> Cluster:
    return Cluster(name="m", machines=tuple(Machine(name=f"m{i}", speed=speed) for i, speed in enumerate(speeds)))


@pytest.mark.parametrize("model", [TATA, PLANNING])
def test_a_chain_runs_as_fast_as_its_slowest_machine(model: FlowModel) -> None:
    evaluator = Evaluator(chain(1, 4, 1), machines(10, 20, 10), model)
    found = estimate_flow(evaluator.flow_net, [0, 1, 2])
    assert found.throughput_tps == pytest.approx(5.0, rel=1e-3)
    assert found.delay_ms == pytest.approx(8.0)


@pytest.mark.parametrize("model", [TATA, PLANNING])
def test_tasks_in_one_slot_share_it_by_what_a_tuple_costs(model: FlowModel) -> None:
    evaluator = Evaluator(chain(1, 4, 1), machines(12), model)
    found = estimate_flow(evaluator.flow_net, [0, 0, 0])
    assert found.throughput_tps == pytest.approx(2.0, rel=1e-2)
    assert found.delay_ms == pytest.approx(2.0)


def test_shuffled_tuples_go_round_a_slow_task_and_keyed_ones_wait_for_it() -> None:
    slow = machines(100, 1, 9)  # the two middle tasks get 1 and 9 tuples a second
    placed = [0, 1, 2, 0]
    shuffled = Evaluator(chain(0.1, 1, 0.1, parallelism=2), slow)
    keyed = Evaluator(chain(0.1, 1, 0.1, parallelism=2, grouping=Grouping.FIELDS), slow)
    assert estimate_flow(shuffled.flow_net, placed).throughput_tps == pytest.approx(10.0, rel=1e-3)
    assert estimate_flow(keyed.flow_net, placed).throughput_tps == pytest.approx(2.0, rel=1e-3)


def test_a_fork_splits_as_published_and_copies_when_told_to() -> None:
    fork = Application(
        name="fork",
        components=(
            Component(name="in", kind=Kind.SOURCE, cpu=0.01),
            Component(name="left", kind=Kind.SINK, cpu=1),
            Component(name="right", kind=Kind.SINK, cpu=1),
        ),
        streams=(Stream(source="in", target="left"), Stream(source="in", target="right")),
    )
    cluster = machines(100, 8, 2)
    split = estimate_flow(Evaluator(fork, cluster, TATA).flow_net, [0, 1, 2])
    copied = estimate_flow(Evaluator(fork, cluster, PLANNING).flow_net, [0, 1, 2])
    assert split.throughput_tps == pytest.approx(10.0, rel=1e-3)  # 8 to one and 2 to the other
    assert copied.throughput_tps == pytest.approx(2.0, rel=1e-3)  # the slower branch holds back the other


def test_the_cap_of_a_core_a_task_binds() -> None:
    capped = FlowModel(copy=False, sustained=False, task_cpu=5.0)
    evaluator = Evaluator(chain(1, 1, 1), machines(100, 100, 100), capped)
    assert estimate_flow(evaluator.flow_net, [0, 1, 2]).throughput_tps == pytest.approx(5.0)


def test_slots_share_the_cores_of_their_machine() -> None:
    one_core = Cluster(name="m", machines=(Machine(name="m", cores=1, slots=3, speed=6.0),))
    three_cores = Cluster(name="m", machines=(Machine(name="m", cores=3, slots=3, speed=6.0),))
    application = chain(1, 1, 1)
    assert estimate_flow(Evaluator(application, one_core).flow_net, [0, 1, 2]).throughput_tps == pytest.approx(
        2, rel=1e-2
    )
    assert estimate_flow(Evaluator(application, three_cores).flow_net, [0, 1, 2]).throughput_tps == pytest.approx(6)


def test_several_sources_and_sinks_add_up() -> None:
    application = Application(
        name="two",
        components=(
            Component(name="a", kind=Kind.SOURCE, cpu=0.01),
            Component(name="b", kind=Kind.SOURCE, cpu=0.01),
            Component(name="x", kind=Kind.SINK, cpu=1),
            Component(name="y", kind=Kind.SINK, cpu=1),
        ),
        streams=(Stream(source="a", target="x"), Stream(source="b", target="y")),
    )
    evaluator = Evaluator(application, machines(100, 100, 3, 5))
    found = estimate_flow(evaluator.flow_net, [0, 1, 2, 3])
    assert found.throughput_tps == pytest.approx(8.0, rel=1e-3)
    many_and_few = (
        Stream(source="a", target="x", selectivity=10.0),
        Stream(source="b", target="y", selectivity=0.1),
    )
    for rates in ({}, {"a": 1.0, "b": 1000.0}):
        uneven = msgspec.structs.replace(application, streams=many_and_few, rate_tps=rates)
        found = estimate_flow(Evaluator(uneven, machines(100, 100, 3, 5)).flow_net, [0, 1, 2, 3])
        assert found.throughput_tps == pytest.approx(3 / 10 + 5 / 0.1, rel=1e-3)


@given(applications(), clusters(), st.integers(0, 2**32 - 1))
def test_never_exceeds_the_bound_of_a_linear_program(application: Application, cluster: Cluster, seed: int) -> None:
    placed = random_slots(np.random.default_rng(seed), application, cluster)[0]
    published, planning = (Evaluator(application, cluster, model) for model in (TATA, PLANNING))
    at_sinks = estimate_flow(published.flow_net, placed).throughput_tps
    assert at_sinks <= sink_rate_bound(published, placed) * (1 + 1e-6)
    from_sources = estimate_flow(planning.flow_net, placed).throughput_tps
    assert from_sources <= source_rate_bound(planning, placed) * (1 + 1e-6)


def source_rate_bound(evaluator: Evaluator, placed: NDArray[np.int32]) -> float:
    """Return the most that sources can send when all is processed and streams divide as they like (an LP)."""
    tasks, edges = evaluator.tasks, evaluator.edges
    count = len(edges.target)
    rows, limits = cpu_rows(evaluator, placed)
    equal: list[NDArray[np.float64]] = []
    for task in np.flatnonzero(~tasks.source).tolist():  # what reaches a task is what it processes
        row = np.concatenate([np.zeros(tasks.number), -(edges.target == task).astype(float)])
        row[task] = 1.0
        equal.append(row)
    for task in range(tasks.number):  # every stream carries its share of what the sender processes
        mine = np.arange(edges.start[task], edges.start[task + 1])
        for stream in np.unique(edges.stream[mine]):
            row = np.zeros(tasks.number + count)
            row[tasks.number + mine[edges.stream[mine] == stream]] = 1.0
            row[task] = -edges.share[mine[edges.stream[mine] == stream]].sum()
            equal.append(row)
    cost = np.concatenate([-tasks.source.astype(float), np.zeros(count)])
    solved = linprog(
        cost, A_ub=rows, b_ub=limits, A_eq=np.array(equal), b_eq=np.zeros(len(equal)), bounds=(0, None), method="highs"
    )
    assert solved.status == 0, solved.message
    return -float(solved.fun or 0.0)


def cpu_rows(evaluator: Evaluator, placed: NDArray[np.int32]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the rows and limits that slots and machines set, over the rates of tasks and edges."""
    tasks, slots = evaluator.tasks, evaluator.slots
    rows, limits = [], []
    for capacity, where in ((slots.cpu, placed), (slots.machine_cpu, slots.machine[placed])):
        for place in np.unique(where):
            rows.append(
                np.concatenate([np.where(where == place, tasks.cpu, 0.0), np.zeros(len(evaluator.edges.target))])
            )
            limits.append(float(capacity[place]))
    return np.array(rows), np.array(limits)


def sink_rate_bound(evaluator: Evaluator, placed: NDArray[np.int32]) -> float:
    """Return the most that can reach the sinks when every task may divide its output as it likes (an LP)."""
    tasks, edges = evaluator.tasks, evaluator.edges
    count = len(edges.target)
    degree = np.diff(edges.start)
    share = 1.0 / np.repeat(degree, degree)
    first_rows, first_limits = cpu_rows(evaluator, placed)
    rows, limits = list(first_rows), list(first_limits)
    for task in range(tasks.number):  # it processes at most what reaches it, its edges carry at most what it sends
        leaving = np.concatenate([np.zeros(tasks.number), (edges.source == task).astype(float)])
        leaving[task] = -share[edges.start[task] : edges.start[task + 1]].sum()
        rows.append(leaving)
        limits.append(0.0)
        if not tasks.source[task]:
            entering = np.concatenate([np.zeros(tasks.number), -(edges.target == task).astype(float)])
            entering[task] = 1.0
            rows.append(entering)
            limits.append(0.0)
    cost = np.concatenate([-tasks.sink.astype(float), np.zeros(count)])
    solved = linprog(cost, A_ub=np.array(rows), b_ub=np.array(limits), bounds=(0, None), method="highs")
    assert solved.status == 0, solved.message
    return -float(solved.fun or 0.0)


@given(applications(), clusters(identical=True), st.integers(0, 2**32 - 1), st.sampled_from([TATA, PLANNING]))
def test_renumbering_equal_machines_changes_nothing(
    application: Application, cluster: Cluster, seed: int, model: FlowModel
) -> None:
    rng = np.random.default_rng(seed)
    evaluator = Evaluator(application, cluster, model)
    placed = random_slots(rng, application, cluster)[0]
    width = cluster.machines[0].slots
    renumbered = rng.permutation(len(cluster.machines))[placed // width] * width + placed % width
    before, after = estimate_flow(evaluator.flow_net, placed), estimate_flow(evaluator.flow_net, renumbered)
    assert after.throughput_tps == pytest.approx(before.throughput_tps, rel=1e-9)
    assert after.delay_ms == pytest.approx(before.delay_ms, rel=1e-9)


@given(applications(), clusters(), st.integers(0, 2**32 - 1))
def test_delay_lies_between_the_shortest_and_the_longest_path(
    application: Application, cluster: Cluster, seed: int
) -> None:
    evaluator = Evaluator(application, cluster)
    placed = random_slots(np.random.default_rng(seed), application, cluster)[0]
    hops = path_lengths(application)
    low, high = evaluator.slots.delay_ms.min(), evaluator.slots.delay_ms.max()
    delay = estimate_flow(evaluator.flow_net, placed).delay_ms
    assert min(hops) * low * (1 - 1e-9) <= delay <= max(hops) * high * (1 + 1e-9)


def path_lengths(application: Application) -> list[int]:
    """Return the number of streams on every way from a source to a sink."""
    ways: list[tuple[str, int]] = [(source.name, 0) for source in application.sources]
    found = []
    while ways:
        name, length = ways.pop()
        onward = [stream.target for stream in application.streams if stream.source == name]
        found += [] if onward else [length]
        ways += [(target, length + 1) for target in onward]
    return found


@pytest.mark.parametrize("model", [TATA, PLANNING])
@pytest.mark.parametrize("seed", range(5))
def test_compiled_equals_interpreted(model: FlowModel, seed: int) -> None:
    rng = np.random.default_rng(seed)
    application = chain(*rng.uniform(0.5, 3.0, 4), parallelism=3)
    cluster = Cluster(
        name="m", machines=tuple(Machine(name=f"m{i}", cores=2, slots=3, speed=rng.uniform(1, 9)) for i in range(3))
    )
    net = Evaluator(application, cluster, model).flow_net
    placed = random_slots(rng, application, cluster, rows=4)
    compiled = estimate_flows(net, placed)
    plain = wholly_interpreted(estimate_flows)(net, placed)
    np.testing.assert_allclose(compiled, plain, rtol=1e-12)
