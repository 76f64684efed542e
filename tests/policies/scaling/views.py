"""Views of scaling policies, from the rates of whole components."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from penstock.model.cluster import Cluster, Machine
from penstock.model.taskgraph import expand_tasks
from penstock.model.topology import Application, Component, Kind, Stream, Topology
from penstock.policies.api import Resize, ScalingView, TaskLoads
from penstock.policies.registry import scaling_policy

ROOMY = Cluster(name="roomy", machines=tuple(Machine(name=f"m{n}", cores=8, slots=8) for n in range(25)))


def line(*widths: int, **settings: Any) -> Application:
    """Return a chain: source, op1, op2, …, of these widths; the last is a sink."""
    names = ["source", *(f"op{number}" for number in range(1, len(widths)))]
    kinds = [Kind.SOURCE, *[Kind.OPERATOR] * (len(widths) - 2), Kind.SINK]
    return Application(
        name="line",
        components=tuple(
            Component(name=name, kind=kind, parallelism=width, **settings)
            for name, kind, width in zip(names, kinds, widths, strict=True)
        ),
        streams=tuple(Stream(source=a, target=b) for a, b in pairwise(names)),
    )


def view_of(
    topology: Topology,
    true_tps: Mapping[str, float],
    *,
    target_tps: float,
    selectivity: Mapping[str, float] | None = None,
    cluster: Cluster = ROOMY,
    tasks: Mapping[str, Mapping[int, Mapping[str, float]]] | None = None,
    **more: Any,
) -> ScalingView:
    """Return a view in which every task of a component has the same true rate and is busy with its share.

    selectivity: of streams, 1 if not named. tasks: deviations, by component, task and column. A component that is not
    in `true_tps` processed nothing.
    """
    graph = expand_tasks(topology)
    names = [topology.components[position].name for position in graph.position]
    true = np.array([true_tps.get(names[component], np.nan) for component in graph.component])
    rate = graph.gain * target_tps
    columns = {
        "arrival_tps": rate.copy(),
        "processed_tps": np.where(np.isfinite(true), np.minimum(rate, true), 0.0),
        "true_tps": true,
        "busy": np.where(np.isfinite(true), np.minimum(rate / true, 1.0), 0.0),
        "blocked": np.zeros(len(true)),
        "queue": np.zeros(len(true)),
    }
    for name, by_task in (tasks or {}).items():
        for number, values in by_task.items():
            for column, value in values.items():
                columns[column][graph.first[names.index(name)] + number] = value
    return ScalingView(
        topology,
        cluster,
        TaskLoads(**columns),
        {stream.label: (selectivity or {}).get(stream.label, 1.0) for stream in topology.streams},
        target_tps,
        **{"interval_s": 60.0, **more},
    )


def resized_by(spec: str, view: ScalingView, seed: int = 0) -> Resize:
    return scaling_policy(spec).resize(view, np.random.default_rng(seed))
