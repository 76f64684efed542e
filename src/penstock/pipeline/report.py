"""The report of a run: read its telemetry, reconstruct hops and tuples, sum them up, compare its phases."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from penstock.model.decoding import Undecodable, decode_json
from penstock.model.errors import FileProblem, PenstockError
from penstock.model.files import write_whole
from penstock.model.tuples import TuplePolicies
from penstock.pipeline import tables
from penstock.pipeline.clocks import clocks as clock_table
from penstock.pipeline.hops import each_once
from penstock.pipeline.hops import hops as make_hops
from penstock.pipeline.ingest import ingest, read_telemetry
from penstock.pipeline.phases import Event, Phase, cut, events
from penstock.pipeline.reported import (
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
from penstock.pipeline.tuples import tuples as make_tuples

SETTLE_S = 2.0
RATIOS = ("throughput_tps", "p50", "p95", "p99", "mean", "remote_tps")


class NothingToReport(PenstockError):
    """Telemetry in which no source tuple was sampled."""


R = TypeVar("R", bound=Row)


def telemetry_folder(folder: Path) -> Path:
    """Return where the telemetry of a run is: the run's folder may be named, or the telemetry's."""
    if not folder.is_dir():
        raise FileProblem(f"{folder}: is not a folder; name the folder of a run or of its telemetry")
    below = folder / str(_told(folder).get("telemetry") or "telemetry")
    return below if below.is_dir() else folder


def run_report(spark: SparkSession, folder: Path, output: Path | None = None, settle_s: float = SETTLE_S) -> Report:
    """Report on the run in a folder; with `output`, also keep hops, tuples, quarantine and the report there."""
    telemetry = telemetry_folder(folder)
    raw, unreadable = read_telemetry(spark, telemetry)
    raw = raw.cache()
    good, malformed = ingest(raw)
    quarantined = malformed.unionByName(unreadable)
    good = _of_one_run(good, folder).cache()
    clocks = clock_table(good).cache()
    hops = each_once(make_hops(good, clocks)).cache()
    tuples = make_tuples(hops, good, clocks).cache()
    try:
        about = _about(folder, good)
        report = _summed_up(about, good, clocks, hops, tuples, quarantined, settle_s)
        if output is not None:
            _keep(output, report, hops, tuples, quarantined)
        return report
    finally:
        for frame in (tuples, hops, clocks, good, raw):
            frame.unpersist()


def _summed_up(
    about: Mapping[str, Any],
    good: DataFrame,
    clocks: DataFrame,
    hops: DataFrame,
    tuples: DataFrame,
    quarantined: DataFrame,
    settle_s: float,
) -> Report:
    reasons = _rows(tables.quarantine_reasons(quarantined), Reason)
    span = tuples.agg(
        sf.min("due"),
        sf.max("emitted"),
        sf.max("finished"),
        sf.collect_set(sf.regexp_replace("source", r"\[\d+\]$", "")),
    ).first()
    if span is None or span[0] is None or span[1] is None:
        raise NothingToReport(_why_nothing(about, reasons))
    start, last, finished, sources = span
    happened = [Event(*row) for row in events(good, clocks).collect()]
    first = " with ".join(filter(None, (about["policy"], about["tuples"])))
    phases = cut(happened, start, math.nextafter(last, math.inf), settle_s, first)
    rates = [row.asDict() for row in tables.task_rates(good, clocks, phases).collect()]
    lags = {row["phase"]: row["lag"] for row in tables.worst_lags(good, clocks, phases).collect()}
    latency = _rows(tables.latencies(tuples, phases), Latencies)
    whole = next(row for row in latency if row.phase is None)
    edges = _rows(tables.edge_times(hops, phases), EdgeTimes)
    depth = _depths([row.stream for row in edges])
    edges.sort(key=lambda row: (row.phase, depth[row.stream.partition("->")[2]], row.stream, -row.count))
    tails = tables.task_tails(hops, phases).cache()
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
        components=_components(_rows(tables.component_times(hops, phases), ComponentTimes), rates, depth),
        streams=[row for row in edges if row.source_machine is None],
        edges=[row for row in edges if row.source_machine is not None],
        slow_tasks=_rows(tables.stragglers(tails), SlowTask),
        slow_machines=_rows(tables.slow_machines(tails), SlowMachine),
        timeline=_timeline(tables.latency_seconds(tuples, start), tables.source_seconds(good, clocks, sources, start)),
        quarantine=reasons,
    )


def _told(folder: Path) -> dict[str, Any]:
    """Return what `run.json` in a run's folder, or beside its telemetry, says; nothing where there is none."""
    for place in (folder, folder.parent):
        try:
            found: dict[str, Any] = decode_json((place / "run.json").read_bytes(), dict[str, Any])
            return found
        except (OSError, Undecodable):
            continue
    return {}


