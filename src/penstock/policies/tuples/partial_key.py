"""Partial key grouping (Nasir et al. 2015): every key has two tasks, and a tuple goes to the less loaded of them.

Load is what went there from here and is not processed yet: a sender needs to ask nobody.
"""

from dataclasses import dataclass
from typing import ClassVar

from penstock.policies.api import RoutingPolicy, Rule, rule
from penstock.policies.tuples.kinds import PARTIAL_KEY


@dataclass(frozen=True, slots=True)
class PartialKey(RoutingPolicy):
    """Send every tuple to the one of its key's two tasks that has less under way from here."""

    keyed: ClassVar[bool] = True
    compares: ClassVar[bool] = True

    @property
    def rule(self) -> Rule:
        """The decision."""
        return rule(PARTIAL_KEY)
