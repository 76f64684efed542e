"""The predicted throughput, delay and traffic of placements of one application on one cluster.

`Evaluator.evaluate` returns all predictions for one placement. `Evaluator.scorer` returns one number per placement for
a search over many of them; higher is better.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from penstock.estimate.bottleneck import (
    Element,
    RateNet,
    bottleneck_rates,
    elements,
    machine_traffic,
    mean_delays,
    rate_net,
    route_ways,
)
from penstock.estimate.flow import FlowEstimate, FlowModel, estimate_flow, flow_net
from penstock.estimate.flow_kernels import FlowNet, estimate_flows
from penstock.estimate.hops import even_delay, slot_delays
from penstock.estimate.saturation import saturated_rates, settled
from penstock.estimate.traffic import Traffic, traffic
from penstock.model.errors import member
from penstock.model.instance import Instance
from penstock.model.kernel import kernel
from penstock.model.objective import Objective
from penstock.model.placement import MEMORY_SLACK, Hop, Placement
from penstock.model.routes import BITS, route_hops
from penstock.model.taskgraph import Floats, Ints, place_edges
from penstock.model.topology import Application

UNSUSTAINED = -1e15  # the score of a placement whose rate is just below the offered load
WEIGHT = 0.8  # of throughput in the balanced objective


Amount = TypeVar("Amount", float, Floats)


def balance(throughput_tps: Amount, delay_ms: Amount, reference: FlowEstimate, weight: float = WEIGHT) -> Amount:
    """Return TATA's reward (13): the gain in throughput times `weight`, plus the gain in delay times 1 - `weight`."""
    faster = throughput_tps / reference.throughput_tps - 1.0
    return weight * faster + (1.0 - weight) * (1.0 - delay_ms / reference.delay_ms)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The predicted performance of a placement."""

    throughput_tps: float
    delay_ms: float
    traffic: Traffic
    machines: int
    slots: int
    fits_memory: bool
    limits: tuple[Element, ...]  # every element in use once back-pressure has settled, the most limiting first
    even_limits: tuple[Element, ...]  # likewise, with evenly split streams

    @property
    def bottleneck(self) -> Element | None:
        """The element that limits the throughput; None if no task has a cost."""
        return self.limits[0] if self.limits else None

    @property
    def even_tps(self) -> float:
        """The rate at which the bottleneck is saturated if streams split evenly (SPARCLE, eq. (1a))."""
        return self.even_limits[0].rate_tps if self.even_limits else np.inf

    def at(self, rate_tps: float) -> tuple[Element, ...]:
        """Return every element with its load at a rate; streams split evenly until back-pressure sets in."""
        return self.even_limits if rate_tps < self.even_tps else self.limits

    def score(self, objective: Objective | str, reference: FlowEstimate | None = None) -> float:
        """Return the score for an objective; higher is better."""
        match member("objective", Objective, objective):
            case Objective.THROUGHPUT:
                return self.throughput_tps
            case Objective.DELAY:
                return -self.delay_ms
            case Objective.TRAFFIC:
                return -self.traffic.machines
            case Objective.BALANCED:
                if reference is None:
                    raise ValueError("the balanced objective needs a reference")
                return balance(self.throughput_tps, self.delay_ms, reference)


@dataclass(frozen=True)
class Evaluator(Instance):
    """The estimators over one application and one cluster."""

    model: FlowModel | None = None  # replaces the estimator used for planning, for comparison with a paper

    @cached_property
    def flow_net(self) -> FlowNet:
        """The input of the kernels of a paper's model."""
        if self.model is None:
            raise ValueError("planning has no flow model")
        return flow_net(self.tasks, self.slots, self.model)

    @cached_property
    def rate_net(self) -> RateNet:
        """The input of the rate kernel."""
        return rate_net(self.tasks, self.slots, self.links, self.cluster.routed)

    def evaluate(self, placement: Placement) -> Evaluation:
        """Estimate a complete placement, with its routes if the network is routed."""
        placed = np.asarray(placement.slots, dtype=np.int32)
        even_limits = limits = tuple(elements(self.tasks, self.slots, self.cluster, placement))
        throughput = limits[0].rate_tps if limits else np.inf
        if self.model is None or self.cluster.routed:
            throughput, limits = self._saturated(placement, limits)
        if self.cluster.routed:
            delay = self._routed_delay(placed, placement.routes)
        elif self.model is None:
            delay = float(mean_delays(self.rate_net, placed[None, :])[0])
        else:
            flow, delay = estimate_flow(self.flow_net, placed)
            others = [limit.rate_tps for limit in limits if limit.kind not in ("slot", "machine")]
            throughput = min([flow, *others]) if limits else np.inf
        return Evaluation(
            throughput_tps=throughput,
            delay_ms=delay,
            traffic=traffic(self.tasks, self.slots, placed),
            machines=len(np.unique(self.slots.machine[placed])),
            slots=len(np.unique(placed)),
            fits_memory=bool(self._fits(placed[None, :])[0]),
            limits=limits,
            even_limits=even_limits,
        )

    def scorer(
        self, objective: Objective | str, reference: FlowEstimate | None = None, weight: float = WEIGHT
    ) -> Callable[[NDArray[np.int32]], Floats]:
        """Return a function from placements [B, T] to scores [B].

        A placement gets -inf if it violates a memory limit, lacks a resource or has a hop without a path. For delay
        and traffic, if the offered load is known, a placement whose rate is below it is worse than any that sustains
        it; the lower the rate, the worse the score.
        """
        objective = member("objective", Objective, objective)
        if objective is Objective.BALANCED and reference is None:
            raise ValueError("the balanced objective needs a reference")
        offered = self.topology.offered_tps if isinstance(self.topology, Application) else None
        if objective not in (Objective.DELAY, Objective.TRAFFIC):  # the other objectives include the rate
            offered = None
        flowing = self.model is not None and not self.cluster.routed
        by_cpu_too = not flowing or offered is not None
        unlimited = objective in (Objective.DELAY, Objective.TRAFFIC) and offered is None and not self.cluster.routed
        asked = self.rate_net.carded or bool(self.tasks.resources) or not (flowing or unlimited)

        def score(placed: NDArray[np.int32]) -> Floats:
            if not asked:
                rates = np.full(len(placed), np.inf)
            elif flowing:
                rates = bottleneck_rates(self.rate_net, placed, by_cpu_too)
            else:
                rates = saturated_rates(self.rate_net, placed)
            scores = self._scores(objective, placed, rates, reference, weight)
            if offered is not None:
                short = rates < offered * (1 - 1e-9)
                scores = np.where(short, UNSUSTAINED * offered / np.maximum(rates, offered * 1e-9), scores)
            return np.where(self._fits(placed) & (rates > 0), scores, -np.inf)

        return score

    def _scores(
        self,
        objective: Objective,
        placed: NDArray[np.int32],
        rates: Floats,
        reference: FlowEstimate | None,
        weight: float,
    ) -> Floats:
        if objective is Objective.TRAFFIC:
            return -machine_traffic(self.rate_net, placed) / BITS
        if objective is Objective.THROUGHPUT and (self.model is None or self.cluster.routed):
            return rates
        if self.cluster.routed:
            delay = np.array([self._routed_delay(row) for row in placed])
        elif self.model is None:
            delay = mean_delays(self.rate_net, placed)
        else:
            flow, delay = estimate_flows(self.flow_net, placed)
            rates = np.minimum(flow, rates)
        if objective is Objective.THROUGHPUT:
            return rates
        if objective is Objective.DELAY or reference is None:
            return -delay
        return balance(rates, delay, reference, weight)

    def _saturated(self, placement: Placement, even: tuple[Element, ...]) -> tuple[float, tuple[Element, ...]]:
        """Return the rate once back-pressure has settled, and the elements with their loads at that rate."""
        net, placed = self.rate_net, np.asarray(placement.slots, dtype=np.int32)
        found = settled(net, route_ways(net, placement.routes) if net.routed else net.ways, placed)
        if not even or even[0].rate_tps <= 0.0 or found.rate_tps < 0.0:
            return even[0].rate_tps if even else np.inf, even
        return found.rate_tps, tuple(elements(self.tasks, self.slots, self.cluster, placement, found))

    def _fits(self, placed: NDArray[np.int32]) -> NDArray[np.bool_]:
        slots = self.slots
        fits = memory_fits(self.tasks.memory_mb, slots.memory_mb, slots.machine_memory_mb, slots.machine, placed)
        return fits if self.conflicts is None else fits & self.keeps_apart(placed)

    def _routed_delay(self, placed: NDArray[np.int32], routes: Mapping[Hop, tuple[int, ...]] | None = None) -> float:
        """Return the mean delay over the links of the routes; delays inside a machine are those of a mesh."""
        found = route_hops(self.tasks, self.slots, self.links, placed.tolist()) if routes is None else routes
        if isinstance(found, Hop):
            return np.inf
        latency = {hop: float(self.links.latency_ms[list(path)].sum()) for hop, path in found.items()}
        machine = self.slots.machine[placed]
        source, target = machine[self.edges.source], machine[self.edges.target]
        process = self.slots.process[placed]
        edge_ms = slot_delays(self.slots, placed[self.edges.source], placed[self.edges.target])
        for edge in np.flatnonzero(source != target):
            edge_ms[edge] = latency.get(Hop(int(self.edges.stream[edge]), int(source[edge]), int(target[edge])), 0.0)
        return even_delay(self.tasks.placed(process), place_edges(self.tasks, self.edges, process), edge_ms)


@kernel
def memory_fits(
    memory_mb: Floats, slot_mb: Floats, machine_mb: Floats, slot_machine: Ints, placed: NDArray[np.int32]
) -> NDArray[np.bool_]:
    """Return for placements [B, T] whether every slot and machine has enough memory."""
    fits = np.ones(len(placed), dtype=np.bool_)
    for row in range(len(placed)):
        slot_used = np.zeros(len(slot_mb))
        machine_used = np.zeros(len(machine_mb))
        for task in range(len(memory_mb)):
            slot = placed[row, task]
            slot_used[slot] += memory_mb[task]
            machine_used[slot_machine[slot]] += memory_mb[task]
        for slot in range(len(slot_mb)):
            fits[row] = fits[row] and slot_used[slot] <= slot_mb[slot] * (1 + MEMORY_SLACK)
        for machine in range(len(machine_mb)):
            fits[row] = fits[row] and machine_used[machine] <= machine_mb[machine] * (1 + MEMORY_SLACK)
    return fits