def _of_one_run(good: DataFrame, folder: Path) -> DataFrame:
    """Keep the records of the run that a folder is of: several may have written to one folder of telemetry."""
    wanted = _told(folder).get("run")
    if wanted is not None:
        return good.where(sf.col("run") == wanted)
    runs = sorted(row["run"] for row in good.select("run").distinct().limit(25).collect())
    if len(runs) > 1:
        raise FileProblem(f"{folder}: holds the telemetry of {len(runs)} runs, {', '.join(runs)}; name one of the runs")
    return good


def _about(folder: Path, good: DataFrame) -> dict[str, Any]:
    found = good.agg(sf.count("*"), sf.min("run"), sf.max(sf.col("emulated").cast("int"))).first()
    assert found is not None, "an aggregate has a row"
    count, run, emulated = found
    told = _told(folder)
    cluster = told.get("emulated") if isinstance(told.get("emulated"), str) else None
    return {
        "run": run or folder.name,
        "application": str(told.get("application") or "unnamed application"),
        "policy": str(told.get("policy") or "start"),
        "emulated": cluster or ("a described cluster" if emulated else None),
        "master": str(told.get("master") or ""),
        "records": count,
        "tuples": _policies(told),
    }


def _policies(told: Mapping[str, Any]) -> str:
    """Return the tuple policies that a run began with, in words; empty where there were none or nobody knows."""
    try:
        found = msgspec.convert((told.get("setup") or {}).get("tuples") or {}, TuplePolicies)
    except (msgspec.ValidationError, AttributeError):
        return ""
    return ", ".join(f"{name} {text}" for name, text in found.texts.items())


def _why_nothing(about: Mapping[str, Any], reasons: Sequence[Reason]) -> str:
    said = f", {sum(row.count for row in reasons)} in quarantine, mostly: {reasons[0].reason}" if reasons else ""
    return f"telemetry: no sampled tuple among {about['records']} records{said}; run longer, or sample more"


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
        here = {row["task"]: row["worker"] for row in sorted(own, key=lambda row: row["until"])}
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
            moved=sum(before[task] != worker for task, worker in here.items() if task in before) if results else None,
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
    """Sum the tasks' tuples a second; a task that was in two places counts with its time in both."""
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
    """Add tasks and rates, and order by phase and as tuples flow."""
    made = []
    for row in found:
        own = [rate for rate in rates if (rate["phase"], rate["component"]) == (row.phase, row.component)]
        tasks = len({rate["task"] for rate in own})
        made.append(msgspec.structs.replace(row, tasks=tasks, rate_tps=_rate(own, "processed")))
    return sorted(made, key=lambda row: (row.phase, depth.get(row.component, 0), row.component))


def _depths(streams: Sequence[str]) -> dict[str, int]:
    """Return how many streams lead to each component at most."""
    pairs = [stream.partition("->")[::2] for stream in set(streams)]
    depth = {name: 0 for pair in pairs for name in pair}
    for _ in depth:
        for source, target in pairs:
            depth[target] = max(depth[target], depth[source] + 1)
    return depth


def _timeline(latency: DataFrame, given: DataFrame) -> list[Second]:
    rates = {row["second"]: float(row["given"]) for row in given.collect()}
    times = {row["second"]: row.asDict() for row in latency.collect()}
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


def _rows(frame: DataFrame, kind: type[R]) -> list[R]:
    return [msgspec.convert(row.asDict(), kind) for row in frame.collect()]


def _keep(output: Path, report: Report, hops: DataFrame, tuples: DataFrame, quarantined: DataFrame) -> None:
    kept = {"hops": hops, "tuples": tuples} | ({"quarantine": quarantined} if report.quarantine else {})
    for name, frame in kept.items():
        frame.write.mode("overwrite").parquet(str(output / name))
    write_whole(output / "report.json", msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")
