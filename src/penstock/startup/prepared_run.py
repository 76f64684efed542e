"""A run before Spark starts: its settings are checked, its folder and lock are taken, its plan is known if possible."""

import shutil
import socket
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from penstock.api.dataflow import Dataflow
from penstock.model.cluster import Cluster
from penstock.model.errors import InvalidInput
from penstock.model.files import save
from penstock.model.plan import Plan, to_placement
from penstock.model.tuples import over
from penstock.planning.planner import plan_by
from penstock.policies.streams import kept_note
from penstock.runtime.config import Changes, RunConfig, refuse_fixed
from penstock.runtime.controller.process import listen_for_workers
from penstock.runtime.controller.run_spec import Complete
from penstock.runtime.storage import run_folder as folders
from penstock.runtime.storage.run_folder import RunInfo
from penstock.startup.resume import Resumption, emulated_cluster, find_resumable, plan_of, refuse_folders, take_over
from penstock.startup.validation import address, checked, known_cluster, refuse_pins
from penstock.workloads.clusters import find_cluster


def _ignore(_: object) -> None:
    """Do nothing."""


@dataclass(frozen=True)
class StartCallbacks:
    """Functions that are called while a run starts. One that raises ends the start."""

    progress: Callable[[str], None] = _ignore  # with what the start waits for
    notify: Callable[[str], None] = _ignore  # with what a person should know, such as warnings
    created: Callable[[RunInfo], None] = _ignore  # as soon as a new run has its folder, before anything of it can run


MakePlan = Callable[[Cluster, Complete], Plan]
"""Plans a run for the machines that are found."""


@dataclass(frozen=True)
class StartRequest:
    """What a caller asks of a start."""

    flow: Dataflow
    config: RunConfig | Changes | None
    emulate: Cluster | str | None
    policy: str | None
    plan: Plan | None
    runs: Path

    def __post_init__(self) -> None:
        if self.policy is not None and self.plan is not None:
            problem = f"expected a policy or a plan, got {self.policy!r} and a plan"
            raise InvalidInput("policy", f"{problem}; leave one out")

    def config_over(self, base: RunConfig) -> RunConfig:
        """Return the settings that are asked for; those that are not mentioned are as in `base`."""
        if self.plan is not None:
            base = replace(base, tuple_policies=over(base.tuple_policies, self.plan.tuples))
        if isinstance(self.config, RunConfig):
            tuples = over(base.tuple_policies, self.config.tuple_policies)
            config = replace(self.config, tuple_policies=tuples)
        else:
            config = base.changed(self.config or {})
        if self.policy is not None:
            config = config.changed({"planning": {"policy": self.policy}})
        if self.emulate is not None:
            name = self.emulate.name if isinstance(self.emulate, Cluster) else self.emulate
            config = config.changed({"execution": {"emulate": name}})
        return config


@dataclass(frozen=True)
class PreparedRun:
    """A run that has its folder and its lock."""

    flow: Dataflow  # with the number of tasks that the settings give it
    info: RunInfo
    config: RunConfig
    emulated: Cluster | None
    cluster: Cluster | None  # its machines, if they are known before Spark starts
    listener: socket.socket | None  # on which workers connect, if an address is set
    make_plan: MakePlan
    resumption: Resumption | None = None


def prepare_new(request: StartRequest, stack: ExitStack, callbacks: StartCallbacks) -> PreparedRun:
    """Check a new run and make its folder."""
    plan, config = request.plan, request.config_over(RunConfig())
    flow = request.flow.resized(config.execution.parallelism)
    emulated = request.emulate if isinstance(request.emulate, Cluster) else None
    if emulated is None and config.execution.emulate is not None:
        emulated = find_cluster(config.execution.emulate)
    config, cluster, listener = _validated(flow, config, emulated, request.runs, stack, callbacks)
    info = folders.create(  # before planning, which may take a while: commands can already see that the run starts
        flow.name,
        request.runs,
        config=config,
        emulated=None if emulated is None else emulated.name,
        policy=config.planning.policy if plan is None else plan.policy,
    )
    stack.callback(folders.RunLock(info).release)
    stack.push(partial(_leave, info))
    if emulated is not None:
        save(emulated, info.cluster_path)
    known = _known_plan(flow, cluster, plan, config)

    def make_plan(machines: Cluster, _: Complete) -> Plan:
        return known or _planned(flow, machines, config)

    callbacks.created(info)
    return PreparedRun(flow, info, config, emulated, cluster, listener, make_plan)


def prepare_resumed(request: StartRequest, run: Path | str, stack: ExitStack, callbacks: StartCallbacks) -> PreparedRun:
    """Check a run that is resumed and take its folder over."""
    plan = request.plan
    if isinstance(request.emulate, Cluster):
        raise InvalidInput("emulate", "a resumed run keeps its cluster, leave it out; or start a new run")
    info, stored = find_resumable(run, request.runs)
    emulated = emulated_cluster(info)
    parallelism = request.config_over(stored).execution.parallelism
    flow = request.flow.resized(parallelism)
    found = take_over(info, stored, flow, parallelism)
    stack.callback(found.lock.release)
    config = request.config_over(found.base)
    refuse_folders(info, stored, config)
    config, cluster, listener = _validated(flow, config, emulated, request.runs, stack, callbacks)
    refuse_fixed(stored, config)
    replans = plan is not None or request.policy is not None or config.planning.policy != stored.planning.policy
    known = _known_plan(flow, cluster, plan, config) if replans else None
    policy = known.policy if known is not None else config.planning.policy if replans else found.policy
    info = folders.record_resume(info, config, policy)
    stack.callback(folders.mark_ended, info)
    found.report(callbacks.notify)
    found = found.clear()

    def make_plan(machines: Cluster, complete: Complete) -> Plan:
        if not replans and (restored := plan_of(found, flow, machines, config, complete)) is not None:
            return restored
        return known or _planned(flow, machines, config)

    return PreparedRun(flow, info, config, emulated, cluster, listener, make_plan, found)


def _validated(
    flow: Dataflow, config: RunConfig, emulated: Cluster | None, runs: Path, stack: ExitStack, callbacks: StartCallbacks
) -> tuple[RunConfig, Cluster | None, socket.socket | None]:
    """Return settings that an application can run with, its machines if they are known, and the socket for workers."""
    config = checked(config, flow, emulated, runs)
    if note := kept_note(config.tuple_policies, flow.application):
        callbacks.notify(note)
    cluster = known_cluster(emulated, config.execution.master, config.execution.slots)
    refuse_pins(flow, cluster, emulated is not None)
    listener = None
    if config.execution.listen is not None:
        listener = listen_for_workers(*address(config.execution.listen))
        stack.callback(listener.close)
    return config, cluster, listener


def _known_plan(flow: Dataflow, cluster: Cluster | None, plan: Plan | None, config: RunConfig) -> Plan | None:
    """Return the plan of a run if it can be known before Spark starts; refuse one that does not fit."""
    if cluster is None:
        return plan
    if plan is None:
        return _planned(flow, cluster, config)
    to_placement(plan, flow.application, cluster)
    return plan


def _planned(flow: Dataflow, cluster: Cluster, config: RunConfig) -> Plan:
    planning = config.planning
    return plan_by(planning.policy, flow.application, cluster, planning.objective, config.execution.seed)


def _leave(info: RunInfo, failure: type[BaseException] | None, *_: object) -> None:
    """Record that a run has ended; one that never started leaves no folder."""
    if failure is None or any(info.checkpoints_path.glob("*")):  # it started, whatever has failed at its end
        folders.mark_ended(info)
    else:
        shutil.rmtree(info.path, ignore_errors=True)
