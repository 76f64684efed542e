"""Calibrate from an existing run or a new one, add probes, and combine all measurements."""

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median, pstdev
from tempfile import TemporaryDirectory

import msgspec
from pyspark.sql import SparkSession

from penstock.api.dataflow import Dataflow
from penstock.calibration.components import MeasuredComponents, measure_components
from penstock.calibration.engine import measure_engine
from penstock.calibration.findings import Calibration, Findings, Measured, Unmeasured
from penstock.calibration.network import (
    MILLISECOND,
    VARIATION,
    MeasuredNetwork,
    convert_to_means,
    measure_network,
    measure_variation,
)
from penstock.calibration.observation import RunSummary, summarise_run
from penstock.calibration.probe import ProbeResults, ProbeSite, probe
from penstock.model.cluster import Cluster, Machine
from penstock.model.costs import Costs
from penstock.model.errors import InvalidInput
from penstock.model.topology import Application
from penstock.pipeline.session import running_session, session
from penstock.runtime.config import Execution, FlowControl, RunConfig, Telemetry
from penstock.runtime.spark.cores import need_cores
from penstock.runtime.spark.executors import UNLIMITED_MB, embedded_master, is_local, spark_settings
from penstock.runtime.storage.run_folder import RunInfo
from penstock.startup.executor_discovery import discover
from penstock.startup.start import start

SAMPLE_TPS = 100.0  # tuples traced per second, per source task, in our own run

Report = Callable[[str], None]


@dataclass(frozen=True)
class Calibrator:
    """Settings of a calibration."""

    master: str | None = None  # a Spark master's URL; None: embedded
    slots: int | None = None  # worker processes if nothing is emulated
    probes: bool = True  # whether to run probes
    settle_s: float = 2.0  # at the start of a run, which do not count
    report: Report = lambda _: None  # called with the name of each step

    def run(self, info: RunInfo, application: Application, cluster: Cluster | None) -> Calibration:
        """Calibrate from a run's telemetry; `cluster` is the emulated one, None: nothing is emulated."""
        config = info.config
        slots = self.slots or config.execution.slots
        workers = len(cluster.machines) if cluster is not None else slots or os.cpu_count() or 1
        with self._session(workers) as spark, TemporaryDirectory(prefix="penstock-") as folder:
            self.report(f"reading {info.telemetry_path}")
            observed = summarise_run(spark, info.telemetry_path, info.run, self.settle_s)
            found = cluster or seen_cluster(observed)
            if self.probes and cluster is None:
                found = self._discovered(spark, slots)
            probed = probe(self._site(spark, found, cluster is not None, Path(folder))) if self.probes else None
        return combine(
            application,
            found,
            observed,
            probed,
            window=config.flow_control.window,
            in_flight=config.flow_control.in_flight,
        )

    def start(
        self,
        flow: Dataflow,
        seconds: float,
        *,
        emulate: Cluster | None = None,
        policy: str | None = None,
        seed: int = 0,
    ) -> Calibration:
        """Run an application for a number of seconds and calibrate from that run."""
        if seconds <= self.settle_s:
            problem = f"expected more than the settling time of {self.settle_s:g} s, got {seconds:g}"
            raise InvalidInput("duration", f"{problem}; increase --duration")
        workers = len(emulate.machines) if emulate is not None else self.slots or os.cpu_count() or 1
        with self._session(workers) as spark, TemporaryDirectory(prefix="penstock-") as folder:
            cluster = emulate or self._discovered(spark, self.slots)
            self.report(f"running {flow.name} for {seconds:g} s")
            with start(
                flow,
                config=RunConfig(
                    execution=Execution(master=self.master, slots=self.slots if emulate is None else None, seed=seed),
                    telemetry=Telemetry(sample_tps=SAMPLE_TPS),
                ),
                emulate=emulate,
                policy=policy,
                runs=folder,
            ) as run:
                run.wait(seconds)
            observed = summarise_run(spark, run.info.telemetry_path, settle_s=self.settle_s)
            probed = probe(self._site(spark, cluster, emulate is not None, Path(folder))) if self.probes else None
        return combine(flow.application, cluster, observed, probed)

    @contextmanager
    def _session(self, workers: int) -> Iterator[SparkSession]:
        """Start a session with room for workers, shared by runs, probes and the pipeline."""
        embedded = self.master is None
        url = embedded_master(workers) if embedded and running_session() is None else self.master
        with session("calibrate", url, settings=spark_settings(workers, embedded)) as spark:
            yield spark

    def _discovered(self, spark: SparkSession, slots: int | None) -> Cluster:
        workers = slots or (os.cpu_count() or 1 if is_local(spark) else 1)
        return discover(need_cores(spark, workers), is_local(spark), slots)

    def _site(self, spark: SparkSession, cluster: Cluster, emulated: bool, folder: Path) -> ProbeSite:
        return ProbeSite(spark, cluster, emulated, self.master, self.slots, folder, self.report)


