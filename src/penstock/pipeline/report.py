"""The report of a run: read its telemetry, reconstruct hops and tuples, summarise them, compare its phases."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from penstock.model.decoding import Undecodable, decode_json
from penstock.model.errors import FileProblem, PenstockError
from penstock.model.files import write_whole
from penstock.model.tuples import TuplePolicies
from penstock.pipeline import tables
from penstock.pipeline.clocks import clocks as clock_table
from penstock.pipeline.hops import component, each_once
from penstock.pipeline.hops import hops as make_hops
from penstock.pipeline.ingest import read_telemetry, rejection_reason, split_records, telemetry_files
from penstock.pipeline.phases import Event, Phase, divide_into_phases, events
from penstock.pipeline.report_rows import (
    ComponentTimes,
    EdgeTimes,
    Latencies,
    PhaseResult,
    Reason,
    Report,
    Row,
    Second,
    SlowMachine,
    SlowTask,
)
from penstock.pipeline.small_tables import as_literal, collect_tables, partitions_for
from penstock.pipeline.tuples import tuples as make_tuples

SETTLE_S = 2.0
MOST_RUNS = 25  # listed in an error
RATIOS = ("throughput_tps", "p50", "p95", "p99", "mean", "remote_tps")


class NothingToReport(PenstockError):
    """Telemetry without any sampled source tuple."""


R = TypeVar("R", bound=Row)


def telemetry_folder(folder: Path) -> Path:
    """Return the telemetry folder of a run, given the run's folder or the telemetry's."""
    if not folder.is_dir():
        raise FileProblem(f"{folder}: is not a folder; use the folder of a run or of its telemetry")
    below = folder / str(_read_run_json(folder).get("telemetry") or "telemetry")
    return below if below.is_dir() else folder


def run_report(
    spark: SparkSession,
    folder: Path,
    output: Path | None = None,
    settle_s: float = SETTLE_S,
    step: Callable[[str], None] = lambda _: None,
) -> Report:
    """Report on the run in a folder; with `output`, also write hops, tuples, quarantine and the report there.

    step: called with the name of each step.
    """
    telemetry = telemetry_folder(folder)
    files = telemetry_files(telemetry)
    step(f"reading {len(files):,} files")
    with partitions_for(spark, files) as partitions:
        raw, unreadable = read_telemetry(spark, telemetry)
        judged = raw.coalesce(partitions).withColumn("reason", rejection_reason()).localCheckpoint(eager=False)
        good, malformed = split_records(judged)
        good = _of_one_run(good, folder)
        quarantined = malformed.unionByName(unreadable)
        read = _RunRecords(spark, folder, good, quarantined)
        step(f"joining {read.about['records']:,} records to tuples")
        # Checkpoints cut off query plans: what has been computed is neither analysed nor planned again.
        hops = each_once(make_hops(good, read.clocks)).localCheckpoint(eager=False)
        tuples = make_tuples(hops, good, read.clocks).localCheckpoint(eager=False)
        report = _summed_up(read, hops, tuples, settle_s, step)
        if output is not None:
            step(f"writing {output}")
            _keep(output, report, hops, tuples, quarantined)
        return report


class _RunRecords:
    """The records of a run, and the facts about all of them that every step needs."""

    def __init__(self, spark: SparkSession, folder: Path, good: DataFrame, quarantined: DataFrame) -> None:
        clocks = clock_table(good)
        found = collect_tables(
            {
                "runs": good.groupBy("run").agg(
                    sf.count("*").alias("records"), sf.max(sf.col("emulated").cast("int")).alias("emulated")
                ),
                "reasons": tables.quarantine_reasons(quarantined),
                "clocks": clocks,
            }
        )
        self.good = good
        self.clocks = as_literal(spark, found["clocks"], clocks)
        self.reasons = _rows(found["reasons"], Reason)
        self.about = _about(folder, found["runs"].to_pylist())


def _summed_up(
    read: _RunRecords, hops: DataFrame, tuples: DataFrame, settle_s: float, step: Callable[[str], None]
) -> Report:
    about, good, clocks = read.about, read.good, read.clocks
    span = tuples.agg(
        sf.min("due").alias("start"),
        sf.max("emitted").alias("last"),
        sf.max("finished").alias("finished"),
        sf.collect_set(component("source")).alias("sources"),
    )
    found = collect_tables({"span": span, "events": events(good, clocks)})
    start, last, finished, sources = found["span"].to_pylist()[0].values()
    if start is None or last is None:
        raise NothingToReport(_why_nothing(about, read.reasons))
    first = " with ".join(filter(None, (about["policy"], about["tuples"])))
    happened = [Event(**row) for row in found["events"].to_pylist()]
    phases = divide_into_phases(happened, start, math.nextafter(last, math.inf), settle_s, first)
    step("computing tables")
    tails = tables.task_tails(hops, phases)
    found = collect_tables(
        {
            "rates": tables.task_rates(good, clocks, phases),
            "lags": tables.worst_lags(good, clocks, phases),
            "latency": tables.latencies(tuples, phases),
            "edges": tables.edge_times(hops, phases),
            "components": tables.component_times(hops, phases),
            "slow_tasks": tables.stragglers(tails),
            "slow_machines": tables.slow_machines(tails),
            "seconds": tables.latency_seconds(tuples, start),
            "given": tables.source_seconds(good, clocks, sources, start),
        }
    )
    rates = found["rates"].to_pylist()
    lags = {row["phase"]: row["lag"] for row in found["lags"].to_pylist()}
    latency = _rows(found["latency"], Latencies)
    whole = next(row for row in latency if row.phase is None)
    edges = _rows(found["edges"], EdgeTimes)
    depth = _depths([row.stream for row in edges])
    edges.sort(
        key=lambda row: (row.phase, depth[row.stream.partition("->")[2]], row.stream, -row.count, _machines(row))
    )
    return Report(
        **about,
        seconds=max(finished or last, last) - start,
        sampled=whole.roots,
        complete=whole.count,
        settle_s=settle_s,
        end_to_end=whole,
        phases=[
            msgspec.structs.replace(result, lag=lags.get(result.number))
            for result in _phase_results(phases, start, {row.phase: row for row in latency}, rates, sources)
        ],
        components=_components(_rows(found["components"], ComponentTimes), rates, depth),
        streams=[row for row in edges if row.source_machine is None],
        edges=[row for row in edges if row.source_machine is not None],
        slow_tasks=_rows(found["slow_tasks"], SlowTask),
        slow_machines=_rows(found["slow_machines"], SlowMachine),
        timeline=_timeline(found["seconds"], found["given"]),
        quarantine=read.reasons,
    )


def _read_run_json(folder: Path) -> dict[str, Any]:
    """Return the contents of `run.json` in a run's folder or beside its telemetry; empty if there is none."""
    for place in (folder, folder.parent):
        try:
            found: dict[str, Any] = decode_json((place / "run.json").read_bytes(), dict[str, Any])
            return found
        except (OSError, Undecodable):
            continue
    return {}


