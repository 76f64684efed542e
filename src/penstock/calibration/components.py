"""Costs of components and streams, from the summaries of a run's telemetry.

A tuple's processing time exceeds its work if the slots of a machine share too few cores, or if an emulation lags. The
mean factor is the ratio of the seconds that tasks were busy to the core-seconds that their machine used; times are
divided by that ratio, machine by machine. Emulated machines know their core-seconds exactly, whatever the host does:
there the work of components is fitted to the core-seconds of all machines, as far as these distinguish the components.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd

from penstock.calibration.findings import Findings
from penstock.calibration.observation import RunSummary, process_seconds
from penstock.model.cluster import Cluster
from penstock.model.costs import ComponentCosts, Costs, StreamCosts
from penstock.model.topology import Application, Component, Distribution, Grouping, Kind, ServiceTime, Stream

FEWEST = 30  # minimum number of traced tuples of a component to know its variation
CONSTANT = 0.01  # coefficient of variation below which times are considered constant
SURE = 3.0  # standard errors
ALONE = 0.98  # ratio of core-seconds to busy seconds above which tasks hardly ever shared cores
SMALLEST = 0.05  # singular value relative to the largest, down to which core-seconds distinguish components
BLOCKED = 0.01  # maximum blocked share of time for a source's rate to be the offered one


class Moments(NamedTuple):
    """Of processing times, in seconds of a core of speed 1."""

    tuples: int
    mean: float
    cv: float
    log_mean: float
    log_deviation: float


class MeasuredComponents(NamedTuple):
    """Costs of components and streams."""

    components: dict[str, ComponentCosts]
    streams: dict[str, StreamCosts]
    rates: dict[str, float]  # of sources
    findings: Findings


def measure_components(
    application: Application, cluster: Cluster, observed: RunSummary, engine: Costs, idle: float, findings: Findings
) -> MeasuredComponents:
    """Measure components and streams.

    engine: its costs beside those of components. idle: seconds of a task per tuple without any work, which are the
    engine's; 0 on emulated machines.
    """
    found = MeasuredComponents({}, {}, {}, findings)
    streams = _measure_streams(application, observed, found)
    scale = measure_scales(cluster, observed)
    work = measure_work(cluster, observed, scale)
    for component in application.components:
        engine_s = _sending(component, streams, observed, engine) + idle
        _measure_component(component, observed, scale, work.get(component.name), engine_s, found)
        if component.kind is Kind.SOURCE:
            _measure_rate(component, application, observed, found)
    found.streams.update(streams)
    return found


def measure_scales(cluster: Cluster, observed: RunSummary) -> dict[str, float]:
    """Return the core-seconds of speed 1 per busy second of a worker's tasks, by worker."""
    busy = observed.tasks.groupby("worker")["busy"].sum()
    shares = dict(zip(observed.workers["worker"], observed.workers["used"].astype(float), strict=True))
    found = {}
    for worker, used in (shares if observed.emulated else process_seconds(observed)).items():
        name = _machine(worker)
        machine = cluster.machines[cluster.machine_index[name]] if name in cluster.machine_index else None
        cores = machine.cores if machine is not None and observed.emulated else 1
        spent = float(busy.get(worker, 0.0))
        shared = min(1.0, used * cores / spent) if spent > 0 else 1.0
        found[worker] = shared * (machine.speed if machine is not None else 1.0)
    return found


def measure_work(cluster: Cluster, observed: RunSummary, scale: Mapping[str, float]) -> dict[str, float]:
    """Return the core-seconds of speed 1 per tuple, by component."""
    rows = observed.tasks.assign(work=observed.tasks["busy"] * observed.tasks["worker"].map(scale).fillna(1.0))
    sums = rows.groupby("component")[["work", "processed"]].sum()
    sums = sums[sums["processed"] > 0]
    direct = sums["work"] / sums["processed"]
    if not observed.emulated:
        return dict(direct)
    known, machines = cluster.machine_index, cluster.machines
    on = {one: machines[known[_machine(one)]] for one in observed.workers["worker"] if _machine(one) in known}
    if all(scale[worker] >= ALONE * machine.speed for worker, machine in on.items()):
        return dict(direct)
    used = observed.workers.set_index("worker")["used"][list(on)] * [machine.cpu for machine in on.values()]
    used = used[used > 0]
    done = rows.pivot_table(index="worker", columns="component", values="processed", aggfunc="sum", fill_value=0.0)
    done = done.reindex(index=used.index, columns=direct.index, fill_value=0.0)
    weight = np.sqrt(used / used.sum()).to_numpy()
    shares = done.to_numpy() * direct.to_numpy() / used.to_numpy()[:, None]  # of a machine's work, by component
    off, *_ = np.linalg.lstsq(shares * weight[:, None], (1.0 - shares.sum(axis=1)) * weight, rcond=SMALLEST)
    return dict(zip(direct.index, np.maximum(0.0, direct.to_numpy() * (1.0 + off)), strict=True))


