"""Penstock schedules stream processing: where tasks run, how many there are, which way tuples go.

    import penstock as ps

    planner = ps.Planner(ps.application("log-processing"), ps.cluster("hetero-small"))
    decision = planner.decide("r-storm")

The names below are imported when first used: importing `penstock` reads no file and starts no JVM.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.control.advice import advise
    from penstock.control.planner import Decision, Planner
    from penstock.estimate.evaluator import Evaluation, Evaluator, Objective
    from penstock.model.cluster import Cluster, Distances, Link, Machine
    from penstock.model.errors import PenstockError
    from penstock.model.files import load_application, load_cluster, load_plan, save
    from penstock.model.placement import Infeasible, Placement
    from penstock.model.plan import Plan, moves
    from penstock.model.topology import Application, Component, Grouping, Kind, ServiceTime, Stream
    from penstock.policies.registry import make as policy
    from penstock.workloads.applications import application
    from penstock.workloads.clusters import cluster

_WHERE = {
    "Application": "penstock.model.topology",
    "Cluster": "penstock.model.cluster",
    "Component": "penstock.model.topology",
    "Decision": "penstock.control.planner",
    "Distances": "penstock.model.cluster",
    "Evaluation": "penstock.estimate.evaluator",
    "Evaluator": "penstock.estimate.evaluator",
    "Grouping": "penstock.model.topology",
    "Infeasible": "penstock.model.placement",
    "Kind": "penstock.model.topology",
    "Link": "penstock.model.cluster",
    "Machine": "penstock.model.cluster",
    "Objective": "penstock.estimate.evaluator",
    "PenstockError": "penstock.model.errors",
    "Placement": "penstock.model.placement",
    "Plan": "penstock.model.plan",
    "Planner": "penstock.control.planner",
    "ServiceTime": "penstock.model.topology",
    "Stream": "penstock.model.topology",
    "advise": "penstock.control.advice",
    "application": "penstock.workloads.applications",
    "cluster": "penstock.workloads.clusters",
    "load_application": "penstock.model.files",
    "load_cluster": "penstock.model.files",
    "load_plan": "penstock.model.files",
    "moves": "penstock.model.plan",
    "policy": "penstock.policies.registry:make",
    "save": "penstock.model.files",
}

__all__ = [
    "Application",
    "Cluster",
    "Component",
    "Decision",
    "Distances",
    "Evaluation",
    "Evaluator",
    "Grouping",
    "Infeasible",
    "Kind",
    "Link",
    "Machine",
    "Objective",
    "PenstockError",
    "Placement",
    "Plan",
    "Planner",
    "ServiceTime",
    "Stream",
    "advise",
    "application",
    "cluster",
    "load_application",
    "load_cluster",
    "load_plan",
    "moves",
    "policy",
    "save",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    module, _, attribute = _WHERE[name].partition(":")
    return getattr(import_module(module), attribute or name)


def __dir__() -> list[str]:
    return sorted(__all__)
