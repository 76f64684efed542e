"""Two figures of our own: Theorem 1's slopes on systems of one hop, and an example of two hops where its bound fails.

Theorem 1 says that without look-ahead the mean cost exceeds the optimum by at most B / V (17), and that the mean
backlog grows no faster than V (18). It follows from (15), which does not contain (4): it is also tested without forced
dispatch (spread none). The example: l contains only the cost of the next hop, so a free first hop that leads to an
expensive second one is used for every V.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from penstock.experiments.figure import Case, Claim, Figure, Row, Value, select
from penstock.experiments.pictures import COLOURS, Picture, finish
from penstock.experiments.statistics import signed
from penstock.model.cluster import Cluster, Machine
from penstock.model.slotted import PlacedApplication, SlottedSystem, build_slotted_system
from penstock.model.topology import Component, Kind, Stream, Topology
from penstock.papers.potus.runs import case, measures_of, run_system, spec
from penstock.papers.potus.summaries import ACROSS_V, cost_ratio, curve, fit_line, means, power
from penstock.policies.registry import routing_policy
from penstock.sim.slotted import Arrivals, simulate

WEIGHTS, QUICK_WEIGHTS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0), (1.0, 2.0, 4.0, 8.0, 32.0)
SPREADS = ("least", "none")
SEEDS, QUICK_SEEDS = 10, 3
NOISE = 2e-4  # of the optimum: smaller gaps cannot be distinguished from 0 in ten thousand slots

EXAMPLE_WEIGHTS, QUICK_EXAMPLE_WEIGHTS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0), (1.0, 10.0, 100.0)
EXAMPLE_RATE = 3  # tuples per slot
EXAMPLE_LIMIT = 12  # γ
EXAMPLE_SLOTS, EXAMPLE_WARM_UP = 4000, 1000
NEAR, FAR, DEAR, FREE = 0.0, 1.0, 5.0, 0.0  # source to either worker, either worker to the sink
POTUS_COST, LEAST_COST, SHUFFLE_COST = 15.0, 3.0, 9.0  # per slot: 3 · (0 + 5), 3 · (1 + 0), the mean of both


def _cases(quick: bool) -> list[Case]:
    return [
        case(
            quick,
            part="hop",
            fabric="jellyfish",
            arrivals="poisson",
            shallowest=2,
            deepest=2,
            v=v,
            options=f"spread={way}",
            seed=seed,
        )
        for seed in range(QUICK_SEEDS if quick else SEEDS)
        for way in SPREADS
        for v in (QUICK_WEIGHTS if quick else WEIGHTS)
    ]


def _draw(rows: pd.DataFrame, picture: Picture) -> None:
    cost, backlog = picture.subplots(1, 2)
    rows = cost_ratio(rows).assign(gap=rows["cost"] - rows["optimum"])
    for number, way in enumerate(SPREADS):
        own = select(rows, options=f"spread={way}")
        found = means(own, "v", "gap")
        cost.plot(found.index, found.clip(lower=1e-4), "o-", color=COLOURS[number], markersize=3, label=f"spread {way}")
        curve(backlog, own, "v", "backlog", f"spread {way}", COLOURS[number])
    base = means(rows, "v", "gap")
    cost.plot(base.index, base.iloc[0] * base.index[0] / base.index, ":", color="black", label="like 1/V")
    cost.set_xscale("log")
    cost.set_yscale("log")
    short = "(17); below 0.02 the runs are too short"
    finish(cost, ACROSS_V, "mean cost − optimum (links a slot)", short)
    finish(backlog, ACROSS_V, "mean backlog (tuples)", "(18)")


def _claims(rows: pd.DataFrame) -> list[Claim]:
    rng = np.random.default_rng(0)
    made = []
    for way in SPREADS:
        own = select(cost_ratio(rows), options=f"spread={way}").assign(gap=lambda some: some["cost"] - some["optimum"])
        clear = means(own, "v", "ratio") - 1 > NOISE
        weights = [v for v in clear.index[clear] if v >= 1.0] or list(clear.index[:2])
        slope = power(own[own["v"].isin(weights)].pivot_table(index="seed", columns="v", values="gap"), rng)
        straight = fit_line(means(own, "v", "backlog"))
        end = own[own["v"] == own["v"].max()]["ratio"].mean() - 1
        made += [
            Claim(
                f"on one hop cost − optimum falls like 1/V or faster (spread {way})",
                "≤ B / V",
                f"slope of logarithms {slope} over V = {weights[0]:g}…{weights[-1]:g}",
                "upper limit ≤ −1",
                slope.high <= -1.0,
                _beyond(weights[-1], float(own["v"].max()), float(end)),
            ),
            Claim(
                f"on one hop backlog grows like V (spread {way})",
                "≤ (V·Θ* + B) / ε",
                f"{straight.slope:.1f} tuples a unit of V, R² {straight.fit:.4f}",
                "R² ≥ 0.99 and growing",
                straight.fit >= 0.99 and straight.slope > 0,
            ),
        ]
    return made


def _beyond(clear: float, last: float, end: float) -> str:
    """Describe the gap beyond the V up to which it can be distinguished from 0."""
    at_last = f"{signed(end, 2)} of the optimum at V = {last:g}"
    return at_last if clear == last else f"beyond, the gap cannot be distinguished from 0: {at_last}"


def example_system() -> SlottedSystem:
    """Build the four tasks: a source, two workers, a sink; the near worker is the expensive one."""
    topology = Topology(
        name="detour",
        components=(
            Component(name="source", kind=Kind.SOURCE),
            Component(name="worker", parallelism=2, cpu=0.002),
            Component(name="sink", kind=Kind.SINK, cpu=0.001),
        ),
        streams=(Stream(source="source", target="worker"), Stream(source="worker", target="sink")),
    )
    cluster = Cluster(name="four", machines=tuple(Machine(name=f"m{number}") for number in range(4)))
    between = np.zeros((4, 4))
    between[0, 1], between[0, 2], between[1, 3], between[2, 3] = NEAR, FAR, DEAR, FREE
    return build_slotted_system([PlacedApplication(topology, (0, 1, 2, 3))], cluster, cost=between, limit=EXAMPLE_LIMIT)


def run_example(one: Case) -> Sequence[Row]:
    """Run a policy on the four tasks, with the same number of tuples in every slot."""
    system = example_system()
    counts = np.zeros((system.tasks, int(one["slots"]) + int(one["warm_up"])), dtype=np.int64)
    counts[0] = EXAMPLE_RATE
    found = simulate(
        system, Arrivals(counts), routing_policy(spec(one)), warm_up=int(one["warm_up"]), seed=int(one["seed"])
    )
    return [measures_of(system, counts.mean(axis=1), found, int(one["slots"]))]


def _example_cases(quick: bool) -> list[Case]:
    span: dict[str, Value] = {"slots": EXAMPLE_SLOTS, "warm_up": EXAMPLE_WARM_UP, "options": "", "seed": 0}
    weights = QUICK_EXAMPLE_WEIGHTS if quick else EXAMPLE_WEIGHTS
    return [
        *({"policy": policy, "v": v, **span} for policy in ("potus", "potus-plus") for v in weights),
        {"policy": "shuffle", "v": 0.0, **span},
    ]


def _draw_example(rows: pd.DataFrame, picture: Picture) -> None:
    axis = picture.subplots()
    for policy, colour in (("potus", COLOURS[1]), ("potus-plus", COLOURS[2])):
        curve(axis, select(rows, policy=policy), "v", "cost", policy, colour)
    axis.axhline(
        float(select(rows, policy="shuffle")["cost"].iloc[0]), color=COLOURS[0], linestyle="--", label="shuffle"
    )
    axis.axhline(float(rows["optimum"].iloc[0]), color="black", linewidth=0.8, label="optimum")
    axis.set_xscale("log")
    axis.set_ylim(bottom=0)
    finish(axis, ACROSS_V, "mean cost (links a slot)", "a free first hop leads to a dear second one")


def _example_claims(rows: pd.DataFrame) -> list[Claim]:
    potus = select(rows, policy="potus")["cost"]
    plus, shuffled = select(rows, policy="potus-plus")["cost"], float(select(rows, policy="shuffle")["cost"].iloc[0])
    optimum = float(rows["optimum"].iloc[0])
    span = f"V = {rows['v'][rows['v'] > 0].min():g}…{rows['v'].max():g}"
    return [
        Claim(
            "check: (17) fails beyond one hop: cost is 15 a slot for every V in 1…100",
            "15",
            f"{potus.min():.2f} to {potus.max():.2f} for {span}",
            "15 ±0.1 at every V",
            bool((abs(potus - POTUS_COST) <= 0.1).all()),
            "four tasks; l ignores what the hops behind the next one cost",
        ),
        Claim(
            "check: the optimum is 3 and Shuffle has 9",
            "3 and 9",
            f"{optimum:.2f} and {shuffled:.2f}",
            "±0.3",
            bool(abs(optimum - LEAST_COST) <= 0.01 and abs(shuffled - SHUFFLE_COST) <= 0.3),
        ),
        Claim(
            "ours: POTUS-plus, which adds the least cost still to come, has the optimum",
            "-",
            f"{plus.min():.2f} to {plus.max():.2f} for {span}",
            "3 ±0.1 at every V",
            bool((abs(plus - LEAST_COST) <= 0.1).all()),
        ),
    ]


FIGURES: Sequence[Figure] = (
    Figure("theorem", "Theorem 1 on systems of one hop", _cases, run_system, _draw, _claims),
    Figure("counterexample", "Theorem 1 beyond one hop", _example_cases, run_example, _draw_example, _example_claims),
)
