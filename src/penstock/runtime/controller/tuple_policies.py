"""The controller's part in tuple policies: what is in force, and what each worker must know of it.

A worker is told policies by stream, what the links to other machines cost, and where a policy asks for it the least
cost of all that follows from a tuple at each task, which changes as tasks move.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from penstock.model.cluster import Cluster, machine_of
from penstock.model.tuples import TuplePolicies
from penstock.runtime.protocol.controller_messages import PolicyRules, SwitchPolicies

if TYPE_CHECKING:
    from penstock.model.taskgraph import Floats
    from penstock.runtime.controller.state_machine import Controller


class Rulebook:
    """The tuple policies of one run."""

    def __init__(self, controller: "Controller") -> None:
        self._controller = controller
        self.tuples = TuplePolicies()
        self._routing: dict[str, str] = {}  # by stream
        self._looks_onward = False  # whether a policy wants to know what follows
        self._weighed: tuple[list[str], tuple[float, ...]] = ([], ())  # what follows, by a placement
        self.choose(controller.spec.config.tuple_policies)

    def choose(self, tuples: TuplePolicies) -> None:
        """Have other policies in force; refuse those that the application cannot have."""
        if not tuples.named:
            self.tuples, self._routing, self._looks_onward = tuples, {}, False
            return
        from penstock.policies.registry import routing_policy
        from penstock.policies.streams import routings

        self.check(tuples)
        self._routing = routings(tuples, self._controller.layout.application)
        self._looks_onward = any(routing_policy(spec).looks_onward for spec in self._routing.values())
        self.tuples = tuples

    def check(self, tuples: TuplePolicies) -> None:
        """Refuse policies that are not known, or that the application cannot have."""
        from penstock.policies.streams import check

        check(tuples, self._controller.layout.application)

    def switch(self, tuples: TuplePolicies, now: float) -> None:
        """Have other policies in force from now on, and tell every worker."""
        self.choose(tuples)
        self._tell()
        text = ", ".join(f"{name} {value}" for name, value in tuples.texts.items())
        self._controller.event("switch", text or "none", now)

    def moved(self) -> None:
        """Tell every worker what ways cost now that tasks have moved, where a policy asks for it."""
        if self._looks_onward:
            self._tell()

    def _tell(self) -> None:
        controller = self._controller
        for number in controller.members.alive:
            if controller.members[number].epoch:
                controller.out.append((number, SwitchPolicies(controller.epoch, self.rules(number))))

    def rules(self, worker: int) -> PolicyRules:
        """Return what a worker must know."""
        costs = self._costs(worker) if self._routing else {}
        return PolicyRules(self._routing, self.tuples.sending, self.tuples.slot / 1e3, costs, self._onward())

    @property
    def _cluster(self) -> Cluster | None:
        return self._controller.spec.emulated

    @cached_property
    def _hops(self) -> "Floats":
        from penstock.model.slotted import hop_counts

        assert self._cluster is not None
        return hop_counts(self._cluster)

    def _costs(self, worker: int) -> dict[str, float]:
        """Return how many links are between a worker's machine and others; those that are not in it are one away."""
        if self._cluster is None or not self._cluster.routed:
            return {}
        here = self._cluster.machine_index[machine_of(self._controller.members[worker].site.slots[0])]
        return {name: float(self._hops[here, number]) for name, number in self._cluster.machine_index.items()}

    def _onward(self) -> tuple[float, ...]:
        """Return the least cost of all that follows from a tuple at each task."""
        if not self._looks_onward:
            return ()
        placement = list(self._controller.placement)
        if self._weighed[0] != placement:
            from penstock.model.slotted import least_costs
            from penstock.model.taskgraph import expand_tasks

            application = self._controller.layout.application
            machine, between = self._between([machine_of(slot) for slot in placement])
            costs = least_costs(application, expand_tasks(application).first, machine, between)
            self._weighed = (placement, tuple(float(cost) for cost in costs))
        return self._weighed[1]

    def _between(self, machines: Sequence[str]) -> "tuple[np.ndarray[tuple[int], np.dtype[np.int64]], Floats]":
        """Return the number of the machine of each task, and what is between any two."""
        if self._cluster is not None:
            return np.array([self._cluster.machine_index[name] for name in machines], dtype=np.int64), self._hops
        names = {name: number for number, name in enumerate(dict.fromkeys(machines))}
        return np.array([names[name] for name in machines], dtype=np.int64), 1.0 - np.eye(len(names))
