from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.estimate.evaluator import UNSUSTAINED
from penstock.estimate.latency import LatencyModel, LatencyModels, Loads
from penstock.estimate.latency_kernels import total_latencies
from penstock.estimate.regression import Regressor, Scaling
from penstock.model.cluster import Cluster, Machine
from penstock.model.errors import InvalidInput, UnknownName
from penstock.model.instance import Instance
from penstock.model.kernel import interpreted
from penstock.model.topology import Application, Component, Grouping, Kind, Stream, Topology
from tests.estimate.latency_cases import line, random_model
from tests.pipeline.latency_tables import CPU, RATE, WIDTHS, write_tables
from tests.policies.cases import chain, equal_machines


def figure() -> Topology:
    """The application of the paper's Fig. 2.3: two threads each, shuffled."""
    streams = ["Source1->PU1", "Source2->PU2", "Source2->PU3", "PU1->PU4", "PU2->PU4", "PU2->PU5", "PU3->PU6",
               "PU5->PU6"]  # fmt: skip
    kinds = {"Source1": Kind.SOURCE, "Source2": Kind.SOURCE, "PU4": Kind.SINK, "PU6": Kind.SINK}
    names = ["Source1", "Source2", *(f"PU{i}" for i in range(1, 7))]
    return Topology(
        name="figure",
        components=tuple(
            Component(name=name, kind=kinds.get(name, Kind.OPERATOR), parallelism=2, cpu=1e-6) for name in names
        ),
        streams=tuple(Stream(source=s.split("->")[0], target=s.split("->")[1]) for s in streams),
    )


def figure_model() -> LatencyModel:
    """A thread takes 1 ms and 1 ms more for every other on its machine; a tuple 1 ms within a machine, else 10 ms."""
    topology = figure()
    instance = Instance(topology, equal_machines(2, cores=2, slots=2))
    models = LatencyModels(
        {f"PU{i}": line(5, 1e-3, colocated=1e-3) for i in range(1, 7)},
        {stream.label: line(9, 1e-2, same_machine=-9e-3) for stream in topology.streams},
        application="figure",
    )
    return LatencyModel(instance, models, Loads.declared(instance, {"Source1": 10.0, "Source2": 10.0}))


def test_equals_the_hand_worked_example_of_figure_2_3() -> None:
    model = figure_model()
    names = [model.instance.topology.components[p].name for p in model.instance.topology.order]
    # The first thread of each on machine 0, the second on machine 1; but PU6 with both on machine 0.
    slots = [0 if thread == 0 or name == "PU6" else 2 for name in names for thread in (0, 1)]
    found = model.predict(slots)
    # Machine 0 has 9 tasks, so a thread there takes 1 + 8 = 9 ms; machine 1 has 7, 7 ms. (2.2): means of two threads.
    assert {n: round(1e3 * s, 9) for n, s in found.processing.items()} == {
        "PU1": 8.0, "PU2": 8.0, "PU3": 8.0, "PU4": 8.0, "PU5": 8.0, "PU6": 9.0,
    }  # fmt: skip
    # (2.3): of four pairs, two are within a machine and two are not: 0.25 * (1 + 1 + 10 + 10) = 5.5 ms, everywhere.
    assert all(seconds == pytest.approx(5.5e-3) for seconds in found.transfer.values())
    # (2.4) and (2.7): p3 is 5.5 + 8 + 5.5 + 8 + 5.5 + 9 = 41.5 ms.
    paths = {"/".join(path): round(1e3 * seconds, 9) for path, seconds in found.paths().items()}
    assert paths == {
        "Source1/PU1/PU4": 27.0,
        "Source2/PU2/PU4": 27.0,
        "Source2/PU2/PU5/PU6": 41.5,
        "Source2/PU3/PU6": 28.0,
    }
    assert found.total_s == pytest.approx(41.5e-3)  # (2.6)
    assert found.worst_path == ("Source2", "PU2", "PU5", "PU6")
    assert total_latencies(model.net, np.array([slots], dtype=np.int32))[0][0] == pytest.approx(41.5e-3)


