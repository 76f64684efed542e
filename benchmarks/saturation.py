"""Maximum rates of placements: estimates, and the rates that the twin sustains.

First, 500 random graphs (forks, joins, keyed, forward, global, copied and local streams, one or two sources of several
tasks) on random clusters, a third each without network limits, with network cards, with routed links; one random
placement each. The estimates are planning's, the bottleneck if streams split evenly, and a linear program that splits
shuffled streams freely. Buffers are an eighth of the runtime's, so that queues fill sooner; at these rates they do not
affect the result. Times are process time per placement, in a batch.

Then, plans of named applications on named clusters: of the placements of several policies, the best by estimate, and
what the twin sustains with it, relative to the maximum over all of them.

`python -m benchmarks.saturation 50` uses the first 50 graphs and no plans.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import process_time
from typing import NamedTuple
from unittest import mock

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from penstock.estimate.bottleneck import RateNet, bottleneck_rates
from penstock.estimate.evaluator import Evaluator
from penstock.estimate.saturation import saturated_rates
from penstock.model.cluster import NEAR, Cluster, Distances, Link, Machine
from penstock.model.costs import Costs
from penstock.model.placement import Hop, Placement
from penstock.model.routes import BITS, route_hops
from penstock.model.slotted import Longs
from penstock.model.taskgraph import Bools, Floats
from penstock.model.topology import Application, Component, Grouping, Kind, Stream
from penstock.planning.planner import Planner
from penstock.sim.events import Twin, system
from penstock.sim.events import twin as twin_module
from penstock.sim.events.twin import RESOLUTION
from penstock.workloads.applications import application
from penstock.workloads.clusters import cluster

GRAPHS = 500
BATCH = 100
FINER = 0.005  # resolution of the twin's maximum, a quarter of the default
WINDOW, FULL, SPAN = 128, 512, 2_000  # tuples: of a channel, of an out-queue, of the first interval
APPLICATIONS = (
    "word-count",
    "log-processing",
    "continuous-queries-small",
    "word-count-two-sources",
    "synthetic-communication",
    "face-detection",
)
CLUSTERS = ("li-10", "tata-3", "hetero-small", "hetero-medium", "star-8", "field-and-cloud")
POLICIES = (
    "round-robin",
    "i-storm",
    "flink",
    "r-storm",
    "t-storm",
    "heft",
    "sparcle",
    "sparcle-refined",
    "local-search:seconds=none,steps=3000",
)
CHOSEN = (Grouping.SHUFFLE, Grouping.LOCAL_OR_SHUFFLE)  # the sender selects the receiver
GROUPINGS = (
    *[Grouping.SHUFFLE] * 5,
    *[Grouping.FIELDS] * 2,
    Grouping.LOCAL_OR_SHUFFLE,
    Grouping.FORWARD,
    Grouping.GLOBAL,
    Grouping.ALL,
    Grouping.DIRECT,
)


class LaneTable(NamedTuple):
    """The lanes of a placement; T tasks, Q out-queues, E lanes, N elements of the network."""

    cpu: Floats  # [T] core-seconds per tuple
    share_of_source: Floats  # [T] of all source tuples; 0: no source
    slot: NDArray[np.int32]  # [T]
    queues: Longs  # [T + 1] the out-queues of task t are queues[t] .. queues[t + 1]
    lanes: Longs  # [Q + 1] the lanes of queue q are lanes[q] .. lanes[q + 1]
    chosen: Bools  # [Q] whether the sender chooses the lane
    amount: Floats  # [Q] tuples per tuple that its task processes
    target: Longs  # [E] task
    share: Floats  # [E] tuples per tuple that the sender processes, split evenly
    bits: Floats  # [E] per tuple
    uses: list[list[int]]  # [E] elements of the network
    network: Floats  # [N] bits a second
    slot_cpu: Floats  # [S]
    slot_machine: Longs  # [S]
    machine_cpu: Floats  # [M]


class Case(NamedTuple):
    """A placement of a random application on a random cluster."""

    evaluator: Evaluator
    placement: Placement

    @property
    def twin_tps(self) -> float:
        """Maximum rate that the twin sustains."""
        return self.sustained_tps(RESOLUTION)

    def sustained_tps(self, resolution: float) -> float:
        """Return the maximum rate that the twin sustains, at a resolution."""
        with _small_buffers():
            twin = Twin(self.application, self.evaluator.cluster, Costs(window=WINDOW))
            return twin.maximum_tps(self.placement.slots, routes=self.placement.routes, resolution=resolution)

    @property
    def overload_tps(self) -> float:
        """Rate that the twin carries under overload."""
        with _small_buffers():
            twin = Twin(self.application, self.evaluator.cluster, Costs(window=WINDOW))
            return twin.saturated_tps(self.placement.slots, routes=self.placement.routes)

    @property
    def application(self) -> Application:
        """The application."""
        assert isinstance(self.evaluator.topology, Application)
        return self.evaluator.topology

    @property
    def estimate_tps(self) -> float:
        """Rate according to the planner's estimate."""
        return self.evaluator.evaluate(self.placement).throughput_tps


