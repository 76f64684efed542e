"""One random instance under several placement policies: the basis of most figures.

A case says how the instance is drawn and which policies to run; its row has the rate of every policy. Instances of one
seed are the same in every case, only scaled, so that cases are compared pair by pair.
"""

from collections.abc import Mapping, Sequence
from time import process_time
from typing import NamedTuple

from penstock.experiments.figure import Case, Row
from penstock.model.objective import Objective
from penstock.papers.sparcle import names
from penstock.planning.planner import Decision, Planner
from penstock.workloads.sparcle import Scarcity, SparcleInstance, draw_instance, references

ASKED: Mapping[str, Sequence[str]] = {
    "ratio": (*names.OURS, names.OPTIMUM),
    "all": (*names.OURS, names.NEAR, *names.RIVALS, names.OPTIMUM),
    "heuristics": (*names.OURS, names.NEAR, *names.RIVALS, names.GS_CPU),
}
"""Policies of a case."""

MACHINES, BALANCED, LINKS = "machine-bottleneck", "balanced", "link-bottleneck"
BOTTLENECKS: Mapping[str, Scarcity] = {
    MACHINES: Scarcity(machines=1.0, links=10.0),
    BALANCED: Scarcity(machines=1.0, links=1.0),
    LINKS: Scarcity(machines=10.0, links=1.0),
}
"""The paper's three cases: "a 10x larger ratio" is its own, also for the links; of the balanced case it gives none."""

INSTANCES, QUICK_INSTANCES = 500, 12
GIVEN = "given"
APART = 1_000_003  # added to the seed of an instance for the policies' random draws


class Drawn(NamedTuple):
    """Distribution of an instance, except for its scarcity."""

    shape: str
    graph: str
    machines: int = 8


def case(drawn: Drawn, name: str, scarcity: Scarcity, ask: str, seed: int) -> Case:
    """Return a case: an instance, and the policies to run."""
    return {
        "case": name,
        "shape": drawn.shape,
        "graph": drawn.graph,
        "machines": drawn.machines,
        "cpu": scarcity.machines,
        "links": scarcity.links,
        "memory": scarcity.memory,
        "ask": ask,
        "seed": seed,
    }


def instance_cases(drawn: Drawn, scarcities: Mapping[str, Scarcity], ask: str, instances: int) -> list[Case]:
    """Return a number of instances of every case."""
    return [case(drawn, name, own, ask, seed) for name, own in scarcities.items() for seed in range(instances)]


def instances(quick: bool) -> int:
    """Return the number of instances per case."""
    return QUICK_INSTANCES if quick else INSTANCES


def given_cases(quick: bool) -> list[Case]:
    """Return the instances with independent answers; none if the data are missing."""
    number = min(QUICK_INSTANCES, len(references())) if quick else len(references())
    return [{"case": GIVEN, "shape": GIVEN, "ask": "ratio", "number": position} for position in range(number)]


def setting_of(one: Case) -> SparcleInstance:
    """Draw the instance of a case, or look it up."""
    if one["shape"] == GIVEN:
        return references()[int(one["number"])].setting
    scarcity = Scarcity(float(one["cpu"]), float(one["links"]), float(one["memory"]))
    return draw_instance(str(one["shape"]), str(one["graph"]), scarcity, int(one["seed"]), int(one["machines"]))


def planner_of(setting: SparcleInstance, seed: int) -> Planner:
    """Return the planner for the highest rate."""
    return Planner(setting.application, setting.cluster, Objective.THROUGHPUT, seed=seed + APART)


def rate(decision: Decision) -> float:
    """Return the rate of a decision; 0 without a placement."""
    return 0.0 if decision.evaluation is None else decision.evaluation.even_tps


def run_rates(one: Case) -> Sequence[Row]:
    """Run a case and return its row: one rate per policy, the kind of limiting element, refinement times."""
    planner = planner_of(setting_of(one), int(one.get("seed", 0)))
    decisions, spent = {}, {}
    for name in ASKED[str(one["ask"])]:
        started = process_time()
        decisions[name] = planner.decide(names.POLICIES[name])
        spent[name] = process_time() - started
    rates = {name: rate(decision) for name, decision in decisions.items()}
    best = decisions[max(rates, key=lambda name: rates[name])].evaluation
    limit = best.bottleneck.kind if best is not None and best.bottleneck is not None else ""
    return [{**rates, "limit": limit, "refined_ms": 1e3 * spent[names.REFINED]}]
