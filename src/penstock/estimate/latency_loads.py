"""Loads: how many tuples tasks process and exchange, and what that takes, wherever the tasks are placed.

They are what stays the same when tasks move, so that the features of a placement nobody has tried can be computed from
them. They come from what the application declares, or from what the pipeline's windows of a run show.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from penstock.model.errors import InvalidInput, UnknownName, choices
from penstock.model.features import WINDOW_S
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

    task_tps: Floats  # [T] tuples a second that each processes, a source's included
    cpu: Floats  # [T] core-seconds a second of speed 1 that each takes
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
    def observed(
        cls,
        instance: Instance,
        task_windows: "pa.Table",
        edge_windows: "pa.Table",
        *,
        seconds: float = RECENT_S,
        window_s: float = WINDOW_S,
    ) -> "Loads":
        """Return the loads that the last windows of one run show (`task_windows`, `edge_windows` of the pipeline).

        Shares are those of tuples seen in the last `seconds`; cpu a tuple is fitted to what the machines were seen to
        use, near what is declared where that leaves a choice.
        """
        seen = _Seen(instance, task_windows, edge_windows, max(1, round(seconds / window_s)))
        tps = seen.task_tps()
        cpu, tasks = seen.costs(), instance.tasks
        return cls(
            task_tps=tps,
            cpu=tps * cpu[tasks.component],
            task_share=_shares(tps, tasks.component, len(tasks.position)),
            edge_share=seen.edge_shares(tps),
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
            raise UnknownName(f"rate_tps.{name}", f"no source is named {name!r}; there are {choices(sources)}")
    if missing := [name for name in sources if name not in given]:
        problem = f"a latency depends on the load, and source {missing[0]!r} has no rate; give rate_tps.{missing[0]}"
        raise InvalidInput("rate_tps", problem)
    return msgspec.convert(given, dict[str, float], strict=False)


def _shares(amount: Floats, group: Ints, groups: int) -> Floats:
    """Return each amount's share of its group's; even shares where a group has none."""
    total, size = sum_by(group, amount, groups)[group], np.bincount(group, minlength=groups)[group]
    shares: Floats = np.divide(amount, total, out=1.0 / np.maximum(size, 1), where=total > 0)
    return shares


class _Reading(NamedTuple):
    """A task in a window."""

    machine: int
    tps: float


class _Seen:
    """What the last windows of a run show, by number of task and machine."""

    def __init__(self, instance: Instance, tasks: "pa.Table", edges: "pa.Table", windows: int) -> None:
        self._instance = instance
        names = {name: number for number, name in enumerate(task_names(instance.topology))}
        machines = instance.cluster.machine_index
        runs = {*tasks["run"].to_pylist(), *edges["run"].to_pylist()}
        if len(runs) != 1:
            raise InvalidInput("tables", f"expected the windows of one run, got {len(runs)}; choose one")
        last = max(tasks["window"].to_pylist() + edges["window"].to_pylist())
        self._tasks: dict[tuple[int, int], _Reading] = {}  # by window, task
        self._used: dict[tuple[int, int], float] = {}  # by window, machine: share of its cores
        self._pairs: dict[tuple[str, int, int], float] = {}  # by stream, source, target: tuples
        for row in _rows(tasks, ("window", "task", "machine", "task_load", "used_cpu")):
            self._note(names, machines, last - windows, *row)
        for row in _rows(edges, ("window", "source", "source_machine", "source_load", "source_used_cpu")):
            self._note(names, machines, last - windows, *row)
        for window, stream, source, target, count in _rows(edges, ("window", "stream", "source", "target", "count")):
            if window > last - windows:
                pair = (stream, names[source], names[target])
                self._pairs[pair] = self._pairs.get(pair, 0.0) + count
        self._windows = len({window for window, _ in self._tasks})

    def _note(
        self,
        names: Mapping[str, int],
        machines: Mapping[str, int],
        before: int,
        window: int,
        task: str,
        machine: str,
        tps: float | None,
        cpu: float | None,
    ) -> None:
        owners = self._instance.topology.name, self._instance.cluster.name
        for noun, name, known, owner in zip(
            ("task", "machine"), (task, machine), (names, machines), owners, strict=True
        ):
            if name not in known:
                problem = f"they tell of a {noun} {name!r}, which {owner!r} does not have"
                raise UnknownName("tables", f"{problem}; choose tables of its runs")
        if window > before and tps is not None:
            self._tasks[window, names[task]] = _Reading(machines[machine], tps)
            if cpu is not None:
                self._used[window, machines[machine]] = cpu

    def task_tps(self) -> Floats:
        """Return the tuples a second of each task; a window that does not show a task shows none of its tuples."""
        tps = np.zeros(self._instance.tasks.number)
        for (_, task), reading in self._tasks.items():
            tps[task] += reading.tps / self._windows
        return tps

    def edge_shares(self, tps: Floats) -> Floats:
        """Return the observed share of each edge in its stream; that of its ends where the stream was not seen."""
        edges, streams = self._instance.edges, self._instance.topology.streams
        labels = [streams[number].label for number in edges.stream]
        ends = zip(labels, edges.source.tolist(), edges.target.tolist(), strict=True)
        seen = np.array([self._pairs.get(pair, 0.0) for pair in ends])
        known = sum_by(edges.stream, seen, len(streams))[edges.stream] > 0
        return _shares(np.where(known, seen, tps[edges.source] * edges.share), edges.stream, len(streams))

    def costs(self) -> Floats:
        """Return the core-seconds that each component takes a tuple.

        Least squares without negative costs, drawn a little towards what is declared. All that machines use counts as
        their tuples': where every machine has much the same mix, a share of its own for each would take from the tuples
        what belongs to them, and a placement that packs them would look less full than it is.
        """
        from scipy.optimize import nnls

        instance = self._instance
        tasks = instance.tasks
        cells = {cell: row for row, cell in enumerate(self._used)}
        amount = np.zeros((len(cells), len(tasks.position)))
        for (window, task), reading in self._tasks.items():
            if (window, reading.machine) in cells:
                amount[cells[window, reading.machine], tasks.component[task]] += reading.tps
        capacity = instance.slots.machine_cpu
        used = np.array([share * capacity[machine] for (_, machine), share in self._used.items()])
        told = tasks.cpu[tasks.first[:-1]]
        belief = np.sqrt(BELIEF * (amount**2).sum(axis=0) + 1e-12)
        fitted, _ = nnls(np.vstack([amount, np.diag(belief)]), np.concatenate([used, belief * told]))
        costs: Floats = fitted
        return costs


def _rows(table: "pa.Table", columns: tuple[str, ...]) -> Iterator[tuple[Any, ...]]:
    return zip(*(table[name].to_pylist() for name in columns), strict=True)
