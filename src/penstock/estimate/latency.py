"""The latency of an untried placement, predicted as in Li's chapter 2, eqs. (2.1)-(2.5).

Regressions predict how long a task processes a tuple, and how long a tuple takes from one task to another, from
features of their machines. When tasks move, only features change: the cores and memory of their machines, the tuples
processed and the tasks there, and which pairs of tasks share a machine. Means over tasks and pairs, weighted by their
shares of the tuples, add up along a path; the longest path determines the application's latency.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from penstock.estimate.bottleneck import bottleneck_rates
from penstock.estimate.evaluator import UNSUSTAINED, Evaluator, memory_fits
from penstock.estimate.latency_kernels import FLAT, LINEAR, RADIAL, Fits, LatencyNet, total_latencies
from penstock.estimate.latency_loads import Loads
from penstock.estimate.latency_models import LatencyModels, ModelSet, load_models, save_models
from penstock.estimate.paths import Graph, enumerate_paths, longest_path, path_time
from penstock.estimate.regression import FAR, Regressor
from penstock.model.features import EDGE_FEATURES, TASK_FEATURES
from penstock.model.instance import Instance
from penstock.model.taskgraph import Bools, Floats, Ints, sum_by

__all__ = ["LatencyModel", "LatencyModels", "Loads", "ModelSet", "Prediction", "load_models", "save_models"]

WIDTH = max(len(TASK_FEATURES), len(EDGE_FEATURES))
SAME = EDGE_FEATURES.index("same_machine")
FULL = 0.9
"""Utilisation of a machine, slot or link above which it is assumed to delay tuples beyond the prediction.

