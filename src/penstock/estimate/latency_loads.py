"""Loads: the tuples that tasks process and exchange, and their costs, independent of the placement.

Loads stay the same when tasks move, so the features of an untried placement can be computed from them. They come from
the declarations of the application, from the observed rates of a run's tasks, or from the pipeline's windows of a run.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from penstock.model.errors import InvalidInput, UnknownName, nearest
from penstock.model.features import LOAD_WINDOW, SHARE_WINDOW, WINDOW_S
from penstock.model.instance import Instance
from penstock.model.taskgraph import Floats, Ints, expand_tasks, sum_by, task_names
from penstock.model.topology import Application

if TYPE_CHECKING:
    import pyarrow as pa

RECENT_S = 600.0  # period over which shares are observed, as in the paper
BELIEF = 1e-3  # weight of declared costs relative to observed ones


@dataclass(frozen=True, eq=False)
class Loads:
    """The loads of tasks; T tasks, E edges in the order of `Instance.edges`, M machines."""

    task_tps: Floats  # [T] tuples per second processed by each task, or emitted by a source
    cpu: Floats  # [T] core-seconds per second at speed 1
    task_share: Floats  # [T] w(i, j): fraction of its component's tuples
    edge_share: Floats  # [E] w(i, j, k): fraction of its stream's tuples

    @classmethod
    def declared(cls, instance: Instance, rates: Mapping[str, float] | None = None) -> "Loads":
        """Return the loads from declared costs and rates by source component, with evenly split streams.

        Default for `rates`: the application's own `rate_tps`.
        """
        tasks, edges = instance.tasks, instance.edges
        offered = _offered(instance, rates)
        topology = instance.topology
        settled = Application(
            name=topology.name, components=topology.components, streams=topology.streams, rate_tps=offered
        )
        tps = expand_tasks(settled).gain * sum(offered.values())
        return cls(
            task_tps=tps,
            cpu=tps * tasks.cpu,
            task_share=_shares(tps, tasks.component, len(tasks.position)),
            edge_share=_shares(tps[edges.source] * edges.share, edges.stream, len(topology.streams)),
        )

    @classmethod
    def of_tasks(cls, instance: Instance, task_tps: Floats) -> "Loads":
        """Return the loads of tasks with these tuples per second [T] and declared costs per tuple.

        The traffic between pairs of tasks is unknown: a pair's share of its stream follows from the rates of its ends.
        """
        tasks, edges = instance.tasks, instance.edges
        return cls(
            task_tps=task_tps,
            cpu=task_tps * tasks.cpu,
            task_share=_shares(task_tps, tasks.component, len(tasks.position)),  # (2.2)
            edge_share=_shares(_exchanged(instance, task_tps), edges.stream, len(instance.topology.streams)),  # (2.3)
        )

    @classmethod
    def observed(
        cls,
        instance: Instance,
        features: "pa.Table",
        shares: "pa.Table",
        *,
        seconds: float = RECENT_S,
        window_s: float = WINDOW_S,
    ) -> "Loads":
        """Return the loads in the last windows of one run (`features`, `shares` of the pipeline).

        Shares are those of tuples in the last `seconds`: of a component's tuples, by the tasks' own counters; of a
        stream's, by all sampled hops. Cpu per tuple is fitted to the observed utilisation of the machines, and close to
        the declared cost if that leaves a choice.
        """
        seen = _Seen(instance, features, shares, max(1, round(seconds / window_s)))
        tps = seen.task_tps()
        cpu, tasks = seen.costs(), instance.tasks
        return cls(
            task_tps=tps,
            cpu=tps * cpu[tasks.component],
            task_share=_shares(tps, tasks.component, len(tasks.position)),  # (2.2)
            edge_share=seen.edge_shares(tps),  # (2.3)
        )

    def scaled(self, factor: float) -> "Loads":
        """Return the loads with all rates multiplied by a factor."""
        return Loads(self.task_tps * factor, self.cpu * factor, self.task_share, self.edge_share)


def _offered(instance: Instance, rates: Mapping[str, float] | None) -> dict[str, float]:
    topology = instance.topology
    sources = [source.name for source in topology.sources]
    given = dict(rates) if rates is not None else dict(getattr(topology, "rate_tps", {}))
    for name in given:
        if name not in sources:
            raise UnknownName(f"rate_tps.{name}", f"no source is named {name!r}; {nearest(name, sources)}")
    if missing := [name for name in sources if name not in given]:
        problem = f"latency depends on the load, and source {missing[0]!r} has no rate; set rate_tps.{missing[0]}"
        raise InvalidInput("rate_tps", problem)
    return msgspec.convert(given, dict[str, float], strict=False)


def _shares(amount: Floats, group: Ints, groups: int) -> Floats:
    """Return each amount's fraction of its group's total; equal fractions if the total is 0."""
    total, size = sum_by(group, amount, groups)[group], np.bincount(group, minlength=groups)[group]
    shares: Floats = np.divide(amount, total, out=1.0 / np.maximum(size, 1), where=total > 0)
    return shares


def _exchanged(instance: Instance, tps: Floats) -> Floats:
    """Return the tuples per second that tasks with these rates would exchange over each edge. [E]

    A sender splits its tuples as declared, adjusted in proportion to the observed rate of each receiver.
    """
    edges = instance.edges
    sent = tps[edges.source] * edges.share
    came = sum_by(edges.target, sent, len(tps))
    exchanged: Floats = sent * np.divide(tps, came, out=np.zeros_like(came), where=came > 0)[edges.target]
    return exchanged


class _Reading(NamedTuple):
    """A task in a window."""

    machine: int | None  # None: several
    tps: float


class _Use(NamedTuple):
    """A machine in a window."""

    cpu: float  # fraction of its cores
    tasks: int  # number of tasks on it during at least a part of the window


class _Seen:
    """The observations in the last windows of a run, by number of task and machine."""

    def __init__(self, instance: Instance, features: "pa.Table", shares: "pa.Table", windows: int) -> None:
        self._instance = instance
        topology, cluster = instance.topology, instance.cluster
        self._names = {name: number for number, name in enumerate(task_names(topology))}
        runs = {*features["run"].to_pylist(), *shares["run"].to_pylist()}
        if len(runs) != 1:
            raise InvalidInput("tables", f"expected the windows of one run, got {len(runs)}; choose one")
        before = max(features["window"].to_pylist() + shares["window"].to_pylist()) - windows
        self._tasks: dict[tuple[int, int], _Reading] = {}  # by window, task
        self._used: dict[tuple[int, int], _Use] = {}  # by window, machine
        self._pairs: dict[tuple[str, int, int], float] = {}  # by stream, source, target: tuples
        for window, name, place, tps, colocated, cpu in _rows(features, LOAD_WINDOW[1:]):
            task = _number(self._names, name, "task", topology.name)
            machine = None if place is None else _number(cluster.machine_index, place, "machine", cluster.name)
            if window > before and tps is not None:
                self._tasks[window, task] = _Reading(machine, tps)
                if machine is not None and cpu is not None:
                    self._used[window, machine] = _Use(cpu, round(colocated) + 1)
        for window, stream, source, target, tuples in _rows(shares, SHARE_WINDOW[1:]):
            ends = (_number(self._names, name, "task", topology.name) for name in (source, target))
            if window > before:
                pair = (stream, *ends)
                self._pairs[pair] = self._pairs.get(pair, 0.0) + tuples

    def task_tps(self) -> Floats:
        """Return the tuples per second of each task, in the windows that contain it.

        A task that no window contains gets the mean of its component's other tasks.
        """
        tasks = self._instance.tasks
        found: list[list[float]] = [[] for _ in range(tasks.number)]
        for (_, task), reading in self._tasks.items():
            found[task].append(reading.tps)
        known = np.array([bool(rates) for rates in found])
        tps = np.array([float(np.mean(rates)) if rates else 0.0 for rates in found])
        seen = np.bincount(tasks.component, known, len(tasks.position))
        means = sum_by(tasks.component, tps, len(tasks.position)) / np.maximum(seen, 1)
        return np.where(known, tps, means[tasks.component])

    def edge_shares(self, tps: Floats) -> Floats:
        """Return the observed share of each edge in its stream; if unobserved, the share derived from its ends."""
        edges, streams = self._instance.edges, self._instance.topology.streams
        labels = [streams[number].label for number in edges.stream]
        ends = zip(labels, edges.source.tolist(), edges.target.tolist(), strict=True)
        seen = np.array([self._pairs.get(pair, 0.0) for pair in ends])
        known = sum_by(edges.stream, seen, len(streams))[edges.stream] > 0
        return _shares(np.where(known, seen, _exchanged(self._instance, tps)), edges.stream, len(streams))

    def costs(self) -> Floats:
        """Return the core-seconds per tuple of each component.

        Least squares without negative costs, weakly regularised towards the declared ones. The entire utilisation of a
        machine counts as its tuples': if every machine has a similar mix, a constant term per machine would take a part
        of their cost, and a placement that packs tasks would appear less full than it is. A machine to which or from
        which a task moved in a window is ignored there, because the location of the task's tuples is unknown.
        """
        from scipy.optimize import nnls

        instance = self._instance
        tasks = instance.tasks
        stayed = Counter((window, reading.machine) for (window, _), reading in self._tasks.items())
        whole = [cell for cell, use in self._used.items() if stayed[cell] == use.tasks]
        cells = {cell: row for row, cell in enumerate(whole)}
        amount = np.zeros((len(cells), len(tasks.position)))
        for (window, task), reading in self._tasks.items():
            if reading.machine is not None and (window, reading.machine) in cells:
                amount[cells[window, reading.machine], tasks.component[task]] += reading.tps
        capacity = instance.slots.machine_cpu
        used = np.array([self._used[cell].cpu * capacity[cell[1]] for cell in cells])
        declared = tasks.cpu[tasks.first[:-1]]
        belief = np.sqrt(BELIEF * (amount**2).sum(axis=0) + 1e-12)
        fitted, _ = nnls(np.vstack([amount, np.diag(belief)]), np.concatenate([used, belief * declared]))
        costs: Floats = fitted
        return costs


def _number(known: Mapping[str, int], name: str, noun: str, owner: str) -> int:
    if name not in known:
        problem = f"they contain a {noun} {name!r}, which {owner!r} does not have"
        raise UnknownName("tables", f"{problem}; choose tables of its runs")
    return known[name]


def _rows(table: "pa.Table", columns: tuple[str, ...]) -> Iterator[tuple[Any, ...]]:
    return zip(*(table[name].to_pylist() for name in columns), strict=True)
