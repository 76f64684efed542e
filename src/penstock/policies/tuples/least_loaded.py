"""Least loaded: every tuple goes where least is under way from here, as Flink's adaptive partitioner has it.

It needs no report from downstream: what went down a lane and has not been processed is known at its sender.
"""

from dataclasses import dataclass
from typing import ClassVar

from penstock.policies.api import Rule, rule
from penstock.policies.tuples.kinds import LEAST_LOADED


@dataclass(frozen=True, slots=True)
class LeastLoaded:
    """Send every tuple to the downstream task that has least under way from here; ties in turn."""

    keyed: ClassVar[bool] = False

    @property
    def rule(self) -> Rule:
        """The decision."""
        return rule(LEAST_LOADED)
