"""Traffic inside a machine as a program: for two groups that exchange tuples, the number of pairs on one machine.

The product of two counts becomes linear if one of them is written with binary columns: every one adds the other count.
Only upper limits are needed, because these columns are maximised wherever they are used.
"""

from collections.abc import Sequence

import numpy as np

from penstock.policies.placement.exact.assignment import Assignment, Terms
from penstock.policies.placement.exact.program import SCALE, Columns
from penstock.policies.placement.exact.task_groups import Exchange


class Colocation:
    """For every exchange and machine, the sender–receiver pairs on it."""

    def __init__(self, assignment: Assignment, exchanged: Sequence[Exchange]) -> None:
        self._assignment, self._exchanged = assignment, exchanged
        self._pairs: dict[tuple[Exchange, int], Columns] = {}
        sizes = [len(group.tasks) for group in assignment.groups]
        self.total_bits = sum(e.bits * sizes[e.source] * sizes[e.target] for e in exchanged)  # per source tuple

    def limit_cards(self, stress: int) -> None:
        """Keep the load of network cards with limited bandwidth below the stress, in both directions."""
        for machine, (sends, receives) in enumerate(self._assignment.view.slots.machine_network.T):
            if np.isfinite(sends):
                self._assignment.stay_below(stress, self._passing(machine, out=True), float(sends))
                self._assignment.stay_below(stress, self._passing(machine, out=False), float(receives))

    def keep_inside(self) -> None:
        """Minimise the traffic between machines: the cost is -`SCALE` if there is none."""
        for exchange in self._exchanged:
            for machine in range(self._assignment.view.slots.machines):
                for pair in self._on(exchange, machine):
                    self._assignment.program.cost(int(pair), -exchange.bits / self.total_bits * SCALE)

    def crossing_bits(self, cost: float) -> float:
        """Return the bits per source tuple between machines for a cost of `keep_inside`."""
        return (1.0 + cost / SCALE) * self.total_bits if self.total_bits > 0 else 0.0

    def _passing(self, machine: int, out: bool) -> Terms:
        """Return the bits per source tuple that leave a machine, or enter it."""
        terms: Terms = []
        for exchange in self._exchanged:
            here, there = (exchange.source, exchange.target) if out else (exchange.target, exchange.source)
            partners = len(self._assignment.groups[there].tasks)
            terms += self._assignment.on(here, machine, exchange.bits * partners)
            terms += [(int(pair), -exchange.bits) for pair in self._on(exchange, machine)]
        return terms

    def _on(self, exchange: Exchange, machine: int) -> Columns:
        key = (exchange, machine)
        if key not in self._pairs:
            self._pairs[key] = self._add_pairs(exchange, machine)
        return self._pairs[key]

    def _add_pairs(self, exchange: Exchange, machine: int) -> Columns:
        """Add columns that sum to at most the number of an exchange's pairs on a machine."""
        assignment = self._assignment
        few, many = sorted((exchange.source, exchange.target), key=lambda g: len(assignment.groups[g].tasks))
        most = assignment.most_on(many, machine)
        if not most or not assignment.most_on(few, machine):
            return np.empty(0, dtype=np.int64)
        ones = assignment.unary(few, machine)
        pairs = assignment.program.columns(np.full(len(ones), float(most)))
        for one, pair in zip(ones, pairs, strict=True):
            assignment.program.row([(int(pair), 1.0), (int(one), -float(most))], high=0.0)
            assignment.program.row([(int(pair), 1.0), *assignment.on(many, machine, -1.0)], high=0.0)
        return pairs
