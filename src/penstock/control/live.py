"""Run an application: find where it can run, plan it, start it."""

import os
import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.api.dataflow import Dataflow
from penstock.control.planner import Planner
from penstock.estimate.evaluator import Objective
from penstock.model.cluster import Cluster, Machine
from penstock.model.errors import InvalidInput, PenstockError
from penstock.model.plan import Plan, to_placement
from penstock.model.topology import Application

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.runtime.folder import RunInfo
    from penstock.runtime.run import Progress, Run
    from penstock.runtime.spark.executors import Executor
    from penstock.runtime.terms import Site

POLICY = "round-robin"
SAMPLE_TPS = 20.0


class NoPlacement(PenstockError):
    """The policy found no place for the application's tasks."""


def start(
    flow: Dataflow,
    *,
    master: str | None = None,
    emulate: Cluster | None = None,
    policy: str | None = None,
    objective: Objective = Objective.THROUGHPUT,
    plan: Plan | None = None,
    slots: int | None = None,
    telemetry: Path | str | bool | None = None,
    runs: Path | str = "runs",
    sample_tps: float = SAMPLE_TPS,
    in_flight: int | None = None,
    window: int | None = None,
    listen: str | None = None,
    seed: int = 0,
    progress: "Progress | None" = None,
) -> "Run":
    """Start an application on Spark, and return once tuples flow.

        with ps.run(flow, emulate=ps.cluster("hetero-small"), policy="r-storm") as run:
            run.wait(30)
            print(run.status().latency)

    master: a Spark master's URL; None: embedded, in this process's own Java process.
    emulate: a described cluster whose machines are emulated, a process each; None: the executors themselves.
    policy, plan: where the tasks go; a plan must have been made for this application and cluster.
    objective: what a policy that searches is to make the most of.
    slots: worker processes, where nothing is emulated; None: embedded a core each, else what the executors have.
    telemetry: a folder; None: in the run's folder; False: none is kept.
    sample_tps: source tuples a second and task that are followed to their end; below 0: all.
    in_flight: source tuples that a source task may have under way. window: tuples that a channel may have.
    listen: where workers call, HOST or HOST:PORT; None: loopback, or for another master the driver's host, a free port.
    The run's folder is made below `runs`. Used as a context, the run is drained at the end; `Handle` says what it can.
    """
    from penstock.runtime import folder as folders
    from penstock.runtime.driver import listen_for_workers
    from penstock.runtime.run import check_parts, launch
    from penstock.runtime.spark.executors import is_local, need_cores

    say = progress or (lambda _: None)
    _refuse_below_one(slots=slots, in_flight=in_flight, window=window)
    check_parts(flow)
    plan = _known_plan(flow, emulate, policy, plan, objective, seed)
    for name, place in {"telemetry": telemetry, "runs": runs}.items():
        if isinstance(place, Path | str):
            folders.refuse_unwritable(Path(place), name)
    workers = len(emulate.machines) if emulate is not None else slots or os.cpu_count() or 1
    with ExitStack() as stack:
        listener = None if listen is None else listen_for_workers(*_address(listen))
        if listener is not None:
            stack.callback(listener.close)
        info = folders.create(
            flow.name,
            Path(runs),
            master=master or "embedded",
            emulated=None if emulate is None else emulate.name,
            policy=policy or (plan.policy if plan is not None else POLICY),
            telemetry=Path(telemetry) if isinstance(telemetry, Path | str) else None,
        )
        stack.push(partial(_leave, info))
        say("starting Spark")
        spark = _open_session(stack, flow.name, master, workers, info.path / "spark")
        say("looking for executors")
        executors = need_cores(spark, workers if emulate or slots or is_local(spark) else 1)
        cluster = emulate or discover(executors, is_local(spark), slots)
        options: dict[str, Any] = {"sample_tps": sample_tps, "in_flight": in_flight or 0, "seed": seed}
        options |= {} if window is None else {"window": window}
        return launch(
            spark,
            flow,
            cluster,
            plan or plan_by(policy or POLICY, flow.application, cluster, objective, seed),
            places(cluster, executors, emulated=emulate is not None),
            stack,
            emulated=emulate is not None,
            telemetry=None if telemetry is False else info.telemetry_path,
            info=info,
            options=options,
            progress=say,
            listener=listener,
        )


def _known_plan(
    flow: Dataflow, emulate: Cluster | None, policy: str | None, plan: Plan | None, objective: Objective, seed: int
) -> Plan | None:
    """Return the plan to run by where it can be known before Spark has started, refusing one that does not fit."""
    if policy is not None and plan is not None:
        raise InvalidInput("policy", f"expected a policy or a plan, got {policy!r} and a plan; leave one out")
    application = flow.application
    if emulate is None:
        return plan
    if plan is None:
        return plan_by(policy or POLICY, application, emulate, objective, seed)
    to_placement(plan, application, emulate)
    return plan


def _open_session(stack: ExitStack, name: str, master: str | None, workers: int, folder: Path) -> "SparkSession":
    """Give a session with room for so many workers: the one that runs already, an embedded one, or the master's."""
    from penstock.pipeline.session import running_session, session
    from penstock.runtime.spark.executors import embedded_master, spark_settings

    embedded = master is None
    url = embedded_master(workers) if embedded and running_session() is None else master
    return stack.enter_context(session(name, url, settings=spark_settings(workers, embedded), folder=folder))


def plan_by(
    policy: str,
    application: Application,
    cluster: Cluster,
    objective: Objective = Objective.THROUGHPUT,
    seed: int = 0,
) -> Plan:
    """Return what a policy does with an application on a cluster; raise `NoPlacement` where it finds none.

    With the `application` and `cluster` of a run, the plan is for `Run.apply`.
    """
    planner = Planner(application, cluster, objective, seed)
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


def _refuse_below_one(**counts: int | None) -> None:
    for name, count in counts.items():
        if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 1):
            raise InvalidInput(name, f"expected a whole number ≥ 1, got {count!r}")


def _address(text: str) -> tuple[str, int]:
    """Return the host and port of `HOST` or `HOST:PORT`; port 0 is any."""
    host, colon, port = text.rpartition(":")
    if not colon:
        host, port = text, "0"
    if not host or not port.isdecimal() or int(port) > 65535:
        raise InvalidInput("listen", f"expected HOST or HOST:PORT, got {text!r}")
    return host, int(port)


def _leave(info: "RunInfo", failure: type[BaseException] | None, *_: object) -> None:
    """Write down that a run has ended; one that never began leaves no folder."""
    from penstock.runtime.folder import ended

    if failure is None:
        ended(info)
    else:
        shutil.rmtree(info.path, ignore_errors=True)
