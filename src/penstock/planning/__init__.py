"""Planning: asks policies where tasks run, predicts throughput and latency, and explains what limits them."""

from typing import TYPE_CHECKING

from penstock.model.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from penstock.estimate.evaluator import Evaluation, Evaluator
    from penstock.estimate.latency import LatencyModel, LatencyModels, Loads, Prediction
    from penstock.model.formats.dspbench import read_applications
    from penstock.model.formats.repetita import read_network
    from penstock.model.formats.tata import read_slot_graphs, read_task_graphs
    from penstock.model.objective import Objective
    from penstock.model.parallelism import parallelism_of, resized
    from penstock.model.part import part_of
    from penstock.model.plan import Move, Plan, moves, planned_topology
    from penstock.planning.advice import Advice, Relief, advise
    from penstock.planning.planner import (
        Decision,
        InvalidResult,
        NoPlacement,
        Planner,
        latency_model,
        observed_latency_model,
        plan_by,
    )
    from penstock.planning.sizing import Sizer
    from penstock.policies.api import Sized
else:
    __getattr__, __dir__ = lazy_imports(
        __name__,
        {
            "penstock.estimate.evaluator": "Evaluation, Evaluator",
            "penstock.estimate.latency": "LatencyModel, LatencyModels, Loads, Prediction",
            "penstock.model.formats.dspbench": "read_applications",
            "penstock.model.formats.repetita": "read_network",
            "penstock.model.formats.tata": "read_slot_graphs, read_task_graphs",
            "penstock.model.objective": "Objective",
            "penstock.model.parallelism": "parallelism_of, resized",
            "penstock.model.part": "part_of",
            "penstock.model.plan": "Move, Plan, moves, planned_topology",
            "penstock.planning.advice": "Advice, Relief, advise",
            "penstock.planning.planner": (
                "Decision, InvalidResult, NoPlacement, Planner, latency_model, observed_latency_model, plan_by "
            ),
            "penstock.planning.sizing": "Sizer",
            "penstock.policies.api": "Sized",
        },
    )

__all__ = [
    "Advice",
    "Decision",
    "Evaluation",
    "Evaluator",
    "InvalidResult",
    "LatencyModel",
    "LatencyModels",
    "Loads",
    "Move",
    "NoPlacement",
    "Objective",
    "Plan",
    "Planner",
    "Prediction",
    "Relief",
    "Sized",
    "Sizer",
    "advise",
    "latency_model",
    "moves",
    "observed_latency_model",
    "parallelism_of",
    "part_of",
    "plan_by",
    "planned_topology",
    "read_applications",
    "read_network",
    "read_slot_graphs",
    "read_task_graphs",
    "resized",
]
