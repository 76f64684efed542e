"""Placement on the authors' validation graphs: every policy on task graphs that the authors kept out of training.

100 task graphs with five slot graphs each, random among those with as many slots as the largest parallelism or up to
three more. Throughput and delay are those of TATA's estimator, relative to `i-storm`; the reward is (13) with λ = 0.8,
relative to the mean of `i-storm` and `flink`. Times are measured while as many cases run as there are cores.
"""

from collections.abc import Sequence
from functools import cache

import numpy as np
import pandas as pd

from penstock.estimate.flow import TATA as MODEL
from penstock.experiments.figure import Case, Claim, Figure, Row, judged
from penstock.experiments.pictures import COLOURS, Picture, label
from penstock.experiments.statistics import deviation
from penstock.model.cluster import Cluster
from penstock.model.formats.tata import validation_pairs
from penstock.model.objective import Objective
from penstock.model.topology import Application
from penstock.papers.tata.policies import I_STORM, NI, OURS, TATA, base, ours
from penstock.planning.planner import Planner
from penstock.workloads.sparcle import FOLDER as NEIGHBOUR

FOLDER = NEIGHBOUR.parent / "tata"
GRAPHS, EACH = 100, 5
QUICK_STEP = 25  # a quick run uses one pair of this number
SEARCH, OPTIMUM = "local-search:seconds=0.1", "optimal:seconds=60"
STARTED, GREEDY = "neural-search:seconds=0.1", "neural:samples=1"
POLICIES = (
    I_STORM, "round-robin", "flink", "flink-spread", "r-storm", "t-storm", "t-heron", "heft", "vne", "sparcle",
    "greedy-sorted", "greedy-random", "random", "cloud-only", TATA, NI, GREEDY, "neural", STARTED, SEARCH, OPTIMUM,
)  # fmt: skip
SEARCHES = (*OURS, TATA, NI, "optimal")  # what is not a baseline
EQUAL = 1e-6  # of rewards
FOUND = 0.9  # share of the enumerable pairs
ABSENT = "the data set (../shared/data/tata) is not beside the repository"


def _cases(quick: bool) -> Sequence[Case]:
    """Return a case per pair; without the data set, one that reports it."""
    if not FOLDER.is_dir():
        return [{"pair": -1, "seed": 0}]
    return [{"pair": pair, "seed": 0} for pair in range(0, GRAPHS * EACH, QUICK_STEP if quick else 1)]


@cache
def _pairs(seed: int) -> list[tuple[Application, Cluster, int]]:
    return validation_pairs(FOLDER, EACH, seed)


def run_pair(case: Case) -> Sequence[Row]:
    """Ask every policy for a placement of one task graph on one slot graph; return a row each."""
    if int(case["pair"]) < 0:
        return [{"policy": "", "placed": False}]
    application, cluster, seed = _pairs(int(case["seed"]))[int(case["pair"])]
    planner = Planner(application, cluster, Objective.BALANCED, seed, MODEL)
    first = planner.decide(I_STORM).evaluation
    assert first is not None, "the data set has room for round-robin"
    rows: list[Row] = []
    for policy in POLICIES:
        decision = planner.decide(policy)
        row: dict[str, str | float | bool] = {"policy": policy, "placed": decision.placed, "ms": 1e3 * decision.seconds}
        if decision.evaluation is not None:
            row["throughput"] = decision.evaluation.throughput_tps / first.throughput_tps
            row["delay"] = decision.evaluation.delay_ms / first.delay_ms
            row["reward"] = planner.score(decision)
            row["proven"] = getattr(decision.result, "gap", None) == 0.0
        rows.append(row)
    return rows