def _machine(worker: str) -> str:
    """Return the machine of a worker: its name up to a slash."""
    return worker.partition("/")[0]


def _measure_component(
    component: Component,
    observed: RunSummary,
    scale: Mapping[str, float],
    work_s: float | None,
    engine_s: float,
    found: MeasuredComponents,
) -> None:
    rows = observed.tasks[(observed.tasks["component"] == component.name) & (observed.tasks["processed"] > 0)]
    if work_s is None:
        found.findings.leave(f"cpu of {component.name}", "it processed no tuples")
        return
    each = (rows["busy"] * rows["worker"].map(scale).fillna(1.0) / rows["processed"]).to_numpy()
    cpu = max(0.0, float(work_s) - engine_s)
    service = _service(component, observed, scale, found)
    found.components[component.name] = ComponentCosts(cpu=cpu, service=service if cpu > 0 else ServiceTime())
    found.findings.add(
        f"cpu of {component.name}",
        cpu,
        "s",
        spread=float(np.std(each)),
        count=int(rows["processed"].sum()),
        described=component.cpu,
    )


def _sending(component: Component, streams: Mapping[str, StreamCosts], observed: RunSummary, engine: Costs) -> float:
    """Return the engine's seconds per tuple in which a task counts as busy because it sends to other processes."""
    remote = dict(zip(observed.streams["stream"], observed.streams["remote"], strict=True))
    return sum(
        one.selectivity * float(remote.get(label, 0.0)) * (engine.send_cpu + engine.send_byte_cpu * one.tuple_bytes)
        for label, one in streams.items()
        if label.partition("->")[0] == component.name
    )


def _service(
    component: Component, observed: RunSummary, scale: Mapping[str, float], found: MeasuredComponents
) -> ServiceTime:
    """Return the variation of a component's processing times; as described if too few were measured."""
    rows = observed.services[observed.services["component"] == component.name]
    seen = moments(rows, scale)
    if seen.tuples < FEWEST:
        why = (
            "a source's tuples have none" if component.kind is Kind.SOURCE else f"only {seen.tuples} tuples were traced"
        )
        found.findings.leave(f"variation of {component.name}", why)
        return component.service
    usual = {Distribution.CONSTANT: 0.0, Distribution.EXPONENTIAL: 1.0}
    described = usual.get(component.service.distribution, component.service.cv)
    found.findings.add(
        f"variation of {component.name}",
        seen.cv,
        "",
        spread=seen.cv / math.sqrt(2 * seen.tuples),
        count=seen.tuples,
        described=described,
    )
    return fit_distribution(seen)


def moments(rows: pd.DataFrame, scale: Mapping[str, float]) -> Moments:
    """Return the moments of processing times over all workers, each with its own scale."""
    counts = rows["count"].to_numpy(dtype=np.float64)
    total = float(counts.sum())
    if total == 0:
        return Moments(0, 0.0, 0.0, 0.0, 0.0)
    by = rows["worker"].map(scale).fillna(1.0).to_numpy(dtype=np.float64)
    share = counts / total
    mean = float(share @ (rows["mean"].to_numpy() * by))
    # Between workers there are only differences of scale, which are not part of the component's variation.
    within = float(share @ (rows["deviation"].to_numpy() * by) ** 2)
    logs = rows["log_mean"].to_numpy() + np.log(by)
    return Moments(
        tuples=int(total),
        mean=mean,
        cv=math.sqrt(within) / mean if mean > 0 else 0.0,
        log_mean=float(share @ logs),
        log_deviation=math.sqrt(float(share @ rows["log_deviation"].to_numpy() ** 2)),
    )