@contextmanager
def _small_buffers() -> Iterator[None]:
    with mock.patch.object(system, "FULL", FULL), mock.patch.object(twin_module, "SPAN_TUPLES", SPAN):
        yield


def case(seed: int) -> Case:
    """Draw a case; the same seed gives the same one."""
    rng = np.random.default_rng([14, seed])
    application = _application(rng)
    cluster = _cluster(rng, ("mesh", "cards", "links")[seed % 3])
    slots = tuple(int(slot) for slot in rng.integers(0, cluster.slot_count, application.task_count))
    evaluator = Evaluator(application, cluster)
    routes = route_hops(evaluator.tasks, evaluator.slots, evaluator.links, slots) if cluster.routed else {}
    assert not isinstance(routes, Hop), "every machine is reachable from every other"
    return Case(evaluator, Placement(slots, dict(routes)))


def _application(rng: np.random.Generator) -> Application:
    sources, operators, sinks = int(rng.choice([1, 1, 2])), int(rng.integers(1, 5)), int(rng.choice([1, 1, 2]))
    kinds = [Kind.SOURCE] * sources + [Kind.OPERATOR] * operators + [Kind.SINK] * sinks
    components = [
        Component(
            name=f"c{number}",
            kind=kind,
            parallelism=int(rng.integers(1, 5)),
            cpu=float(10 ** rng.uniform(-4, -2.3)) * (0.3 if kind is Kind.SOURCE else 1.0),
        )
        for number, kind in enumerate(kinds)
    ]
    pairs: set[tuple[int, int]] = set()
    senders = [number for number, kind in enumerate(kinds) if kind is not Kind.SINK]
    receivers = [number for number, kind in enumerate(kinds) if kind is not Kind.SOURCE]
    for receiver in receivers:
        for _ in range(int(rng.choice([1, 1, 1, 2]))):
            pairs.add((int(rng.choice([s for s in senders if s < receiver])), receiver))
    for sender in senders:
        if not any(source == sender for source, _ in pairs):
            pairs.add((sender, int(rng.choice([r for r in receivers if r > sender]))))
    streams = []
    for source, target in sorted(pairs):
        grouping = GROUPINGS[rng.integers(len(GROUPINGS))]
        if grouping is Grouping.FORWARD and components[source].parallelism != components[target].parallelism:
            grouping = Grouping.SHUFFLE
        selectivity, tuple_bytes = float(rng.choice([0.5, 1, 1, 1, 2])), float(10 ** rng.uniform(1.5, 3.5))
        streams.append(
            Stream(
                source=f"c{source}",
                target=f"c{target}",
                grouping=grouping,
                selectivity=selectivity,
                tuple_bytes=tuple_bytes,
            )
        )
    rates = {f"c{number}": float(rng.uniform(10, 100)) for number in range(sources)} if rng.random() < 0.3 else {}
    return Application(name="graph", components=tuple(components), streams=tuple(streams), rate_tps=rates)


def _cluster(rng: np.random.Generator, network: str) -> Cluster:
    count, machines = int(rng.integers(2, 6)), []
    for number in range(count):
        slots = int(rng.integers(1, 5))
        machines.append(
            Machine(
                name=f"m{number}",
                cores=int(rng.integers(1, 5)),
                speed=float(rng.uniform(0.5, 2)),
                slots=slots,
                processes=int(rng.integers(1, slots + 1)),
                network_mbps=float(10 ** rng.uniform(0, 1.5)) if network == "cards" else None,
            )
        )
    links: tuple[Link, ...] = ()
    if network == "links":
        ends = {(int(rng.integers(0, number)), number) for number in range(1, count)}
        for _ in range(int(rng.integers(0, 3))):
            a, b = sorted(rng.choice(count, 2, replace=False).tolist())
            ends.add((a, b))
        links = tuple(
            Link(
                source=f"m{a}",
                target=f"m{b}",
                bandwidth_mbps=float(10 ** rng.uniform(0.3, 1.7)),
                latency_ms=float(rng.uniform(0.1, 2)),
            )
            for a, b in sorted(ends)
        )
    distances = NEAR if links else Distances()
    return Cluster(name=network, machines=tuple(machines), links=links, distances=distances)