def combine(
    application: Application,
    cluster: Cluster,
    observed: RunSummary,
    probed: ProbeResults | None,
    *,
    window: int | None = None,
    in_flight: int | None = None,
) -> Calibration:
    """Combine the measurements of a run and of probes."""
    found = Findings()
    engine, of_engine = _engine(observed, probed, found)
    parts = measure_components(application, cluster, observed, engine, 0.0 if probed is None else probed.idle, found)
    delay_variation = _variation(cluster, observed, probed, found)
    network = _network(cluster, observed, probed, delay_variation)
    found.measured.extend([*network.measured, *of_engine])
    found.left.extend([*network.left, *_never(observed)])
    move_s = _moves(probed, found)
    costs = msgspec.structs.replace(
        engine,
        delay_variation=delay_variation,
        window=window or FlowControl().window,
        in_flight=in_flight,
        move_s=move_s,
        components=parts.components,
        streams=parts.streams,
    )
    return Calibration(
        application=_applied(application, costs, parts),
        cluster=network.cluster,
        costs=costs,
        emulated=observed.emulated,
        seconds=observed.seconds,
        measured=tuple(found.measured),
        left=tuple(found.left),
        lag_s=float(observed.workers["lag"].max()) if len(observed.workers) else 0.0,
    )


def seen_cluster(observed: RunSummary) -> Cluster:
    """Describe the machines in a run's telemetry: one slot per worker, with the capacity that it reports.

    A machine without a reported capacity has one core per worker, and unlimited memory.
    """
    workers = observed.workers.assign(machine=observed.workers["worker"].str.partition("/")[0])
    machines = []
    for name, rows in workers.groupby("machine"):
        cpu, memory = (rows[column].astype(float).max() for column in ("capacity_cpu", "capacity_mb"))
        cores = len(rows) if math.isnan(cpu) else max(1, round(cpu))
        memory = UNLIMITED_MB if math.isnan(memory) else memory
        machines.append(Machine(name=str(name), cores=cores, slots=len(rows), processes=len(rows), memory_mb=memory))
    return Cluster(name="spark", machines=tuple(machines))


def _applied(application: Application, costs: Costs, parts: MeasuredComponents) -> Application:
    """Return an application with measured costs, and measured rates if all sources have one."""
    applied = costs.applied(application)
    known = {source.name: parts.rates.get(source.name) for source in application.sources}
    rates = {name: rate for name, rate in known.items() if rate is not None}
    return msgspec.structs.replace(applied, rate_tps=rates) if len(rates) == len(known) else applied


def _engine(observed: RunSummary, probed: ProbeResults | None, found: Findings) -> tuple[Costs, list[Measured]]:
    if observed.emulated:
        found.leave("the engine's own costs", "on emulated machines they belong to the host and are 0")
        return Costs(), []
    if probed is None or not probed.worked:
        found.leave("the engine's own costs", "no probe was run; they are included in the components'")
        return Costs(), []
    return measure_engine(probed.worked)


