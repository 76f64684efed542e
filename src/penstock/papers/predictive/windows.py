"""Windows of the twin: features and labels of every task and every edge in a span, as in the pipeline's tables.

The pipeline computes the same rows from telemetry; here they are derived from the twin's own sums, so that thousands of
windows need neither records nor Spark. A tuple counts in the window in which its transfer ends (edges) or its
processing ends (tasks); in the pipeline, for both, in the one in which its transfer ends, which differs for a few
tuples.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock.estimate.paths import Graph, longest_path
from penstock.model.features import CAPACITIES, EDGE_FEATURES, EDGE_WINDOW, LOAD_WINDOW, SHARE_WINDOW, TASK_FEATURES
from penstock.model.instance import Instance
from penstock.model.taskgraph import Bools, Floats, Ints, task_names
from penstock.pipeline.fitting import Rows
from penstock.sim.events import TwinSpan

if TYPE_CHECKING:
    import pyarrow as pa

Key = tuple[str, str]
"""What a time belongs to: `component` or `stream`; and its name."""


class Window(NamedTuple):
    """Measures of a span; T tasks, E edges in the order of `Instance.edges`."""

    slots: Ints  # [T]
    span: TwinSpan
    tasks: Floats  # [T, 5] features
    edges: Floats  # [E, 9]
    used: Floats  # [T] share of the cores of each task's machine

    @property
    def processing_s(self) -> Floats:
        """Mean time of a tuple at each task, NaN if it had none. [T]"""
        return self.span.processing_s

    @property
    def transfer_s(self) -> Floats:
        """Mean time of a tuple over each edge. [E]"""
        return _ratio(self.span.edge_transfer_s, self.span.edge_tuples)


class Tables:
    """Derives windows from spans, and from windows the input of regressions and schedulers."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        topology = instance.topology
        self.names = [topology.components[position].name for position in instance.tasks.position]
        self.labels = [stream.label for stream in topology.streams]

    def window(self, slots: Sequence[int], span: TwinSpan) -> Window:
        """Return the window of a span with a constant placement."""
        instance, placed = self.instance, np.asarray(slots, dtype=np.int32)
        machine, machines = instance.slots.machine[placed], instance.slots.machines
        load = span.processed / span.seconds
        together = np.bincount(machine, load, machines)
        colocated = np.bincount(machine, minlength=machines) - 1.0
        has = instance.slots.machine_cpu[machine], instance.slots.machine_memory_mb[machine]
        end = np.column_stack([*has, load, together[machine]])
        source, target = instance.edges.source, instance.edges.target
        same = (machine[source] == machine[target]).astype(np.float64)
        tasks = np.column_stack([end, colocated[machine]])
        edges = np.column_stack([end[source], end[target], same])
        return Window(placed, span, tasks, edges, span.machine_cpu[machine])

    def rows(self, windows: Iterable[Window]) -> dict[Key, Rows]:
        """Return the training data: by component or stream, all windows; each is a placement of its own."""
        parts: dict[Key, list[tuple[Floats, Floats, Floats, int]]] = {}
        for number, window in enumerate(windows):
            for key, features, labels, counts in self._labelled(window):
                parts.setdefault(key, []).append((features, labels, counts, number))
        made: dict[Key, Rows] = {}
        for key, found in parts.items():
            at = np.concatenate([np.full(len(labels), number) for _, labels, _, number in found]).astype(np.int32)
            features, labels, counts = (np.concatenate([one[column] for one in found]) for column in range(3))
            names = TASK_FEATURES if key[0] == "component" else EDGE_FEATURES
            made[key] = Rows(features, labels, counts, at, at, np.isin(names, CAPACITIES))
        return made

    def _labelled(self, window: Window) -> Iterable[tuple[Key, Floats, Floats, Floats]]:
        for number, name in enumerate(self.names):
            own = np.zeros(len(window.slots), dtype=np.bool_)
            own[list(self.instance.tasks.of(number))] = True
            if not self.instance.tasks.source[own].any():
                yield _part(("component", name), own, window.tasks, window.processing_s, window.span.processed)
        for number, label in enumerate(self.labels):
            own = self.instance.edges.stream == number
            yield _part(("stream", label), own, window.edges, window.transfer_s, window.span.edge_tuples)

    def measured(self, span: TwinSpan) -> dict[Key, float]:
        """Return the mean time at each component that processes and over each stream."""
        spent = span.component_processing_s.items()
        made = {("component", name): seconds for name, seconds in spent if name not in self._sources}
        return made | {("stream", label): seconds for label, seconds in span.stream_transfer_s.items()}

    def longest(self, times: Mapping[Key, float]) -> float:
        """Return the longest path (2.5) of mean times."""
        processing = [times.get(("component", name), 0.0) for name in self.names]
        transfer = [times["stream", self.labels[flow.stream]] for flow in self.instance.tasks.flows]
        return longest_path(self._graph, processing, transfer).seconds

    @cached_property
    def _sources(self) -> set[str]:
        return {source.name for source in self.instance.topology.sources}

    @cached_property
    def _graph(self) -> Graph:
        tasks = self.instance.tasks
        sources = tuple(number for number, name in enumerate(self.names) if name in self._sources)
        return Graph(len(self.names), tuple((flow.source, flow.target) for flow in tasks.flows), sources)

    def feature_table(self, windows: Sequence[Window], run: str = "twin") -> "pa.Table":
        """Return windows as the pipeline's table of features, of all tasks."""
        names = task_names(self.instance.topology)
        columns: dict[str, list[Any]] = {name: [] for name in dict.fromkeys((*LOAD_WINDOW, *TASK_FEATURES))}
        for number, window in enumerate(windows):
            _extend(columns, {"run": [run] * len(names), "window": [number] * len(names), "task": names})
            _extend(columns, dict(zip(TASK_FEATURES, window.tasks.T, strict=True)))
            _extend(columns, {"machine": self._machines(window.slots), "used_cpu": window.used})
        return _table(columns)

    def share_table(self, windows: Sequence[Window], run: str = "twin") -> "pa.Table":
        """Return windows as the pipeline's table of shares, without the shares themselves."""
        columns = [name if name != "tuples" else "count" for name in SHARE_WINDOW]
        return self.edge_table(windows, run).select(columns).rename_columns(list(SHARE_WINDOW))

    def edge_table(self, windows: Sequence[Window], run: str = "twin") -> "pa.Table":
        """Return windows as the pipeline's table of edges."""
        edges, names = self.instance.edges, task_names(self.instance.topology)
        columns: dict[str, list[Any]] = {name: [] for name in EDGE_WINDOW}
        for number, window in enumerate(windows):
            count = window.span.edge_tuples
            seen = np.flatnonzero(count > 0)
            _extend(columns, {"run": [run] * len(seen), "window": [number] * len(seen)})
            _extend(columns, dict(zip(EDGE_FEATURES, window.edges[seen].T, strict=True)))
            _extend(columns, {"stream": [self.labels[stream] for stream in edges.stream[seen]]})
            for end, tasks in (("source", edges.source[seen]), ("target", edges.target[seen])):
                machines = self._machines(window.slots[tasks])
                _extend(columns, {end: [names[task] for task in tasks], f"{end}_machine": machines})
            _extend(columns, {"source_used_cpu": window.used[edges.source[seen]], "count": count[seen]})
            _extend(columns, {"transfer_s": window.transfer_s[seen]})
        return _table(columns)

    def _machines(self, slots: Ints) -> list[str]:
        machines = self.instance.cluster.machines
        return [machines[machine].name for machine in self.instance.slots.machine[slots]]


def _part(
    key: Key, own: Bools, features: Floats, labels: Floats, counts: "np.typing.NDArray[np.int64]"
) -> tuple[Key, Floats, Floats, Floats]:
    seen = own & (counts > 0)
    return key, features[seen], labels[seen], counts[seen].astype(np.float64)


def _ratio(total: Floats, number: "np.typing.NDArray[np.int64]") -> Floats:
    found: Floats = np.divide(total, number, out=np.full(len(total), np.nan), where=number > 0)
    return found


def _extend(columns: dict[str, list[Any]], more: Mapping[str, Iterable[Any]]) -> None:
    for name, values in more.items():
        columns[name].extend(values)


def _table(columns: Mapping[str, list[Any]]) -> "pa.Table":
    import pyarrow as pa

    return pa.table(columns)
