"""Random cases small enough to try all placements, and the optimum of each, by brute force.

Meshes have several slots a machine, equal or unequal machines, network cards, other resources, tight memory, pins;
routed networks are lines, stars and rings of links, shared or one each way. Streams take several groupings.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise, product

import numpy as np
from numpy.typing import NDArray

from penstock.estimate.bottleneck import bottleneck_rates, elements
from penstock.estimate.evaluator import Evaluator
from penstock.estimate.traffic import traffic
from penstock.model.cluster import Cluster, Link, Machine
from penstock.model.objective import Objective
from penstock.model.placement import Placement
from penstock.model.routes import hop_bits
from penstock.model.taskgraph import Floats
from penstock.model.topology import Application, Component, Grouping, Kind, Stream
from penstock.policies.api import PlacementView

Placed = NDArray[np.int32]

GROUPINGS = (Grouping.SHUFFLE, Grouping.SHUFFLE, Grouping.ALL, Grouping.GLOBAL, Grouping.FORWARD)
SMALL = range(200)  # seeds


@dataclass(frozen=True)
class Case:
    """An application, a cluster and the objective: rate or traffic."""

    application: Application
    cluster: Cluster
    objective: Objective

    @cached_property
    def evaluator(self) -> Evaluator:
        return Evaluator(self.application, self.cluster)

    @cached_property
    def view(self) -> PlacementView:
        return PlacementView(self.application, self.cluster, self.objective, self.score)

    def score(self, placed: Placed) -> Floats:
        """Score placements; for traffic only those are allowed that sustain the offered load, links aside."""
        scores = self.evaluator.scorer(self.objective)(placed)
        offered = self.application.offered_tps
        if self.objective is not Objective.TRAFFIC or offered is None:
            return scores
        return np.where(self.rates(placed) >= offered * (1 - 1e-9), scores, -np.inf)

    def rates(self, placed: Placed) -> Floats:
        """Return the rates that all elements except links allow, with evenly split streams."""
        return bottleneck_rates(self.evaluator.rate_net._replace(routed=False), placed)

    def value(self, placement: Placement) -> float:
        """Return the score of a finished placement, with its own routes."""
        tasks, slots = self.evaluator.tasks, self.evaluator.slots
        if self.objective is Objective.TRAFFIC:
            return -traffic(tasks, slots, placement.slots).machines
        limits = elements(tasks, slots, self.cluster, placement)
        return limits[0].rate_tps if limits else np.inf

    @cached_property
    def fitting(self) -> Placed:
        """All placements that pins and memory allow: [N, T]."""
        slots = self.view.slots
        open_to = [
            np.flatnonzero((slots.machine == pin) | (pin < 0)).astype(np.int32) for pin in self.view.pins.tolist()
        ]
        every = np.array(list(product(*open_to)), dtype=np.int32)
        return every[self.evaluator.scorer(Objective.TRAFFIC)(every) > -np.inf]

    @cached_property
    def best(self) -> float:
        """The highest score of all placements, with the best of all routes; -inf if none is allowed."""
        if not len(self.fitting):
            return -np.inf
        if self.objective is Objective.THROUGHPUT:  # proofs of an optimum are of evenly split streams
            return self._best_routed() if self.cluster.routed else float(self.rates(self.fitting).max())
        return float(self.score(self.fitting).max())

    @property
    def possible(self) -> bool:
        """Whether any placement is allowed and can process tuples."""
        return self.best > (-np.inf if self.objective is Objective.TRAFFIC else 0.0)

    def _best_routed(self) -> float:
        rates = self.rates(self.fitting)
        best = 0.0
        for row in np.argsort(-rates):
            if rates[row] <= best:
                break
            best = max(best, min(rates[row], self._best_routes(self.fitting[row])))
        return best

    def _best_routes(self, placed: Placed) -> float:
        """Return the rate that links allow with the best of all combinations of simple paths."""
        load = np.zeros((1, len(self.cluster.links)))
        for hop, bits in hop_bits(self.view.tasks, self.view.slots, placed).items():
            paths = self._paths[hop.source, hop.target] * bits
            load = (load[:, None, :] + paths[None, :, :]).reshape(-1, load.shape[1])
        with np.errstate(divide="ignore"):
            return float((self.view.links.bandwidth / load).min(axis=1).max(initial=0.0))

    @cached_property
    def _paths(self) -> dict[tuple[int, int], Floats]:
        """Return all simple paths between two machines, 1 if they use a link: [paths, L]."""
        machines = range(len(self.cluster.machines))
        return {(a, b): self._simple_paths(a, b) for a in machines for b in machines if a != b}

    def _simple_paths(self, source: int, target: int) -> Floats:
        links = self.view.links
        found: list[list[int]] = []

        def extend(node: int, seen: frozenset[int], taken: list[int]) -> None:
            if node == target:
                found.append(taken)
                return
            for arc in range(links.start[node], links.start[node + 1]):
                head, link = int(links.head[arc]), int(links.link[arc])
                if head not in seen and links.bandwidth[link] > 0:
                    extend(head, seen | {head}, [*taken, link])

        extend(source, frozenset({source}), [])
        uses = np.zeros((len(found), len(links.bandwidth)))
        for row, taken in enumerate(found):
            uses[row, taken] = 1.0
        return uses


@cache
def small_case(seed: int) -> Case:
    """Draw a case; the same seed gives the same one."""
    rng = np.random.default_rng(seed)
    routed = bool(rng.random() < 0.4)
    cluster = _network(rng) if routed else _mesh(rng)
    objective = Objective.TRAFFIC if rng.random() < 0.35 else Objective.THROUGHPUT
    application = _application(rng, cluster, tasks=4 if routed else 6, loaded=objective is Objective.TRAFFIC)
    return Case(application, cluster, objective)


def _mesh(rng: np.random.Generator) -> Cluster:
    equal, carded, scarce = rng.random(3) < (0.3, 0.4, 0.25)
    shapes = [(1, 1, 1), (2, 1), (2, 2), (3, 2), (2, 2, 1), (4,), (1, 1, 1, 1)]
    shape = shapes[rng.integers(len(shapes))]
    draws: list[list[float]] = rng.uniform(size=(len(shape), 4)).tolist()
    if equal:
        draws = [draws[0]] * len(shape)
    return Cluster(
        name="mesh",
        machines=tuple(
            Machine(
                name=f"m{number}",
                slots=slots,
                cores=1 + int(draw[0] * slots),
                speed=round(0.5 + 2 * draw[1], 2),
                memory_mb=round(200 + 800 * draw[2]),
                slot_memory_mb=300.0 if draw[3] < 0.3 else None,
                network_mbps=round(0.005 + 0.05 * draw[3], 4) if carded else None,
                receive_mbps=round(0.005 + 0.05 * draw[0], 4) if carded and draw[1] < 0.5 else None,
                resources={"disk": round(draw[3], 2)} if scarce else {},
            )
            for number, (slots, draw) in enumerate(zip(shape, draws, strict=True))
        ),
    )


def _network(rng: np.random.Generator) -> Cluster:
    names = [f"m{number}" for number in range(rng.integers(3, 5))]
    shape = rng.choice(["line", "star", "ring"])
    switches = ("hub",) if shape == "star" else ()
    joined = [(name, "hub") for name in names] if shape == "star" else list(pairwise(names))
    if shape == "ring":
        joined.append((names[-1], names[0]))
    directed = bool(rng.random() < 0.4)
    if directed:
        joined = [ends for pair in joined for ends in (pair, pair[::-1])]
    return Cluster(
        name=str(shape),
        machines=tuple(
            Machine(name=name, speed=round(rng.uniform(0.5, 2.5), 2), memory_mb=round(rng.uniform(300, 1000)))
            for name in names
        ),
        switches=switches,
        links=tuple(
            Link(source=a, target=b, bandwidth_mbps=round(rng.uniform(0.005, 0.05), 4), directed=directed)
            for a, b in joined
        ),
    )


def _application(rng: np.random.Generator, cluster: Cluster, tasks: int, loaded: bool) -> Application:
    widths = _widths(rng, tasks)
    kinds = [Kind.SOURCE, *[Kind.OPERATOR] * (len(widths) - 2), Kind.SINK]
    resource = "disk" if cluster.machines[0].resources else None
    components = tuple(
        Component(
            name=f"c{number}",
            kind=kind,
            parallelism=width,
            cpu=round(rng.uniform(0.0, 1.0), 2),
            memory_mb=round(rng.uniform(0, 200)),
            resources={resource: round(rng.uniform(0, 0.3), 2)} if resource else {},
            pinned=cluster.machines[rng.integers(len(cluster.machines))].name if rng.random() < 0.2 else None,
        )
        for number, (kind, width) in enumerate(zip(kinds, widths, strict=True))
    )
    ends = [(number - 1, number) for number in range(1, len(widths))]
    if len(widths) > 2 and rng.random() < 0.4:
        ends.append((0, len(widths) - 1))
    work = sum(component.cpu for component in components)
    load = rng.uniform(0.1, 1.0) * sum(machine.cpu for machine in cluster.machines) / max(work, 0.1)
    return Application(
        name="small",
        components=components,
        streams=tuple(_stream(rng, components[a], components[b]) for a, b in ends),
        rate_tps={"c0": load} if loaded and rng.random() < 0.4 else {},
    )


def _widths(rng: np.random.Generator, tasks: int) -> Sequence[int]:
    """Draw two or more widths that add up to at most `tasks`."""
    widths = [int(rng.integers(1, 4)) for _ in range(rng.integers(2, 5))]
    for _ in range(2 * tasks):
        if sum(widths) <= tasks:
            break
        widths[int(np.argmax(widths))] -= 1
    return [width for width in widths if width > 0]


def _stream(rng: np.random.Generator, source: Component, target: Component) -> Stream:
    grouping = GROUPINGS[rng.integers(len(GROUPINGS))]
    if grouping is Grouping.FORWARD and source.parallelism != target.parallelism:
        grouping = Grouping.SHUFFLE
    return Stream(
        source=source.name,
        target=target.name,
        grouping=grouping,
        selectivity=round(rng.uniform(0.3, 1.5), 2),
        tuple_bytes=round(rng.uniform(100, 1500)),
    )
