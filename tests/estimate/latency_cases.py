"""Random regressors and applications under load, for the tests of the latency model."""

import numpy as np

from penstock.estimate.latency import LatencyModel, LatencyModels, Loads
from penstock.estimate.regression import Regressor, Scaling
from penstock.model.features import CAPACITIES, EDGE_FEATURES, TASK_FEATURES
from penstock.model.instance import Instance
from penstock.model.taskgraph import Floats
from penstock.model.topology import Kind
from tests.policies.placement.random_cases import random_mesh

KINDS = ("mean", "linear", "svr-linear", "svr-rbf")


def random_regressor(
    rng: np.random.Generator, features: Floats, kind: str | None = None, vectors: int = 7, logarithm: bool | None = None
) -> Regressor:
    """Draw a regressor whose training range covers the middle of these features, so that some lie outside."""
    chosen = kind or str(rng.choice(KINDS))
    width = features.shape[1]
    least, most = np.quantile(features, [0.1, 0.8], axis=0)
    if width == len(EDGE_FEATURES):
        least[-1], most[-1] = 0.0, float(rng.integers(2))  # tasks on one machine: some or none in the training
    names = TASK_FEATURES if width == len(TASK_FEATURES) else EDGE_FEATURES
    limit = np.where(np.isin(names, CAPACITIES), np.inf, most)
    spread = features.std(axis=0)
    scaling = Scaling(
        centre=features.mean(axis=0),
        spread=np.where(spread > 0, spread, 1.0),
        least=least,
        most=most,
        limit=limit,
        label_centre=float(np.log(2e-3)),
        label_spread=0.7,
        shortest=1e-4,
        longest=0.05,
        logarithm=True,
    )
    if not (rng.random() < 0.5 if logarithm is None else logarithm):
        scaling = Scaling(
            scaling.centre, scaling.spread, least, most, limit, label_centre=2e-3, label_spread=1e-3,
            shortest=1e-4, longest=0.05, logarithm=False,
        )  # fmt: skip
    number = {"mean": 0, "linear": 1, "svr-linear": 1}.get(chosen, vectors)
    return Regressor(
        chosen, scaling, float(rng.normal()), 0.1, rng.normal(size=(number, width)), rng.normal(size=number)
    )


def line(width: int, base: float, **slopes: float) -> Regressor:
    """A model whose label is a base and a slope times a feature, in seconds."""
    names = TASK_FEATURES if width == len(TASK_FEATURES) else EDGE_FEATURES
    normal = np.array([[slopes.get(name, 0.0) for name in names]])
    none, one = np.zeros(width), np.ones(width)
    scaling = Scaling(none, one, none, 1e9 * one, 1e9 * one, 0.0, 1.0, 1e-9, 1e9, False)
    return Regressor("linear", scaling, base, 0.0, normal, np.ones(1))


def random_models(rng: np.random.Generator, instance: Instance, loads: Loads, **settings: object) -> LatencyModels:
    """Draw a model for every component and stream, ranges from features of random placements."""
    bare = LatencyModel.__new__(LatencyModel)
    object.__setattr__(bare, "instance", instance)
    object.__setattr__(bare, "loads", loads)
    drawn = [rng.integers(0, instance.slots.number, instance.tasks.number).astype(np.int32) for _ in range(20)]
    made = [bare.features(slots) for slots in drawn]
    tasks, edges = (np.concatenate([both[i] for both in made]) for i in (0, 1))
    assert tasks.shape[1] == len(TASK_FEATURES)
    assert edges.shape[1] == len(EDGE_FEATURES)
    topology = instance.topology
    return LatencyModels(
        {c.name: random_regressor(rng, tasks, **settings) for c in topology.components if c.kind is not Kind.SOURCE},  # type: ignore[arg-type]
        {stream.label: random_regressor(rng, edges, **settings) for stream in topology.streams},  # type: ignore[arg-type]
        application=topology.name,
    )


def random_model(seed: int, uneven: bool = False) -> LatencyModel:
    """Draw an application on a mesh, a load and models; `uneven` gives every task another load."""
    rng = np.random.default_rng(seed)
    view = random_mesh(seed)
    instance = Instance(view.topology, view.cluster)
    loads = Loads.declared(instance, {source.name: 1.0 for source in view.topology.sources})
    loads = loads.scaled(float(rng.uniform(0.05, 0.3)))
    if uneven:
        loads = unevenly(rng, loads)
    return LatencyModel(instance, random_models(rng, instance, loads), loads)


def unevenly(rng: np.random.Generator, loads: Loads) -> Loads:
    factor = rng.uniform(0.5, 1.5, len(loads.task_tps))
    return Loads(loads.task_tps * factor, loads.cpu * factor, loads.task_share, loads.edge_share)
