"""Ours: fifty applications on real networks, admitted one after another with each placement policy.

The networks (Topology Zoo and Rocketfuel) do not describe computing. Every node has one machine, its speed random
within ±50 % of 1. A stream carries on average what the median link of the network carries in a second, a task needs
what an average machine does in a second: balanced, as in the simulations. Links fail 1 % of the time.

No node is a cloud: `cloud-only` puts a path on the machine with the most free capacity. The optimum is that of each
path separately, at the moment of its search. Times are processor times, because cases run concurrently.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from time import process_time

import msgspec
import numpy as np
import pandas as pd

from penstock.admission import Admitted, admit
from penstock.experiments.figure import Case, Claim, Figure, Row, select
from penstock.experiments.pictures import Picture, finish
from penstock.experiments.statistics import signed
from penstock.model.book import BANDWIDTH, Book, BookedPath
from penstock.model.cluster import Cluster
from penstock.model.formats.repetita import read_network
from penstock.model.kernel import preparing
from penstock.model.topology import Application
from penstock.papers.sparcle import names
from penstock.papers.sparcle.runs import APART
from penstock.papers.sparcle.summaries import bars, column, legend_below
from penstock.workloads.sparcle import FOLDER, factors, random_application

GRAPHS = FOLDER.parent / "networks"
APPLICATIONS, QUICK_APPLICATIONS = 50, 6
GUARANTEED = 0.5  # of the applications; the others are best-effort
RATES = (0.02, 0.2)
PRIORITIES = (1.0, 2.0, 4.0)
FAILS, AVAILABILITY = 0.01, 0.9  # of a link; requested by all applications
PATHS = 3  # maximum per application
ROOMY = 20  # maximum number of machines for which more seeds are affordable
LITTLE = 1e-6  # rate of applications without any in the utility
ABSENT = "the networks (../shared/data/networks) are not beside the repository: skipped"


def _cases(quick: bool) -> list[Case]:
    """Return one case per network and policy; of a missing network, one that reports it."""
    number = QUICK_APPLICATIONS if quick else APPLICATIONS
    made: list[Case] = []
    for path in sorted(GRAPHS.glob("*.graph"))[: 2 if quick else None]:
        seeds = range(3 if len(_cluster(path, 0).machines) <= ROOMY and not quick else 1)
        made += [
            {"network": path.stem, "policy": policy, "applications": number, "seed": seed}
            for policy in names.EVERY
            for seed in seeds
        ]
    return made or [{"network": "", "policy": "", "applications": 0, "seed": 0}]


@cache
def _cluster(path: Path, seed: int) -> Cluster:
    """Read a network and give every node a machine."""
    bare = read_network(path, cores=1, slots=1)
    speeds = factors(np.random.default_rng([seed, 1]), len(bare.machines))
    return msgspec.structs.replace(
        bare,
        machines=tuple(msgspec.structs.replace(m, speed=s) for m, s in zip(bare.machines, speeds, strict=True)),
        links=tuple(msgspec.structs.replace(link, failure_probability=FAILS) for link in bare.links),
    )


def _asking(cluster: Cluster, number: int, seed: int) -> list[Application]:
    """Draw applications: half with a guarantee, half linear graphs, random ends."""
    rng = np.random.default_rng([seed, 2])
    median = float(np.median([link.bandwidth_mbps for link in cluster.links]))
    made = []
    for position in range(number):
        graph = "diamond" if rng.random() < 0.5 else "linear"
        guaranteed = rng.random() < GUARANTEED
        rate, priority = float(rng.uniform(*RATES)), float(rng.choice(PRIORITIES))
        drawn = random_application(
            graph, cluster, rng, name=f"a{position}", sizes=(1.0, median), availability=AVAILABILITY
        )
        made.append(
            msgspec.structs.replace(drawn, guaranteed_tps=rate)
            if guaranteed
            else msgspec.structs.replace(drawn, priority=priority)
        )
    return made


def run_network(one: Case) -> Sequence[Row]:
    """Admit all and return a row: rates, utility, rejections, paths and processor time per admission."""
    if not one["network"]:
        return [{}]
    cluster = _cluster(GRAPHS / f"{one['network']}.graph", int(one["seed"]))
    asking = _asking(cluster, int(one["applications"]), int(one["seed"]))
    book, spent, refused = Book(cluster=cluster), [], {True: 0, False: 0}
    for asked in asking:
        with preparing() as kernels:
            started = process_time()
            policy = names.POLICIES[str(one["policy"])]
            seed = int(one["seed"]) + APART
            answer = admit(book, asked, policy=policy, paths=PATHS, seed=seed, advise=False, reliable_routes=False)
            spent.append(process_time() - started - kernels.seconds)
        if isinstance(answer, Admitted):
            book = answer.book
        else:
            refused[asked.guaranteed_tps is not None] += 1
    refusals = {"refused_guaranteed": refused[True], "refused_best_effort": refused[False]}
    return [{**_promised(book, asking), **refusals, **_times(spent), "nodes": len(cluster.machines)}]


def _promised(book: Book, asking: Sequence[Application]) -> dict[str, float]:
    """Return the guaranteed rate admitted and requested, and the utility of all best-effort applications."""
    guaranteed = [asked for asked in asking if asked.guaranteed_tps is not None]
    others = [asked for asked in asking if asked.guaranteed_tps is None]
    rates = {asked.name: book[asked.name].rate_tps if asked.name in book.index else 0.0 for asked in others}
    total = sum(asked.priority for asked in others)
    utility = sum(asked.priority * np.log(max(rates[asked.name], LITTLE)) for asked in others)  # (4)
    return {
        "guaranteed": float(sum(asked.guaranteed_tps or 0.0 for asked in guaranteed if asked.name in book.index)),
        "asked": float(sum(asked.guaranteed_tps or 0.0 for asked in guaranteed)),
        "utility": float(utility),
        "geometric": float(np.exp(utility / total)) if total else 0.0,  # mean rate with this utility
        "paths": float(np.mean([len(booking.paths) for booking in book.bookings])) if book.bookings else 0.0,
        "links": float(np.mean([_links(path) for booking in book.bookings for path in booking.paths] or [0])),
    }


def _links(path: BookedPath) -> int:
    """Return the number of links that a path uses."""
    return sum(BANDWIDTH in load for load in path.load.values())


def _times(spent: Sequence[float]) -> dict[str, float]:
    return {"median_ms": 1e3 * float(np.median(spent)), "worst_ms": 1e3 * float(np.max(spent))}


def _draw(rows: pd.DataFrame, picture: Picture) -> None:
    if "guaranteed" not in rows:
        picture.text(0.5, 0.5, ABSENT, ha="center")
        return
    picture.set_size_inches(12, 8)
    shown = {
        "share": ("guaranteed rate admitted", "share of what was asked for"),
        "geometric": ("best effort: weighted geometric mean of rates", "data units/s"),
        "refused": ("refused", "applications"),
        "median_ms": ("processor time of an admission, median", "ms"),
    }
    own = rows.assign(
        share=rows["guaranteed"] / rows.groupby("network")["asked"].transform("mean"),
        refused=rows["refused_guaranteed"] + rows["refused_best_effort"],
    )
    for axis, (measure, (title, up)) in zip(picture.subplots(2, 2).flat, shown.items(), strict=True):
        means = own.groupby(["network", "policy"], sort=False)[measure].mean()
        networks = [str(name) for name in own["network"].unique()]
        bars(axis, {name: {policy: float(means[name, policy]) for policy in names.EVERY} for name in networks})
        finish(axis, up=up, title=title, legend=False)
        if measure in ("geometric", "median_ms"):
            axis.set_yscale("log")
        axis.set_xticks(range(len(networks)), [f"{name}\n({_nodes(own, name)} nodes)" for name in networks], fontsize=7)
    legend_below(picture, axis)


def _nodes(rows: pd.DataFrame, name: str) -> int:
    return int(select(rows, network=name)["nodes"].iloc[0])


def _claims(rows: pd.DataFrame) -> list[Claim]:
    if "guaranteed" not in rows:
        return [Claim("ours: applications on real networks", "-", "skipped", "-", False, ABSENT)]
    by_name = {str(name): select(rows, network=name) for name in rows["network"].unique()}
    return [*(_admits(name, own) for name, own in by_name.items()), _above_published(by_name), _utility_claim(rows)]


def _admits(name: str, rows: pd.DataFrame) -> Claim:
    """Check whether SPARCLE admits as much guaranteed rate as any baseline."""
    means = {policy: _means(select(rows, policy=policy)) for policy in names.EVERY}
    rates = {policy: own["guaranteed"] for policy, own in means.items()}
    top = max((policy for policy in names.EVERY if policy not in names.OURS), key=lambda policy: rates[policy])
    asked = float(column(rows, "asked").mean())
    return Claim(
        f"ours: {name} ({_nodes(rows, name)} nodes): SPARCLE admits no less guaranteed rate than any baseline",
        "-",
        f"{rates[names.SPARCLE]:.2f}/s of {asked:.2f}/s asked for; refined {rates[names.REFINED]:.2f}/s; best baseline "
        f"{names.TITLES[top]} {rates[top]:.2f}/s",
        "our default, 1 % slack",
        rates[names.SPARCLE] >= 0.99 * rates[top],
        f"a path of our default uses {means[names.SPARCLE]['links']:.1f} links on average, one of {names.TITLES[top]} "
        f"{means[top]['links']:.1f}: SPARCLE takes the machines and routes with most room for the application at hand, "
        "however long they are, and so takes bandwidth from those that follow. "
        + "; ".join(f"{names.TITLES[policy]} {_described(own)}" for policy, own in means.items()),
    )


def _above_published(by_name: Mapping[str, pd.DataFrame]) -> Claim:
    """Check the benefit of near ties and of rating transports together if many applications ask."""
    rates = {
        name: [
            float(column(select(rows, policy=policy), "guaranteed").mean())
            for policy in (names.SPARCLE, names.CANONICAL)
        ]
        for name, rows in by_name.items()
    }
    texts = [f"{name} {signed(ours / published - 1, 0)}" for name, (ours, published) in rates.items() if published > 0]
    shares = [ours / float(column(by_name[name], "asked").mean()) for name, (ours, _) in rates.items()]
    return Claim(
        "ours: our default admits no less guaranteed rate than the algorithm as published",
        "-",
        f"{', '.join(texts)}; it admits {min(shares):.0%} to {max(shares):.0%} of what is asked for",
        "on every network, 1 % slack",
        all(ours >= 0.99 * published for ours, published in rates.values()),
    )


def _means(rows: pd.DataFrame) -> dict[str, float]:
    names = ("guaranteed", "geometric", "refused_guaranteed", "refused_best_effort", "median_ms", "links")
    return {name: float(column(rows, name).mean()) for name in names}


def _described(means: dict[str, float]) -> str:
    return (
        f"{means['guaranteed']:.2f}/s, best effort {means['geometric']:.3g}/s, refused "
        f"{means['refused_guaranteed']:.0f} + {means['refused_best_effort']:.0f}, {means['median_ms']:.0f} ms"
    )


def _utility_claim(rows: pd.DataFrame) -> Claim:
    """Check the utility of the best-effort applications, which share what the guaranteed ones leave."""
    won, texts = [], []
    for name in rows["network"].unique():
        own = select(rows, network=name)
        means = {policy: float(column(select(own, policy=policy), "utility").mean()) for policy in names.EVERY}
        best = max(mean for policy, mean in means.items() if policy not in names.OURS)
        won.append(means[names.SPARCLE] >= best - 0.01 * abs(best))
        texts.append(f"{name}: " + ", ".join(f"{names.TITLES[policy]} {mean:.0f}" for policy, mean in means.items()))
    return Claim(
        "ours: SPARCLE has the highest best-effort utility of all but its refinement",
        "-",
        f"on {sum(won)} of {len(won)} networks",
        "on all, our default, 1 % slack; an application without any rate counts with 1e-6/s",
        all(won),
        "who admits more guaranteed rate leaves less; " + "; ".join(texts),
    )


FIGURES: Sequence[Figure] = (
    Figure("networks", "Fifty applications on real networks", _cases, run_network, _draw, _claims),
)