def test_weights_are_shares_of_tuples() -> None:
    model = figure_model()
    assert model.loads.task_share == pytest.approx(np.full(16, 0.5))
    assert model.loads.edge_share == pytest.approx(np.full(32, 0.25))


@pytest.mark.parametrize("uneven", [False, True])
def test_compiled_and_plain_predictions_agree_on_random_cases(uneven: bool) -> None:
    for seed in range(40):
        model = random_model(seed, uneven)
        rng = np.random.default_rng(seed)
        instance = model.instance
        rows = rng.integers(0, instance.slots.number, (4, instance.tasks.number)).astype(np.int32)
        plain = [model.predict(row).total_s for row in rows]
        assert total_latencies(model.net, rows)[0] == pytest.approx(plain, rel=1e-9), f"seed {seed}"


def test_an_incremental_evaluation_equals_a_full_one_to_the_last_digit() -> None:
    for seed in range(40):
        model = random_model(seed, uneven=seed % 2 == 0)
        rng = np.random.default_rng(seed)
        tasks, slots = model.instance.tasks.number, model.instance.slots.number
        rows = np.repeat(rng.integers(0, slots, (1, tasks)), 12, axis=0).astype(np.int32)
        for row in rows[1:]:
            row[rng.integers(0, tasks, rng.integers(1, 3))] = rng.integers(slots)
        together = total_latencies(model.net, rows)
        alone = [total_latencies(model.net, row[None, :]) for row in rows]
        assert together[0].tolist() == [seconds[0] for seconds, _ in alone], f"seed {seed}"
        assert together[1].tolist() == [busiest[0] for _, busiest in alone], f"seed {seed}"


def test_kernels_compiled_and_interpreted_agree() -> None:
    plain = interpreted(total_latencies)
    for seed in range(3):
        model = random_model(seed)
        rng = np.random.default_rng(seed)
        rows = rng.integers(0, model.instance.slots.number, (3, model.instance.tasks.number)).astype(np.int32)
        rows[2] = rows[1]
        rows[2, 0] = 0
        for ours, theirs in zip(total_latencies(model.net, rows), plain(model.net, rows), strict=True):
            assert ours == pytest.approx(theirs, rel=1e-12)


def test_features_follow_a_placement() -> None:
    topology = chain(2, 2, cpu=0.01, memory_mb=50.0)
    machines = (
        Machine(name="m0", cores=4, speed=1.5, slots=2, memory_mb=512.0),
        Machine(name="m1", cores=2, slots=2, memory_mb=256.0),
    )
    instance = Instance(topology, Cluster(name="two", machines=machines))
    model = LatencyModel(
        instance, LatencyModels({"c1": line(5, 1.0)}, {"c0->c1": line(9, 1.0)}), Loads.declared(instance, {"c0": 40.0})
    )
    tasks, edges = model.features(np.array([0, 1, 1, 2], dtype=np.int32))  # three tasks on machine 0, one on machine 1
    assert tasks.tolist() == [
        [6.0, 512.0, 20.0, 60.0, 2.0],
        [6.0, 512.0, 20.0, 60.0, 2.0],
        [6.0, 512.0, 20.0, 60.0, 2.0],
        [2.0, 256.0, 20.0, 20.0, 0.0],
    ]
    assert edges[:, -1].tolist() == [1.0, 0.0, 1.0, 0.0]
    assert edges[1].tolist() == [*tasks[0, :4].tolist(), *tasks[3, :4].tolist(), 0.0]


