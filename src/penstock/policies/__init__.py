"""Policies: the protocols that they follow, the registry that finds them by name, and checks of their results."""

from typing import TYPE_CHECKING

from penstock.model.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from penstock.model.instance import Instance
    from penstock.model.placement import Infeasible, Placement
    from penstock.model.tuples import TuplePolicies
    from penstock.policies.api import (
        PlacementPolicy,
        PlacementView,
        Resize,
        RoutingPolicy,
        Rule,
        ScalingPolicy,
        ScalingView,
        SendingPolicy,
        Sized,
        TaskLoads,
    )
    from penstock.policies.checks import violations
    from penstock.policies.forecast.api import Forecaster
    from penstock.policies.forecast.backtest import Score, backtest
    from penstock.policies.placement.draft import Draft
    from penstock.policies.placement.rearrangement import make_room
    from penstock.policies.registry import (
        PolicyKind,
        forecaster,
        names,
        placement_policy,
        routing_policy,
        scaling_policy,
        sending_policy,
    )
else:
    __getattr__, __dir__ = lazy_imports(
        __name__,
        {
            "penstock.model.instance": "Instance",
            "penstock.model.placement": "Infeasible, Placement",
            "penstock.model.tuples": "TuplePolicies",
            "penstock.policies.api": (
                "PlacementPolicy, PlacementView, Resize, RoutingPolicy, Rule, ScalingPolicy, ScalingView, "
                "SendingPolicy, Sized, TaskLoads "
            ),
            "penstock.policies.checks": "violations",
            "penstock.policies.forecast.api": "Forecaster",
            "penstock.policies.forecast.backtest": "Score, backtest",
            "penstock.policies.placement.draft": "Draft",
            "penstock.policies.placement.rearrangement": "make_room",
            "penstock.policies.registry": (
                "PolicyKind, forecaster, names, placement_policy, routing_policy, scaling_policy, sending_policy "
            ),
        },
    )

__all__ = [
    "Draft",
    "Forecaster",
    "Infeasible",
    "Instance",
    "Placement",
    "PlacementPolicy",
    "PlacementView",
    "PolicyKind",
    "Resize",
    "RoutingPolicy",
    "Rule",
    "ScalingPolicy",
    "ScalingView",
    "Score",
    "SendingPolicy",
    "Sized",
    "TaskLoads",
    "TuplePolicies",
    "backtest",
    "forecaster",
    "make_room",
    "names",
    "placement_policy",
    "routing_policy",
    "scaling_policy",
    "sending_policy",
    "violations",
]
