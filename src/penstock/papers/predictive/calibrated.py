"""The calibrated twin: costs, selectivities and delays as `penstock sim calibrate` measures them, on training windows.

The telemetry of the visits that regressions are trained on is summarised as Spark does it for a run; the further steps
use the same code. Each machine of a window counts as a worker of its own, because tasks are elsewhere in the next one.
Only measured values are known: an application is described by its components, streams and numbers of tasks, a cluster
by its machines, and everything else is erased before. The variation of sources' work cannot be measured and counts as
constant.

Delays are the mean transfer times of the application's own tuples, without waiting; their variation between the same
machines is the network's noise. Network cards, cores and memory are as described, because tuples are too small to
measure the bandwidth of cards.
"""

from collections.abc import Sequence

import msgspec
import numpy as np
import pandas as pd

from penstock.calibration import Calibration, Measured
from penstock.calibration.calibrator import combine
from penstock.calibration.network import Transfer, measure_variation
from penstock.calibration.observation import SHORTEST_S, RunSummary
from penstock.calibration.probe import ProbeResults
from penstock.estimate.latency import Loads
from penstock.model.cluster import Cluster, Distances
from penstock.model.instance import Instance
from penstock.model.routes import BITS
from penstock.model.taskgraph import Bools, task_names
from penstock.model.telemetry import RecordKind
from penstock.model.topology import Application, ServiceTime
from penstock.papers.predictive.visits import Site, Visit
from penstock.sim.events import Twin

NOWHERE = Distances(same_slot_ms=0.0, same_process_ms=0.0, same_host_ms=0.0, other_host_ms=0.0)
TIMES = ("sent", "arrived", "started", "finished")


def calibrate(application: Application, cluster: Cluster, visits: Sequence[Visit]) -> Calibration:
    """Measure an application and a cluster, of which only the shape is used, from visits."""
    shape, machines = erase_costs(application, cluster)
    instance = Instance(shape, machines)
    hops = traced_hops(instance, visits)
    sent = measure_transfers(instance, hops)
    probed = ProbeResults(sent=sent, routes={}, moves=[], worked=[], idle=0.0)
    found = combine(shape, machines, summarise_visits(instance, visits, hops), probed)
    noise = measure_variation(machines, sent)
    variation = noise.value if isinstance(noise, Measured) else 0.0
    return msgspec.structs.replace(found, costs=msgspec.structs.replace(found.costs, delay_variation=variation))


def calibrated_twin(site: Site, calibration: Calibration, loads: Loads) -> Twin:
    """Return the twin with the measured costs, at the observed rates."""
    tasks, names = site.instance.tasks, site.tables.names
    seen = np.bincount(tasks.component, np.where(tasks.source, loads.task_tps, 0.0), len(names))
    rates = {source.name: float(seen[names.index(source.name)]) for source in site.application.sources}
    application = msgspec.structs.replace(calibration.application, rate_tps=rates)
    return Twin(application, calibration.cluster, calibration.costs)


def erase_costs(application: Application, cluster: Cluster) -> tuple[Application, Cluster]:
    """Return an application and a cluster without the values that are to be measured."""
    components = tuple(msgspec.structs.replace(one, cpu=0.0, service=ServiceTime()) for one in application.components)
    streams = tuple(msgspec.structs.replace(one, selectivity=1.0, tuple_bytes=0.0) for one in application.streams)
    return (
        msgspec.structs.replace(application, components=components, streams=streams, rate_tps={}),
        msgspec.structs.replace(cluster, distances=NOWHERE),
    )


def summarise_visits(instance: Instance, visits: Sequence[Visit], hops: pd.DataFrame) -> RunSummary:
    """Sum visits up as `control.calibration.observing` sums the telemetry of a run up on Spark."""
    inside = hops[hops["inside"]]
    return RunSummary(
        run="visits",
        emulated=True,
        seconds=sum(visit.window.span.seconds for visit in visits),
        tasks=pd.concat([_tasks(instance, visit, number) for number, visit in enumerate(visits)], ignore_index=True),
        workers=pd.concat(
            [_workers(instance, visit, number) for number, visit in enumerate(visits)], ignore_index=True
        ),
        services=_services(inside),
        streams=_streams(inside),
        trees=_trees(visits, hops),
        ways=pd.DataFrame(),  # transfer times of probes; here `measure_transfers` has them
    )


