"""Statistics for claims: accuracies and times of trials, seed by seed."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from penstock.experiments.statistics import deviation, signed_spread
from penstock.model.taskgraph import Floats
from penstock.papers.predictive.models import PATHS
from penstock.papers.predictive.settings import LOADS
from penstock.papers.predictive.windows import Key


def values(rows: pd.DataFrame, what: str, key: Key = PATHS, **wanted: str) -> "pd.DataFrame":
    """Return a table of one measure: one row per seed, one column per load."""
    kept = (rows["what"] == what) & (rows["of"] == key[0]) & (rows["name"] == key[1])
    for name, value in wanted.items():
        kept &= rows[name] == value
    return rows[kept].pivot_table(index="seed", columns="load", values="value")


def accuracy(rows: pd.DataFrame, scheme: str, given: str, loads: Sequence[float], key: Key = PATHS) -> Floats:
    """Return the mean accuracy over some loads. [seeds]"""
    found = values(rows, "accuracy", key, scheme=scheme, given=given)
    means: Floats = found[list(loads)].to_numpy(dtype=np.float64).mean(axis=1)
    return means


def change(rows: pd.DataFrame, scheme: str, key: Key = PATHS, what: str = "time") -> Floats:
    """Return the relative change of times, or predicted times, from the default placement's. [seeds, loads]"""
    times, default = (values(rows, what, key, scheme=name)[list(LOADS)] for name in (scheme, "default"))
    return (times / default - 1.0).to_numpy(dtype=np.float64)


def parts(rows: pd.DataFrame) -> list[Key]:
    """Return the components and streams, in the order of the rows: components, then streams."""
    own = rows[(rows["what"] == "time") & (rows["of"] != PATHS[0])]
    return list(dict.fromkeys((str(of), str(name)) for of, name in zip(own["of"], own["name"], strict=True)))


def shares(found: Floats) -> str:
    """Format shares as percent without a sign, by mean and standard deviation."""
    return f"{100.0 * found.mean():.1f} ±{100.0 * deviation(found):.1f} %"


def by_load(found: Floats) -> str:
    """Format changes [seeds, loads] load by load, with their standard deviations."""
    return ", ".join(f"{signed_spread(found[:, column])} at {100 * load:g} %" for column, load in enumerate(LOADS))


def joined(texts: Mapping[str, str]) -> str:
    """Join texts with their names."""
    return ", ".join(f"{name} {text}" for name, text in texts.items())
