"""Local first: in turn over downstream tasks on the same machine, over all if there are none."""

from dataclasses import dataclass
from typing import ClassVar

from penstock.policies.api import RoutingPolicy, Rule, rule
from penstock.policies.tuples.kinds import LOCAL_FIRST


@dataclass(frozen=True, slots=True)
class LocalFirst(RoutingPolicy):
    """Send tuples in turn to downstream tasks on the same machine; if there is none, to all.

    If that task is full, tuples wait: Storm's local-or-shuffle grouping does the same.
    """

    keyed: ClassVar[bool] = False

    @property
    def rule(self) -> Rule:
        """The decision."""
        return rule(LOCAL_FIRST)
