import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import linprog

from penstock.estimate.evaluator import Evaluator
from penstock.estimate.flow import TATA, FlowModel, estimate_flow
from penstock.estimate.flow_kernels import estimate_flows
from penstock.model.cluster import Cluster, Machine
from penstock.model.formats.tata import read_slot_graphs, read_task_graphs
from penstock.model.kernel import interpreted
from penstock.model.objective import Objective
from penstock.model.topology import Application, Component, Grouping, Kind, Stream
from tests.generators import applications, clusters, random_slots
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
        fits = evaluator.scorer(Objective.THROUGHPUT)(np.array([case["placement"]], dtype=np.int32))[0] > -np.inf
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


def test_a_chain_runs_as_fast_as_its_slowest_machine() -> None:
    evaluator = Evaluator(chain(1, 4, 1), machines(10, 20, 10), TATA)
    found = estimate_flow(evaluator.flow_net, [0, 1, 2])
    assert found.throughput_tps == pytest.approx(5.0, rel=1e-3)
    assert found.delay_ms == pytest.approx(8.0)


def test_tasks_in_one_slot_share_it_by_the_cost_of_a_tuple() -> None:
    evaluator = Evaluator(chain(1, 4, 1), machines(12), TATA)
    found = estimate_flow(evaluator.flow_net, [0, 0, 0])
    assert found.throughput_tps == pytest.approx(2.0, rel=1e-2)
    assert found.delay_ms == pytest.approx(2.0)


def test_a_fork_splits_as_published() -> None:
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
    assert split.throughput_tps == pytest.approx(10.0, rel=1e-3)  # 8 to one and 2 to the other


def test_a_task_uses_one_core_at_most() -> None:
    capped = FlowModel(task_cpu=5.0)
    evaluator = Evaluator(chain(1, 1, 1), machines(100, 100, 100), capped)
    assert estimate_flow(evaluator.flow_net, [0, 1, 2]).throughput_tps == pytest.approx(5.0)


def test_slots_share_the_cores_of_their_machine() -> None:
    one_core = Cluster(name="m", machines=(Machine(name="m", cores=1, slots=3, speed=6.0),))
    three_cores = Cluster(name="m", machines=(Machine(name="m", cores=3, slots=3, speed=6.0),))
    application = chain(1, 1, 1)
    assert estimate_flow(Evaluator(application, one_core, TATA).flow_net, [0, 1, 2]).throughput_tps == pytest.approx(
        2, rel=1e-2
    )
    assert estimate_flow(Evaluator(application, three_cores, TATA).flow_net, [0, 1, 2]).throughput_tps == pytest.approx(
        6
    )


@pytest.mark.slow
@given(applications(), clusters(), st.integers(0, 2**32 - 1))
def test_never_exceeds_the_bound_of_a_linear_program(application: Application, cluster: Cluster, seed: int) -> None:
    placed = random_slots(np.random.default_rng(seed), application, cluster)[0]
    published = Evaluator(application, cluster, TATA)
    at_sinks = estimate_flow(published.flow_net, placed).throughput_tps
    assert at_sinks <= sink_rate_bound(published, placed) * (1 + 1e-6)


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
    """Return the maximum rate at the sinks if every task may divide its output freely (an LP)."""
    tasks, edges = evaluator.tasks, evaluator.edges
    count = len(edges.target)
    degree = np.diff(edges.start)
    share = 1.0 / np.repeat(degree, degree)
    first_rows, first_limits = cpu_rows(evaluator, placed)
    rows, limits = list(first_rows), list(first_limits)
    for task in range(tasks.number):  # it processes at most its input, its edges carry at most its output
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


@pytest.mark.slow
@given(applications(), clusters(identical=True), st.integers(0, 2**32 - 1))
def test_renumbering_equal_machines_changes_nothing(application: Application, cluster: Cluster, seed: int) -> None:
    rng = np.random.default_rng(seed)
    evaluator = Evaluator(application, cluster, TATA)
    placed = random_slots(rng, application, cluster)[0]
    width = cluster.machines[0].slots
    renumbered = rng.permutation(len(cluster.machines))[placed // width] * width + placed % width
    before, after = estimate_flow(evaluator.flow_net, placed), estimate_flow(evaluator.flow_net, renumbered)
    assert after.throughput_tps == pytest.approx(before.throughput_tps, rel=1e-9)
    assert after.delay_ms == pytest.approx(before.delay_ms, rel=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_compiled_equals_interpreted(seed: int) -> None:
    rng = np.random.default_rng(seed)
    application = chain(*rng.uniform(0.5, 3.0, 4), parallelism=3)
    cluster = Cluster(
        name="m", machines=tuple(Machine(name=f"m{i}", cores=2, slots=3, speed=rng.uniform(1, 9)) for i in range(3))
    )
    net = Evaluator(application, cluster, TATA).flow_net
    placed = random_slots(rng, application, cluster, rows=4)
    compiled = estimate_flows(net, placed)
    plain = interpreted(estimate_flows)(net, placed)
    np.testing.assert_allclose(compiled, plain, rtol=1e-12)
