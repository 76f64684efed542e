"""Fields: each tuple goes to the task that owns its key. Required for streams by key."""

from dataclasses import dataclass
from typing import ClassVar

from penstock.policies.api import RoutingPolicy, Rule, rule
from penstock.policies.tuples.kinds import FIELDS


@dataclass(frozen=True, slots=True)
class Fields(RoutingPolicy):
    """Send every tuple to the task that owns its key."""

    keyed: ClassVar[bool] = True

    @property
    def rule(self) -> Rule:
        """The decision."""
        return rule(FIELDS)
