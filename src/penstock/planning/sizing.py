"""How many tasks and machines a rate requires, and the highest rate of given machines.

The search asks a placement policy for the placement of a parallelism on some machines, and the evaluator for its rate.
It starts with the least tasks that the costs allow at the rate. While the rate is not reached, the component for which
it raises the rate most gets another task; machines are added one by one. For the highest rate, tasks of one component
are then given to another. At the end every task that is not needed is removed. So a size is sufficient by the
evaluator, and no single task of it can be removed; fewer machines or a higher rate may exist nevertheless.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import msgspec
import numpy as np

from penstock.estimate.bottleneck import Element
from penstock.model.cluster import Cluster, required_machines
from penstock.model.errors import InvalidInput
from penstock.model.parallelism import Bounds, allowed, bounds, forward_groups, parallelism_of, resized, shares_work
from penstock.model.placement import Hop, Infeasible, Placement
from penstock.model.taskgraph import expand_tasks, sum_by
from penstock.model.topology import Topology
from penstock.planning.planner import Decision, Planner
from penstock.policies.api import Sized

USUAL_POLICY = "greedy-sorted"  # fast, and close to the best rate
SAME = 1e-9  # relative difference of rates that counts as none
STARTS = (0.6, 1.0)  # shares of the rate that occupies all cores, from which the search for the highest rate starts
WORTH = 1e-3  # minimum relative gain of an exchange
NEARLY = 0.98  # of the rate on all machines: what a parallelism must carry on fewer
PATIENCE = 4  # tasks added in succession without a higher rate, beside one for each component


@dataclass(frozen=True)
class Sizer:
    """Sizes an application on a cluster; `policy` places the tasks, `most` limits the tasks of every component."""

    topology: Topology
    cluster: Cluster
    policy: str = USUAL_POLICY
    most: int | None = None
    seed: int = 0
    _known: dict[tuple[int, tuple[int, ...]], Decision] = field(default_factory=dict, repr=False, compare=False)

    def for_rate(self, rate_tps: float) -> Sized | Infeasible:
        """Return the least machines, and on these the least tasks, that carry a rate of source tuples.

        If all machines together do not carry it, the result is the highest rate that was found.
        """
        if not 0 <= rate_tps < np.inf:
            raise InvalidInput("rate", f"expected a number of tuples per second ≥ 0, got {rate_tps:g}")
        for machines in range(self._fewest(rate_tps), len(self.cluster.machines) + 1):
            found = self._on(machines, rate_tps)
            if isinstance(found, Sized) and _carries(found, rate_tps):
                return self._without_idle_tasks(found, machines, rate_tps)
        return self.highest_rate()

    def highest_rate(self, machines: int | None = None) -> Sized | Infeasible:
        """Return the parallelism with the highest rate on a number of machines, with the least tasks for it.

        Machines that pins require are used first, then the largest ones; default: all machines.
        """
        machines = len(self.cluster.machines) if machines is None else machines
        if not 1 <= machines <= len(self.cluster.machines):
            raise InvalidInput("machines", f"expected 1 to {len(self.cluster.machines)}, got {machines}")
        total = sum(self._work.values())
        used = [self.cluster.machines[machine].cpu for machine in self._by_size[:machines]]
        full = sum(used) / total if total else 0.0
        best: Sized | Infeasible | None = None
        for share in STARTS:
            best = _better(best, self._on(machines, np.inf, share * full))
        assert best is not None, "there is a start"
        if isinstance(best, Infeasible):
            return best
        fastest = self._exchanged(best, machines)
        return self._without_idle_tasks(fastest, machines, fastest.throughput_tps)

    def place(self, parallelism: dict[str, int]) -> Sized | Infeasible:
        """Return a parallelism on the fewest machines on which it carries nearly what it carries on all of them."""
        everywhere = self._sized(len(self.cluster.machines), parallelism)
        if isinstance(everywhere, Infeasible):
            return everywhere
        rate_tps = NEARLY * everywhere.throughput_tps
        for machines in range(self._fewest(rate_tps), len(self.cluster.machines)):
            found = self._sized(machines, parallelism)
            if isinstance(found, Sized) and _carries(found, rate_tps):
                return found
        return everywhere

    def decision(self, sized: Sized) -> tuple[Planner, Decision]:
        """Return a size in the form of a planner and its decision, for plans and output."""
        planner = Planner(resized(self.topology, sized.parallelism), self.cluster, seed=self.seed)
        return planner, Decision(self.policy, sized.placement, planner.evaluator.evaluate(sized.placement), 0.0)

    @cached_property
    def bounds(self) -> dict[str, Bounds]:
        """The bounds of every component's parallelism."""
        return bounds(self.topology, self.cluster, self.most)

    @cached_property
    def hops_per_tuple(self) -> float:
        """The number of tuples that all tasks together process per source tuple."""
        return float(expand_tasks(self.topology).gain.sum())

    @cached_property
    def _work(self) -> dict[str, float]:
        """The core-seconds of each component per source tuple."""
        tasks = expand_tasks(self.topology)
        work = sum_by(tasks.component, tasks.cpu * tasks.gain, len(tasks.position))
        return dict(zip(parallelism_of(self.topology), work.tolist(), strict=True))

    @cached_property
    def _by_size(self) -> list[int]:
        """The machines in the order in which they are used: those that pins require, then the largest."""
        required = required_machines(self.topology, self.cluster)
        machines = self.cluster.machines
        return sorted(range(len(machines)), key=lambda m: (machines[m].name not in required, -machines[m].cpu, m))

    def _fewest(self, rate_tps: float) -> int:
        """Return the number of machines whose cores suffice for a rate: a lower bound."""
        required = max(len(required_machines(self.topology, self.cluster)), 1)
        cpu = np.cumsum([self.cluster.machines[machine].cpu for machine in self._by_size])
        enough = int(np.searchsorted(cpu, sum(self._work.values()) * rate_tps * (1 - SAME))) + 1
        return max(required, min(enough, len(cpu)))

    def _on(self, machines: int, rate_tps: float, start_tps: float | None = None) -> Sized | Infeasible:
        """Return the smallest parallelism found that carries a rate on a number of machines, or else the fastest.

        The search starts with the least tasks for the rate or for another one.
        """
        best: Sized | Infeasible | None = None
        patience, idle = len(self.topology.components) + PATIENCE, 0
        for parallelism in self._growing(machines, self._least(machines, rate_tps if start_tps is None else start_tps)):
            found = self._sized(machines, parallelism)
            better = _better(best, found)
            idle = 0 if better is found else idle + 1
            best = better
            if idle > patience or (isinstance(found, Sized) and _carries(found, rate_tps)):
                break
        assert best is not None, "there is a first parallelism"
        return best

    def _growing(self, machines: int, parallelism: dict[str, int]) -> Iterator[dict[str, int]]:
        """Yield parallelisms, each with another task than the one before."""
        while True:
            yield parallelism
            decision = self._decided(machines, parallelism)
            grown = None if decision.evaluation is None else self._grown(parallelism, decision, machines)
            if grown is None:
                return
            parallelism = grown

    def _least(self, machines: int, rate_tps: float) -> dict[str, int]:
        """Return the least tasks of which each needs at most a whole slot of the fastest machine at a rate."""
        speed = max(self.cluster.machines[machine].speed for machine in self._by_size[:machines])
        wanted = {name: np.ceil(work * rate_tps / speed * (1 - SAME)) for name, work in self._work.items()}
        shared = {name: number for name, number in wanted.items() if shares_work(self.topology, name)}
        return allowed(self.topology, self.bounds, shared)

    def _grown(self, parallelism: dict[str, int], decision: Decision, machines: int) -> dict[str, int] | None:
        """Return the fastest parallelism with one more task of a component; None if another task cannot help.

        Of equals, the component that uses the bottleneck most.
        """
        assert isinstance(decision.result, Placement)
        limit = None if decision.evaluation is None else decision.evaluation.bottleneck
        if limit is None or limit.kind not in ("slot", "machine"):
            return None
        used = _use_by_component(self._planner(machines, parallelism), decision.result, limit)
        able = [
            name
            for name, number in parallelism.items()
            if self._work[name] > 0 and number < self.bounds[name].most and shares_work(self.topology, name)
        ]
        grown = [allowed(self.topology, self.bounds, {**parallelism, name: parallelism[name] + 1}) for name in able]
        ranks = [(self._rate(machines, one), used[name]) for name, one in zip(able, grown, strict=True)]
        return grown[max(range(len(grown)), key=lambda number: ranks[number])] if grown else None

    def _rate(self, machines: int, parallelism: dict[str, int]) -> float:
        """Return the rate of a parallelism, rounded so that equal ones compare equal; -1 without a placement."""
        evaluation = self._decided(machines, parallelism).evaluation
        return -1.0 if evaluation is None else float(f"{evaluation.throughput_tps:.9g}")

    def _exchanged(self, sized: Sized, machines: int) -> Sized:
        """Give tasks of one component to another while that raises the rate; the best exchange first."""
        groups = [group for group in forward_groups(self.topology) if shares_work(self.topology, group[0])]
        while True:
            now = dict(sized.parallelism)
            changed = [
                {**now, **dict.fromkeys(less, now[less[0]] - (less != more)), **dict.fromkeys(more, now[more[0]] + 1)}
                for more in groups
                for less in groups
            ]
            tried = [one for one in changed if one == allowed(self.topology, self.bounds, one)]
            best = max(tried, key=lambda one: self._rate(machines, one), default=now)
            if self._rate(machines, best) <= self._rate(machines, now) * (1 + WORTH):
                return sized
            faster = self._sized(machines, best)
            assert isinstance(faster, Sized), "it has a rate"
            sized = faster

    def _without_idle_tasks(self, sized: Sized, machines: int, rate_tps: float) -> Sized:
        """Remove tasks one by one, of the components with the least work per task first, while the rate is carried."""
        kept: set[str] = set()
        while True:
            now = dict(sized.parallelism)
            groups = [group for group in forward_groups(self.topology) if group[0] not in kept]
            groups = [group for group in groups if now[group[0]] > self.bounds[group[0]].least]
            if not groups:
                return sized
            group = min(groups, key=lambda names: sum(self._work[name] for name in names) / now[names[0]])
            fewer = self._sized(machines, {**now, **dict.fromkeys(group, now[group[0]] - 1)})
            if isinstance(fewer, Sized) and _carries(fewer, rate_tps):
                sized = fewer
            else:
                kept.add(group[0])

    def _sized(self, machines: int, parallelism: dict[str, int]) -> Sized | Infeasible:
        decision = self._decided(machines, parallelism)
        if not isinstance(decision.result, Placement) or decision.evaluation is None:
            assert isinstance(decision.result, Infeasible)
            return decision.result
        placement = _renumbered(decision.result, self._part(machines), self.cluster)
        return Sized(parallelism, placement, decision.evaluation.throughput_tps, decision.evaluation.machines)

    def _decided(self, machines: int, parallelism: dict[str, int]) -> Decision:
        key = machines, tuple(parallelism[name] for name in self._work)
        if key not in self._known:
            self._known[key] = self._planner(machines, parallelism).decide(self.policy)
        return self._known[key]

    def _planner(self, machines: int, parallelism: dict[str, int]) -> Planner:
        return Planner(resized(self.topology, parallelism), self._part(machines), seed=self.seed)

    def _part(self, machines: int) -> Cluster:
        """Return the first machines by size; in a routed network the others only relay."""
        cluster, chosen = self.cluster, set(self._by_size[:machines])
        if len(chosen) == len(cluster.machines):
            return cluster
        others = tuple(machine.name for number, machine in enumerate(cluster.machines) if number not in chosen)
        return msgspec.structs.replace(
            cluster,
            machines=tuple(machine for number, machine in enumerate(cluster.machines) if number in chosen),
            switches=(*cluster.switches, *others) if cluster.routed else cluster.switches,
        )


