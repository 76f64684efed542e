"""How a run begins, before Spark is looked for: in a new folder, or in that of one which is taken over."""

import shutil
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.api.dataflow import Dataflow
from penstock.model.cluster import Cluster
from penstock.model.errors import InvalidInput
from penstock.model.files import save
from penstock.model.plan import Plan, to_placement
from penstock.model.tuples import TuplePolicies, over
from penstock.planning.planner import plan_by
from penstock.startup.validation import known_cluster, refuse_pins

if TYPE_CHECKING:
    from penstock.runtime.controller.settings import Complete
    from penstock.runtime.run import Progress
    from penstock.runtime.storage.run_folder import RunInfo, Setup
    from penstock.startup.resume import Resumption

POLICY = "round-robin"


@dataclass(frozen=True)
class Begun:
    """A run with its folder, its lock and what was asked of it, before Spark is looked for."""

    info: "RunInfo"
    setup: "Setup"
    emulate: Cluster | None
    plan: "Callable[[Cluster, Complete], Plan]"  # where its tasks begin, once it is known what there is
    tuples: TuplePolicies
    found: "Resumption | None" = None
    cluster: Cluster | None = None  # its machines, if they are known before Spark starts


def begin(
    flow: Dataflow,
    setup: "Setup",
    emulate: Cluster | None,
    plan: Plan | None,
    runs: Path,
    telemetry: Path | str | bool | None,
    stack: ExitStack,
) -> Begun:
    """Make the folder of a new run."""
    from penstock.api.guarantees import require_guarantee
    from penstock.runtime.storage import run_folder as folders

    require_guarantee(flow, setup.guarantee)
    cluster = known_cluster(emulate, setup.master, setup.slots)
    refuse_pins(flow, cluster, emulate is not None)
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
    known = _known_plan(flow, cluster, plan, setup)
    if emulate is not None:
        save(emulate, info.cluster_path)

    def place(machines: Cluster, _: "Complete") -> Plan:
        return known or _planned(flow, machines, setup)

    return Begun(info, setup, emulate, place, setup.tuples, cluster=cluster)


def take_over(
    flow: Dataflow,
    what: Path | str,
    runs: Path,
    stated: dict[str, Any],
    plan: Plan | None,
    telemetry: Path | str | bool | None,
    change: Callable[[TuplePolicies], TuplePolicies],
    stack: ExitStack,
    tell: "Progress",
) -> Begun:
    """Take a run over from a driver that has gone."""
    from penstock.api.guarantees import require_guarantee
    from penstock.runtime.storage import run_folder as folders
    from penstock.startup.resume import emulated_cluster, find_resumable, plan_of, refuse_places, take

    info, before = find_resumable(what, runs)
    refuse_places(info, before, telemetry, stated.get("share"))
    setup = msgspec.structs.replace(before, **stated)
    require_guarantee(flow, setup.guarantee)
    emulate = emulated_cluster(info)
    cluster = known_cluster(emulate, setup.master, setup.slots)
    refuse_pins(flow, cluster, emulate is not None)
    known = None
    if plan is not None or "policy" in stated:
        known = _known_plan(flow, cluster, plan, msgspec.structs.replace(setup, policy=stated.get("policy")))
    found = take(info, before, flow)
    stack.callback(found.lock.release)
    policy = known.policy if known is not None else stated.get("policy", found.policy)
    tuples = change(named_by(plan, found.tuples))
    setup = msgspec.structs.replace(setup, tuples=tuples, limits=stated.get("limits", found.limits))
    info = folders.taken_over(info, setup=setup, master=setup.master or "embedded", policy=policy)
    stack.callback(folders.ended, info)
    found.tell(tell)
    found.clear()

    def place(machines: Cluster, complete: "Complete") -> Plan:
        if known is not None or "policy" in stated:
            return known or _planned(flow, machines, setup)
        return plan_of(found, flow, machines, setup.objective, complete) or _planned(flow, machines, setup)

    return Begun(info, setup, emulate, place, tuples, found, cluster)


def _known_plan(flow: Dataflow, cluster: Cluster | None, plan: Plan | None, setup: "Setup") -> Plan | None:
    """Return the plan to run by where it can be known before Spark has started, refusing one that does not fit."""
    if setup.policy is not None and plan is not None:
        raise InvalidInput("policy", f"expected a policy or a plan, got {setup.policy!r} and a plan; leave one out")
    if cluster is None:
        return plan
    if plan is None:
        return _planned(flow, cluster, setup)
    to_placement(plan, flow.application, cluster)
    return plan


def named_by(plan: Plan | None, before: TuplePolicies) -> TuplePolicies:
    """Return tuple policies with those that a plan names in their place."""
    return before if plan is None else over(before, plan.tuples)


def _planned(flow: Dataflow, cluster: Cluster, setup: "Setup") -> Plan:
    return plan_by(setup.policy or POLICY, flow.application, cluster, setup.objective, setup.seed)


def _leave(info: "RunInfo", failure: type[BaseException] | None, *_: object) -> None:
    """Write down that a run has ended; one that never began leaves no folder."""
    from penstock.runtime.storage.run_folder import ended

    if failure is None or any(info.checkpoints_path.glob("*")):  # it began, whatever has failed at its end
        ended(info)
    else:
        shutil.rmtree(info.path, ignore_errors=True)