def _draw(rows: pd.DataFrame, picture: Picture) -> None:
    placed = rows[rows["placed"]]
    if placed.empty:
        picture.text(0.5, 0.5, ABSENT, ha="center")
        return
    picture.set_size_inches(11, 5)
    rewards, both = picture.subplots(1, 2)
    names = list(dict.fromkeys(placed["policy"]))
    for place, name in enumerate(names):
        own = placed[placed["policy"] == name]
        colour = COLOURS[0] if base(name) not in SEARCHES else COLOURS[1]
        spread = deviation(own["reward"].to_numpy())
        rewards.errorbar(own["reward"].mean(), place, xerr=spread, fmt="o", color=colour, ms=4)
        both.plot(own["throughput"].mean(), own["delay"].mean(), "o", color=colour, ms=4)
        both.annotate(base(name), (own["throughput"].mean(), own["delay"].mean()), fontsize=6, xytext=(3, 3),
                      textcoords="offset points")  # fmt: skip
    rewards.set_yticks(range(len(names)), names, fontsize=7)
    rewards.invert_yaxis()
    label(rewards, "reward (13)", "", "mean and standard deviation of pairs")
    label(both, f"throughput / {I_STORM}'s", f"delay / {I_STORM}'s", "means")


def _claims(rows: pd.DataFrame) -> list[Claim]:
    placed = rows[rows["placed"]]
    if placed.empty:
        return [Claim("ours: placements of the validation graphs", "not compared", "skipped", "-", False, ABSENT)]
    means = placed.groupby("policy", sort=False)["reward"].mean()
    baselines = means[[name for name in means.index if base(name) not in SEARCHES]]
    learned = [name for name in means.index if base(name) in (TATA, NI, *OURS)]
    return [*(_above(name, placed, baselines) for name in learned), *_as_start(placed), *_optimum(placed)]


def _above(policy: str, rows: pd.DataFrame, baselines: "pd.Series[float]") -> Claim:
    own = rows[rows["policy"] == policy]
    mean, best = float(own["reward"].mean()), str(baselines.idxmax())
    holds = mean > float(baselines.max())
    ahead = int((baselines < mean).sum())
    return judged(
        f"{ours(policy)}{policy} has a higher reward than every baseline",
        "not compared",
        f"{mean:+.3f}, {best} {baselines.max():+.3f}; decided in {own['ms'].median():.1f} ms (median)",
        f"mean of {len(own)} pairs",
        holds,
        f"it is above {ahead} of {len(baselines)} baselines",
    )


def _as_start(rows: pd.DataFrame) -> list[Claim]:
    """Compare a search that starts from the network with one that does not, pair by pair."""
    by_pair = rows.pivot(index="pair", columns="policy", values="reward")
    if not {SEARCH, STARTED} <= set(by_pair):
        return []
    more = (by_pair[STARTED] - by_pair[SEARCH]).dropna().to_numpy()
    interval = 1.96 * deviation(more) / np.sqrt(len(more))
    holds = bool(more.mean() + interval >= 0)
    return [
        Claim(
            f"ours: {STARTED} is not worse than {SEARCH}",
            "not compared",
            f"{more.mean():+.4f} ±{interval:.4f}",
            f"95 % interval of {len(more)} pairs",
            holds,
            "" if holds else "the proposals take time from the search",
        )
    ]


def _optimum(rows: pd.DataFrame) -> list[Claim]:
    """Compare the search with the optimum on the pairs whose placements can be enumerated."""
    enumerated = rows.loc[(rows["policy"] == OPTIMUM) & rows["proven"].astype(bool), "pair"]
    if enumerated.empty:
        return []
    by_pair = rows[rows["pair"].isin(enumerated)].pivot(index="pair", columns="policy", values="reward")
    both = by_pair[[SEARCH, OPTIMUM]].dropna()
    gap = both[OPTIMUM] - both[SEARCH]
    share = float((gap <= EQUAL).mean())
    return [
        judged(
            f"ours: {SEARCH} finds the optimum where all placements can be enumerated",
            "not compared",
            f"in {share:.0%} of {len(both)} pairs; {gap.mean():.4f} below it on average, at most {gap.max():.3f}",
            f"≥ {FOUND:.0%} of these pairs",
            share >= FOUND,
            "0.1 s are too short for the others, more so while other cases use the cores",
        )
    ]


VALIDATION = Figure(
    "validation",
    "Placements of the data set's validation graphs, by TATA's estimator",
    _cases,
    run_pair,
    _draw,
    _claims,
)
