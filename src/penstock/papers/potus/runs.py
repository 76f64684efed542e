"""One simulation of one of POTUS's systems: the basis of every figure.

A case is complete, so that equal cases of several figures are run once: the system, arrivals, routing, prediction.
`case` adds the parameters that a figure does not vary.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from penstock.estimate.communication import Overload, communication_bound
from penstock.experiments.figure import Case, Row, Value
from penstock.model.slotted import Longs, SlottedSystem
from penstock.model.taskgraph import Floats
from penstock.policies.forecast.api import Forecaster
from penstock.policies.registry import forecaster, routing_policy
from penstock.sim.slotted import Arrivals, SlottedResult, simulate
from penstock.workloads.potus import PotusWorkload, arrival_counts, look_ahead, potus_workload, traces_folder


class Length(NamedTuple):
    """Duration of a simulation in slots."""

    slots: int  # that count
    warm_up: int
    warm_up_v: int  # additional warm-up per unit of V: queues grow with V, and until they have, tuples cost nothing
    seeds: int


FULL = Length(10_000, 1_000, 50, 4)
QUICK = Length(1_200, 200, 15, 2)
LARGEST_V = 100

FABRICS = ("jellyfish", "fat-tree")
ALTERNATIVES = ("shuffle", "round-robin", "least-loaded", "load-aware-shuffle")
"""Routing without a V; `local-first` is left out, because it overloads these systems."""

_FIXED: dict[str, Value] = {
    "fabric": "fat-tree",
    "arrivals": "trace",
    "utilisation": 0.8,
    "balanced": False,
    "container": 10,
    "limit": 0,  # γ; 0: as large as necessary
    "spouts": 0,  # tasks of every source; 0: random
    "applications": 5,
    "shallowest": 3,
    "deepest": 5,
    "policy": "potus",
    "v": 3.0,
    "options": "",
    "window": 0,  # W, the mean over applications
    "same": False,  # whether all have the mean
    "forecast": "perfect",
    "phantoms": 0.0,  # false positives per slot in the whole system or, if shared, per real tuple
    "shared": False,
    "evenly": False,  # whether shared ones are as many at every source, not in proportion to its tuples
    "seed": 0,
}


def length(quick: bool) -> Length:
    """Return the duration of simulations."""
    return QUICK if quick else FULL


def arrivals_kind() -> str:
    """Return the substitute for the paper's trace: recordings if available, otherwise a built-in process."""
    return "trace" if traces_folder() is not None else "self-similar"


def case(quick: bool, **changes: Value) -> dict[str, Value]:
    """Return a case: a figure's varied parameters, and constants."""
    span = length(quick)
    made = {**_FIXED, "arrivals": arrivals_kind(), **changes}
    if not policy_has_v(str(made["policy"])):
        made["v"] = 0.0
    warm_up = span.warm_up + int(span.warm_up_v * float(made["v"]))
    return {"slots": span.slots, "warm_up": warm_up, "longest": span.warm_up + span.warm_up_v * LARGEST_V, **made}


def policy_has_v(policy: str) -> bool:
    """Return whether a routing policy weighs cost by a V."""
    return policy.startswith("potus")


def run_system(one: Case) -> Sequence[Row]:
    """Run a case and return its row."""
    setting = _setting(one)
    rng = np.random.default_rng([int(one["seed"]), 2])
    slots, longest = int(one["slots"]), int(one["longest"])
    # policies with a shorter warm-up start later, so that all are measured on the same arrivals
    counts = arrival_counts(setting, str(one["arrivals"]), longest + slots, rng, traces_folder())
    counts = counts[:, longest - int(one["warm_up"]) :]
    lead = _lead(one, setting)
    predicted = _predicted(one, setting, counts, lead)
    arrivals = Arrivals(counts, predicted, lead)
    policy = routing_policy(spec(one))
    found = simulate(setting.system, arrivals, policy, warm_up=int(one["warm_up"]), seed=int(one["seed"]))
    came = counts[:, int(one["warm_up"]) :].mean(axis=1)
    wrong = 0.0 if predicted is None else float(((predicted - counts)[lead > 0] ** 2).mean())
    row = {"squared_error": wrong, "unequal": unequal(setting.system)}
    return [{**measures_of(setting.system, came, found, slots), **row}]