def _tasks(instance: Instance, visit: Visit, number: int) -> pd.DataFrame:
    span, names = visit.window.span, [one.name for one in instance.topology.components]
    machines = instance.slots.machine[visit.window.slots]
    return pd.DataFrame(
        {
            "component": [names[instance.tasks.position[component]] for component in instance.tasks.component],
            "task": task_names(instance.topology),
            "worker": [_worker(instance.cluster.machines[machine].name, number) for machine in machines],
            "processed": span.processed.astype(np.float64),
            "given": span.given.astype(np.float64),
            "busy": span.busy_s,
            "blocked": span.blocked_s,
            "interval": span.seconds,
        }
    )


def _workers(instance: Instance, visit: Visit, number: int) -> pd.DataFrame:
    span = visit.window.span
    names = [_worker(machine.name, number) for machine in instance.cluster.machines]
    return pd.DataFrame(
        {
            "worker": names,
            "used": span.machine_cpu * span.seconds,
            "interval": span.seconds,
            "lag": 0.0,
            "capacity_cpu": instance.slots.machine_cpu,
            "capacity_mb": instance.slots.machine_memory_mb,
        }
    )


def _worker(machine: str, number: int) -> str:
    return f"{machine}/{number}"


def traced_hops(instance: Instance, visits: Sequence[Visit]) -> pd.DataFrame:
    """Return one row per hop of a traced tuple, with the time spent in each place and its slots."""
    parts = [_visit_hops(instance, visit, number) for number, visit in enumerate(visits)]
    rows = pd.concat(parts, ignore_index=True)
    return rows.assign(
        component=_component(rows["task"]),
        transfer=rows["arrived"] - rows["sent"],
        processing=rows["finished"] - rows["started"],
    )


def _visit_hops(instance: Instance, visit: Visit, number: int) -> pd.DataFrame:
    import pyarrow.compute as pc

    names = ["root", "stream", "source", "task", "source_worker", "worker", "bytes", *TIMES]
    kept = pc.equal(visit.records["kind"], RecordKind.HOP.value)
    rows: pd.DataFrame = visit.records.select(names).filter(kept).to_pandas()
    span, slots = visit.window.span, visit.window.slots
    slot = dict(zip(task_names(instance.topology), slots.tolist(), strict=True))
    lanes = dict(zip(_lanes(instance), span.edge_tuples / span.seconds, strict=True))
    suffix = f"/{number}"
    return rows.assign(
        visit=number,
        inside=rows["started"].between(span.start, span.end),
        source_slot=rows["source"].map(slot),
        slot=rows["task"].map(slot),
        lane_tps=[lanes[lane] for lane in zip(rows["stream"], rows["source"], rows["task"], strict=True)],
        source_worker=rows["source_worker"] + suffix,
        worker=rows["worker"] + suffix,
    )


def _lanes(instance: Instance) -> list[tuple[str, str, str]]:
    """Return the stream and the two tasks of every edge."""
    names, edges = task_names(instance.topology), instance.edges
    labels = [stream.label for stream in instance.topology.streams]
    ends = zip(edges.stream.tolist(), edges.source.tolist(), edges.target.tolist(), strict=True)
    return [(labels[stream], names[source], names[target]) for stream, source, target in ends]


def _component(tasks: "pd.Series[str]") -> "pd.Series[str]":
    return tasks.str.replace(r"\[\d+\]$", "", regex=True)


