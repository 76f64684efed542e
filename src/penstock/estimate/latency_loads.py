"""Loads: how many tuples tasks process and exchange, and what that takes, wherever the tasks are placed.

They are what stays the same when tasks move, so that the features of a placement nobody has tried can be computed from
them. They come from what the application declares, from what tasks of a run were seen to process, or from what the
pipeline's windows of a run show.
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

RECENT_S = 600.0  # over which shares are observed, as in the paper
BELIEF = 1e-3  # weight of what is declared against what is observed, a share of the observations' own


@dataclass(frozen=True, eq=False)
class Loads:
    """What tasks do, wherever they are; T tasks, E edges in the order of `Instance.edges`, M machines."""

    task_tps: Floats  # [T] tuples per second that each processes, a source's included
    cpu: Floats  # [T] core-seconds per second of speed 1 that each takes
    task_share: Floats  # [T] w(i, j): of its component's tuples
    edge_share: Floats  # [E] w(i, j, k): of its stream's tuples

    @classmethod
    def declared(cls, instance: Instance, rates: Mapping[str, float] | None = None) -> "Loads":
        """Return the loads that declared costs and rates by source component give, streams being split evenly.

        Without `rates`, the application's own `rate_tps`.
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
        """Return the loads that tasks of these tuples per second [T] have, each tuple taking what is declared.

        Who exchanges them with whom is not known: a pair's share of its stream follows from what its ends process.
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
        """Return the loads that the last windows of one run show (`features`, `shares` of the pipeline).

        Shares are those of tuples seen in the last `seconds`: of a component's, by the tasks' own counts of all tuples;
        of a stream's, by all hops that were sampled. Cpu a tuple is fitted to what the machines were seen to use, near
        what is declared where that leaves a choice.
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
        """Return the loads at another rate: so many times the tuples."""
        return Loads(self.task_tps * factor, self.cpu * factor, self.task_share, self.edge_share)


def _offered(instance: Instance, rates: Mapping[str, float] | None) -> dict[str, float]:
    topology = instance.topology
    sources = [source.name for source in topology.sources]
    given = dict(rates) if rates is not None else dict(getattr(topology, "rate_tps", {}))
    for name in given:
        if name not in sources:
            raise UnknownName(f"rate_tps.{name}", f"no source is named {name!r}; {nearest(name, sources)}")
    if missing := [name for name in sources if name not in given]:
        problem = f"a latency depends on the load, and source {missing[0]!r} has no rate; give rate_tps.{missing[0]}"
        raise InvalidInput("rate_tps", problem)
    return msgspec.convert(given, dict[str, float], strict=False)


def _shares(amount: Floats, group: Ints, groups: int) -> Floats:
    """Return each amount's share of its group's; even shares where a group has none."""
    total, size = sum_by(group, amount, groups)[group], np.bincount(group, minlength=groups)[group]
    shares: Floats = np.divide(amount, total, out=1.0 / np.maximum(size, 1), where=total > 0)
    return shares


def _exchanged(instance: Instance, tps: Floats) -> Floats:
    """Return the tuples per second over each edge that tasks of these rates would exchange. [E]

    A sender splits its tuples as declared, but a task gets as much more or less of them as it was seen to process.
    """
    edges = instance.edges
    sent = tps[edges.source] * edges.share
    came = sum_by(edges.target, sent, len(tps))
    exchanged: Floats = sent * np.divide(tps, came, out=np.zeros_like(came), where=came > 0)[edges.target]
    return exchanged


class _Reading(NamedTuple):
    """A task in a window."""

    machine: int | None  # None: it was on several
    tps: float


class _Use(NamedTuple):
    """A machine in a window."""

    cpu: float  # share of its cores
    tasks: int  # that were there, for some of the window at least


class _Seen:
    """What the last windows of a run show, by number of task and machine."""

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
        """Return the tuples per second of each task, in the windows that tell of it.

        One that no window tells of has the mean of its component's others.
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
        """Return the observed share of each edge in its stream; that of its ends where the stream was not seen."""
        edges, streams = self._instance.edges, self._instance.topology.streams
        labels = [streams[number].label for number in edges.stream]
        ends = zip(labels, edges.source.tolist(), edges.target.tolist(), strict=True)
        seen = np.array([self._pairs.get(pair, 0.0) for pair in ends])
        known = sum_by(edges.stream, seen, len(streams))[edges.stream] > 0
        return _shares(np.where(known, seen, _exchanged(self._instance, tps)), edges.stream, len(streams))

    def costs(self) -> Floats:
        """Return the core-seconds that each component takes a tuple.

        Least squares without negative costs, drawn a little towards what is declared. All that machines use counts as
        their tuples': where every machine has much the same mix, a share of its own for each would take from the tuples
        what belongs to them, and a placement that packs them would look less full than it is. A machine to which or
        from which a task moved in a window says nothing there: which of the task's tuples were its own is not known.
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
        told = tasks.cpu[tasks.first[:-1]]
        belief = np.sqrt(BELIEF * (amount**2).sum(axis=0) + 1e-12)
        fitted, _ = nnls(np.vstack([amount, np.diag(belief)]), np.concatenate([used, belief * told]))
        costs: Floats = fitted
        return costs


def _number(known: Mapping[str, int], name: str, noun: str, owner: str) -> int:
    if name not in known:
        problem = f"they tell of a {noun} {name!r}, which {owner!r} does not have"
        raise UnknownName("tables", f"{problem}; choose tables of its runs")
    return known[name]


def _rows(table: "pa.Table", columns: tuple[str, ...]) -> Iterator[tuple[Any, ...]]:
    return zip(*(table[name].to_pylist() for name in columns), strict=True)
