"""Figure 10: availability against the number of paths, linear graph on a star whose links fail 2 % of the time.

The paper does not describe its star further. Its probabilities do: 0.85 = 0.98⁸ requires eight links that fail
independently, and 0.78 = 0.98¹² twelve for two paths. Six tasks cannot use eight of a star's links if both directions
share one, so links are assumed to be full-duplex, each direction failing separately; shared ones are run, too.
"""

from collections.abc import Sequence
from itertools import islice

import numpy as np
import pandas as pd

from penstock.admission.book.free_capacity import find_free_capacity
from penstock.admission.book.paths import AdmissionRequest, paths_in_turn
from penstock.estimate.availability import any_works, carries
from penstock.experiments.figure import Case, Claim, Figure, Row, select
from penstock.experiments.pictures import COLOURS, Axes, Picture, curve_style, label
from penstock.model.book import Book
from penstock.papers.sparcle import names
from penstock.papers.sparcle.runs import APART, instances
from penstock.workloads.sparcle import Scarcity, SparcleInstance, draw_instance

FAILS = 0.02  # per link; machines do not fail
MOST = 4  # paths
ASKED = 2.7 / 2.67  # the guaranteed rate relative to the first path's
SECOND, THIRD = 1.2 / 2.67, 0.42 / 2.67  # their rates in the paper, relative to the first path's
RATIOS = (1.0, 4.0, 10.0)  # links to machines
JUDGED = 4.0  # the ratio at which an independent check found agreement with the figure
EXHAUSTED = 1e-6  # of the first path's rate: a path with less does not count
NEAR = 0.04
LINKS = {"full-duplex": True, "shared": False}


def _cases(quick: bool) -> list[Case]:
    return [
        {"links": kind, "ratio": ratio, "policy": policy, "seed": seed}
        for kind in LINKS
        for ratio in RATIOS
        for policy in ("canonical", "sparcle")
        for seed in range(instances(quick))
    ]


def run_paths(one: Case) -> Sequence[Row]:
    """Find paths one after another, each on what the earlier ones leave, and return one row per number of paths.

    If there is no further path, its rate is 0 and everything else stays the same.
    """
    scarcity = Scarcity(1.0, float(one["ratio"]))
    setting = draw_instance("star", "linear", scarcity, int(one["seed"]), duplex=LINKS[str(one["links"])])
    paths, rates = _paths(setting, names.POLICIES[str(one["policy"])], int(one["seed"]))
    fails = {link.label: FAILS for link in setting.cluster.links}
    made: list[Row] = []
    for number in range(1, MOST + 1):
        known, own = paths[:number], rates[:number]
        last = number == len(known)
        made.append(
            {
                "paths": number,
                "rate": own[-1] if last else 0.0,
                "total": sum(own),
                "used": len(known[-1]) if last else 0,  # links of this path
                "distinct": len(set().union(*known)),  # links of all so far
                "any": any_works(known, fails),
                "carries": carries(known, own, ASKED * rates[0], fails),
            }
        )
    return made


def _paths(setting: SparcleInstance, policy: str, seed: int) -> tuple[list[frozenset[str]], list[float]]:
    """Return the links of each path and its rate."""
    cluster, request = setting.cluster, AdmissionRequest(setting.application, policy, seed=seed + APART)
    found = list(islice(paths_in_turn(request, find_free_capacity(Book(cluster=cluster)), cluster), MOST))
    some = [path for path in found if path.rate_tps > EXHAUSTED * found[0].rate_tps]
    links = {link.label for link in cluster.links}
    return [frozenset(links & path.load.keys()) for path in some], [path.rate_tps for path in some]


def _draw(rows: pd.DataFrame, picture: Picture) -> None:
    picture.set_size_inches(10, 4.4)
    best, guaranteed = picture.subplots(1, 2, sharey=True)
    own = select(rows, policy="canonical")
    _availabilities(best, own, "any")
    _availabilities(guaranteed, own, "carries")
    best.axhline(0.9, color="black", linewidth=0.8, linestyle="--")
    guaranteed.axhline(0.85, color="black", linewidth=0.8, linestyle="--")
    best.plot([1, 2], [0.85, 0.94], "k*", markersize=9, label="paper")
    guaranteed.plot([1, 2], [0.0, 0.78], "k*", markersize=9, label="paper")
    label(best, "paths", "availability (mean)", "best effort: at least one works (asked: 0.9)")
    label(guaranteed, "paths", "", "guaranteed: 1.01 of the first path's rate (asked: 0.85)")
    for axis in (best, guaranteed):
        axis.set_xticks(range(1, MOST + 1))
        axis.legend(fontsize=7, frameon=False, loc="lower right")


