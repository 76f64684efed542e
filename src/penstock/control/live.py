"""Run an application: find where it can run, plan it, start it."""

import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.api.dataflow import Dataflow
from penstock.control.planner import Planner, latency_model
from penstock.control.sessions import open_session
from penstock.control.starting import (
    address,
    refuse_below_one,
    refuse_changed,
    refuse_seconds,
    refuse_share,
    refuse_unwritable,
)
from penstock.estimate.evaluator import Objective
from penstock.model.cluster import Cluster, Machine
from penstock.model.errors import InvalidInput, PenstockError
from penstock.model.files import save
from penstock.model.limits import Limits, changed_limits
from penstock.model.plan import Plan, to_placement
from penstock.model.topology import Application
from penstock.model.tuples import TuplePolicies
from penstock.policies.streams import changed, check, kept_note, over

if TYPE_CHECKING:
    import socket

    from penstock.control.resuming import Resumption
    from penstock.estimate.latency_models import LatencyModels
    from penstock.runtime.folder import Given, RunInfo, Setup
    from penstock.runtime.run import Progress, Run
    from penstock.runtime.spark.executors import Executor
    from penstock.runtime.terms import Complete, Site

POLICY = "round-robin"


class NoPlacement(PenstockError):
    """The policy found no place for the application's tasks."""


@dataclass(frozen=True)
class _Begun:
    """A run with its folder, its lock and what was asked of it, before Spark is looked for."""

    info: "RunInfo"
    setup: "Setup"
    emulate: Cluster | None
    plan: "Callable[[Cluster, Complete], Plan]"  # where its tasks begin, once it is known what there is
    tuples: TuplePolicies
    found: "Resumption | None" = None


