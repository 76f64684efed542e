"""The controller's part in tuple policies: those in force, and what each worker needs to apply them.

A worker receives the policies by stream and the costs of its links to other machines. If a policy asks for it, it also
receives the minimum cost of all that follows from a tuple at each task, which changes as tasks move.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from penstock.model.cluster import Cluster, machine_of
from penstock.model.topology import Application
from penstock.model.tuples import TuplePolicies
from penstock.runtime.protocol.controller_messages import PolicyRules

if TYPE_CHECKING:
    from penstock.model.taskgraph import Floats


class PoliciesInForce:
    """The tuple policies of one run. Without a described cluster, all machines are one link apart."""

    def __init__(self, application: Application, cluster: Cluster | None, tuples: TuplePolicies) -> None:
        self.tuples = TuplePolicies()
        self.depends_on_placement = False  # a policy asks for the cost of what follows from a tuple
        self._application = application
        self._cluster = cluster
        self._routing: dict[str, str] = {}  # by stream
        self._onward_costs: tuple[list[str], tuple[float, ...]] = ([], ())  # by a placement
        self.switch(tuples)

    def switch(self, tuples: TuplePolicies) -> None:
        """Switch to other policies; raise if the application cannot have them."""
        if not tuples.named:
            self.tuples, self._routing, self.depends_on_placement = tuples, {}, False
            return
        from penstock.policies.registry import routing_policy
        from penstock.policies.streams import routings

        self.check(tuples)
        self._routing = routings(tuples, self._application)
        self.depends_on_placement = any(routing_policy(spec).looks_onward for spec in self._routing.values())
        self.tuples = tuples

    def check(self, tuples: TuplePolicies) -> None:
        """Raise if policies are unknown, or if the application cannot have them."""
        from penstock.policies.streams import check

        check(tuples, self._application)

    def rules(self, machine: str, placement: Sequence[str]) -> PolicyRules:
        """Return what a worker on a machine needs, with tasks on these slots."""
        costs = self._link_costs(machine) if self._routing else {}
        onward = self._onward(placement) if self.depends_on_placement else ()
        return PolicyRules(self._routing, self.tuples.sending, self.tuples.slot / 1e3, costs, onward)

    @cached_property
    def _hops(self) -> "Floats":
        from penstock.model.slotted import hop_counts

        assert self._cluster is not None
        return hop_counts(self._cluster)

    def _link_costs(self, machine: str) -> dict[str, float]:
        """Return the number of links from a machine to each other one; default: 1."""
        if self._cluster is None or not self._cluster.routed:
            return {}
        here = self._cluster.machine_index[machine]
        return {name: float(self._hops[here, number]) for name, number in self._cluster.machine_index.items()}

    def _onward(self, placement: Sequence[str]) -> tuple[float, ...]:
        """Return the minimum cost of all that follows from a tuple at each task."""
        if self._onward_costs[0] != list(placement):
            from penstock.model.slotted import least_costs
            from penstock.model.taskgraph import expand_tasks

            machine, distances = self._distances([machine_of(slot) for slot in placement])
            costs = least_costs(self._application, expand_tasks(self._application).first, machine, distances)
            self._onward_costs = (list(placement), tuple(float(cost) for cost in costs))
        return self._onward_costs[1]

    def _distances(self, machines: Sequence[str]) -> "tuple[np.ndarray[tuple[int], np.dtype[np.int64]], Floats]":
        """Return the number of the machine of each task, and the distance between any two machines."""
        if self._cluster is not None:
            return np.array([self._cluster.machine_index[name] for name in machines], dtype=np.int64), self._hops
        names = {name: number for number, name in enumerate(dict.fromkeys(machines))}
        return np.array([names[name] for name in machines], dtype=np.int64), 1.0 - np.eye(len(names))
