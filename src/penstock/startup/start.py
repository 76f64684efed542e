"""Run an application: find where it can run, plan it, start it."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.api.dataflow import Dataflow
from penstock.model.cluster import Cluster
from penstock.model.errors import member
from penstock.model.limits import Limits, changed_limits
from penstock.model.objective import Objective
from penstock.model.plan import Plan
from penstock.model.topology import Application
from penstock.model.tuples import TuplePolicies
from penstock.policies.streams import changed, check, kept_note
from penstock.startup.executor_discovery import discover, places
from penstock.startup.run_setup import Begun, begin, named_by, take_over
from penstock.startup.sessions import open_session
from penstock.startup.validation import (
    address,
    check_parts,
    check_travels,
    refuse_below_one,
    refuse_changed,
    refuse_restarts,
    refuse_seconds,
    refuse_share,
    refuse_umask,
    refuse_unwritable,
)

if TYPE_CHECKING:
    import socket

    from penstock.runtime.config import RunConfig
    from penstock.runtime.run import Progress, Run
    from penstock.runtime.storage.run_folder import Given, RunInfo, Setup
    from penstock.startup.resume import Resumption


def start(
    flow: Dataflow,
    *,
    master: str | None = None,
    emulate: Cluster | None = None,
    policy: str | None = None,
    objective: Objective | str | None = None,
    plan: Plan | None = None,
    slots: int | None = None,
    telemetry: Path | str | bool | None = None,
    runs: Path | str = "runs",
    sample_tps: float | None = None,
    in_flight: int | None = None,
    window: int | None = None,
    listen: str | None = None,
    seed: int | None = None,
    checkpoint_s: float | None = None,
    guarantee: str | None = None,
    protect_frames: bool | None = None,
    umask: int | None = None,
    restarts: int | None = None,
    restart_window_s: float | None = None,
    routing: str | Sequence[str] | None = None,
    sending: str | None = None,
    slot_ms: float | None = None,
    limits: Limits = None,
    share: Path | str | None = None,
    resume: Path | str | None = None,
    given: "Given | None" = None,
    progress: "Progress | None" = None,
    tell: "Progress | None" = None,
    noted: "Callable[[RunInfo], None] | None" = None,
) -> "Run":
    """Start an application on Spark, or go on with it, and return once tuples flow.

        with ps.run(flow, emulate=ps.cluster("hetero-small"), policy="r-storm") as run:
            run.wait(30)
            print(run.status().latency)

    master: a Spark master's URL; None: embedded, in this process's own Java process.
    emulate: a described cluster whose machines are emulated, a process each; None: the executors themselves.
    policy, plan: where the tasks go; a plan must have been made for this application and cluster.
    objective: what a policy that searches is to make the most of; throughput unless said.
    slots: worker processes, where nothing is emulated; None: embedded a core each, else what the executors have.
    telemetry: a folder; None: in the run's folder; False: none is kept.
    sample_tps: source tuples a second and task that are followed to their end, 20 unless said; below 0: all.
    in_flight: source tuples that a source task may have under way. window: tuples that a channel may have.
    listen: where workers call, HOST or HOST:PORT; None: loopback, or for another master the driver's host, a free port.
    seed: for everything that is drawn by lot; 0 unless said.
    checkpoint_s: seconds between checkpoints, at least 0.1, 5 unless said; 0: only one, at the end.
    protect_frames: whether what workers and controller send each other carries keyed checksums; default: False.
    umask: permissions that the run's folder and files do not have; default: 0o077, which leaves them to their owner.
    guarantee: "exactly-once" refuses an application that cannot keep it; "any", the default, takes each as it is.
    restarts, restart_window_s: recoveries within a number of seconds after which the next loss ends the run; defaults:
        10 in 600 s.
    routing: which way tuples go: a policy, `STREAM=POLICY`, or several of these; without, as stream's groupings say.
    sending: which out-queue sends first, a policy; without, tuples are sent as they are made.
    slot_ms: milliseconds between two routing decisions of an out-queue, 1 unless said.
    limits: tuples a second that sources may give, by component, or one number for all together; `Run.limit` says more.
    share: a folder by which the emulated machines are also those of other runs with the same folder, on this host only:
        processors are shared by the busy slots of all of them, links serve the frames of all first come, first served.
    resume: the name or folder of a run that was stopped, has failed or lost its driver: it goes on from its last
        checkpoint. What is not said is as it was; `emulate`, `seed` and `telemetry` cannot change. Folders outside the
        run's own (`telemetry`, `share`) must be named again.
    given: how the command line named the application. tell: called with what a person should know.
    noted: called as soon as a new run has its folder, before anything of it can run; where that raises, none does.
    The run's folder is made below `runs`. Used as a context, the run is drained at the end; `Handle` says what it can.
    """
    refuse_below_one(slots=slots, in_flight=in_flight, window=window)
    refuse_seconds(checkpoint_s)
    refuse_umask(umask)
    refuse_restarts(restarts, restart_window_s)
    check_parts(flow)
    check_travels(flow)
    refuse_unwritable(telemetry=telemetry, runs=runs, share=share)
    if resume is None:
        refuse_share(None if share is None else str(share), emulate, master or "local")
    if objective is not None:
        objective = member("objective", Objective, objective)
    stated = _stated(
        master=master, policy=policy, objective=objective, slots=slots, seed=seed, in_flight=in_flight, window=window,
        sample_tps=sample_tps, given=given, checkpoint_s=checkpoint_s, guarantee=guarantee,
        protect_frames=protect_frames, umask=umask,
        restarts=restarts, restart_window_s=restart_window_s,
        share=None if share is None else str(Path(share).absolute()),
    )  # fmt: skip
    change = partial(_changed, flow.application, routing, sending, slot_ms, tell)
    with ExitStack() as stack:
        listener = _listening(listen, stack)
        if resume is None:
            setup = _setup(flow, stated, change, limits, plan, telemetry is not False)
            begun = begin(flow, setup, emulate, plan, Path(runs), telemetry, stack)
            if noted is not None:
                noted(begun.info)
        else:
            refuse_changed(emulate=emulate, seed=seed)
            stated |= _stated(limits=None if limits is None else changed_limits({}, limits, flow.application))
            begun = take_over(
                flow, resume, Path(runs), stated, plan, telemetry, change, stack, tell or (lambda _: None)
            )
        return _launch(flow, begun, stack, listener, progress or (lambda _: None))


def _stated(**asked: Any) -> dict[str, Any]:
    """Return what is said of the settings of a run; None says nothing."""
    return {name: value for name, value in asked.items() if value is not None}


def _setup(
    flow: Dataflow,
    stated: dict[str, Any],
    change: Callable[[TuplePolicies], TuplePolicies],
    limits: Limits,
    plan: Plan | None,
    written: bool,
) -> "Setup":
    """Return the settings of a new run, with what is stated of it; written: whether telemetry is."""
    from penstock.runtime.storage.run_folder import Setup

    tuples = change(named_by(plan, TuplePolicies()))
    return Setup(**stated, telemetry=written, tuples=tuples, limits=changed_limits({}, limits, flow.application))


def _changed(
    application: Application,
    routing: str | Sequence[str] | None,
    sending: str | None,
    slot_ms: float | None,
    tell: "Progress | None",
    before: TuplePolicies,
) -> TuplePolicies:
    """Return tuple policies with those that are asked for in their place, checked; say what they leave as it is."""
    after = changed(before, routing, sending, slot_ms)
    check(after, application)
    if tell is not None and (note := kept_note(after, application)):
        tell(note)
    return after


def _listening(where: str | None, stack: ExitStack) -> "socket.socket | None":
    """Return a socket on which workers are to call, where that is said."""
    from penstock.runtime.controller.process import listen_for_workers

    if where is None:
        return None
    listener = listen_for_workers(*address(where))
    stack.callback(listener.close)
    return listener


def _launch(flow: Dataflow, begun: Begun, stack: ExitStack, listener: "socket.socket | None", say: "Progress") -> "Run":
    """Find out where it can run, plan it where that is not done, and start its workers."""
    from penstock.planning.failover_placement import additions, completion
    from penstock.runtime.launch import launch
    from penstock.runtime.spark.cores import hold, need_cores
    from penstock.runtime.spark.executors import is_local

    info, setup, emulate = begun.info, begun.setup, begun.emulate
    refuse_share(setup.share, emulate, setup.master or "local")
    workers = len(emulate.machines) if emulate is not None else setup.slots or os.cpu_count() or 1
    completing = partial(completion, flow.application, objective=setup.objective)
    say("starting Spark")
    with ThreadPoolExecutor(1, "penstock planning") as beside:  # Java takes seconds, and so may loading kernels
        early = None if begun.cluster is None else beside.submit(completing, begun.cluster)
        spark = open_session(stack, flow.name, setup.master, workers, info.path / "spark")
        refuse_share(setup.share, emulate, str(spark.sparkContext.master))
        say("looking for executors")
        executors = need_cores(spark, workers if emulate or setup.slots or is_local(spark) else 1)
        cluster = begun.cluster or discover(executors, is_local(spark), setup.slots)
        say("preparing for the loss of machines")
        complete = completing(cluster) if early is None else early.result()
    placed = places(cluster, executors, emulated=emulate is not None)
    stack.enter_context(hold(spark, [executor for _, executor in placed]))
    return launch(
        spark,
        flow,
        cluster,
        msgspec.structs.replace(begun.plan(cluster, complete), tuples=begun.tuples),
        placed,
        stack,
        found=executors,
        emulated=emulate is not None,
        telemetry=info.telemetry_path if setup.telemetry else None,
        info=info,
        config=_config(setup, begun.tuples),
        origin={**_origin(begun.found), "complete": complete},
        progress=say,
        listener=listener,
        extend=lambda grown, placement: additions(flow.application, grown, placement, setup.objective),
    )


def _config(setup: "Setup", tuples: TuplePolicies) -> "RunConfig":
    """Return the settings of a run as its workers receive them."""
    from penstock.runtime.config import Checkpointing, Execution, FlowControl, Recovery, RunConfig, Telemetry

    return RunConfig(
        execution=Execution(seed=setup.seed, share=setup.share, umask=setup.umask, protect_frames=setup.protect_frames),
        checkpointing=Checkpointing(interval_s=setup.checkpoint_s),
        recovery=Recovery(max_restarts=setup.restarts, restart_window_s=setup.restart_window_s),
        flow_control=FlowControl(window=setup.window or FlowControl().window, in_flight=setup.in_flight),
        telemetry=Telemetry(sample_tps=setup.sample_tps),
        tuple_policies=tuples,
        limits=setup.limits,
    )


def _origin(found: "Resumption | None") -> dict[str, Any]:
    """Return what a run continues from."""
    return {} if found is None else {"resumed": found.manifest, "epoch": found.epoch}
