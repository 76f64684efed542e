"""Reward against time at 100 to 3,000 tasks: where a learned policy wins, and where search or a heuristic does.

Random applications of any structure on random clusters (`learn.instances.sized_pair`), none of them seen in training.
The reward is (13) with λ = 0.8 by TATA's estimator, relative to the mean of `i-storm` and `flink`. One case after
another on each core.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np
import pandas as pd

from penstock.experiments.figure import Case, Claim, Figure, Row
from penstock.experiments.pictures import COLOURS, Picture, curve_style, label
from penstock.learn.comparison import judged
from penstock.learn.instances import placeable, sized_pair
from penstock.papers.tata.policies import NI, OURS, TATA, base

SIZES = (100, 300, 1000, 3000)
SEEDS = 4
BUDGETS = (0.001, 0.01, 0.1, 1.0, 10.0, 30.0)  # s
SAMPLES = (1, 4, 16, 64)
HEURISTICS = (
    "i-storm", "round-robin", "flink", "flink-spread", "r-storm", "t-storm", "t-heron", "heft", "vne", "sparcle",
    "sparcle-refined", "greedy-sorted", "greedy-random", "random",
)  # fmt: skip
SEARCHES = ("local-search", "neural-search")
NEURAL = "neural:samples="
LEARNED = (*OURS[:2], TATA, NI)
NEAR = 0.005  # rewards this close are equal


def policies(quick: bool) -> list[str]:
    """Return the policies, those with a budget or a number of samples once for each."""
    budgets, samples = (BUDGETS[:3], SAMPLES[:2]) if quick else (BUDGETS, SAMPLES)
    searches = [f"{name}:seconds={budget:g}" for name in SEARCHES for budget in budgets]
    return [*HEURISTICS, TATA, NI, *(f"{NEURAL}{number}" for number in samples), *searches]


def _cases(quick: bool) -> Sequence[Case]:
    sizes, seeds = (SIZES[:1], 1) if quick else (SIZES, SEEDS)
    return [{"tasks": size, "seed": seed, "quick": quick} for size in sizes for seed in range(seeds)]


def run_instance(case: Case) -> Sequence[Row]:
    """Ask every policy for a placement of one instance; return a row each."""
    tasks, seed = int(case["tasks"]), int(case["seed"])
    [(view, reference)] = placeable(partial(sized_pair, tasks=tasks), 1, seed)
    asked = policies(bool(case["quick"]))
    list(judged([SEARCHES[0] + ":seconds=0.001", "neural:samples=2", TATA], view, reference, seed))  # compiles
    found = judged(asked, view, reference, seed)
    return [{"policy": one.policy, "reward": one.reward, "seconds": one.seconds} for one in found]


def _means(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the mean reward and the mean time of every policy at every size."""
    return rows.groupby(["tasks", "policy"], sort=False)[["reward", "seconds"]].mean().reset_index()


def _draw(rows: pd.DataFrame, picture: Picture) -> None:
    picture.set_size_inches(11, 8)
    means = _means(rows)
    sizes = sorted(set(means["tasks"]))
    for axis, tasks in zip(np.atleast_1d(picture.subplots(2, 2)).flat, sizes, strict=False):
        own = means[means["tasks"] == tasks]
        for number, name in enumerate((*SEARCHES, "neural")):
            part = own[own["policy"].map(base) == name].sort_values("seconds")
            axis.plot(part["seconds"], part["reward"], label=name, **curve_style(COLOURS[number]))
        single = own[~own["policy"].map(base).isin((*SEARCHES, "neural"))]
        axis.plot(single["seconds"], single["reward"], ".", color=COLOURS[7])
        for _, row in single.iterrows():
            axis.annotate(row["policy"], (row["seconds"], row["reward"]), fontsize=6, xytext=(3, 2),
                          textcoords="offset points")  # fmt: skip
        axis.set_xscale("log")
        label(axis, "seconds to decide", "reward (13)", f"{tasks:,} tasks")
        axis.legend(frameon=False, fontsize=7, loc="lower right")


def _claims(rows: pd.DataFrame) -> list[Claim]:
    means = _means(rows)
    found = []
    for tasks in sorted(set(means["tasks"])):
        own = means[means["tasks"] == tasks].set_index("policy")
        seeds = len(set(rows.loc[rows["tasks"] == tasks, "seed"]))
        found += [_wins(own, tasks, seeds), *_as_start(own, tasks, seeds)]
    return found


def _wins(own: pd.DataFrame, tasks: int, seeds: int) -> Claim:
    """Compare the network, greedy and with samples, with the best of what decides at least as quickly."""
    others = own[[base(name) not in LEARNED for name in own.index]]
    texts, won = [], False
    for name, row in own[[name.startswith(NEURAL) for name in own.index]].iterrows():
        quick = others.loc[others["seconds"] <= row["seconds"], "reward"]
        won = won or bool(row["reward"] > quick.max())
        samples = str(name).removeprefix(NEURAL)
        texts.append(f"{samples}: {row['reward']:+.3f} in {row['seconds']:.3g} s, {quick.idxmax()} {quick.max():+.3f}")
    return Claim(
        f"ours: with {tasks:,} tasks, the best of 1, 4, 16 or 64 proposals is better than all that decides as quickly",
        "not compared",
        "; ".join(texts),
        f"for one of these numbers; mean of {seeds} instances",
        won,
        "" if won else "search or a heuristic is enough at this size",
    )


def _as_start(own: pd.DataFrame, tasks: int, seeds: int) -> list[Claim]:
    """Compare the search that starts from the network with the one that does not, at equal time."""
    plain, started = (own[[base(name) == search for name in own.index]] for search in SEARCHES)
    pairs = list(zip(plain["reward"], started["reward"], strict=True))
    texts = [f"{seconds:g} s {b - a:+.3f}" for seconds, (a, b) in zip(BUDGETS, pairs, strict=False)]
    holds = all(b >= a - NEAR for a, b in pairs)
    return [
        Claim(
            f"ours: with {tasks:,} tasks, a search is at no time limit worse if it starts from the network",
            "not compared",
            ", ".join(texts),
            f"by at most {NEAR}; mean of {seeds} instances",
            holds,
            "" if holds else "the network's time is taken from the search's",
        )
    ]


SIZE = Figure("size", "Reward against time, by number of tasks", _cases, run_instance, _draw, _claims)