def lanes(one: Case) -> LaneTable:
    """List the lanes of a placement: their tasks, queues and network elements."""
    evaluator, placed = one.evaluator, np.asarray(one.placement.slots)
    tasks, edges, slots = evaluator.tasks, evaluator.edges, evaluator.slots
    machine, process = slots.machine[placed], slots.process[placed]
    flows = {flow.stream: flow for flow in tasks.flows}
    queue_task, queue_first, chosen, amount, used, share, uses = [], [0], [], [], [], [], []
    for task in range(tasks.number):
        mine = np.arange(edges.start[task], edges.start[task + 1])
        for stream in dict.fromkeys(edges.stream[mine].tolist()):
            own = mine[edges.stream[mine] == stream]
            total = float(edges.share[own].sum())
            near = own[process[edges.target[own]] == process[task]]
            own = near if flows[stream].local and len(near) else own
            queue_task.append(task)
            chosen.append(flows[stream].grouping in CHOSEN)
            amount.append(total)
            used += own.tolist()
            share += [total / len(own)] * len(own)
            queue_first.append(len(used))
    network = _network(one)
    for edge in used:
        here, there = int(machine[edges.source[edge]]), int(machine[edges.target[edge]])
        uses.append(network.used(Hop(int(edges.stream[edge]), here, there)))
    return LaneTable(
        cpu=tasks.cpu,
        share_of_source=np.where(tasks.source, tasks.gain, 0.0),
        slot=placed,
        queues=np.searchsorted(queue_task, np.arange(tasks.number + 1)),
        lanes=np.array(queue_first),
        chosen=np.array(chosen),
        amount=np.array(amount),
        target=edges.target[used].astype(np.int64),
        share=np.array(share),
        bits=edges.tuple_bytes[used] * BITS,
        uses=uses,
        network=network.capacity,
        slot_cpu=slots.cpu,
        slot_machine=slots.machine.astype(np.int64),
        machine_cpu=slots.machine_cpu,
    )


class _Network(NamedTuple):
    """Capacities of a case's network."""

    capacity: NDArray[np.float64]  # bits per second
    used: Callable[[Hop], list[int]]  # elements used by a hop


def _network(one: Case) -> _Network:
    cluster, slots = one.evaluator.cluster, one.evaluator.slots
    if cluster.routed:
        routes = one.placement.routes
        return _Network(
            one.evaluator.links.bandwidth, lambda hop: list(routes.get(hop, ())) if hop.source != hop.target else []
        )
    count = slots.machines
    return _Network(
        slots.machine_network.ravel(), lambda hop: [hop.source, count + hop.target] if hop.source != hop.target else []
    )


def most_tps(one: Case) -> float:
    """Return the maximum rate over all splits of the streams whose senders choose (a linear program)."""
    table = lanes(one)
    tasks, count = len(table.cpu), len(table.target)
    size = tasks + count + 1  # rates of tasks, of lanes, of all sources
    equal, rows, limits = [], [], []
    for task in range(tasks):
        for queue in range(table.queues[task], table.queues[task + 1]):
            mine = np.arange(table.lanes[queue], table.lanes[queue + 1])
            if table.chosen[queue]:
                row = np.zeros(size)
                row[tasks + mine], row[task] = 1.0, -table.amount[queue]
                equal.append(row)
            for lane in [] if table.chosen[queue] else mine:
                row = np.zeros(size)
                row[tasks + lane], row[task] = 1.0, -table.share[lane]
                equal.append(row)
        row = np.zeros(size)
        row[task] = -1.0
        row[tasks : tasks + count] = table.target == task
        row[-1] = table.share_of_source[task]
        equal.append(row)
    for capacity, where in ((table.slot_cpu, table.slot), (table.machine_cpu, table.slot_machine[table.slot])):
        for place in range(len(capacity)):
            row = np.zeros(size)
            row[:tasks] = np.where(where == place, table.cpu, 0.0)
            rows.append(row)
            limits.append(float(capacity[place]))
    for element in np.flatnonzero(np.isfinite(table.network)):
        row = np.zeros(size)
        row[tasks : tasks + count] = [b * (element in u) for b, u in zip(table.bits, table.uses, strict=True)]
        rows.append(row)
        limits.append(float(table.network[element]))
    cost = np.zeros(size)
    cost[-1] = -1.0
    solved = linprog(cost, np.array(rows), limits, np.array(equal), np.zeros(len(equal)), method="highs")
    assert solved.status == 0, solved.message
    return -float(solved.fun or 0.0)


