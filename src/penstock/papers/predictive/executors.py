"""Figure 2.11: word count with fewer executors, under the default scheduler.

Scenario A has 6, 8, 8 and 8 tasks, B half of them, C 1, 2, 2 and 2. All have the same load, which the dissertation does
not give: a share of the capacity of C.
"""

import numpy as np
import pandas as pd

from penstock.experiments.figure import Case, Claim, Figure, Row
from penstock.experiments.pictures import COLOURS, Picture, bars_beside, label
from penstock.experiments.statistics import deviation
from penstock.papers.predictive.models import PATHS, TREES, measured_times
from penstock.papers.predictive.settings import COSTS, DEFAULT, LOADS, SEEDS, li_cluster, placed
from penstock.papers.predictive.summaries import joined
from penstock.papers.predictive.windows import Key, Tables
from penstock.sim.events import Twin
from penstock.workloads.storm_applications import word_count

SCENARIOS = {"A": (6, 8, 8, 8), "B": (3, 4, 4, 4), "C": (1, 2, 2, 2)}
TUPLES, QUICK_TUPLES = 20_000, 2_000
SPLIT: Key = ("component", "split")


def _cases(quick: bool) -> list[Case]:
    tuples = QUICK_TUPLES if quick else TUPLES
    seeds = range(1 if quick else SEEDS)
    return [{"scenario": one, "seed": seed, "tuples": tuples} for one in SCENARIOS for seed in seeds]


def run_scenario(case: Case) -> list[Row]:
    """Run a scenario at every load on the default placement."""
    machines, seed = li_cluster(), int(case["seed"])
    rng = np.random.default_rng(0)
    smallest = word_count(*SCENARIOS["C"])
    most = Twin(smallest, machines, COSTS).saturated_tps(placed(DEFAULT, smallest, machines, rng))
    application = word_count(*SCENARIOS[str(case["scenario"])])
    twin = Twin(application, machines, COSTS)
    slots = placed(DEFAULT, application, machines, rng)
    rows: list[Row] = []
    for load in LOADS:
        run = twin.start(slots, rates={"source": load * most}, seed=seed)
        seconds = int(case["tuples"]) / (load * most)
        run.advance(seconds / 4)
        times = measured_times(Tables(twin.instance), run.advance(seconds))
        rows += [{"load": load, "of": of, "name": name, "value": 1e3 * found} for (of, name), found in times.items()]
    return rows


def _times(rows: pd.DataFrame, key: Key, scenario: str, load: float) -> "np.typing.NDArray[np.float64]":
    kept = (rows["of"] == key[0]) & (rows["name"] == key[1]) & (rows["scenario"] == scenario) & (rows["load"] == load)
    return rows[kept].sort_values("seed")["value"].to_numpy(dtype=np.float64)


def _described(rows: pd.DataFrame, key: Key, load: float, digits: int = 3) -> str:
    found = {one: _times(rows, key, one, load) for one in SCENARIOS}
    return joined({one: f"{own.mean():.{digits}f} ±{deviation(own):.{digits}f} ms" for one, own in found.items()})


def _claims(rows: pd.DataFrame) -> list[Claim]:
    middle = LOADS[1]
    at = {one: {load: _times(rows, PATHS, one, load).mean() for load in LOADS} for one in SCENARIOS}
    split = {one: _times(rows, SPLIT, one, middle).mean() for one in SCENARIOS}
    first, last = (_times(rows, ("stream", "source->split"), one, middle).mean() for one in "AC")
    return [
        Claim(
            "more executors reduce the mean tuple processing time of the topology",
            "A below B below C",
            "; ".join(f"{100 * load:g} %: {_described(rows, PATHS, load, 2)}" for load in LOADS),
            "at every load",
            all(at["A"][load] < at["B"][load] < at["C"][load] for load in LOADS),
            f"of what C carries; whole trees at {100 * middle:g} %: {_described(rows, TREES, middle, 2)}",
        ),
        Claim(
            "processing at split takes a little longer with fewer executors",
            "0.080, 0.083, 0.088 ms",
            _described(rows, SPLIT, middle, 4),
            "A below B below C, by 1 to 20 % in all",
            split["A"] < split["B"] < split["C"] and 1.01 <= split["C"] / split["A"] <= 1.2,
            "on the twin a tuple's processing begins when a thread takes it up, and no scenario lacks cores: only "
            "waiting grows",
        ),
        Claim(
            "transfer latencies remain almost the same",
            "almost the same",
            f"source to split at {100 * middle:g} %: {_described(rows, ('stream', 'source->split'), middle)}",
            "C within 15 % of A",
            abs(last / first - 1) <= 0.15,
            f"count to database: {_described(rows, ('stream', 'count->database'), middle)}",
        ),
    ]


def _draw(rows: pd.DataFrame, picture: Picture) -> None:
    keys = [key for key in dict.fromkeys(zip(rows["of"], rows["name"], strict=True)) if key[0] != PATHS[0]]
    left, right = picture.subplots(1, 2)
    for number, one in enumerate(SCENARIOS):
        by_key, by_load = [(key, LOADS[1]) for key in keys], [(PATHS, load) for load in LOADS]
        for axis, places in ((left, by_key), (right, by_load)):
            found = [_times(rows, key, one, load) for key, load in places]
            look = {"color": COLOURS[number], "label": f"scenario {one}", "yerr": [times.std() for times in found]}
            bars_beside(axis, number, len(SCENARIOS), [times.mean() for times in found], **look)
    left.set_xticks(np.arange(len(keys)), [key[1] for key in keys], rotation=30, ha="right", fontsize=7)
    right.set_xticks(np.arange(len(LOADS)), [f"{100 * load:g} %" for load in LOADS])
    label(left, "", "mean time (ms)", f"(a) components and edges at {100 * LOADS[1]:g} %")
    label(right, "load (of what scenario C carries)", "mean time (ms)", "(b) the topology")
    left.legend(fontsize=7, frameon=False)


FIGURES: tuple[Figure, ...] = (
    Figure("2.11", "Figure 2.11: number of executors, word count", _cases, run_scenario, _draw, _claims),
)