def fit_distribution(seen: Moments) -> ServiceTime:
    """Return the most likely distribution of the times: constant, exponential, gamma or lognormal."""
    from scipy.special import gammaln

    if seen.cv < CONSTANT:
        return ServiceTime()
    variance = seen.cv**2
    shape, scale = 1.0 / variance, seen.mean * variance
    gamma = (shape - 1.0) * seen.log_mean - seen.mean / scale - float(gammaln(shape)) - shape * math.log(scale)
    spread = math.log1p(variance)
    centre = math.log(seen.mean) - spread / 2
    off = seen.log_deviation**2 + (seen.log_mean - centre) ** 2
    lognormal = -seen.log_mean - 0.5 * math.log(2 * math.pi * spread) - off / (2 * spread)
    if lognormal > gamma:
        return ServiceTime(distribution=Distribution.LOGNORMAL, cv=seen.cv)
    if abs(seen.cv - 1.0) <= SURE / math.sqrt(seen.tuples):
        return ServiceTime(distribution=Distribution.EXPONENTIAL)
    return ServiceTime(distribution=Distribution.GAMMA, cv=seen.cv)


def _measure_streams(
    application: Application, observed: RunSummary, found: MeasuredComponents
) -> dict[str, StreamCosts]:
    seen = observed.streams.set_index("stream")
    streams: dict[str, StreamCosts] = {}
    for stream in application.streams:
        if stream.label not in seen.index:
            found.findings.leave(stream.label, "no tuple was traced over it")
            continue
        row = seen.loc[stream.label]
        size = float(row["bytes"])
        if not math.isfinite(size):
            found.findings.leave(f"bytes of {stream.label}", "its tuples stayed within their process")
            size = stream.tuple_bytes
        else:
            found.findings.add(
                f"bytes of {stream.label}",
                size,
                "B",
                spread=float(row["bytes_deviation"]),
                count=int(row["count"]),
                described=stream.tuple_bytes,
            )
        streams[stream.label] = StreamCosts(
            selectivity=_selectivity(stream, application, observed, found), tuple_bytes=size
        )
    return streams


def _selectivity(stream: Stream, application: Application, observed: RunSummary, found: MeasuredComponents) -> float:
    """Return tuples emitted per tuple processed: from all tuples if a component has one stream, else from traces."""
    alone = sum(other.source == stream.source for other in application.streams) == 1
    rows = observed.tasks[observed.tasks["component"] == stream.source]
    spread = 0.0
    if alone and rows["processed"].sum() > 0:
        value, count = float(rows["given"].sum() / rows["processed"].sum()), int(rows["processed"].sum())
        some = rows[rows["processed"] > 0]
        spread = float(np.std((some["given"] / some["processed"]).to_numpy()))
    else:
        trees = observed.trees
        sent = float(trees.loc[trees["stream"] == stream.label, "followed"].sum())
        taken = float(trees.loc[trees["component"] == stream.source, "followed"].sum())
        if taken == 0:
            found.findings.leave(f"selectivity of {stream.label}", "no traced tuple completed")
            return stream.selectivity
        copies = application[stream.target].parallelism if stream.grouping is Grouping.ALL else 1
        value, count = sent / taken / copies, int(taken)
    found.findings.add(
        f"selectivity of {stream.label}", value, "", spread=spread, count=count, described=stream.selectivity
    )
    return value


def _measure_rate(
    component: Component, application: Application, observed: RunSummary, found: MeasuredComponents
) -> None:
    rows = observed.tasks[observed.tasks["component"] == component.name]
    each = rows.groupby("task")[["processed", "blocked", "interval"]].sum()
    rate = float((each["processed"] / each["interval"]).sum())
    described = application.rate_tps.get(component.name)
    blocked = float((each["blocked"] / each["interval"]).max()) if len(each) else 0.0
    if rate <= 0 or blocked > BLOCKED:
        why = (
            "it emitted nothing" if rate <= 0 else f"it was blocked {blocked:.0%} of the time and emitted {rate:.4g}/s"
        )
        found.findings.leave(f"rate of {component.name}", why)
        return
    found.rates[component.name] = rate
    found.findings.add(
        f"rate of {component.name}", rate, "tuples/s", count=int(rows["processed"].sum()), described=described
    )