def start(
    flow: Dataflow,
    *,
    master: str | None = None,
    emulate: Cluster | None = None,
    policy: str | None = None,
    objective: Objective | None = None,
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
    guarantee: "exactly-once" refuses an application that cannot keep it; "any", the default, takes each as it is.
    routing: which way tuples go: a policy, `STREAM=POLICY`, or several of these; without, as stream's groupings say.
    sending: which out-queue sends first, a policy; without, tuples are sent as they are made.
    slot_ms: milliseconds between two routing decisions of an out-queue, 1 unless said.
    limits: tuples a second that sources may give, by component, or one number for all together; `Run.limit` says more.
    share: a folder by which the emulated machines are also those of other runs with the same folder, on this host only:
        processors are shared by the busy slots of all of them, links serve the frames of all first come, first served.
    resume: the name or folder of a run that was stopped, has failed or lost its driver: it goes on from its last
        checkpoint. What is not said is as it was; `emulate`, `seed` and `telemetry` cannot change.
    given: how the command line named the application. tell: called with what a person should know.
    noted: called as soon as a new run has its folder, before anything of it can run; where that raises, none does.
    The run's folder is made below `runs`. Used as a context, the run is drained at the end; `Handle` says what it can.
    """
    from penstock.runtime.driver import listen_for_workers
    from penstock.runtime.folder import Setup
    from penstock.runtime.run import check_parts

    refuse_below_one(slots=slots, in_flight=in_flight, window=window)
    refuse_seconds(checkpoint_s)
    check_parts(flow)
    refuse_unwritable(telemetry=telemetry, runs=runs, share=share)
    if resume is None:
        refuse_share(None if share is None else str(share), emulate, master or "local")
    asked: dict[str, Any] = {"master": master, "policy": policy, "objective": objective, "slots": slots, "seed": seed}
    asked |= {"in_flight": in_flight, "window": window, "sample_tps": sample_tps, "given": given}
    asked |= {"checkpoint_s": checkpoint_s, "guarantee": guarantee}
    asked |= {"share": None if share is None else str(Path(share).absolute())}
    stated = {name: value for name, value in asked.items() if value is not None}

    def change(before: TuplePolicies) -> TuplePolicies:
        after = changed(before, routing, sending, slot_ms)
        check(after, flow.application)
        if tell is not None and (note := kept_note(after, flow.application)):
            tell(note)
        return after

    with ExitStack() as stack:
        listener = None if listen is None else listen_for_workers(*address(listen))
        if listener is not None:
            stack.callback(listener.close)
        if resume is None:
            tuples = change(_named_by(plan, TuplePolicies()))
            limited = changed_limits({}, limits, flow.application)
            setup = Setup(**stated, telemetry=telemetry is not False, tuples=tuples, limits=limited)
            begun = _begin(flow, setup, emulate, plan, Path(runs), telemetry, stack)
            if noted is not None:
                noted(begun.info)
        else:
            refuse_changed(emulate=emulate, seed=seed, telemetry=telemetry)
            if limits is not None:
                stated["limits"] = changed_limits({}, limits, flow.application)
            begun = _take_over(flow, resume, Path(runs), stated, plan, change, stack, tell or (lambda _: None))
        return _launch(flow, begun, stack, listener, progress or (lambda _: None))


def _begin(
    flow: Dataflow,
    setup: "Setup",
    emulate: Cluster | None,
    plan: Plan | None,
    runs: Path,
    telemetry: Path | str | bool | None,
    stack: ExitStack,
) -> _Begun:
    """Make the folder of a new run."""
    from penstock.api.guarantees import require
    from penstock.runtime import folder as folders

    require(flow, setup.guarantee)
    info = folders.create(  # before it is planned, which may take a while: who asks is to hear that it is starting
        flow.name,
        runs,
        master=setup.master or "embedded",
        emulated=None if emulate is None else emulate.name,
        policy=plan.policy if plan is not None else setup.policy or POLICY,
        telemetry=Path(telemetry) if isinstance(telemetry, Path | str) else None,
        setup=setup,
    )
    stack.callback(folders.RunLock(info).release)
    stack.push(partial(_leave, info))
    known = _known_plan(flow, emulate, plan, setup)
    if emulate is not None:
        save(emulate, info.cluster_path)
    return _Begun(info, setup, emulate, lambda cluster, _: known or _planned(flow, cluster, setup), setup.tuples)


def _take_over(
    flow: Dataflow,
    what: Path | str,
    runs: Path,
    stated: dict[str, Any],
    plan: Plan | None,
    change: Callable[[TuplePolicies], TuplePolicies],
    stack: ExitStack,
    tell: "Progress",
) -> _Begun:
    """Take a run over from a driver that has gone."""
    from penstock.api.guarantees import require
    from penstock.control.resuming import emulated_cluster, find_resumable, plan_of, take
    from penstock.runtime import folder as folders

    info, before = find_resumable(what, runs)
    setup = msgspec.structs.replace(before, **stated)
    require(flow, setup.guarantee)
    emulate = emulated_cluster(info)
    known = None
    if plan is not None or "policy" in stated:
        known = _known_plan(flow, emulate, plan, msgspec.structs.replace(setup, policy=stated.get("policy")))
    found = take(info, before, flow)
    stack.callback(found.lock.release)
    policy = known.policy if known is not None else stated.get("policy", found.policy)
    tuples = change(_named_by(plan, found.tuples))
    setup = msgspec.structs.replace(setup, tuples=tuples, limits=stated.get("limits", found.limits))
    info = folders.taken_over(info, setup=setup, master=setup.master or "embedded", policy=policy)
    stack.callback(folders.ended, info)
    found.tell(tell)
    found.clear()

    def place(cluster: Cluster, complete: "Complete") -> Plan:
        if known is not None or "policy" in stated:
            return known or _planned(flow, cluster, setup)
        return plan_of(found, flow, cluster, setup.objective, complete) or _planned(flow, cluster, setup)

    return _Begun(info, setup, emulate, place, tuples, found)


def _launch(
    flow: Dataflow, begun: _Begun, stack: ExitStack, listener: "socket.socket | None", say: "Progress"
) -> "Run":
    """Find out where it can run, plan it where that is not done, and start its workers."""
    from penstock.control.completing import additions, completion
    from penstock.runtime.run import launch
    from penstock.runtime.spark.cores import hold, need_cores
    from penstock.runtime.spark.executors import is_local

    info, setup, emulate = begun.info, begun.setup, begun.emulate
    refuse_share(setup.share, emulate, setup.master or "local")
    workers = len(emulate.machines) if emulate is not None else setup.slots or os.cpu_count() or 1
    say("starting Spark")
    spark = open_session(stack, flow.name, setup.master, workers, info.path / "spark")
    refuse_share(setup.share, emulate, str(spark.sparkContext.master))
    say("looking for executors")
    executors = need_cores(spark, workers if emulate or setup.slots or is_local(spark) else 1)
    cluster = emulate or discover(executors, is_local(spark), setup.slots)
    complete = completion(flow.application, cluster, Objective(setup.objective))
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
        options={**_terms(info, setup, begun.found), "complete": complete},
        progress=say,
        listener=listener,
        extend=lambda grown, placement: additions(flow.application, grown, placement, Objective(setup.objective)),
    )


def _terms(info: "RunInfo", setup: "Setup", found: "Resumption | None") -> dict[str, Any]:
    """Return what a run's terms are to say, beside what `launch` knows by itself."""
    terms: dict[str, Any] = {"sample_tps": setup.sample_tps, "in_flight": setup.in_flight or 0, "seed": setup.seed}
    terms |= {} if setup.window is None else {"window": setup.window}
    terms |= {"limits": setup.limits, "share": setup.share or ""}
    terms |= {"checkpoint_s": setup.checkpoint_s, "checkpoints": str(info.checkpoints_path.absolute())}
    return terms if found is None else terms | {"resumed": found.manifest, "epoch": found.epoch}


def _known_plan(flow: Dataflow, emulate: Cluster | None, plan: Plan | None, setup: "Setup") -> Plan | None:
    """Return the plan to run by where it can be known before Spark has started, refusing one that does not fit."""
    if setup.policy is not None and plan is not None:
        raise InvalidInput("policy", f"expected a policy or a plan, got {setup.policy!r} and a plan; leave one out")
    if emulate is None:
        return plan
    if plan is None:
        return _planned(flow, emulate, setup)
    to_placement(plan, flow.application, emulate)
    return plan


def _named_by(plan: Plan | None, before: TuplePolicies) -> TuplePolicies:
    """Return tuple policies with those that a plan names in their place."""
    return before if plan is None else over(before, plan.tuples)


def _planned(flow: Dataflow, cluster: Cluster, setup: "Setup") -> Plan:
    return plan_by(setup.policy or POLICY, flow.application, cluster, Objective(setup.objective), setup.seed)


def plan_by(
    policy: str,
    application: Application,
    cluster: Cluster,
    objective: Objective = Objective.THROUGHPUT,
    seed: int = 0,
    models: "LatencyModels | None" = None,
) -> Plan:
    """Return what a policy does with an application on a cluster; raise `NoPlacement` where it finds none.

    With the `application` and `cluster` of a run, the plan is for `Run.apply`. With latency models it is for the least
    latency that they predict, not for the objective.
    """
    latency = None if models is None else latency_model(models, application, cluster)
    planner = Planner(application, cluster, objective, seed, latency=latency)
    decision = planner.decide(policy)
    if not decision.placed:
        reason = getattr(decision.result, "reason", "it gave none")
        raise NoPlacement(f"policy: {policy} finds no placement on {cluster.name!r}: {reason}")
    return planner.plan(decision)


def discover(executors: Sequence["Executor"], local: bool, slots: int | None = None) -> Cluster:
    """Describe Spark's executors as a cluster: a machine each, of which one core is kept free.

    So many `slots` are dealt to the executors in turn; None: as many as they have cores for.
    """
    if local:
        cores = os.cpu_count() or 1
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**20
        machine = Machine(name="local", cores=cores, slots=slots or cores, memory_mb=memory)
        return Cluster(name="embedded", machines=(machine,))
    return Cluster(
        name="spark",
        machines=tuple(
            Machine(
                name=_machine_name(executor),
                host=executor.host,
                cores=max(1, executor.cores - 1),
                slots=share,
                memory_mb=1e6,  # Spark does not limit what Python processes take
            )
            for executor, share in zip(executors, _shares(executors, slots), strict=True)
            if share
        ),
    )


def places(cluster: Cluster, executors: Sequence["Executor"], emulated: bool) -> list[tuple["Site", "Executor"]]:
    """Say which worker processes there are, and on which executor each: a machine each, or a slot each."""
    from penstock.runtime.terms import Site

    if not emulated:
        named = {_machine_name(executor): executor for executor in executors}
        return [
            (Site(slot, (slot,)), named.get(machine.name, executors[0]))
            for machine in cluster.machines
            for slot in (f"{machine.name}/{number}" for number in range(machine.slots))
        ]
    free = {executor: executor.cores - 1 for executor in executors}
    found = []
    for machine in cluster.machines:
        executor = max(free, key=lambda each: free[each])
        free[executor] -= 1
        slots = tuple(f"{machine.name}/{number}" for number in range(machine.slots))
        found.append((Site(machine.name, slots), executor))
    return found


def _machine_name(executor: "Executor") -> str:
    return f"{executor.host}-{executor.id}"


def _shares(executors: Sequence["Executor"], slots: int | None) -> list[int]:
    """Return how many slots each executor has."""
    room = [max(1, executor.cores - 1) for executor in executors]
    if slots is None:
        return room
    shares = [0] * len(room)
    for _ in range(min(slots, sum(room))):
        shares[min((number for number, most in enumerate(room) if shares[number] < most), key=shares.__getitem__)] += 1
    return shares


def _leave(info: "RunInfo", failure: type[BaseException] | None, *_: object) -> None:
    """Write down that a run has ended; one that never began leaves no folder."""
    from penstock.runtime.folder import ended

    if failure is None or any(info.checkpoints_path.glob("*")):  # it began, whatever has failed at its end
        ended(info)
    else:
        shutil.rmtree(info.path, ignore_errors=True)
