"""A figure of our own: POTUS-plus on random systems, beside POTUS at its best V and the strongest alternative.

Twenty numbers in a row have every depth from one to five hops on both fabrics with Poisson arrivals and traces; the
load is drawn from 0.5 to 0.95. One setting is for response time (V = 0), one for cost; neither is fitted to a system.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from penstock.experiments.figure import Case, Claim, Figure, Row, Value
from penstock.experiments.potus.runs import ALTERNATIVES, arrivals_kind, length, measured, spec
from penstock.experiments.potus.summaries import COLOURS, cost_ratio, finish
from penstock.model.taskgraph import Floats
from penstock.policies.registry import routing
from penstock.sim.slotted import Arrivals, simulate
from penstock.workloads.potus import RandomSetting, arrival_counts, random_setting, traces_folder

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

SYSTEMS, QUICK_SYSTEMS = 40, 20
WEIGHTS = (0.0, 1.0, 3.0, 10.0)  # of POTUS; its best is taken system by system
COST_MINDED = 10.0  # V of POTUS-plus where cost matters most
WARM_UP, QUICK_WARM_UP = 3000, 700  # equal for all, so that all get the same tuples
LEVEL = 1.01  # a ratio of response times that one run cannot tell from 1
NEAR = 1.02  # the cost that is asked for, relative to the least one


def _cases(quick: bool) -> list[Case]:
    span = length(quick)
    fixed: dict[str, Value] = {
        "slots": span.slots,
        "warm_up": QUICK_WARM_UP if quick else WARM_UP,
        "kind": arrivals_kind(),
        "options": "",
    }
    return [
        {"seed": number, "policy": policy, "v": v, **fixed}
        for number in range(QUICK_SYSTEMS if quick else SYSTEMS)
        for policy, v in (
            *((policy, 0.0) for policy in ALTERNATIVES),
            *(("potus", v) for v in WEIGHTS),
            ("potus-plus", 0.0),
            ("potus-plus", COST_MINDED),
        )
    ]


def run_random(one: Case) -> Sequence[Row]:
    """Run a policy on the system of a number."""
    number, warm_up = int(one["seed"]), int(one["warm_up"])
    drawn = _drawn(number, str(one["kind"]))
    slots = int(one["slots"]) + warm_up
    rng = np.random.default_rng([number, 2])
    counts = arrival_counts(drawn.setting, drawn.kind, slots, rng, traces_folder())
    system = drawn.setting.system
    found = simulate(system, Arrivals(counts), routing(spec(one)), warm_up=warm_up, seed=number)
    about: dict[str, Value] = {
        "fabric": drawn.fabric,
        "arrivals": drawn.kind,
        "hops": drawn.hops,
        "tasks": system.tasks,
        "utilisation": drawn.setting.utilisation,
    }
    return [{**about, **measured(system, counts[:, warm_up:].mean(axis=1), found)}]


@lru_cache(maxsize=8)
def _drawn(number: int, kind: str) -> RandomSetting:
    return random_setting(number, ("poisson", kind))


def compared(rows: pd.DataFrame) -> pd.DataFrame:
    """Return a row a system: what POTUS-plus has relative to others.

    `to_potus` and `to_other` are ratios of response times to POTUS at its best V and to the best alternative, and
    `response` to the better of both; `cost` is its cost-minded cost relative to the least one, `cost_potus` the least
    of POTUS's.
    """
    rows = cost_ratio(rows)
    about = rows.groupby("seed")[["fabric", "arrivals", "hops", "tasks", "utilisation"]].first()
    response = rows.pivot_table(index="seed", columns=["policy", "v"], values="response")
    cost = rows.pivot_table(index="seed", columns=["policy", "v"], values="ratio")
    plus = response["potus-plus"][0.0]
    potus = _least(response, "potus", WEIGHTS)
    other = pd.concat([response[name][0.0] for name in ALTERNATIVES], axis=1).min(axis=1)
    return about.assign(
        to_potus=plus / potus,
        to_other=plus / other,
        response=plus / np.minimum(potus, other),
        cost=cost["potus-plus"][COST_MINDED],
        cost_potus=_least(cost, "potus", WEIGHTS),
        cost_shuffle=cost["shuffle"][0.0],
    )


def _least(table: pd.DataFrame, policy: str, weights: Sequence[float]) -> "pd.Series[float]":
    """Return the least of a policy's values over V, system by system."""
    least: pd.Series[float] = pd.concat([table[policy][v] for v in weights], axis=1).min(axis=1)
    return least


