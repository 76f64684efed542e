"""Penstock schedules stream processing: where tasks run, how many there are, which way tuples go.

    import penstock as ps

    planner = ps.Planner(ps.application("log-processing"), ps.cluster("hetero-small"))
    decision = planner.decide("r-storm")

    with ps.run(ps.dataflow("log-processing"), emulate=ps.cluster("hetero-small"), policy="r-storm") as run:
        run.wait(30)

The names below are imported when first used: importing `penstock` reads no file and starts no JVM.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.admission.reconciler.operate import operate
    from penstock.api.contracts import Operator, Sink, Source, TaskContext, Timed
    from penstock.api.dataflow import Dataflow
    from penstock.api.keys import Named
    from penstock.api.on_error import DeadLetter, Fail, Retry, Skip
    from penstock.api.sinks.console import Console
    from penstock.api.sinks.discard import Discard
    from penstock.api.sinks.json_lines import JsonLines
    from penstock.api.sinks.parquet import Parquet
    from penstock.api.sources.generated import Generated
    from penstock.api.sources.landed import Landed
    from penstock.api.sources.lines import Lines
    from penstock.api.sources.tcp import TcpLines
    from penstock.estimate.evaluator import Evaluation, Evaluator
    from penstock.model.cluster import Cluster, Distances, Link, Machine
    from penstock.model.errors import PenstockError
    from penstock.model.files import load_application, load_cluster, load_plan, save
    from penstock.model.objective import Objective
    from penstock.model.placement import Infeasible, Placement
    from penstock.model.plan import Plan, moves
    from penstock.model.status import Status
    from penstock.model.topology import Application, Component, Grouping, Kind, ServiceTime, Stream
    from penstock.pipeline.landing import land
    from penstock.planning.advice import advise
    from penstock.planning.planner import Decision, Planner
    from penstock.policies.registry import make as policy
    from penstock.runtime.handle import Handle
    from penstock.startup.sessions import session
    from penstock.startup.start import start as run
    from penstock.workloads.applications import application
    from penstock.workloads.arrivals import arrivals
    from penstock.workloads.clusters import cluster
    from penstock.workloads.dataflows import dataflow

_WHERE = {
    "Application": "penstock.model.topology",
    "Cluster": "penstock.model.cluster",
    "Component": "penstock.model.topology",
    "Console": "penstock.api.sinks.console",
    "Dataflow": "penstock.api.dataflow",
    "DeadLetter": "penstock.api.on_error",
    "Decision": "penstock.planning.planner",
    "Discard": "penstock.api.sinks.discard",
    "Distances": "penstock.model.cluster",
    "Evaluation": "penstock.estimate.evaluator",
    "Evaluator": "penstock.estimate.evaluator",
    "Fail": "penstock.api.on_error",
    "Generated": "penstock.api.sources.generated",
    "Grouping": "penstock.model.topology",
    "Handle": "penstock.runtime.handle",
    "Infeasible": "penstock.model.placement",
    "JsonLines": "penstock.api.sinks.json_lines",
    "Kind": "penstock.model.topology",
    "Landed": "penstock.api.sources.landed",
    "Lines": "penstock.api.sources.lines",
    "Link": "penstock.model.cluster",
    "Machine": "penstock.model.cluster",
    "Named": "penstock.api.keys",
    "Objective": "penstock.model.objective",
    "Operator": "penstock.api.contracts",
    "Parquet": "penstock.api.sinks.parquet",
    "PenstockError": "penstock.model.errors",
    "Placement": "penstock.model.placement",
    "Plan": "penstock.model.plan",
    "Planner": "penstock.planning.planner",
    "Retry": "penstock.api.on_error",
    "ServiceTime": "penstock.model.topology",
    "Sink": "penstock.api.contracts",
    "Skip": "penstock.api.on_error",
    "Source": "penstock.api.contracts",
    "Status": "penstock.model.status",
    "Stream": "penstock.model.topology",
    "TaskContext": "penstock.api.contracts",
    "TcpLines": "penstock.api.sources.tcp",
    "Timed": "penstock.api.contracts",
    "advise": "penstock.planning.advice",
    "application": "penstock.workloads.applications",
    "arrivals": "penstock.workloads.arrivals",
    "cluster": "penstock.workloads.clusters",
    "dataflow": "penstock.workloads.dataflows",
    "land": "penstock.pipeline.landing",
    "load_application": "penstock.model.files",
    "load_cluster": "penstock.model.files",
    "load_plan": "penstock.model.files",
    "moves": "penstock.model.plan",
    "operate": "penstock.admission.reconciler.operate",
    "policy": "penstock.policies.registry:make",
    "run": "penstock.startup.start:start",
    "save": "penstock.model.files",
    "session": "penstock.startup.sessions",
}

__all__ = [
    "Application",
    "Cluster",
    "Component",
    "Console",
    "Dataflow",
    "DeadLetter",
    "Decision",
    "Discard",
    "Distances",
    "Evaluation",
    "Evaluator",
    "Fail",
    "Generated",
    "Grouping",
    "Handle",
    "Infeasible",
    "JsonLines",
    "Kind",
    "Landed",
    "Lines",
    "Link",
    "Machine",
    "Named",
    "Objective",
    "Operator",
    "Parquet",
    "PenstockError",
    "Placement",
    "Plan",
    "Planner",
    "Retry",
    "ServiceTime",
    "Sink",
    "Skip",
    "Source",
    "Status",
    "Stream",
    "TaskContext",
    "TcpLines",
    "Timed",
    "advise",
    "application",
    "arrivals",
    "cluster",
    "dataflow",
    "land",
    "load_application",
    "load_cluster",
    "load_plan",
    "moves",
    "operate",
    "policy",
    "run",
    "save",
    "session",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    module, _, attribute = _WHERE[name].partition(":")
    return getattr(import_module(module), attribute or name)


def __dir__() -> list[str]:
    return sorted(__all__)
