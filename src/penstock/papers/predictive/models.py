"""Models of one training: support vector regression, a linear model and the mean, and their accuracy.

Accuracy is the dissertation's, 1 - |Pred - Act| / Act of a window's mean, for every component, every stream and the
whole application. The application is measured in two ways: as the longest path of mean times (`paths`), which (2.5)
predicts, and as the mean time until all descendants of a source tuple are processed (`trees`).
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from penstock.estimate.latency import LatencyModel, LatencyModels, Loads, Prediction
from penstock.model.taskgraph import Floats
from penstock.papers.predictive.visits import Site
from penstock.papers.predictive.windows import Key, Tables, Window
from penstock.pipeline.fitting import KINDS, fit
from penstock.sim.events import TwinSpan

PATHS, TREES = ("overall", "paths"), ("overall", "trees")
Times = Mapping[Key, float]


def train(tables: Tables, windows: Sequence[Window], seed: int) -> dict[str, LatencyModels]:
    """Fit a regression of every kind to every component and stream."""
    rows = tables.rows(windows)
    made: dict[str, LatencyModels] = {}
    for kind in KINDS:
        fitted = {key: fit(kind, found, seed).regressor for key, found in rows.items()}
        made[kind] = LatencyModels(
            {name: one for (of, name), one in fitted.items() if of == "component"},
            {name: one for (of, name), one in fitted.items() if of == "stream"},
            application=tables.instance.topology.name,
        )
    return made


def observed_loads(site: Site, windows: Sequence[Window]) -> Loads:
    """Return the loads in windows of one run."""
    tables = site.tables
    return Loads.observed(
        site.instance,
        tables.feature_table(windows),
        tables.share_table(windows),
        seconds=len(windows) * site.window_s,
        window_s=site.window_s,
    )


def measured_times(tables: Tables, span: TwinSpan) -> dict[Key, float]:
    """Return the times of a span: by component and stream, and of the application."""
    times = tables.measured(span)
    return {**times, PATHS: tables.longest(times), TREES: span.mean_s}


def mean_of(several: Sequence[Times]) -> dict[Key, float]:
    """Return the mean of times of several runs, key by key."""
    return {key: float(np.mean([times[key] for times in several])) for key in several[0]}


def from_features(tables: Tables, models: LatencyModels, window: Window) -> dict[Key, float]:
    """Return the predictions of models from the features of a window, as in the dissertation."""
    times: dict[Key, float] = {}
    for (of, name), rows in tables.rows([window]).items():
        regressor = (models.components if of == "component" else models.streams)[name]
        times[of, name] = float(np.average(regressor.predict(rows.features), weights=rows.counts))  # (2.2), (2.3)
    total = tables.longest(times)
    return {**times, PATHS: total, TREES: total}


def from_placement(model: LatencyModel, slots: "Sequence[int] | np.typing.NDArray[np.int32]") -> dict[Key, float]:
    """Return the predictions of a model for an untried placement, as a scheduler needs them."""
    found: Prediction = model.predict(slots)
    times = {("component", name): seconds for name, seconds in found.processing.items()}
    times |= {("stream", label): seconds for label, seconds in found.transfer.items()}
    return {**times, PATHS: found.total_s, TREES: found.total_s}


def accuracies(pairs: Iterable[tuple[Times, Times]]) -> dict[Key, float]:
    """Return the mean accuracy by key, given pairs of predicted and measured times."""
    found: dict[Key, list[float]] = {}
    for predicted, actual in pairs:
        for key, seconds in actual.items():
            found.setdefault(key, []).append(1.0 - abs(predicted[key] - seconds) / seconds)
    return {key: float(np.mean(values)) for key, values in found.items()}


def rank_correlation(one: Sequence[float] | Floats, other: Sequence[float] | Floats) -> float:
    """Return Spearman's rank correlation; 0 if one of them is constant but for rounding."""
    from scipy.stats import spearmanr

    if any(np.ptp(values) <= 1e-12 * np.abs(values).max() for values in (one, other)):
        return 0.0
    return float(spearmanr(one, other).statistic)
