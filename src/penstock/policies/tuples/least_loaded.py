"""Least loaded: every tuple goes to the task with the fewest in flight from here, as in Flink's adaptive partitioner.

It needs no reports from downstream: the sender knows which of its tuples have not been processed.
"""

from dataclasses import dataclass
from typing import ClassVar

from penstock.policies.api import RoutingPolicy, Rule, rule
from penstock.policies.tuples.kinds import LEAST_LOADED


@dataclass(frozen=True, slots=True)
class LeastLoaded(RoutingPolicy):
    """Send every tuple to the downstream task with the fewest tuples in flight from here; ties in turn."""

    keyed: ClassVar[bool] = False
    looks: ClassVar[bool] = True
    compares: ClassVar[bool] = True

    @property
    def rule(self) -> Rule:
        """The decision."""
        return rule(LEAST_LOADED)