def _network(cluster: Cluster, observed: RunSummary, probed: ProbeResults | None, variation: float) -> MeasuredNetwork:
    """Return the cluster with its measured network; real machines' slots are processes of unknown bandwidth.

    A probe's times are medians, a twin's delays are means.
    """
    if not observed.emulated:
        machines = tuple(msgspec.structs.replace(one, processes=one.slots) for one in cluster.machines)
        cluster = msgspec.structs.replace(cluster, machines=machines)
    if probed is None:
        return _network_without_probe(cluster, observed)
    sent = convert_to_means(cluster, probed.sent, variation, probed.routes)
    found = measure_network(cluster, sent, probed.routes)
    if observed.emulated:
        return found
    why = "on real machines a byte's time is mostly serialisation; set it in cluster.toml if a card is the limit"
    measured = [one for one in found.measured if not one.what.startswith("bandwidth")]
    left = [one for one in found.left if not one.what.startswith("bandwidth")]
    kept = msgspec.structs.replace(found.cluster, machines=cluster.machines)
    return MeasuredNetwork(kept, measured, [*left, Unmeasured(what="bandwidth", why=why)])


def _network_without_probe(cluster: Cluster, observed: RunSummary) -> MeasuredNetwork:
    """Return the delay between machines from the application's fastest hops; other figures stay as described."""
    rows = observed.ways.assign(
        here=observed.ways["source_worker"].str.partition("/")[0],
        there=observed.ways["target_worker"].str.partition("/")[0],
    )
    rows = rows[rows["here"] != rows["there"]]
    why = "an application's frames contain several tuples that wait for each other; omit --no-probe to measure it"
    left = [Unmeasured(what="bandwidths, and delays within machines", why=why)]
    hosts = {machine.name: machine.host or machine.name for machine in cluster.machines}
    rows = rows[rows["here"].map(hosts) != rows["there"].map(hosts)]
    if cluster.routed or not len(rows):
        return MeasuredNetwork(cluster, [], [Unmeasured(what="delays between machines", why=why), *left])
    lowest = rows.groupby(["here", "there"])["low"].min()
    delay = max(0.0, float(lowest.median()))
    distances = msgspec.structs.replace(cluster.distances, other_host_ms=delay / MILLISECOND)
    measured = Measured(
        what="delay, other host",
        value=delay,
        unit="s",
        spread=float(lowest.std(ddof=0)),
        count=int(rows["count"].sum()),
        described=cluster.distances.other_host_ms * MILLISECOND,
    )
    return MeasuredNetwork(msgspec.structs.replace(cluster, distances=distances), [measured], left)


def _variation(cluster: Cluster, observed: RunSummary, probed: ProbeResults | None, found: Findings) -> float:
    """Return the variation of delays between machines, if the network causes it."""
    if observed.emulated:
        found.leave(VARIATION, "on emulated machines delays are constant, and any variation comes from the host")
        return 0.0
    if probed is None:
        found.leave(VARIATION, "no probe was run, and an application's tuples wait for each other")
        return 0.0
    variation = measure_variation(cluster, probed.sent, probed.routes)
    if isinstance(variation, Unmeasured):
        found.left.append(variation)
        return 0.0
    found.measured.append(variation)
    return variation.value


def _moves(probed: ProbeResults | None, found: Findings) -> float:
    if probed is None or not probed.moves:
        found.leave("duration of a move", "no task was moved")
        return 0.0
    value = median(probed.moves)
    found.add("move", value, "s", spread=pstdev(probed.moves), count=len(probed.moves), described=0.0)
    return value


def _never(observed: RunSummary) -> list[Unmeasured]:
    """Return what is not measured by any calibration."""
    if observed.emulated:
        why = "emulated machines are as described; costs are relative to that"
        return [Unmeasured(what="cores, speeds and memory of machines", why=why)]
    return [
        Unmeasured(what="speeds of machines", why="every core counts as one of speed 1; costs are relative to that"),
        Unmeasured(what="cores and memory of machines", why="as reported by the run's workers"),
        Unmeasured(what="bytes of a frame", why="frames of traced tuples have additional fields"),
    ]
