"""Sweeps: every policy on every instance and random seed, as one Spark job, and a summary of the results.

A case is one policy on one instance (an application on a cluster). Cases are rows; Spark distributes them to its
workers; results are rows, too. Instances differ in size, so policies are compared by their ratio to one of them, the
baseline, on the same instance.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from penstock.estimate.flow import TATA
from penstock.experiments.job import Progress, run_cases, unheard
from penstock.model.cluster import Cluster
from penstock.model.decoding import decode_json
from penstock.model.errors import PenstockError, member
from penstock.model.objective import Objective
from penstock.model.topology import Application
from penstock.planning.planner import Planner

MODELS = {"planning": None, "tata": TATA}

RESULT = pa.schema(
    {
        "instance": pa.string(),
        "application": pa.string(),
        "cluster": pa.string(),
        "policy": pa.string(),
        "seed": pa.int64(),
        "placed": pa.bool_(),
        "constraint": pa.string(),  # the binding one if nothing could be placed; else null
        "reason": pa.string(),
        "throughput_tps": pa.float64(),
        "delay_ms": pa.float64(),
        "traffic_bytes": pa.float64(),  # between machines, per source tuple
        "machines": pa.int64(),
        "score": pa.float64(),  # by the objective, higher is better
        "note": pa.string(),  # the policy's note on its result
        "gap": pa.float64(),  # to the optimum, if the policy proves one
        "seconds": pa.float64(),  # decision time
    }
)


class Case(NamedTuple):
    """One policy on one instance."""

    instance: str  # key of the comparison: equal for all policies with the same application, cluster and seed
    application: str  # JSON
    cluster: str  # JSON
    policy: str
    objective: str
    seed: int
    model: str  # a key of MODELS


def sweep_cases(
    instances: Sequence[tuple[Application, Cluster, int]],
    policies: Sequence[str],
    objective: Objective | str,
    model: str,
) -> list[Case]:
    """Return every policy on every instance, an instance being an application, a cluster and a seed."""
    made, goal = [], member("objective", Objective, objective).value
    for number, (application, cluster, seed) in enumerate(instances):
        app, machines = (msgspec.json.encode(what).decode() for what in (application, cluster))
        made += [Case(f"{number:05d}", app, machines, policy, goal, seed, model) for policy in policies]
    return made


def run_case(case: Case) -> dict[str, Any]:
    """Run the policy and return a row of RESULT."""
    application = decode_json(case.application, Application)
    cluster = decode_json(case.cluster, Cluster)
    row: dict[str, Any] = {
        "instance": case.instance,
        "application": application.name,
        "cluster": cluster.name,
        "policy": case.policy,
        "seed": case.seed,
    }
    planner = Planner(application, cluster, case.objective, case.seed, MODELS[case.model])
    try:
        decision = planner.decide(case.policy)
    except PenstockError as error:  # of this instance, such as a pin to an unknown machine: others may succeed
        return {**row, "placed": False, "constraint": "input", "reason": str(error)}
    row |= {"placed": decision.placed, "seconds": decision.seconds}
    if decision.evaluation is None:
        refusal = decision.result
        return {**row, "constraint": getattr(refusal, "constraint", None), "reason": getattr(refusal, "reason", None)}
    evaluation = decision.evaluation
    return {
        **row,
        "throughput_tps": evaluation.throughput_tps,
        "delay_ms": evaluation.delay_ms,
        "traffic_bytes": evaluation.traffic.machines,
        "machines": evaluation.machines,
        "score": planner.score(decision),
        "note": getattr(decision.result, "note", None),
        "gap": getattr(decision.result, "gap", None),
    }


def sweep(spark: SparkSession, work: Sequence[Case], on_progress: Progress = unheard) -> DataFrame:
    """Run all cases on Spark and return their results, cached; `on_progress` receives the number of finished cases."""
    return run_cases(spark, pd.DataFrame(work, columns=list(Case._fields)), _run_cases, RESULT, on_progress)


def _run_cases(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.RecordBatch.from_pylist([run_case(Case(**row)) for row in batch.to_pylist()], schema=RESULT)


def ratios(results: DataFrame, baseline: str) -> DataFrame:
    """Add to every result its ratio to the baseline's on the same instance."""
    measures = ("throughput_tps", "delay_ms", "traffic_bytes")
    base = results.where(sf.col("policy") == baseline).select(
        "instance", *(sf.col(measure).alias(f"base_{measure}") for measure in measures)
    )
    joined = results.join(base, "instance", "left")
    for measure in measures:
        ratio = sf.try_divide(sf.col(measure), sf.col(f"base_{measure}"))
        joined = joined.withColumn(f"{measure}_ratio", ratio).drop(f"base_{measure}")
    return joined


def summary(compared: DataFrame) -> DataFrame:
    """Return one row per policy: how often it found a placement, mean and spread of its ratios, score and time."""
    columns = [sf.count("*").alias("cases"), sf.sum(sf.col("placed").cast("int")).alias("placed")]
    for measure in ("throughput_tps_ratio", "delay_ms_ratio", "traffic_bytes_ratio", "score"):
        columns += [sf.avg(measure).alias(measure), sf.stddev(measure).alias(f"{measure}_sd")]
    columns += [sf.median("seconds").alias("seconds"), sf.max("gap").alias("gap")]
    return compared.groupBy("policy").agg(*columns)