def _services(hops: pd.DataFrame) -> pd.DataFrame:
    logarithm = np.log(np.maximum(hops["processing"], SHORTEST_S))
    grouped = hops.assign(logarithm=logarithm).groupby(["component", "worker"])
    return pd.DataFrame(
        {
            "count": grouped.size(),
            "mean": grouped["processing"].mean(),
            "deviation": grouped["processing"].std(ddof=0),
            "log_mean": grouped["logarithm"].mean(),
            "log_deviation": grouped["logarithm"].std(ddof=0),
        }
    ).reset_index()


def _streams(hops: pd.DataFrame) -> pd.DataFrame:
    sized = hops["bytes"].where(hops["bytes"] > 0)
    grouped = hops.assign(sized=sized, other=hops["source_worker"] != hops["worker"]).groupby("stream")
    return pd.DataFrame(
        {
            "count": grouped.size(),
            "bytes": grouped["sized"].mean(),
            "bytes_deviation": grouped["sized"].std(ddof=0),
            "remote": grouped["other"].mean(),
        }
    ).reset_index()


def _trees(visits: Sequence[Visit], hops: pd.DataFrame) -> pd.DataFrame:
    """Count the tuples of complete trees, by stream and by component; sources' tuples are their roots."""
    roots, done = (_tasks_of(visits, kind) for kind in (RecordKind.ROOT, RecordKind.DONE))
    ended = pd.MultiIndex.from_frame(done[["visit", "root"]])
    whole = hops[pd.MultiIndex.from_frame(hops[["visit", "root"]]).isin(ended)]
    begun = roots[pd.MultiIndex.from_frame(roots[["visit", "root"]]).isin(ended)]
    counts = [
        whole.groupby("stream").size(),
        whole.groupby("component").size(),
        begun.assign(component=_component(begun["task"])).groupby("component").size(),
    ]
    return pd.concat([one.rename("followed").reset_index() for one in counts], ignore_index=True)


def _tasks_of(visits: Sequence[Visit], kind: RecordKind) -> pd.DataFrame:
    """Return the root and the task of all records of a kind."""
    import pyarrow.compute as pc

    parts: list[pd.DataFrame] = []
    for number, visit in enumerate(visits):
        own = visit.records.select(["root", "task"]).filter(pc.equal(visit.records["kind"], kind.value))
        parts.append(own.to_pandas().assign(visit=number))
    return pd.concat(parts, ignore_index=True)


def measure_transfers(instance: Instance, hops: pd.DataFrame) -> list[Transfer]:
    """Return transfer times of traced hops: between machines, and within a machine and a slot.

    Bytes' time on both cards is subtracted, so tuples have no size; slots of a machine are equivalent, and one stands
    for all.
    """
    inside = hops[hops["inside"]]
    here, there = (instance.slots.machine[inside[name]] for name in ("source_slot", "slot"))
    far, (sends, receives) = here != there, BITS / instance.slots.machine_network
    alone = inside["transfer"] - inside["bytes"] * np.where(far, sends[here] + receives[there], 0.0)
    alone = alone.where(~far, _unhindered(alone, inside["lane_tps"], far))
    rows = inside.assign(alone=alone, here=here, there=there, near=inside["source_slot"] == inside["slot"])
    return [
        Transfer(
            source=int(pair["source_slot"].iloc[0]),
            target=int(pair["slot"].iloc[0]),
            size=0.0,
            seconds=float(pair["alone"].mean()),
            tuples=len(pair),
            times=tuple(pair["alone"].tolist()),
        )
        for _, pair in rows.groupby(["here", "there", "near"])
    ]


def _unhindered(times: "pd.Series[float]", lane_tps: "pd.Series[float]", far: Bools) -> "pd.Series[float]":
    """Return the times that tuples would take alone on their lanes.

    Tuples of a lane keep their order, so with variable delays one may wait for the previous one, more often at higher
    rates. The slope of times over rates removes that.
    """
    if not far.any() or np.ptp(lane_tps[far]) == 0:
        return times
    slope = np.polyfit(lane_tps[far], times[far], 1)[0]
    return times - max(0.0, float(slope)) * lane_tps
