"""Sweeps run as Spark jobs; these tests start one embedded session for all of them."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd
import pytest
from pyspark.sql import SparkSession

from penstock.experiments.sweep import ratios, run_case, summary, sweep, sweep_cases
from penstock.model.formats.tata import validation_pairs
from penstock.model.objective import Objective
from penstock.pipeline.session import session
from penstock.planning.planner import Planner
from penstock.workloads.applications import application
from penstock.workloads.clusters import cluster
from tests.conftest import Ran
from tests.shared_data import SHARED, needs_shared

pytestmark = pytest.mark.spark
POLICIES = ["round-robin", "r-storm", "flink"]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with session("tests", "local[2]") as made:
        yield made


def test_results_equal_those_of_asking_directly(spark: SparkSession) -> None:
    instances = [(application("throughput-test"), cluster(f"hetero:machines=4,seed={seed}"), seed) for seed in (0, 1)]
    heard: list[tuple[int, int]] = []
    work = sweep_cases(instances, POLICIES, Objective.THROUGHPUT, "planning")
    results = sweep(spark, work, lambda done, total: heard.append((done, total))).toPandas()
    assert len(results) == len(work) == 6
    assert heard[-1] == (6, 6)
    for row in results.to_dict("records"):
        app, machines, seed = instances[int(row["instance"])]
        decision = Planner(app, machines, Objective.THROUGHPUT, seed).decide(row["policy"])
        assert row["placed"] == decision.placed
        if decision.evaluation is not None:
            assert row["throughput_tps"] == decision.evaluation.throughput_tps
            assert row["delay_ms"] == decision.evaluation.delay_ms


def test_ratios_are_to_the_baseline_on_the_same_instance(spark: SparkSession) -> None:
    frame = spark.createDataFrame(
        pd.DataFrame(
            {
                "instance": ["0", "0", "1", "1"],
                "policy": ["a", "b", "a", "b"],
                "placed": [True, True, True, False],
                "throughput_tps": [10.0, 20.0, 5.0, None],
                "rate_tps": [1.0, 1.0, 1.0, None],
                "delay_ms": [2.0, 1.0, 2.0, None],
                "traffic_bytes": [0.0, 1.0, 4.0, None],
                "score": [1.0, 2.0, 3.0, None],
                "seconds": [0.1, 0.2, 0.3, 0.4],
                "gap": [None, 0.5, None, None],
            }
        )
    )
    summed = summary(ratios(frame, "a")).toPandas().set_index("policy")
    assert summed.loc["b", "throughput_tps_ratio"] == 2.0
    assert summed.loc["b", "delay_ms_ratio"] == 0.5
    assert (summed.loc["b", "cases"], summed.loc["b", "placed"]) == (2, 1)
    assert summed.loc["a", "throughput_tps_ratio"] == 1.0
    assert summed.loc["a", "traffic_bytes_ratio"] == 1.0  # the instance without traffic has no ratio


def test_a_case_without_a_placement_gives_the_reason() -> None:
    (work,) = sweep_cases(
        [(application("word-count"), cluster("tata-3"), 0)], ["flink"], Objective.THROUGHPUT, "planning"
    )
    row = run_case(work)
    assert not row["placed"]
    assert row["constraint"] == "slots"
    assert "8" in row["reason"]


@needs_shared
def test_validation_pairs_suit_each_other_and_are_drawn_by_seed() -> None:
    pairs = validation_pairs(SHARED / "tata", each=5, seed=3)
    assert len(pairs) == 500
    for graph, slots, _ in pairs:
        widest = max(component.parallelism for component in graph.components)
        assert widest <= slots.slot_count <= widest + 3
    again = validation_pairs(SHARED / "tata", each=5, seed=3)
    assert [(a.name, c.name) for a, c, _ in again] == [(a.name, c.name) for a, c, _ in pairs]


def test_the_command_keeps_cases_summary_and_picture(penstock: Callable[..., Ran], tmp_path: Path) -> None:
    output = tmp_path / "out"
    ran = penstock(
        "lab", "sweep", "throughput-test", "--cluster", "hetero:machines=3,seed={seed}", "--seeds", 2,
        "--policy", "r-storm", "--output", output, "--json",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    answer = json.loads(ran.out)
    assert {row["policy"] for row in answer["policies"]} == {"round-robin", "r-storm"}
    assert len(pd.read_parquet(output / "cases.parquet")) == 4
    assert (output / "summary.csv").exists()
    assert (output / "sweep.png").read_bytes().startswith(b"\x89PNG")
    refused = penstock("lab", "sweep", "throughput-test", "--output", output)
    assert refused.code == 2
    assert "is there already and not empty" in refused.err