def _availabilities(axis: Axes, rows: pd.DataFrame, measure: str) -> None:
    """Draw the mean by the number of paths."""
    for number, (kind, ratio) in enumerate((kind, ratio) for kind in LINKS for ratio in RATIOS):
        means = select(rows, links=kind, ratio=ratio).groupby("paths")[measure].mean()
        axis.plot(means.index, means, **curve_style(COLOURS[number]), label=f"{kind}, links : machines {ratio:g} : 1")


def _claims(rows: pd.DataFrame) -> list[Claim]:
    canonical = select(rows, policy="canonical")
    own = select(canonical, links="full-duplex", ratio=JUDGED)
    first, second, third = (select(own, paths=number) for number in (1, 2, 3))
    alone, two = float(np.median(first["any"])), float(np.median(second["any"]))
    both, more = float(np.median(second["carries"])), float(np.median(third["carries"]))
    links = ", ".join(f"{name} {np.median(some['distinct']):g}" for name, some in (("one", first), ("two", second)))
    others = "; ".join(_described(canonical, kind, ratio) for kind in LINKS for ratio in RATIOS)
    return [
        _near("best effort: availability with one path", 0.85, alone, f"links used by one and by two paths: {links}"),
        _near("best effort: availability with two paths", 0.94, two, f"medians with 1, 2 paths: {others}"),
        _rates_claim(own),
        _near("guaranteed: two paths carry the rate only while both work", 0.78, both, _both(second)),
        Claim(
            "guaranteed: a third path raises the availability",
            "rises",
            f"median {both:.2f} → {more:.2f}; 0.85 is reached in {(third['carries'] >= 0.85).mean():.0%} of instances",
            "higher in half of the instances or more",
            _rises(own) >= 0.5,
            f"higher in {_rises(own):.0%}",
        ),
    ]


def _near(claim: str, paper: float, found: float, why: str) -> Claim:
    near = abs(found - paper) <= NEAR
    return Claim(claim, f"{paper:g}", f"median {found:.3f}", f"±{NEAR:g}", near, why)


def _described(rows: pd.DataFrame, kind: str, ratio: float) -> str:
    own = select(rows, links=kind, ratio=ratio)
    medians = ", ".join(f"{np.median(select(own, paths=number)['any']):.2f}" for number in (1, 2))
    return f"{kind} at {ratio:g} {medians}"


def _both(rows: pd.DataFrame) -> str:
    links = f"{np.median(rows['distinct']):g}"
    return (
        f"both work only while all of their links do; two paths have {links} distinct links here, each up 98 % of the "
        "time, and 0.78 = 0.98¹² takes twelve, in a network that the paper does not describe"
    )


def _rises(rows: pd.DataFrame) -> float:
    """Return the share of instances in which a third path increases the availability of the guaranteed rate."""
    table = rows.pivot_table(index="seed", columns="paths", values="carries")
    return float((table[3] > table[2] + 1e-12).mean())


def _rates_claim(rows: pd.DataFrame) -> Claim:
    table = rows.pivot_table(index="seed", columns="paths", values="rate")
    second, third = (float(np.median(table[number] / table[1])) for number in (2, 3))
    return Claim(
        "guaranteed: rates of the second and third path, of the first",
        f"{SECOND:.2f}, {THIRD:.2f}",
        f"medians {second:.2f}, {third:.2f}",
        "half to twice as much",
        SECOND / 2 <= second <= 2 * SECOND and THIRD / 2 <= third <= 2 * THIRD,
        f"the paper's 2.67, 1.2 and 0.42 are of one instance; {(table[3] > 0).mean():.0%} have a third path",
    )


FIGURES: Sequence[Figure] = (
    Figure("10", "Figure 10: availability against the number of paths", _cases, run_paths, _draw, _claims),
)
