"""Probes: small dataflows that measure what an application's own telemetry does not contain.

The *network probe* sends single tuples of several sizes from a slot of every machine to slots near and far, slowly, so
that they hardly ever wait for each other; then some tasks move. The *engine probes* pass tuples on as fast as they can,
within a process and between two, so all the time of their processes is the engine's. On emulated machines the engine's
work is done by the host and costs nothing, so only the network is probed there.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import msgspec
import numpy as np
from pyspark.sql import SparkSession

from penstock.api.contracts import Operator
from penstock.api.dataflow import Dataflow
from penstock.api.sinks.discard import Discard
from penstock.api.sources.generated import Generated
from penstock.calibration.engine import ProcessWork
from penstock.calibration.network import Transfer
from penstock.calibration.observation import RunSummary, process_seconds, summarise_run
from penstock.model.cluster import Cluster, machine_of
from penstock.model.errors import InvalidInput
from penstock.model.instance import Instance
from penstock.model.placement import Hop, Placement
from penstock.model.plan import to_plan
from penstock.model.routes import route_hops
from penstock.model.taskgraph import task_names
from penstock.runtime.config import Checkpointing, Execution, RunConfig, Telemetry
from penstock.startup.start import start
from penstock.workloads.arrivals import Poisson

SIZES = (32, 2_048, 16_384)  # bytes of payload
REPEATS = 8  # tuples of each size from a machine to a slot
MOVES = 6
SETTLE_S = 1.0
MOST_RATE = 1500.0  # tuples per second of all machines, so that a small host keeps up
ENGINE_S = 3.0  # duration of an engine probe after settling
RELAYS = 2

Report = Callable[[str], None]


class Blob(msgspec.Struct, frozen=True, array_like=True):
    """A tuple with a payload."""

    payload: bytes


class Pinging:
    """Creates the tuples of the network probe from their number: for one slot after another, then in the next size."""

    def __init__(self, sources: int, targets: int) -> None:
        self.sources = sources
        self.targets = targets
        self.blobs = [Blob(bytes(size)) for size in SIZES]

    def __call__(self, number: int) -> tuple[int, Blob]:
        """Return the target task of a tuple, and the tuple."""
        turn, source = divmod(number, self.sources)
        apart = source * self.targets // self.sources  # so that no two sources send to one machine at a time
        return (turn + apart) % self.targets, self.blobs[turn // self.targets % len(self.blobs)]


class Pouring:
    """Creates equal tuples."""

    def __init__(self, size: int) -> None:
        self.blob = Blob(bytes(size))

    def __call__(self, number: int) -> Blob:
        """Return the tuple."""
        return self.blob


class Relay(Operator[Blob, Blob]):
    """Passes tuples on."""

    def process(self, value: Blob) -> tuple[Blob]:
        """Return the tuple."""
        return (value,)

    def snapshot(self) -> None:
        """Return nothing: there is no state."""


class ProbeSite(NamedTuple):
    """Where probes run."""

    spark: SparkSession
    cluster: Cluster
    emulated: bool
    master: str | None
    slots: int | None  # worker processes if nothing is emulated
    folder: Path  # for their runs
    report: Report


class ProbeResults(NamedTuple):
    """Measurements of the probes."""

    sent: list[Transfer]
    routes: dict[Hop, tuple[int, ...]]
    moves: list[float]  # s that tasks were suspended
    worked: list[ProcessWork]
    idle: float  # s of a task per tuple without any work


def probe(site: ProbeSite) -> ProbeResults:
    """Run all probes that are meaningful at a site."""
    sent, routes, moves = _probe_network(site)
    worked, idle = ([], 0.0) if site.emulated else _probe_engine(site)
    return ProbeResults(sent, routes, moves, worked, idle)


def probe_slots(cluster: Cluster) -> tuple[list[int], list[int]]:
    """Return the source and target slots of the network probe: of each machine the first, and others.

    The others are the second and the last, which is in another process if a machine has several.
    """
    first = [sum(machine.slots for machine in cluster.machines[:place]) for place in range(len(cluster.machines))]
    wanted = [
        sorted({start, start + min(1, machine.slots - 1), start + machine.slots - 1})
        for start, machine in zip(first, cluster.machines, strict=True)
    ]
    return first, [slot for slots in wanted for slot in slots]


def network_flow(cluster: Cluster) -> tuple[Dataflow, Placement, float]:
    """Return the network probe, the placement of its tasks, and its duration in seconds."""
    sources, targets = probe_slots(cluster)
    tuples = REPEATS * len(SIZES) * len(targets) * len(sources)
    seconds = max(4.0, tuples / MOST_RATE)
    flow = Dataflow("network-probe")
    pings = flow.source(
        "from",
        Generated(Pinging(len(sources), len(targets)), arrivals=Poisson(rate=tuples / seconds)),
        emits=Blob,
        parallelism=len(sources),
    )
    flow.sink("to", Discard(), pings.direct(), parallelism=len(targets))
    return flow, _placed(flow, cluster, [*sources, *targets]), seconds


def engine_flow(cluster: Cluster, size: int, relays: int, slots: Sequence[int]) -> tuple[Dataflow, Placement]:
    """Return an engine probe, which is a source, relays and a sink, and its placement."""
    flow = Dataflow("engine-probe")
    outlet = flow.source("from", Generated(Pouring(size)), emits=Blob)
    for number in range(relays):
        outlet = flow.operator(f"relay{number}", Relay(), outlet, emits=Blob)
    flow.sink("to", Discard(), outlet)
    return flow, _placed(flow, cluster, slots)


def _placed(flow: Dataflow, cluster: Cluster, slots: Sequence[int]) -> Placement:
    """Return a placement, with routes if the network is routed."""
    if not cluster.routed:
        return Placement(tuple(slots))
    instance = Instance(flow.application, cluster)
    routes = route_hops(instance.tasks, instance.slots, instance.links, list(slots))
    if isinstance(routes, Hop):
        here, there = (cluster.machines[machine].name for machine in (routes.source, routes.target))
        raise InvalidInput("links", f"no links with bandwidth lead from {here!r} to {there!r}; add one")
    return Placement(tuple(slots), routes)


def measure_transfers(flow: Dataflow, cluster: Cluster, placement: Placement, observed: RunSummary) -> list[Transfer]:
    """Return transfer times by slots and size; tuples of tasks that had moved do not count.

    Times are medians; on emulated machines, where only waiting for other tuples adds to a time, nearly the minimum.
    """
    usual = "low" if observed.emulated else "median"
    names = task_names(flow.application)
    slot = dict(zip(names, placement.slots, strict=True))
    where = {name: machine_of(cluster.slot_names[number]) for name, number in slot.items()}
    return [
        Transfer(
            source=slot[row["source"]],
            target=slot[row["target"]],
            size=float(row["bytes"]),
            seconds=float(row[usual]),
            tuples=int(row["count"]),
            times=tuple(float(seconds) for seconds in row["times"]),
        )
        for row in observed.ways.to_dict("records")
        if row["source_worker"].partition("/")[0] == where[row["source"]]
        and row["target_worker"].partition("/")[0] == where[row["target"]]
    ]


def _probe_network(site: ProbeSite) -> tuple[list[Transfer], dict[Hop, tuple[int, ...]], list[float]]:
    flow, placement, seconds = network_flow(site.cluster)
    site.report(f"probing the network for {seconds + SETTLE_S:.0f} s")
    observed, moves = _run(site, flow, placement, seconds + SETTLE_S, sample_tps=-1.0, moves=MOVES)
    return measure_transfers(flow, site.cluster, placement, observed), dict(placement.routes), moves


def _probe_engine(site: ProbeSite) -> tuple[list[ProcessWork], float]:
    here, there = 0, min(1, site.cluster.slot_count - 1)
    shapes = [(SIZES[0], 0, [here] * 2), (SIZES[0], RELAYS, [here] * (RELAYS + 2))]
    if there != here:
        shapes += [(size, 0, [here, there]) for size in (SIZES[0], SIZES[1])]
    worked: list[ProcessWork] = []
    idle = 0.0
    for number, (size, relays, slots) in enumerate(shapes):
        site.report(f"probing the engine, {number + 1} of {len(shapes)}")
        flow, placement = engine_flow(site.cluster, size, relays, slots)
        observed, _ = _run(site, flow, placement, ENGINE_S + SETTLE_S, sample_tps=20.0)
        worked += summarise_processes(observed)
        tasks = observed.tasks[observed.tasks["component"].str.startswith("relay")]
        if len(tasks):
            idle = float(tasks["busy"].sum() / tasks["processed"].sum())
    return worked, idle


def summarise_processes(observed: RunSummary) -> list[ProcessWork]:
    """Return what each process of an engine probe did, and its processor time."""
    host = dict(zip(observed.tasks["task"], observed.tasks["worker"], strict=True))
    done = observed.tasks.groupby("task")["processed"].sum()
    size = observed.streams["bytes"].to_numpy()
    size_bytes = fmean(size[np.isfinite(size)]) if np.isfinite(size).any() else 0.0
    passed = list(dict.fromkeys(sorted(host, key=_place)))  # in the order in which tuples pass them
    found = []
    for worker, used in process_seconds(observed).items():
        own = [task for task in passed if host[task] == worker]
        if not own:
            continue
        away = [t for t, after in pairwise(passed) if t in own and host[after] != worker]
        came = [t for before, t in pairwise(passed) if t in own and host[before] != worker]
        sent, received = (float(sum(done[task] for task in tasks)) for tasks in (away, came))
        made = float(sum(done[task] for task in own if task.startswith("from")))
        hops = float(sum(done[task] for task in own)) - made
        found.append(ProcessWork(used, made, hops, sent, sent * size_bytes, received, received * size_bytes))
    return found


def _place(task: str) -> tuple[int, str]:
    """Sort key of an engine probe's tasks: source, relays, sink."""
    return (0 if task.startswith("from") else 2 if task.startswith("to") else 1), task


def _run(
    site: ProbeSite, flow: Dataflow, placement: Placement, seconds: float, *, sample_tps: float, moves: int = 0
) -> tuple[RunSummary, list[float]]:
    """Run a probe; return the summary of its telemetry, and how long its tasks were suspended by moves."""
    plan = to_plan(flow.application, site.cluster, placement, policy="calibration", objective="throughput")
    run = start(
        flow,
        config=RunConfig(
            execution=Execution(master=site.master, slots=None if site.emulated else site.slots),
            checkpointing=Checkpointing(interval_s=0.0),
            telemetry=Telemetry(sample_tps=sample_tps),
        ),
        emulate=site.cluster if site.emulated else None,
        plan=plan,
        runs=site.folder,
    )
    stood: list[float] = []
    with run:
        run.wait(seconds)
        slots = site.cluster.slot_names
        for number in range(moves if len(slots) > 1 else 0):
            before = run.status().placement["to[0]"]
            after = slots[(slots.index(before) + 1 + number * (len(slots) // 2)) % len(slots)]
            if after != before:
                stood.append(run.move("to[0]", after).seconds)
    return summarise_run(site.spark, run.info.telemetry_path, settle_s=SETTLE_S, until="move"), stood
