"""Graphs and clusters unlike those of the training: by how much the learned policies get worse.

Each kind has random instances; the reward is (13) with λ = 0.8 by TATA's estimator, relative to the mean of `i-storm`
and `flink`, and compared with the best that any policy found, as the scale of rewards differs from kind to kind.
`published` is as in the training, without its instances; the others are not in it.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache

import msgspec
import numpy as np
import pandas as pd

from penstock.experiments.figure import Case, Claim, Figure, Row
from penstock.experiments.pictures import COLOURS, Picture, label
from penstock.learn.comparison import judged
from penstock.learn.instances import CPU, MEMORY_MB, Pair, placeable, published_pair, varied_pair
from penstock.model.cluster import Cluster, Distances, Machine
from penstock.model.formats.dspbench import read_applications
from penstock.model.topology import Application
from penstock.papers.tata.policies import NI, TATA
from penstock.workloads.sparcle import FOLDER as NEIGHBOUR
from penstock.workloads.topologies import draw_job, layered

APPLICATIONS = NEIGHBOUR.parent / "applications"
BLOCKS, EACH, QUICK = 4, 15, 2
LONG = "local-search:seconds=1"
GREEDY, NEURAL = "neural:samples=1", "neural"
POLICIES = (LONG, "local-search:seconds=0.1", "neural-search:seconds=0.1", GREEDY, NEURAL, TATA, NI, "greedy-sorted",
            "r-storm")  # fmt: skip
LOSS = 0.05  # of the reward


def joins(rng: np.random.Generator) -> Pair:
    """Draw many components, each with up to six inputs, on a cluster as in the data set."""
    components = int(rng.integers(10, 17))
    return _costed(rng, layered(components=components, depth=4, parallelism=3, min_parallelism=1, join=6, keyed=0.0,
                                seed=int(rng.integers(2**31)))), _slots(rng, 6, 15)  # fmt: skip


def dspbench(rng: np.random.Generator) -> Pair:
    """Draw one of DSPBench's applications, its measured costs, and one to six tasks of each component."""
    applications = _applications()
    measured = applications[int(rng.integers(len(applications)))]
    widest = {"source": 2, "sink": 2}
    components = tuple(
        msgspec.structs.replace(
            component,
            parallelism=int(rng.integers(1, widest.get(component.kind.value, 6) + 1)),
            memory_mb=_memory(rng),
        )
        for component in measured.components
    )
    return msgspec.structs.replace(measured, components=components), _slots(rng, 6, 15)


def many_slots(rng: np.random.Generator) -> Pair:
    """Draw an application as in the data set, on 30 to 60 slots."""
    return draw_job(rng), _slots(rng, 30, 60)


def few_slots(rng: np.random.Generator) -> Pair:
    """Draw an application as in the data set, on two or three slots with memory for all."""
    cluster = _slots(rng, 2, 3)
    machines = (
        msgspec.structs.replace(machine, memory_mb=16384.0, slot_memory_mb=None) for machine in cluster.machines
    )
    return draw_job(rng), msgspec.structs.replace(cluster, machines=tuple(machines))


def unequal(rng: np.random.Generator) -> Pair:
    """Draw an application as in the data set, on machines up to twenty times as fast as others."""
    job, cluster = published_pair(rng)
    machines = (
        msgspec.structs.replace(machine, speed=float(np.exp(rng.uniform(np.log(5), np.log(100)))))
        for machine in cluster.machines
    )
    return job, msgspec.structs.replace(cluster, machines=tuple(machines))


def equal_delays(rng: np.random.Generator) -> Pair:
    """Draw a pair as in the data set; everything is equally far."""
    return _far(rng, Distances(1.0, 1.0, 1.0, 1.0))


def long_delays(rng: np.random.Generator) -> Pair:
    """Draw a pair as in the data set; each level is ten times as far as the one before."""
    return _far(rng, Distances(1.0, 10.0, 100.0, 1000.0))


def _far(rng: np.random.Generator, distances: Distances) -> Pair:
    job, cluster = published_pair(rng)
    return job, msgspec.structs.replace(cluster, distances=distances)


def _costed(rng: np.random.Generator, job: Application) -> Application:
    components = (
        msgspec.structs.replace(component, cpu=float(rng.integers(CPU[0], CPU[1] + 1)), memory_mb=_memory(rng))
        for component in job.components
    )
    return msgspec.structs.replace(job, components=tuple(components))


def _memory(rng: np.random.Generator) -> float:
    return float(rng.integers(MEMORY_MB[0], MEMORY_MB[1] + 1))