def _of_one_run(good: DataFrame, folder: Path) -> DataFrame:
    """Select the records of the folder's run; several runs may have written to one telemetry folder."""
    wanted = _read_run_json(folder).get("run")
    return good if wanted is None else good.where(sf.col("run") == wanted)


def _about(folder: Path, runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    if len(runs) > 1:
        named = ", ".join(sorted(row["run"] for row in runs)[:MOST_RUNS])
        raise FileProblem(f"{folder}: contains the telemetry of {len(runs)} runs, {named}; use the folder of one run")
    found = runs[0] if runs else {"run": None, "records": 0, "emulated": None}
    described = _read_run_json(folder)
    cluster = described.get("emulated") if isinstance(described.get("emulated"), str) else None
    return {
        "run": found["run"] or folder.name,
        "application": str(described.get("application") or "unnamed application"),
        "policy": str(described.get("policy") or "start"),
        "emulated": cluster or ("a described cluster" if found["emulated"] else None),
        "master": str(described.get("master") or ""),
        "records": found["records"],
        "tuples": _policies(described),
    }


def _policies(described: Mapping[str, Any]) -> str:
    """Return the tuple policies that a run started with, in words; empty if there were none or they are unknown."""
    try:
        found = msgspec.convert((described.get("setup") or {}).get("tuples") or {}, TuplePolicies)
    except (msgspec.ValidationError, AttributeError):
        return ""
    return ", ".join(f"{name} {text}" for name, text in found.texts.items())


def _why_nothing(about: Mapping[str, Any], reasons: Sequence[Reason]) -> str:
    invalid = f", {sum(row.count for row in reasons)} in quarantine, mostly: {reasons[0].reason}" if reasons else ""
    return f"telemetry: no sampled tuple among {about['records']} records{invalid}; run longer, or sample more tuples"


def _phase_results(
    phases: Sequence[Phase],
    start: float,
    latency: Mapping[int | None, Latencies],
    rates: Sequence[Mapping[str, Any]],
    sources: Sequence[str],
) -> list[PhaseResult]:
    results: list[PhaseResult] = []
    before: dict[str, str] = {}
    for phase in phases:
        own = [row for row in rates if row["phase"] == phase.number]
        here = {row["task"]: row["worker"].partition("/")[0] for row in sorted(own, key=lambda row: row["until"])}
        throughput = _rate([row for row in own if row["component"] in sources], "given")
        times = latency.get(phase.number)
        far = (
            None if times is None or times.remote_hops is None or throughput is None else times.remote_hops * throughput
        )
        result = PhaseResult(
            number=phase.number,
            name=phase.name,
            start=phase.start - start,
            settled=phase.settled - start,
            end=phase.end - start,
            throughput_tps=throughput,
            remote_tps=far,
            moved=sum(before[task] != place for task, place in here.items() if task in before) if results else None,
            latency=times,
        )
        results.append(msgspec.structs.replace(result, ratios=_ratios(result, results[0] if results else result)))
        before |= here
    return results


def _ratios(result: PhaseResult, first: PhaseResult) -> dict[str, float]:
    made = {}
    for name in RATIOS:
        own, base = (getattr(row if hasattr(row, name) else row.latency, name, None) for row in (result, first))
        if own is not None and base:
            made[name] = own / base
    return made


def _rate(rows: Sequence[Mapping[str, Any]], what: str) -> float | None:
    """Sum the tasks' tuples per second; a task that was in two places counts with its time in both."""
    counts: dict[str, float] = {}
    seconds: dict[str, float] = {}
    for row in rows:
        counts[row["task"]] = counts.get(row["task"], 0.0) + row[what]
        seconds[row["task"]] = seconds.get(row["task"], 0.0) + row["interval"]
    known = [counts[task] / seconds[task] for task in counts if seconds[task] > 0]
    return sum(known) if known else None


def _components(
    found: Sequence[ComponentTimes], rates: Sequence[Mapping[str, Any]], depth: Mapping[str, int]
) -> list[ComponentTimes]:
    """Add tasks and rates, and sort by phase and in the order in which tuples flow."""
    made = []
    for row in found:
        own = [rate for rate in rates if (rate["phase"], rate["component"]) == (row.phase, row.component)]
        tasks = len({rate["task"] for rate in own})
        made.append(msgspec.structs.replace(row, tasks=tasks, rate_tps=_rate(own, "processed")))
    return sorted(made, key=lambda row: (row.phase, depth.get(row.component, 0), row.component))


def _depths(streams: Sequence[str]) -> dict[str, int]:
    """Return the maximum number of streams from a source to each component."""
    pairs = [stream.partition("->")[::2] for stream in set(streams)]
    depth = {name: 0 for pair in pairs for name in pair}
    for _ in depth:
        for source, target in pairs:
            depth[target] = max(depth[target], depth[source] + 1)
    return depth


def _machines(row: EdgeTimes) -> tuple[str, str]:
    return row.source_machine or "", row.target_machine or ""


def _timeline(latency: pa.Table, given: pa.Table) -> list[Second]:
    rates = {row["second"]: float(row["given"]) for row in given.to_pylist()}
    times = {row["second"]: row for row in latency.to_pylist()}
    return [
        Second(
            second=second,
            rate_tps=rates.get(second),
            count=times.get(second, {}).get("count", 0),
            p50=times.get(second, {}).get("p50"),
            p99=times.get(second, {}).get("p99"),
        )
        for second in sorted({*rates, *times})
    ]


def _rows(table: pa.Table, kind: type[R]) -> list[R]:
    return [msgspec.convert(row, kind) for row in table.to_pylist()]


def _keep(output: Path, report: Report, hops: DataFrame, tuples: DataFrame, quarantined: DataFrame) -> None:
    kept = {"hops": hops, "tuples": tuples} | ({"quarantine": quarantined} if report.quarantine else {})
    for name, frame in kept.items():
        frame.write.mode("overwrite").parquet(str(output / name))
    write_whole(output / "report.json", msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")
