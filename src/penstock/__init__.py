"""Penstock schedules stream processing: where tasks run, how many there are, and which route each tuple takes.

    import penstock as ps

    planner = ps.Planner(ps.application("log-processing"), ps.cluster("hetero-small"))
    decision = planner.decide("r-storm")

    with ps.run(ps.dataflow("log-processing"), emulate=ps.cluster("hetero-small"), policy="r-storm") as run:
        run.wait(30)

These names are for authors of applications and for runs. `penstock.planning`, `penstock.simulation`,
`penstock.admission`, `penstock.autopilot`, `penstock.policies`, `penstock.pipeline` and `penstock.testing` have the
rest of the public API: the names in their `__all__`. Everything else is private.

A name is imported when it is first used: importing `penstock` reads no file and starts no JVM.
"""

from typing import TYPE_CHECKING

from penstock.model.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from penstock.admission.reconciler.service import serve
    from penstock.api.contracts import Operator, Sink, Source, TaskContext, Timed
    from penstock.api.dataflow import Dataflow
    from penstock.api.guarantees import Guarantee, guarantees, require_guarantee
    from penstock.api.keyed import KeyContext, KeyedOperator
    from penstock.api.keys import Named
    from penstock.api.on_error import DeadLetter, Fail, Retry, Skip
    from penstock.api.sinks.console import Console
    from penstock.api.sinks.discard import Discard
    from penstock.api.sinks.json_lines import JsonLines
    from penstock.api.sinks.parquet import Parquet
    from penstock.api.sinks.parts import PartFile, PartFiles
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
    from penstock.pipeline.landing import finish_landing, land
    from penstock.planning.advice import advise
    from penstock.planning.planner import Decision, Planner
    from penstock.runtime.config import RunConfig
    from penstock.runtime.handle import Handle
    from penstock.startup.config_file import load_config
    from penstock.startup.prepared_run import StartCallbacks
    from penstock.startup.sessions import session
    from penstock.startup.start import start as run
    from penstock.workloads.applications import application
    from penstock.workloads.arrivals import arrivals
    from penstock.workloads.clusters import cluster
    from penstock.workloads.dataflows import dataflow
else:
    __getattr__, __dir__ = lazy_imports(
        __name__,
        {
            "penstock.admission.reconciler.service": "serve",
            "penstock.api.contracts": "Operator, Sink, Source, TaskContext, Timed",
            "penstock.api.dataflow": "Dataflow",
            "penstock.api.guarantees": "Guarantee, guarantees, require_guarantee",
            "penstock.api.keyed": "KeyContext, KeyedOperator",
            "penstock.api.keys": "Named",
            "penstock.api.on_error": "DeadLetter, Fail, Retry, Skip",
            "penstock.api.sinks.console": "Console",
            "penstock.api.sinks.discard": "Discard",
            "penstock.api.sinks.json_lines": "JsonLines",
            "penstock.api.sinks.parquet": "Parquet",
            "penstock.api.sinks.parts": "PartFile, PartFiles",
            "penstock.api.sources.generated": "Generated",
            "penstock.api.sources.landed": "Landed",
            "penstock.api.sources.lines": "Lines",
            "penstock.api.sources.tcp": "TcpLines",
            "penstock.estimate.evaluator": "Evaluation, Evaluator",
            "penstock.model.cluster": "Cluster, Distances, Link, Machine",
            "penstock.model.errors": "PenstockError",
            "penstock.model.files": "load_application, load_cluster, load_plan, save",
            "penstock.model.objective": "Objective",
            "penstock.model.placement": "Infeasible, Placement",
            "penstock.model.plan": "Plan, moves",
            "penstock.model.status": "Status",
            "penstock.model.topology": "Application, Component, Grouping, Kind, ServiceTime, Stream",
            "penstock.pipeline.landing": "finish_landing, land",
            "penstock.planning.advice": "advise",
            "penstock.planning.planner": "Decision, Planner",
            "penstock.runtime.config": "RunConfig",
            "penstock.runtime.handle": "Handle",
            "penstock.startup.prepared_run": "StartCallbacks",
            "penstock.startup.config_file": "load_config",
            "penstock.startup.sessions": "session",
            "penstock.startup.start": "start as run",
            "penstock.workloads.applications": "application",
            "penstock.workloads.arrivals": "arrivals",
            "penstock.workloads.clusters": "cluster",
            "penstock.workloads.dataflows": "dataflow",
        },
    )

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
    "Guarantee",
    "Handle",
    "Infeasible",
    "JsonLines",
    "KeyContext",
    "KeyedOperator",
    "Kind",
    "Landed",
    "Lines",
    "Link",
    "Machine",
    "Named",
    "Objective",
    "Operator",
    "Parquet",
    "PartFile",
    "PartFiles",
    "PenstockError",
    "Placement",
    "Plan",
    "Planner",
    "Retry",
    "RunConfig",
    "ServiceTime",
    "Sink",
    "Skip",
    "Source",
    "StartCallbacks",
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
    "finish_landing",
    "guarantees",
    "land",
    "load_application",
    "load_cluster",
    "load_config",
    "load_plan",
    "moves",
    "require_guarantee",
    "run",
    "save",
    "serve",
    "session",
]