def _slots(rng: np.random.Generator, fewest: int, most: int) -> Cluster:
    """Draw machines with one to four equal slots each, their speed and memory as in the data set."""
    wanted, machines = int(rng.integers(fewest, most + 1)), list[Machine]()
    while (left := wanted - sum(machine.slots for machine in machines)) > 0:
        slots = min(left, int(rng.integers(1, 5)))
        memory = float(rng.uniform(1024, 2048)) * slots
        host = f"h{int(rng.integers(1 + len(machines)))}"
        machines.append(Machine(name=f"m{len(machines)}", cores=slots, speed=float(rng.uniform(20, 40)), slots=slots,
                                memory_mb=memory, host=host))  # fmt: skip
    return Cluster(name="slots", machines=tuple(machines))


@cache
def _applications() -> tuple[Application, ...]:
    return read_applications(APPLICATIONS / "dspbench_operators.csv", APPLICATIONS / "dspbench_edges.json")


KINDS: Mapping[str, Callable[[np.random.Generator], Pair]] = {
    "published": published_pair,
    "varied": varied_pair,
    "joins": joins,
    "dspbench": dspbench,
    "many-slots": many_slots,
    "few-slots": few_slots,
    "unequal": unequal,
    "equal-delays": equal_delays,
    "long-delays": long_delays,
}
TRAINED = ("published", "varied")


def _cases(quick: bool) -> Sequence[Case]:
    """Return the cases; DSPBench's applications only if they are beside the repository."""
    kinds = [kind for kind in KINDS if kind != "dspbench" or APPLICATIONS.is_dir()]
    blocks, each = (1, QUICK) if quick else (BLOCKS, EACH)
    return [{"kind": kind, "seed": seed, "instances": each} for kind in kinds for seed in range(blocks)]


def run_kind(case: Case) -> Sequence[Row]:
    """Ask every policy for placements of some instances of a kind; return a row each."""
    rows: list[Row] = []
    drawn = placeable(KINDS[str(case["kind"])], int(case["instances"]), 1000 + int(case["seed"]))
    for number, (view, reference) in enumerate(drawn):
        found = judged(POLICIES, view, reference, number)
        rows += [{"instance": number, "policy": one.policy, "reward": one.reward, "ms": 1e3 * one.seconds}
                 for one in found]  # fmt: skip
    return rows


def losses(rows: pd.DataFrame) -> pd.DataFrame:
    """Return by how much each placement is below the best one found of its instance."""
    best = rows.groupby(["kind", "seed", "instance"])["reward"].transform("max")
    return rows.assign(loss=best - rows["reward"])


def _draw(rows: pd.DataFrame, picture: Picture) -> None:
    picture.set_size_inches(11, 4.5)
    axis = picture.subplots(1, 1)
    found = losses(rows).groupby(["policy", "kind"], sort=False)["loss"].mean().unstack()
    shown = [policy for policy in POLICIES if policy != LONG]
    width = 0.8 / len(shown)
    for number, policy in enumerate(shown):
        places = np.arange(len(found.columns)) + (number - len(shown) / 2) * width
        axis.bar(places, found.loc[policy], width, color=COLOURS[number], label=policy)
    axis.set_xticks(range(len(found.columns)), list(found.columns), fontsize=8)
    axis.set_yscale("symlog", linthresh=0.01)
    label(axis, "kind of instance", "reward (13) below the best found", "")
    axis.legend(frameon=False, fontsize=7, ncols=8, loc="lower center", bbox_to_anchor=(0.5, 1.0))


def _claims(rows: pd.DataFrame) -> list[Claim]:
    means = losses(rows).groupby(["kind", "policy"], sort=False)["loss"].mean()
    found = []
    for kind in dict.fromkeys(rows["kind"]):
        own = means[kind]
        number = int((rows["kind"] == kind).sum()) // len(POLICIES)
        seen = "like" if kind in TRAINED else "unlike"
        texts = [f"{policy} {own[policy]:.3f}" for policy in (NEURAL, GREEDY, TATA, NI, "greedy-sorted")]
        holds = bool(own[NEURAL] <= LOSS)
        found.append(
            Claim(
                f"ours: on {kind}, {seen} the training, `{NEURAL}` is near the best that was found",
                "not compared",
                "below the best found: " + ", ".join(texts),
                f"≤ {LOSS}; {number} instances",
                holds,
                "" if holds else "the network has not seen such instances",
            )
        )
    return found


UNLIKE = Figure(
    "unlike", "Learned policies on graphs and clusters unlike their training", _cases, run_kind, _draw, _claims
)
