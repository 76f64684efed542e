"""Partial key grouping (Nasir et al. 2015): every key has two tasks, and a tuple goes to the less loaded of them.

Load is the number of tuples sent there and not processed yet, which the sender knows.
"""

from dataclasses import dataclass
from typing import ClassVar

from penstock.policies.api import RoutingPolicy, Rule, rule
from penstock.policies.tuples.kinds import PARTIAL_KEY


@dataclass(frozen=True, slots=True)
class PartialKey(RoutingPolicy):
    """Send every tuple to that of its key's two tasks with fewer tuples in flight from here."""

    keyed: ClassVar[bool] = True
    compares: ClassVar[bool] = True

    @property
    def rule(self) -> Rule:
        """The decision."""
        return rule(PARTIAL_KEY)
