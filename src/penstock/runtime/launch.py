"""From a plan to a run: the controller and its thread, the user's code on the executors, a worker at every site."""

import secrets
import socket
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial

import msgspec
from pyspark.sql import SparkSession

from penstock.api.dataflow import Dataflow
from penstock.model.cluster import Cluster
from penstock.model.files import save
from penstock.model.plan import Plan, to_placement
from penstock.runtime.config import RunConfig
from penstock.runtime.controller.process import Driver, listen_for_workers
from penstock.runtime.controller.run_spec import Complete, RunSpec, Site, routes_of, run_folders
from penstock.runtime.controller.state_machine import Controller
from penstock.runtime.controller.worker_supervisor import WorkerSupervisor
from penstock.runtime.layout import Layout
from penstock.runtime.run import Extend, Progress, Run
from penstock.runtime.spark.executors import Executor, is_local, registered
from penstock.runtime.spark.jobs import Job, SlotJobs
from penstock.runtime.spark.shipping import modules_of, ship
from penstock.runtime.storage.checkpoints import CheckpointManifest
from penstock.runtime.storage.run_folder import RunInfo
from penstock.runtime.worker.process import WorkerSettings, run_worker
from penstock.runtime.worker.tuple_policies import compile_policies

EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104  addresses to listen on that nobody can call

Places = Sequence[tuple[Site, Executor]]  # workers, and the executor of each


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """Where a run executes: the session, the machines, the workers on them, and the plan of its tasks."""

    spark: SparkSession
    cluster: Cluster
    plan: Plan
    places: Places
    executors: Sequence[Executor]  # that were found; another one is new
    emulated: bool
    complete: Complete  # places tasks whose slots are lost
    extend: Extend  # chooses the tasks that move to a new machine
    listener: socket.socket | None = None  # on which workers connect; None: an address that every executor reaches


def launch(
    flow: Dataflow,
    info: RunInfo,
    config: RunConfig,
    deployment: Deployment,
    stack: ExitStack,
    *,
    resumed: CheckpointManifest | None = None,
    epoch: int = 0,
    progress: Progress = lambda _: None,
) -> Run:
    """Start the workers of a run and return when tuples flow.

    The run owns the contents of `stack` and closes them when it ends. resumed, epoch: the checkpoint and the last epoch
    of a run that is resumed.
    """
    spark, cluster, plan, places = deployment.spark, deployment.cluster, deployment.plan, deployment.places
    layout = Layout(flow)
    spec = replace(_spec(layout, info, config, deployment), resumed=resumed, epoch=epoch)
    save(plan, info.plan_path)
    compile_policies(plan.tuples)
    host = "127.0.0.1" if is_local(spark) else str(spark.conf.get("spark.driver.host"))
    secret = secrets.token_bytes(32)
    protects = config.execution.protect_frames
    listener = deployment.listener or listen_for_workers(host)
    driver = Driver(Controller(layout, spec, time.monotonic()), secret, listener, protects)
    bound, port = driver.address
    jobs = SlotJobs(spark, info.run)
    run = Run(layout, info, driver, jobs, cluster, stack.pop_all())
    run.extend = deployment.extend
    work = partial(run_worker, flow)

    def start(site: str, executor: Executor | None) -> Job:
        reached = host if bound in EVERYWHERE else bound
        settings = WorkerSettings(info.run, site, reached, port, secret.hex(), "", protects, config.execution.umask)
        return jobs.launch(site, work, msgspec.json.encode(settings).decode(), executor)

    run.start()
    try:
        ship(spark, *modules_of(flow))
        if is_local(spark):
            supervisor = WorkerSupervisor(driver, start, [(site, None) for site, _ in places])
        else:
            known = {executor.id for executor in deployment.executors}
            there = [executor for executor in registered(spark) if executor.id in known]
            grown = run.grow if not deployment.emulated and _takes_all(places, there) else None
            supervisor = WorkerSupervisor(driver, start, places, partial(registered, spark), grown)
        supervisor.launch_all(time.monotonic())
        run.supervisor = supervisor
        run.begin(progress)
    except BaseException:
        run.stop()
        raise
    return run


def _spec(layout: Layout, info: RunInfo, config: RunConfig, deployment: Deployment) -> RunSpec:
    """Return what the controller of a new run starts with."""
    cluster, plan = deployment.cluster, deployment.plan
    placement = to_placement(plan, layout.application, cluster)
    telemetry = str(info.telemetry_path.absolute()) if config.telemetry.enabled else ""
    return RunSpec(
        run=info.run,
        sites=tuple(site for site, _ in deployment.places),
        placement=tuple(cluster.slot_names[slot] for slot in placement.slots),
        config=config,
        folders=run_folders(str(info.path.absolute()), telemetry),
        master=str(deployment.spark.sparkContext.master),
        policy=plan.policy,
        emulated=cluster if deployment.emulated else None,
        routes=routes_of(plan),
        complete=deployment.complete,
    )


def _takes_all(places: Places, executors: Sequence[Executor]) -> bool:
    """Whether a run uses every slot, so that it should also use those of further executors."""
    taken = Counter(executor.id for _, executor in places)
    return all(taken[executor.id] >= executor.cores - 1 for executor in executors)
