"""The predicted load of a plan: how busy machines and links are, for drawings."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from penstock.estimate.bottleneck import Element
from penstock.estimate.evaluator import Evaluator
from penstock.model.cluster import Cluster
from penstock.model.errors import PenstockError
from penstock.model.plan import Plan, planned_topology, to_placement
from penstock.model.routes import hop_bits
from penstock.model.topology import Topology
from penstock.workloads.applications import APPLICATIONS, application
from penstock.workloads.clusters import CLUSTERS, cluster

Pair = tuple[str, str]


@dataclass(frozen=True)
class PlannedLoad:
    """The cluster of a plan, and how busy its elements are at a rate of source tuples."""

    cluster: Cluster
    rate_tps: float  # the offered rate, or the highest sustained one if that is lower or no rate is offered
    shares: Mapping[Pair, float]  # the share of an element that is busy, by kind and name
    bottleneck: Element | None
    traffic: Mapping[Pair, Mapping[str, float]]  # Mbit/s by stream and direction, between two machines in name order

    def share(self, kind: str, name: str) -> float:
        """Return the share of an element that is busy."""
        return self.shares.get((kind, name), 0.0)

    def limits(self, kind: str, name: str) -> bool:
        """Return whether an element is the bottleneck."""
        return self.bottleneck is not None and (self.bottleneck.kind, self.bottleneck.name) == (kind, name)

    @property
    def limiting_machine(self) -> str:
        """The machine whose slot, cpu, network card or other resource is the bottleneck; empty if it is a link."""
        if self.bottleneck is None or self.bottleneck.kind == "link":
            return ""
        name = self.bottleneck.name
        if self.bottleneck.kind == "slot":
            return name.rpartition("/")[0]
        return name.rpartition(" (")[0] if self.bottleneck.kind == "network" else name

    @property
    def limit_in_words(self) -> str:
        """The bottleneck, in words."""
        if self.bottleneck is None:
            return "nothing limits the rate"
        kind = {"machine": "cpu of", "network": "network card of", "link": "link", "slot": "slot"}
        return f"{kind.get(self.bottleneck.kind, f'{self.bottleneck.kind} of')} {self.bottleneck.name}"


def planned_load(plan: Plan, topology: Topology, cluster: Cluster) -> PlannedLoad:
    """Evaluate a plan, whose parallelism may differ; reject one for another application or cluster."""
    topology = planned_topology(plan, topology)
    placement = to_placement(plan, topology, cluster)
    evaluator = Evaluator(topology, cluster)
    found = evaluator.evaluate(placement)
    rate = min(found.throughput_tps, getattr(topology, "offered_tps", None) or np.inf)
    rate = rate if np.isfinite(rate) else 0.0
    traffic: dict[Pair, dict[str, float]] = defaultdict(dict)
    for hop, bits in hop_bits(evaluator.tasks, evaluator.slots, np.asarray(placement.slots, dtype=np.int32)).items():
        source, target = cluster.machines[hop.source].name, cluster.machines[hop.target].name
        pair = (source, target) if source < target else (target, source)
        traffic[pair][f"{topology.streams[hop.stream].label} from {source}"] = bits * rate / 1e6
    shares = {(element.kind, element.name): element.utilisation(rate) for element in found.at(rate)}
    return PlannedLoad(cluster, rate, shares, found.bottleneck, traffic)


def load_of_built_in(plan: Plan) -> PlannedLoad | None:
    """Evaluate a plan whose application and cluster are built in; None for any other."""
    if plan.application not in APPLICATIONS or plan.cluster not in CLUSTERS:
        return None
    try:
        return planned_load(plan, application(plan.application), cluster(plan.cluster))
    except PenstockError:
        return None  # the same names with other parameters