def spec(one: Case) -> str:
    """Return the specification of a case's routing."""
    if not policy_has_v(str(one["policy"])):
        return str(one["policy"])
    return f"{one['policy']}:v={one['v']}" + (f",{one['options']}" if one["options"] else "")


def measures_of(system: SlottedSystem, came: Floats, found: SlottedResult, slots: int) -> dict[str, float]:
    """Return the measures of a simulation, with the minimum cost of its arrivals.

    came: [T] mean tuples per slot. slots: number of slots that count. The optimum is NaN if no routing carries the
    load.
    """
    bound = communication_bound(system, came)
    optimum = np.nan if isinstance(bound, Overload) else bound.cost
    waits, tenth = found.series.backlog[-slots:], max(1, slots // 10)
    grown = float(waits[-tenth:].mean() - waits[:tenth].mean())
    return {
        "response": found.response,
        "response_p99": found.response_p99,
        "cost": found.cost,
        "optimum": optimum,
        "backlog": found.backlog,
        "growth": grown / max(1, found.tuples),  # of the backlog from the first tenth to the last, per tuple
        "unfinished": found.unfinished / max(1, found.tuples),
        "tuples_a_slot": float(came.sum()),
        "served": found.hops,
    }


def unequal(system: SlottedSystem) -> float:
    """Return the share of the sources' out-queues whose downstream tasks are not equally far: routing sets the cost."""
    far = [system.cost[first:last] for first, last in pairwise(system.lanes)]
    own = [queue for task in np.flatnonzero(system.source) for queue in range(*system.queues[task : task + 2])]
    return float(np.mean([np.ptp(far[queue]) > 0 for queue in own]))


def _setting(one: Case) -> PotusWorkload:
    asked: dict[str, Any] = {name: one[name] for name in ("utilisation", "balanced", "applications", "container")}
    depth = (int(one["shallowest"]), int(one["deepest"]))
    asked |= {name: int(one[name]) or None for name in ("limit", "spouts")}
    return _drawn(str(one["fabric"]), int(one["seed"]), depth, tuple(asked.items()))


@lru_cache(maxsize=256)  # cases are not sorted, and drawing takes half as long as running
def _drawn(fabric: Any, seed: int, depth: tuple[int, int], asked: tuple[Any, ...]) -> PotusWorkload:
    return potus_workload(fabric, seed, depth=depth, **dict(asked))


def _lead(one: Case, setting: PotusWorkload) -> Longs:
    mean = int(one["window"])
    if one["same"]:
        return np.where(setting.system.source, mean, 0)
    return look_ahead(setting, mean, np.random.default_rng([int(one["seed"]), 3]))


def _predicted(one: Case, setting: PotusWorkload, counts: Longs, lead: Longs) -> Longs | None:
    """Return the prediction for every slot; None: exactly the arrivals."""
    if one["forecast"] == "perfect" or not lead.any():
        return None
    rng = np.random.default_rng([int(one["seed"]), 4])
    predicted = np.zeros_like(counts)
    for task in np.flatnonzero(lead > 0):
        predicted[task] = _forecaster(one, setting).forecast(counts[task], int(lead[task]), rng)
    return predicted


def _forecaster(one: Case, setting: PotusWorkload) -> Forecaster:
    if one["forecast"] != "false-positive":
        return forecaster(str(one["forecast"]))
    amount = float(one["phantoms"])
    if one["evenly"]:
        amount *= float(setting.rates.sum())
    if one["evenly"] or not one["shared"]:
        amount /= int((setting.rates > 0).sum())
    return forecaster(f"false-positive:x={amount},share={str(one['shared'] and not one['evenly']).lower()}")