The cost of tuples is known from windows within some percent, and the regressions do not see that a machine is nearly
full: the dissertation's features are capacities and rates of tuples, not their costs.
"""


@dataclass(frozen=True)
class Prediction:
    """The predicted latency of a placement, in seconds."""

    total_s: float  # (2.5)
    expected_s: float  # the same with low utilisation, longer near saturation, infinite above it
    worst_path: tuple[str, ...]
    processing: Mapping[str, float]  # by component (2.2); none for sources
    transfer: Mapping[str, float]  # by stream (2.3)
    busiest: float  # maximum utilisation of a machine, slot or link; from 1 on the load is not sustained
    excess: float  # maximum amount by which a feature exceeds its training range, relative to it
    _graph: Graph
    _names: tuple[str, ...]

    @property
    def far(self) -> bool:
        """Whether the placement differs so much from the training data that the prediction should not be trusted."""
        return self.excess > FAR

    def paths(self) -> dict[tuple[str, ...], float]:
        """Return the time of each path (2.4), in descending order, by the names of its components.

        Raise `InvalidInput` if there are too many.
        """
        times = [self.processing.get(name, 0.0) for name in self._names]
        ways = list(self.transfer.values())
        found = {path: path_time(self._graph, path, times, ways) for path in enumerate_paths(self._graph)}
        slowest = sorted(found, key=lambda path: -found[path])
        return {tuple(self._names[component] for component in path): found[path] for path in slowest}


@dataclass(frozen=True, eq=False)
class LatencyModel:
    """Predicts the latency of placements of an application on a cluster, under a load."""

    instance: Instance
    models: LatencyModels
    loads: Loads

    def __post_init__(self) -> None:
        self.models.check(self.instance.topology)

    def predict(self, slots: ArrayLike) -> Prediction:
        """Return the predicted latency of a placement [T]."""
        placed = np.asarray(slots, dtype=np.int32)
        instance, streams = self.instance, self.instance.topology.streams
        edges, names = instance.edges, self._names
        of_tasks, of_edges = self.features(placed)
        processing, transfer, excess = np.zeros(len(names)), np.zeros(len(streams)), 0.0
        for number, name in enumerate(names):
            if name in self.models.components:
                own = np.array(instance.tasks.of(number))
                one = self.models.components[name]
                processing[number] = self.loads.task_share[own] @ one.predict(of_tasks[own])  # (2.2)
                excess = max(excess, float(one.scaling.excess(of_tasks[own]).max()))
        for number, stream in enumerate(streams):
            own = np.flatnonzero(edges.stream == number)
            one = self.models.streams[stream.label]
            transfer[number] = self.loads.edge_share[own] @ one.predict(of_edges[own])  # (2.3)
            excess = max(excess, float(one.scaling.excess(of_edges[own]).max()))
        used = [flow.stream for flow in instance.tasks.flows if self._used[flow.stream]]
        worst = longest_path(self._graph, processing.tolist(), transfer[used].tolist())
        judged = self._judged(placed[None, :])
        return Prediction(
            total_s=worst.seconds,
            expected_s=float(judged.expected_s[0]) if judged.keep_up[0] else np.inf,
            worst_path=tuple(names[component] for component in worst.path),
            processing={n: float(s) for n, s in zip(names, processing, strict=True) if n in self.models.components},
            transfer={streams[number].label: float(transfer[number]) for number in used},
            busiest=float(judged.busiest[0]),
            excess=excess,
            _graph=self._graph,
            _names=names,
        )

    def features(self, placed: Ints) -> tuple[Floats, Floats]:
        """Return the features of all tasks and of all edges in a placement: [T, 5], [E, 9]."""
        slots, edges, loads = self.instance.slots, self.instance.edges, self.loads
        machine, machines = slots.machine[placed], slots.machines
        load = sum_by(machine, loads.task_tps, machines)
        colocated = np.bincount(machine, minlength=machines) - 1.0
        has = slots.machine_cpu[machine], slots.machine_memory_mb[machine]
        end = np.column_stack([*has, loads.task_tps, load[machine]])
        same = machine[edges.source] == machine[edges.target]
        return (
            np.column_stack([end, colocated[machine]]),
            np.column_stack([end[edges.source], end[edges.target], same.astype(np.float64)]),
        )

    def scorer(self) -> Callable[[NDArray[np.int32]], Floats]:
        """Return a function from placements [B, T] to scores [B]: minus the expected seconds.

        A placement gets -inf if it violates a memory limit, lacks a resource or has a hop without a path. One that
        exceeds the capacity of a machine, slot or link is worse than any other, in proportion to the excess. At a
        utilisation u near saturation, the predicted seconds are multiplied by (1 - FULL) / (1 - u), as a queue would
        grow from there on.
        """

        def score(placed: NDArray[np.int32]) -> Floats:
            found = self._judged(np.ascontiguousarray(placed, dtype=np.int32))
            scores = np.where(found.keep_up, -found.expected_s, UNSUSTAINED * found.busiest)
            return np.where(found.fits, scores, -np.inf)

        return score

    def _judged(self, placed: NDArray[np.int32]) -> "_Judged":
        instance, evaluator = self.instance, self._evaluator
        tasks, slots = instance.tasks, instance.slots
        seconds, busiest = total_latencies(self.net, placed)
        fits = memory_fits(tasks.memory_mb, slots.memory_mb, slots.machine_memory_mb, slots.machine, placed)
        if instance.cluster.routed or evaluator.rate_net.carded or tasks.resources:
            offered = float(self.loads.task_tps[tasks.source].sum())
            rates = bottleneck_rates(evaluator.rate_net, placed, False)
            fits &= rates > 0
            busiest = np.maximum(busiest, offered / np.maximum(rates, 1e-9 * offered))
        return _Judged(seconds, busiest, fits)

    @cached_property
    def _evaluator(self) -> Evaluator:
        return Evaluator(self.instance.topology, self.instance.cluster)

    @cached_property
    def net(self) -> LatencyNet:
        """The input of the kernels."""
        instance, loads = self.instance, self.loads
        tasks, slots, edges = instance.tasks, instance.slots, instance.edges
        flows = tasks.flows
        order = np.concatenate([np.flatnonzero(edges.stream == flow.stream) for flow in flows])
        sizes = [int((edges.stream == flow.stream).sum()) for flow in flows]
        width = np.diff(tasks.first)
        fits = _fits(
            [self.models.components.get(name) for name in self._names], [self._stream(f.stream) for f in flows]
        )
        vectors = np.diff(fits.first)[len(self._names) :]
        ends = np.array([width[flow.source] + width[flow.target] for flow in flows])
        pairs = np.array([width[flow.source] * width[flow.target] for flow in flows])
        return LatencyNet(
            fits=fits,
            component=tasks.component,
            alike=self._alike(),
            first=tasks.first,
            source=np.array([tasks.source[first] for first in tasks.first[:-1]]),
            task_tps=loads.task_tps,
            cpu=loads.cpu,
            task_share=loads.task_share,
            slot_machine=slots.machine,
            slot_cpu=slots.cpu,
            machine_cpu=slots.machine_cpu,
            machine_memory_mb=slots.machine_memory_mb,
            stream_source=np.array([flow.source for flow in flows], dtype=np.int32),
            stream_target=np.array([flow.target for flow in flows], dtype=np.int32),
            stream_used=np.array([self._used[flow.stream] for flow in flows], dtype=np.bool_),
            stream_first=_starts(sizes).astype(np.int32),
            factor_first=_starts(ends * vectors),
            pair_first=_starts(pairs),
            edge_source=edges.source[order],
            edge_target=edges.target[order],
            edge_share=loads.edge_share[order],
        )

    @cached_property
    def _names(self) -> tuple[str, ...]:
        topology = self.instance.topology
        return tuple(topology.components[position].name for position in topology.order)

    @cached_property
    def _graph(self) -> Graph:
        """The components in topological order, and the streams that carry tuples."""
        flows = [flow for flow in self.instance.tasks.flows if self._used[flow.stream]]
        sources = np.unique(self.instance.tasks.component[self.instance.tasks.source])
        return Graph(len(self._names), tuple((flow.source, flow.target) for flow in flows), tuple(sources.tolist()))

    @cached_property
    def _used(self) -> NDArray[np.bool_]:
        """Whether each stream carries tuples."""
        edges, streams = self.instance.edges, len(self.instance.topology.streams)
        sent = sum_by(edges.stream, self.loads.task_tps[edges.source] * edges.share, streams)
        used: NDArray[np.bool_] = sent > 0
        return used

    def _stream(self, number: int) -> Regressor:
        return self.models.streams[self.instance.topology.streams[number].label]

    def _alike(self) -> Ints:
        """Number the tasks so that those with equal features in every placement share a number."""
        rows = np.column_stack([self.instance.tasks.component, self.loads.task_tps])
        return np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int32)


class _Judged(NamedTuple):
    """The results for placements [B]."""

    seconds: Floats  # (2.5)
    busiest: Floats  # utilisation of the fullest machine, slot or link
    fits: Bools  # whether the placement is valid

    @property
    def keep_up(self) -> Bools:
        """Whether they sustain the load."""
        able: Bools = self.busiest <= 1 - 1e-9
        return able

    @property
    def expected_s(self) -> Floats:
        """Seconds, increased near saturation."""
        stretch = (1.0 - FULL) / np.maximum(1.0 - self.busiest, 1e-9)
        stretched: Floats = self.seconds * np.maximum(1.0, stretch)
        return stretched


def _starts(sizes: ArrayLike) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(np.asarray(sizes, dtype=np.int64))]).astype(np.int64)


def _fits(components: list[Regressor | None], streams: list[Regressor]) -> Fits:
    """Concatenate all regressors; a source has none."""
    models = [*components, *streams]
    vectors = [_padded(model.vectors) if model is not None else np.zeros((0, WIDTH)) for model in models]
    own = [model.weights if model is not None else np.zeros(0) for model in models]
    settled = [_same_machine(model) for model in streams]
    weights = [np.concatenate(own)]
    biases = [[model.bias if model is not None else 0.0 for model in models]]
    for i in (0, 1):  # on different machines, on one
        weights.append(np.concatenate([*own[: len(components)], *(pair[i][0] for pair in settled)]))
        biases.append([*biases[0][: len(components)], *(pair[i][1] for pair in settled)])
    return Fits(
        kind=np.array([_kind(model) for model in models], dtype=np.int32),
        first=_starts([len(vector) for vector in vectors]).astype(np.int32),
        vectors=np.concatenate(vectors),
        weights=np.array(weights),
        biases=np.array(biases),
        ranges=np.ascontiguousarray(np.array([_ranges(model) for model in models]).swapaxes(0, 1)),
        labels=np.ascontiguousarray(np.array([_labels(model) for model in models]).T),
    )


def _kind(model: Regressor | None) -> int:
    if model is None or not len(model.weights):
        return FLAT
    return RADIAL if model.radial else LINEAR


def _labels(model: Regressor | None) -> list[float]:
    if model is None:
        return [0.0] * 6
    scaling = model.scaling
    known = [scaling.label_centre, scaling.label_spread, scaling.shortest, scaling.longest]
    return [model.gamma, *known, float(scaling.logarithm)]


def _ranges(model: Regressor | None) -> Floats:
    if model is None:
        return np.ones((5, WIDTH))
    scaling = model.scaling
    return _padded(np.stack([scaling.centre, scaling.spread, scaling.least, scaling.most, scaling.limit]))


def _padded(rows: Floats) -> Floats:
    return np.pad(rows, ((0, 0), (0, WIDTH - rows.shape[1])))


def _same_machine(model: Regressor) -> list[tuple[Floats, float]]:
    """Return an edge's weights and bias with its feature `same_machine` fixed: at 0, and at 1."""
    scaling = model.scaling
    known = (np.clip([0.0, 1.0], scaling.least[SAME], scaling.most[SAME]) - scaling.centre[SAME]) / scaling.spread[SAME]
    own = model.vectors[:, SAME] if len(model.weights) else np.zeros(0)
    if model.radial:
        return [(model.weights * np.exp(-model.gamma * (value - own) ** 2), model.bias) for value in known]
    return [(model.weights, model.bias + float(model.weights @ (own * value))) for value in known]