def microseconds(rates: Callable[[RateNet, NDArray[np.int32]], Floats], one: Case) -> float:
    """Return the time per placement of a batch of equal ones, the best of three."""
    placed = np.repeat(np.array([one.placement.slots], dtype=np.int32), BATCH, axis=0)
    times = []
    for _ in range(3):
        started = process_time()
        rates(one.evaluator.rate_net, placed)
        times.append(process_time() - started)
    return min(times) / BATCH * 1e6


def compare_graphs(number: int) -> None:
    """Print how far the estimates of random graphs are from the twin's maxima, and the time that they take."""
    rates, times = [], []
    for seed in range(number):
        one = case(seed)
        found = one.evaluator.evaluate(one.placement)
        rates.append((found.throughput_tps, found.even_tps, most_tps(one), one.overload_tps, one.twin_tps))
        times.append((microseconds(saturated_rates, one), microseconds(bottleneck_rates, one)))
    *columns, sustained = np.array(rates).T
    print(f"{number} graphs; relative to the twin's maximum")
    for name, tps in zip(("estimate", "even split", "linear program", "twin, overload"), columns, strict=True):
        print(f"{name:15} {agreement(tps / sustained)}")
    compare_finer(columns[0], sustained)
    for name, spent in zip(("estimate", "even split"), np.array(times).T, strict=True):
        quarters = ", ".join(f"{share} % {np.percentile(spent, share):.1f}" for share in (25, 50, 75, 95))
        print(f"{name:15} mean {spent.mean():.1f} µs, {quarters}")


def agreement(ratio: Floats) -> str:
    """Describe ratios of an estimate to the truth."""
    near = [float(np.mean(np.abs(ratio - 1) <= apart)) for apart in (0.02, 0.05, 0.1)]
    low, middle, high = np.percentile(ratio, (1, 50, 99))
    return (
        f"within 2 % {near[0]:.1%}, 5 % {near[1]:.1%}, 10 % {near[2]:.1%}, "
        f"least {ratio.min():.2f}, 1 % {low:.2f}, median {middle:.3f}, 99 % {high:.2f}, most {ratio.max():.2f}"
    )


def compare_finer(estimate: Floats, sustained: Floats) -> None:
    """Print the agreement at a finer resolution, for graphs with an error above 2 % and as many random others."""
    off = np.abs(estimate / sustained - 1) > 0.02
    others = np.flatnonzero(~off)
    chosen = np.random.default_rng(14).choice(others, min(int(off.sum()), len(others)), replace=False)
    for name, seeds in (("above 2 %", np.flatnonzero(off)), ("others", chosen)):
        ratio = np.array([estimate[seed] / case(int(seed)).sustained_tps(FINER) for seed in seeds])
        if len(ratio):
            print(f"at {FINER:.1%}, {len(ratio)} {name}: {agreement(ratio)}")


def plans(application_name: str, cluster_name: str) -> list[tuple[float, float, float]]:
    """Return the estimate, the rate of an even split and the twin's maximum, for the placements of all policies."""
    planner = Planner(application(application_name), cluster(cluster_name))
    decisions = [planner.decide(policy) for policy in POLICIES]
    found, sustained = [], dict[str, float]()
    for decision in decisions:
        if decision.evaluation is None or not isinstance(decision.result, Placement):
            continue
        bare = Placement(decision.result.slots, decision.result.routes)
        if (key := repr(bare)) not in sustained:
            sustained[key] = Case(planner.evaluator, bare).twin_tps
        found.append((decision.evaluation.throughput_tps, decision.evaluation.even_tps, sustained[key]))
    return found


def compare_plans() -> None:
    """Print what the twin sustains with the best placement by estimate, relative to the best placement."""
    kept = []
    for application_name in APPLICATIONS:
        for cluster_name in CLUSTERS:
            estimate, even, sustained = np.array(plans(application_name, cluster_name)).T
            kept.append(sustained[[estimate.argmax(), even.argmax()]] / sustained.max())
            print(f"{application_name:26} {cluster_name:16} {kept[-1][0]:.3f} {kept[-1][1]:.3f}")
    for name, ratio in zip(("estimate", "even split"), np.array(kept).T, strict=True):
        print(f"best of {len(POLICIES)} policies by {name:10} in {len(ratio)} cases: ", end="")
        print(f"mean {ratio.mean():.3f}, least {ratio.min():.3f}, the best (within 1 %) in {np.mean(ratio > 0.99):.0%}")


def main() -> None:
    some = sys.argv[-1].isdigit()
    compare_graphs(int(sys.argv[-1]) if some else GRAPHS)
    if not some:
        compare_plans()


if __name__ == "__main__":
    main()
