"""Least loaded: every tuple goes where least is under way from here, as Flink's adaptive partitioner has it.

It needs no report from downstream: what went down a lane and has not been processed is known at its sender.
"""

from dataclasses import dataclass
from typing import ClassVar

from penstock.policies.api import RoutingPolicy, Rule, rule
from penstock.policies.tuples.kinds import LEAST_LOADED


@dataclass(frozen=True, slots=True)
class LeastLoaded(RoutingPolicy):
    """Send every tuple to the downstream task that has least under way from here; ties in turn."""

    keyed: ClassVar[bool] = False
    looks: ClassVar[bool] = True
    compares: ClassVar[bool] = True

    @property
    def rule(self) -> Rule:
        """The decision."""
        return rule(LEAST_LOADED)
