"""Local first: in turn over downstream tasks on the same machine, over all where there is none there."""

from dataclasses import dataclass
from typing import ClassVar

from penstock.policies.api import RoutingPolicy, Rule, rule
from penstock.policies.tuples.kinds import LOCAL_FIRST


@dataclass(frozen=True, slots=True)
class LocalFirst(RoutingPolicy):
    """Send tuples in turn to downstream tasks on the same machine; where there is none, to all.

    A task here that is full makes tuples wait: Storm's local-or-shuffle grouping does the same.
    """

    keyed: ClassVar[bool] = False

    @property
    def rule(self) -> Rule:
        """The decision."""
        return rule(LOCAL_FIRST)