def test_overloaded_placements_score_below_all_others_and_infeasible_ones_minus_infinity() -> None:
    topology = chain(1, 2, cpu=0.01, memory_mb=60.0)
    instance = Instance(topology, equal_machines(2, cores=2, slots=2, memory_mb=130.0))
    models = LatencyModels({"c1": line(5, 1e-3)}, {"c0->c1": line(9, 1e-3)})
    score = LatencyModel(instance, models, Loads.declared(instance, {"c0": 60.0})).scorer()
    rows = np.array([[0, 1, 2], [0, 0, 2], [0, 1, 1], [0, 2, 2]], dtype=np.int32)
    fine, full, heavy, shared = score(rows)
    assert fine == pytest.approx(-2e-3)
    assert shared == pytest.approx(-2e-3)  # a thread that is 60 % busy
    assert full == pytest.approx(-2e-3)  # one that is 90 % busy
    assert heavy == -np.inf
    busy = LatencyModel(instance, models, Loads.declared(instance, {"c0": 120.0})).scorer()(rows)
    assert busy[0] <= UNSUSTAINED  # the source alone needs 1.2 of its thread
    assert busy[1] < busy[0]


def test_times_grow_near_saturation_as_in_a_queue() -> None:
    topology = chain(1, 2, cpu=0.01, memory_mb=60.0)
    instance = Instance(topology, equal_machines(2, cores=2, slots=2, memory_mb=1000.0))
    models = LatencyModels({"c1": line(5, 1e-3)}, {"c0->c1": line(9, 1e-3)})
    score = LatencyModel(instance, models, Loads.declared(instance, {"c0": 64.0})).scorer()
    apart, together = score(np.array([[0, 1, 2], [0, 0, 2]], dtype=np.int32))
    assert apart == pytest.approx(-2e-3)  # the busiest thread is 64 % busy
    assert together == pytest.approx(-2e-3 * 0.1 / 0.04)  # one that is 96 % busy


def test_predicts_the_score_and_the_longest_path() -> None:
    topology = chain(1, 2, cpu=0.01, memory_mb=60.0)
    instance = Instance(topology, equal_machines(2, cores=2, slots=2, memory_mb=1000.0))
    models = LatencyModels({"c1": line(5, 1e-3)}, {"c0->c1": line(9, 1e-3)})
    model = LatencyModel(instance, models, Loads.declared(instance, {"c0": 64.0}))
    apart, together, overfull = (model.predict(placed) for placed in ([0, 1, 2], [0, 0, 2], [0, 0, 0]))
    assert [one.total_s for one in (apart, together, overfull)] == pytest.approx([2e-3] * 3)
    assert [one.expected_s for one in (apart, together)] == pytest.approx([2e-3, 5e-3])
    assert overfull.expected_s == np.inf
    rows = np.array([[0, 1, 2], [0, 0, 2]], dtype=np.int32)
    assert model.scorer()(rows).tolist() == [-apart.expected_s, -together.expected_s]


def test_warns_of_loads_far_beyond_the_training() -> None:
    model = figure_model()
    first = dict(model.models.components)
    scaling = first["PU1"].scaling
    most, limit = np.full(5, 4.0), np.array([np.inf, np.inf, 4.0, 4.0, 4.0])
    first["PU1"] = Regressor(
        "linear", Scaling(scaling.centre, scaling.spread, scaling.least, most, limit, 0.0, 1.0, 1e-9, 1e9, False),
        1e-3, 0.0, np.zeros((1, 5)), np.ones(1),
    )  # fmt: skip
    small = LatencyModel(model.instance, LatencyModels(first, model.models.streams), model.loads)
    spread = small.predict([0, 2] * 8)
    assert not model.predict([0, 2] * 8).far
    assert spread.far
    assert spread.excess == pytest.approx(50.0 / 4.0 - 1.0)  # 50 tuples per second on a machine, 4 in the training
    assert spread.processing["PU1"] == pytest.approx(12.5e-3)