def _carries(sized: Sized, rate_tps: float) -> bool:
    return sized.throughput_tps >= rate_tps * (1 - SAME)


def _better(one: Sized | Infeasible | None, other: Sized | Infeasible) -> Sized | Infeasible:
    """Return the one with the higher rate, the first of equals; any size is better than none."""
    if not isinstance(one, Sized):
        return other if isinstance(other, Sized) or one is None else one
    higher = isinstance(other, Sized) and other.throughput_tps > one.throughput_tps * (1 + SAME)
    return other if higher else one


def _use_by_component(planner: Planner, placement: Placement, limit: Element) -> dict[str, float]:
    """Return the core-seconds per source tuple that the tasks of each component use of a slot or a machine."""
    tasks = planner.evaluator.tasks
    placed = np.asarray(placement.slots)
    if limit.kind == "slot":
        there = placed == planner.cluster.slot_names.index(limit.name)
    else:
        there = planner.evaluator.slots.machine[placed] == planner.cluster.machine_index[limit.name]
    used = sum_by(tasks.component[there], planner.view.work[there], len(tasks.position))
    return dict(zip(parallelism_of(planner.topology), used.tolist(), strict=True))


def _renumbered(placement: Placement, part: Cluster, cluster: Cluster) -> Placement:
    """Return a placement on a part of a cluster with the numbers of the cluster."""
    if part is cluster:
        return placement
    machine = [cluster.machine_index[one.name] for one in part.machines]
    number = {name: slot for slot, name in enumerate(cluster.slot_names)}
    return Placement(
        slots=tuple(number[part.slot_names[slot]] for slot in placement.slots),
        routes={
            Hop(hop.stream, machine[hop.source], machine[hop.target]): links for hop, links in placement.routes.items()
        },
        note=placement.note,
    )
