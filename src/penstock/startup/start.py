"""Start an application: validate the request, make or take over its folder, discover executors, plan, launch."""

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from msgspec.structs import replace
from pyspark.sql import SparkSession

from penstock.api.dataflow import Dataflow
from penstock.model.cluster import Cluster
from penstock.model.plan import Plan
from penstock.planning.failover_placement import additions, completion
from penstock.runtime.config import Changes, RunConfig
from penstock.runtime.controller.run_spec import Complete
from penstock.runtime.launch import Deployment, launch
from penstock.runtime.run import Run
from penstock.runtime.spark.cores import hold, need_cores
from penstock.runtime.spark.executors import Executor, is_local
from penstock.startup.executor_discovery import discover, worker_places
from penstock.startup.prepared_run import PreparedRun, StartCallbacks, StartRequest, prepare_new, prepare_resumed
from penstock.startup.sessions import open_session
from penstock.startup.validation import check_parts, check_travels, refuse_share


def start(
    flow: Dataflow,
    *,
    config: RunConfig | Changes | None = None,
    emulate: Cluster | str | None = None,
    policy: str | None = None,
    plan: Plan | None = None,
    runs: Path | str = "runs",
    resume: Path | str | None = None,
    callbacks: StartCallbacks | None = None,
) -> Run:
    """Start an application on Spark, or resume it, and return once tuples flow.

        with ps.run(flow, emulate=ps.cluster("hetero-small"), config={"checkpointing": {"interval_s": 2.0}}) as run:
            run.wait(30)
            print(run.status().latency)

    config: the settings, a `RunConfig`, or some of them by section and name, as in a file; the others have their
        defaults, or the values that a resumed run has. The reference of settings lists all of them.
    emulate: a cluster, its name or its file: each of its machines is emulated by a process. Default: none, tasks run on
        Spark's executors.
    policy: the placement policy, in place of the one in `config`.
    plan: where the tasks are, for this application and cluster, in place of a policy.
    runs: the folder in which the run's folder is made.
    resume: the name or folder of a run that was stopped, has failed or lost its driver. It continues from its last
        checkpoint. Folders outside the run's own (telemetry, share) must be confirmed by setting them again.
    callbacks: functions that are called while the run starts.

    Used as a context, the run is drained at the end.
    """
    callbacks = callbacks or StartCallbacks()
    request = StartRequest(flow, config, emulate, policy, plan, Path(runs))
    check_parts(flow)
    check_travels(flow)
    with ExitStack() as stack:
        if resume is None:
            prepared = prepare_new(request, stack, callbacks)
        else:
            prepared = prepare_resumed(request, resume, stack, callbacks)
        flow = prepared.flow
        deployment = _deploy(flow, prepared, stack, callbacks)
        found = prepared.resumption
        return launch(
            flow,
            prepared.info,
            prepared.config,
            deployment,
            stack,
            resumed=None if found is None else found.manifest,
            epoch=0 if found is None else found.epoch,
            progress=callbacks.progress,
        )


def _deploy(flow: Dataflow, prepared: PreparedRun, stack: ExitStack, callbacks: StartCallbacks) -> Deployment:
    """Discover the executors, plan unless that is done, and reserve the workers."""
    planning, emulated = prepared.config.planning, prepared.emulated is not None
    spark, executors, cluster, complete = _discover(flow, prepared, stack, callbacks)
    placed = worker_places(cluster, executors, emulated)
    stack.enter_context(hold(spark, [executor for _, executor in placed]))
    return Deployment(
        spark=spark,
        cluster=cluster,
        plan=replace(prepared.make_plan(cluster, complete), tuples=prepared.config.tuple_policies),
        places=placed,
        executors=executors,
        emulated=emulated,
        complete=complete,
        extend=lambda grown, placement: additions(flow.application, grown, placement, planning.objective),
        listener=prepared.listener,
    )


def _discover(
    flow: Dataflow, prepared: PreparedRun, stack: ExitStack, callbacks: StartCallbacks
) -> tuple[SparkSession, list[Executor], Cluster, Complete]:
    """Return the session, its executors, the cluster that they are, and what places tasks when machines fail."""
    execution, emulated = prepared.config.execution, prepared.emulated
    workers = len(emulated.machines) if emulated is not None else execution.slots or os.cpu_count() or 1
    completing = partial(completion, flow.application, objective=prepared.config.planning.objective)
    callbacks.progress("starting Spark")
    with ThreadPoolExecutor(1, "penstock planning") as beside:  # Java takes seconds, and so may loading kernels
        early = None if prepared.cluster is None else beside.submit(completing, prepared.cluster)
        spark = open_session(stack, flow.name, execution.master, workers, prepared.info.path / "spark")
        refuse_share(execution.share, emulated, str(spark.sparkContext.master))
        callbacks.progress("looking for executors")
        executors = need_cores(spark, workers if emulated or execution.slots or is_local(spark) else 1)
        cluster = prepared.cluster or discover(executors, is_local(spark), execution.slots)
        callbacks.progress("preparing for the loss of machines")
        complete = completing(cluster) if early is None else early.result()
    return spark, executors, cluster, complete