def test_streams_without_tuples_are_on_no_path() -> None:
    topology = Topology(
        name="mute",
        components=(
            Component(name="in", kind=Kind.SOURCE),
            Component(name="quick", kind=Kind.SINK),
            Component(name="slow"),
            Component(name="end", kind=Kind.SINK),
        ),
        streams=(
            Stream(source="in", target="quick"),
            Stream(source="in", target="slow", selectivity=0.0),
            Stream(source="slow", target="end", grouping=Grouping.GLOBAL),
        ),
    )
    instance = Instance(topology, equal_machines(2))
    models = LatencyModels(
        {"quick": line(5, 1e-3), "slow": line(5, 9.0), "end": line(5, 9.0)},
        {stream.label: line(9, 2e-3) for stream in topology.streams},
    )
    model = LatencyModel(instance, models, Loads.declared(instance, {"in": 5.0}))
    assert model.predict([0, 0, 0, 0]).total_s == pytest.approx(3e-3)
    assert total_latencies(model.net, np.zeros((1, 4), dtype=np.int32))[0][0] == pytest.approx(3e-3)


def test_declared_loads_are_rates_times_gains() -> None:
    topology = Application(
        name="two",
        components=(
            Component(name="a", kind=Kind.SOURCE, parallelism=2),
            Component(name="b", kind=Kind.SOURCE),
            Component(name="out", kind=Kind.SINK, parallelism=2, cpu=0.001),
        ),
        streams=(Stream(source="a", target="out", selectivity=3.0), Stream(source="b", target="out")),
        rate_tps={"a": 10.0, "b": 10.0},
    )
    instance = Instance(topology, equal_machines(2))
    own, other = Loads.declared(instance), Loads.declared(instance, {"a": 20.0, "b": 2.0})
    assert own.task_tps.tolist() == pytest.approx([5, 5, 10, 20, 20])
    assert other.task_tps.tolist() == pytest.approx([10, 10, 2, 31, 31])
    assert other.cpu[3:].tolist() == pytest.approx([0.031, 0.031])
    assert own.scaled(2.0).cpu[3] == pytest.approx(0.04)


def test_loads_need_a_rate_for_every_source() -> None:
    instance = Instance(chain(1, 1), equal_machines(1))
    with pytest.raises(InvalidInput, match="source 'c0' has no rate"):
        Loads.declared(instance)
    with pytest.raises(UnknownName, match="'c9'"):
        Loads.declared(instance, {"c0": 1.0, "c9": 2.0})


def imaginary() -> Instance:
    kinds = {"in": Kind.SOURCE, "out": Kind.SINK}
    return Instance(
        Topology(
            name="imaginary",
            components=tuple(
                Component(name=n, kind=kinds.get(n, Kind.OPERATOR), parallelism=w, cpu=0.01) for n, w in WIDTHS.items()
            ),
            streams=(Stream(source="in", target="split"), Stream(source="split", target="out")),
        ),
        Cluster(name="three", machines=tuple(Machine(name=f"m{i}") for i in range(3))),
    )


def shown(folder: Path) -> list[pa.Table]:
    return [pq.read_table(folder / name) for name in ("features", "shares")]


def test_observed_loads_have_the_cost_of_tuples_and_the_shares_of_tasks(tmp_path: Path) -> None:
    write_tables(tmp_path, seed=5)
    instance = imaginary()
    found = Loads.observed(instance, *shown(tmp_path))
    width = [w for w in WIDTHS.values() for _ in range(w)]
    assert found.task_tps == pytest.approx(RATE / np.array(width))
    true = np.array([CPU[name] for name, w in WIDTHS.items() for _ in range(w)])
    assert found.cpu / found.task_tps == pytest.approx(true, abs=1e-4)
    assert found.edge_share == pytest.approx(np.full(12, 1 / 6))


def test_observed_loads_use_only_the_last_minutes(tmp_path: Path) -> None:
    write_tables(tmp_path, seed=5)
    features, shares = shown(tmp_path)
    rows = shares.to_pylist()
    for row in rows:  # long ago all went to split[0]
        if row["window"] < 10:
            row["tuples"] = 1000 if row["target"] == "split[0]" else 1
    tables = features, pa.Table.from_pylist(rows)
    recent, all_of_it = (Loads.observed(imaginary(), *tables, seconds=seconds) for seconds in (600.0, 900.0))
    assert recent.edge_share[:6] == pytest.approx(np.full(6, 1 / 6))
    assert all_of_it.edge_share[0] > 0.3