def _draw(rows: pd.DataFrame, picture: "Picture") -> None:
    found = compared(rows)
    response, cost = picture.subplots(1, 2)
    jitter = np.random.default_rng(0).uniform(-0.15, 0.15, len(found))
    for measure, colour, label in (
        ("to_potus", COLOURS[1], "to POTUS at its best V"),
        ("to_other", COLOURS[0], "to the strongest alternative"),
    ):
        response.scatter(found["hops"] + jitter, found[measure], s=14, color=colour, label=label)
    response.axhline(1.0, color="black", linewidth=0.8)
    finish(response, {"x": "hops", "y": "response time of POTUS-plus, ratio", "title": "V = 0"})
    for measure, colour, label in (
        ("cost", COLOURS[2], f"POTUS-plus, V = {COST_MINDED:g}"),
        ("cost_potus", COLOURS[1], "POTUS at its cheapest V"),
        ("cost_shuffle", COLOURS[0], "Shuffle"),
    ):
        cost.scatter(found["hops"] + jitter, found[measure], s=14, color=colour, label=label)
    cost.axhline(1.0, color="black", linewidth=0.8)
    finish(cost, {"x": "hops", "y": "cost / least cost", "title": "cost"})


def _claims(rows: pd.DataFrame) -> list[Claim]:
    found = compared(rows)
    slower, dearer = found[found["response"] > LEVEL], found[found["cost"] > NEAR]
    size = f"{len(found)} systems"
    return [
        Claim(
            "beyond",
            "ours: POTUS-plus is no slower than the better of POTUS and the strongest alternative",
            "-",
            f"ratio {_spread(found['response'])} over {size}",
            f"≤ {LEVEL} in every system",
            not len(slower),
            f"to POTUS {_spread(found['to_potus'])}, to the strongest alternative {_spread(found['to_other'])}; "
            f"{_where(slower, 'response')}",
        ),
        Claim(
            "beyond",
            "ours: in its cost-minded setting POTUS-plus is within 2 % of the optimum",
            "-",
            f"ratio {_spread(found['cost'])} over {size}",
            f"≤ {NEAR} in every system",
            not len(dearer),
            f"V = {COST_MINDED:g}; POTUS at its cheapest V {_spread(found['cost_potus'])}, Shuffle "
            f"{_spread(found['cost_shuffle'])}; {_where(dearer, 'cost')}",
        ),
    ]


def _spread(values: "pd.Series[float]") -> str:
    some: Floats = np.asarray(values, dtype=np.float64)
    return f"{some.mean():.3f} (median {np.median(some):.3f}, {some.min():.3f} to {some.max():.3f})"


def _where(worse: pd.DataFrame, measure: str) -> str:
    """Say where it loses."""
    if not len(worse):
        return "it loses nowhere"
    texts = [
        f"system {number}: {row[measure]:.3f} ({row['fabric']}, {row['arrivals']}, {row['hops']} hops, "
        f"load {row['utilisation']:.2f})"
        for number, row in worse.sort_values(measure, ascending=False).iterrows()
    ]
    return f"it loses in {len(texts)}, most in " + "; ".join(texts[:3])


FIGURES: Sequence[Figure] = (Figure("beyond", "POTUS-plus on random systems", _cases, run_random, _draw, _claims),)