@pytest.mark.parametrize("reported", [True, False])
def test_moves_do_not_change_loads(tmp_path: Path, reported: bool) -> None:
    """A window contains the work of a task that was on two machines, or, in older versions, omits it."""
    write_tables(tmp_path, seed=5)
    features, shares = shown(tmp_path)
    rng = np.random.default_rng(2)
    rows = []
    for row in features.to_pylist():
        if rng.random() < (0.1 if row["task"] == "split[1]" else 0.02):  # other tasks on the machine make it seem cheap
            row |= {"machine": None, "colocated": None, "used_cpu": None}
        if reported or row["machine"] is not None:
            rows.append(row)
    found = Loads.observed(imaginary(), pa.Table.from_pylist(rows), shares)
    width = [w for w in WIDTHS.values() for _ in range(w)]
    assert any(row["machine"] is None for row in rows) == reported
    assert len(rows) < len(features) or reported
    assert found.task_tps == pytest.approx(RATE / np.array(width))
    assert found.task_share == pytest.approx(1 / np.array(width))
    assert found.edge_share == pytest.approx(np.full(12, 1 / 6))
    true = np.array([CPU[name] for name, w in WIDTHS.items() for _ in range(w)])
    assert found.cpu / found.task_tps == pytest.approx(true, abs=1e-4)


def test_an_unobserved_task_has_the_mean_of_its_component(tmp_path: Path) -> None:
    write_tables(tmp_path, seed=5, places=1)
    features, shares = shown(tmp_path)
    rows = [row for row in features.to_pylist() if row["task"] != "in[1]"]
    found = Loads.observed(imaginary(), pa.Table.from_pylist(rows), shares)
    assert found.task_tps[:2] == pytest.approx([RATE / 2, RATE / 2])


def test_pairs_share_a_stream_by_their_ends_if_no_hop_was_sampled(tmp_path: Path) -> None:
    write_tables(tmp_path, seed=5, places=1)
    features, shares = shown(tmp_path)
    rows = features.to_pylist()
    for row in rows:
        row["task_load"] *= {"in[1]": 3.0, "split[2]": 2.0}.get(row["task"], 1.0)
    found = Loads.observed(imaginary(), pa.Table.from_pylist(rows), shares.slice(0, 0))
    assert found.edge_share[:6] == pytest.approx(np.outer([1 / 4, 3 / 4], [1 / 4, 1 / 4, 1 / 2]).ravel())


def test_a_hot_task_weighs_by_its_load() -> None:
    instance = imaginary()
    found = Loads.of_tasks(instance, np.array([50.0, 50.0, 80.0, 20.0, 0.0, 50.0, 50.0]))
    assert found.task_share.tolist() == pytest.approx([0.5, 0.5, 0.8, 0.2, 0.0, 0.5, 0.5])
    assert found.cpu.tolist() == pytest.approx([0.5, 0.5, 0.8, 0.2, 0.0, 0.5, 0.5])
    assert found.edge_share[:6].tolist() == pytest.approx([0.4, 0.1, 0.0, 0.4, 0.1, 0.0])
    assert found.edge_share[6:].tolist() == pytest.approx([0.4, 0.4, 0.1, 0.1, 0.0, 0.0])
    nothing = Loads.of_tasks(instance, np.zeros(7))
    assert nothing.edge_share == pytest.approx(np.full(12, 1 / 6))


def test_rejects_tables_of_another_application_or_of_two_runs(tmp_path: Path) -> None:
    write_tables(tmp_path, seed=5, places=1)
    features, shares = shown(tmp_path)
    with pytest.raises(UnknownName, match=r"task 'in\[0\]'"):
        Loads.observed(Instance(chain(1, 1), equal_machines(3)), features, shares)
    renamed = pa.Table.from_pylist([row | {"run": "other"} for row in shares.to_pylist()])
    with pytest.raises(InvalidInput, match="one run"):
        Loads.observed(imaginary(), features, renamed)
