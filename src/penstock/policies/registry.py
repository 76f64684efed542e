"""The registry of policies: kind, name, code, origin, summary.

A policy is imported when it is first used. `make("local-search:seconds=0.5")` gives a policy with parameters.
Names are those of a kind: a placement and a sending policy may both be called `round-robin`.
"""

from enum import StrEnum
from importlib import import_module
from typing import Any, NamedTuple, cast

from penstock.model.errors import UnknownName, member, nearest
from penstock.model.spec import build
from penstock.policies.api import PlacementPolicy, RoutingPolicy, ScalingPolicy, SendingPolicy
from penstock.policies.forecast.api import Forecaster


class PolicyKind(StrEnum):
    """What a policy decides."""

    PLACEMENT = "placement"
    ROUTING = "routing"
    SENDING = "sending"
    SCALING = "scaling"
    FORECAST = "forecast"

    @property
    def word(self) -> str:
        """Its name in errors: the option that selects one."""
        return "policy" if self is PolicyKind.PLACEMENT else str(self)


class Entry(NamedTuple):
    """One row of the table."""

    where: str  # module:Class
    origin: str
    summary: str


_PLACEMENT = "penstock.policies.placement"

_PLACEMENTS: dict[str, Entry] = {
    "round-robin": Entry(f"{_PLACEMENT}.round_robin:RoundRobin", "Storm's default", "deal tasks to slots in turn"),
    "i-storm": Entry(
        f"{_PLACEMENT}.i_storm:IStorm", "TATA's improved Storm", "round-robin, hosts with the most slots first"
    ),
    "flink": Entry(
        f"{_PLACEMENT}.flink:Flink", "Flink's default", "one pipeline per slot, machines filled one after another"
    ),
    "flink-spread": Entry(
        f"{_PLACEMENT}.flink_spread:FlinkSpread",
        "Flink, evenly spread out",
        "one pipeline per slot, spread over machines",
    ),
    "r-storm": Entry(
        f"{_PLACEMENT}.r_storm:RStorm", "Peng et al. 2015", "nearest machine in cpu, memory and network space"
    ),
    "t-storm": Entry(
        f"{_PLACEMENT}.t_storm:TStorm", "Xu et al. 2014", "busiest tasks first, where they add least traffic"
    ),
    "t-heron": Entry(
        f"{_PLACEMENT}.t_heron:THeron", "POTUS's placement", "busiest tasks first, least traffic between containers"
    ),
    "heft": Entry(f"{_PLACEMENT}.heft:Heft", "Topcuoglu et al. 2002", "highest upward rank first, earliest finish"),
    "vne": Entry(
        f"{_PLACEMENT}.vne:NodeRanking", "Cheng et al. 2011", "match tasks and machines by topology-aware rank"
    ),
    "sparcle": Entry(
        f"{_PLACEMENT}.sparcle:Sparcle",
        "SPARCLE's Algorithm 2",
        "the most limiting task first, where the rate decreases least",
    ),
    "sparcle-refined": Entry(
        f"{_PLACEMENT}.sparcle_refined:SparcleRefined",
        "Penstock",
        "sparcle, then moves, swaps and new routes within a budget",
    ),
    "greedy-sorted": Entry(
        f"{_PLACEMENT}.greedy_sorted:GreedySorted",
        "SPARCLE's GS",
        "most demanding tasks first, where the rate decreases least",
    ),
    "greedy-random": Entry(
        f"{_PLACEMENT}.greedy_random:GreedyRandom",
        "SPARCLE's GR",
        "tasks in random order, where the rate decreases least",
    ),
    "random": Entry(f"{_PLACEMENT}.random:Random", "SPARCLE, Li", "any slot that has room, evenly at random"),
    "cloud-only": Entry(f"{_PLACEMENT}.cloud_only:CloudOnly", "SPARCLE", "all on the most powerful machine"),
    "local-search": Entry(f"{_PLACEMENT}.local_search:LocalSearch", "Penstock", "simulated annealing on the objective"),
    "neural": Entry(f"{_PLACEMENT}.neural:Neural", "Penstock", "the best of what a trained network proposes"),
    "neural-search": Entry(
        f"{_PLACEMENT}.neural_search:NeuralSearch", "Penstock", "local-search, started from what neural proposes"
    ),
    "tata": Entry(f"{_PLACEMENT}.tata:Tata", "TATA's learned placement", "the best of what its network proposes"),
    "ni": Entry(f"{_PLACEMENT}.ni:Ni", "Ni et al. 2020", "TATA's learned baseline: slots that are all alike"),
    "predictive": Entry(
        f"{_PLACEMENT}.predictive:Predictive",
        "Li's Algorithm 1",
        "each task once, to the machine with the best prediction",
    ),
    "predictive-search": Entry(
        f"{_PLACEMENT}.predictive_search:PredictiveSearch",
        "Penstock",
        "predictive, then the best move or swap until none helps",
    ),
    "optimal": Entry(
        f"{_PLACEMENT}.optimal:Optimal", "Penstock", "exact: MILP for rate and traffic, exhaustive if tiny"
    ),
}


_TUPLES = "penstock.policies.tuples"

_ROUTINGS: dict[str, Entry] = {
    "shuffle": Entry(f"{_TUPLES}.shuffle:Shuffle", "Heron's default", "any downstream task, evenly at random"),
    "round-robin": Entry(f"{_TUPLES}.in_turn:InTurn", "Storm, Flink", "downstream tasks in turn"),
    "fields": Entry(f"{_TUPLES}.fields:Fields", "Storm", "the task that owns the tuple's key"),
    "partial-key": Entry(
        f"{_TUPLES}.partial_key:PartialKey", "Nasir et al. 2015", "the less loaded of a key's two tasks"
    ),
    "load-aware-shuffle": Entry(
        f"{_TUPLES}.load_aware:LoadAwareShuffle", "Storm 2", "at random, weighted by load, near tasks first"
    ),
    "least-loaded": Entry(
        f"{_TUPLES}.least_loaded:LeastLoaded", "Flink's adaptive partitioner", "fewest tuples in flight from here"
    ),
    "local-first": Entry(f"{_TUPLES}.local_first:LocalFirst", "Storm", "in turn over tasks on the same machine"),
    "potus": Entry(f"{_TUPLES}.potus:Potus", "POTUS", "trade communication cost against queues, slot by slot"),
    "potus-plus": Entry(
        f"{_TUPLES}.potus_plus:PotusPlus", "Penstock", "cost to the sinks against waiting time, filled evenly"
    ),
}

_SENDINGS: dict[str, Entry] = {
    "fifo": Entry(f"{_TUPLES}.fifo:Fifo", "Storm, Flink", "oldest tuple first"),
    "random": Entry(f"{_TUPLES}.random_queue:RandomQueue", "Penstock", "any queue that is not empty"),
    "round-robin": Entry(f"{_TUPLES}.queues_in_turn:QueuesInTurn", "Penstock", "queues in turn, empty ones skipped"),
    "round-robin-idle": Entry(
        f"{_TUPLES}.queues_in_turn:IdleTurns", "Hone's RRB", "queues in turn, an empty one wastes its turn"
    ),
    "longest-backlog-first": Entry(
        f"{_TUPLES}.longest_first:LongestFirst", "Hone's LBF", "the longest queue, for a while"
    ),
}

_SCALING = "penstock.policies.scaling"

_SCALINGS: dict[str, Entry] = {
    "fixed": Entry(f"{_SCALING}.fixed:Fixed", "Storm's default", "as many tasks as there are"),
    "ds2": Entry(f"{_SCALING}.ds2:Ds2", "Kalavri et al. 2018", "what true processing rates require, in one step"),
    "threshold": Entry(
        f"{_SCALING}.threshold:Threshold", "Flink's autoscaler", "when a component's utilisation leaves a band"
    ),
    "dhalion": Entry(
        f"{_SCALING}.dhalion:Dhalion", "Floratou et al. 2017", "symptoms of back-pressure, a diagnosis, a step"
    ),
    "look-ahead": Entry(
        f"{_SCALING}.look_ahead:LookAhead", "Penstock", "forecast arrivals, and the least machines predicted for them"
    ),
}

_FORECAST = "penstock.policies.forecast"

_FORECASTS: dict[str, Entry] = {
    "perfect": Entry(f"{_FORECAST}.perfect:Perfect", "POTUS, an oracle", "exactly the arrivals"),
    "none": Entry(f"{_FORECAST}.nothing:Nothing", "POTUS", "nothing is expected"),
    "moving-average": Entry(f"{_FORECAST}.moving_average:MovingAverage", "POTUS's MA", "the mean of the last slots"),
    "ewma": Entry(f"{_FORECAST}.ewma:Ewma", "POTUS's EWMA", "a mean in which recent slots count most"),
    "kalman": Entry(
        f"{_FORECAST}.kalman:Kalman", "POTUS's Kalman", "a level that moves, and a trend; variances estimated"
    ),
    "empirical": Entry(f"{_FORECAST}.empirical:Empirical", "POTUS's Distr", "mean, quantile or draws of the past"),
    "prophet": Entry(
        f"{_FORECAST}.prophet:Prophet", "Taylor and Letham 2018", "trend, days and weeks; an extra to install"
    ),
    "false-positive": Entry(
        f"{_FORECAST}.false_positive:FalsePositive", "POTUS, an oracle", "the arrivals, plus phantoms"
    ),
    "all-true-negative": Entry(f"{_FORECAST}.nothing:Nothing", "POTUS", "all arrivals are missed; the same as none"),
}

REGISTRY: dict[PolicyKind, dict[str, Entry]] = {
    PolicyKind.PLACEMENT: _PLACEMENTS,
    PolicyKind.ROUTING: _ROUTINGS,
    PolicyKind.SENDING: _SENDINGS,
    PolicyKind.SCALING: _SCALINGS,
    PolicyKind.FORECAST: _FORECASTS,
}


def names(kind: PolicyKind | str) -> tuple[str, ...]:
    """Return the names of all policies of a kind, in the table's order."""
    return tuple(REGISTRY[member("kind", PolicyKind, kind)])


def policy_class(name: str, kind: PolicyKind | str = PolicyKind.PLACEMENT) -> type[Any]:
    """Import the class behind a name."""
    kind = member("kind", PolicyKind, kind)
    if name not in REGISTRY[kind]:
        raise UnknownName(kind.word, _unknown(name, kind))
    module, _, attribute = REGISTRY[kind][name].where.partition(":")
    return cast(type[Any], getattr(import_module(module), attribute))


def _unknown(name: str, kind: PolicyKind) -> str:
    """Return an error for an unknown name, with the kind that has it."""
    others = [other for other, table in REGISTRY.items() if name in table]
    elsewhere = f"; {name!r} is a {others[0]} policy" if others else ""
    called = "policy" if kind is PolicyKind.PLACEMENT else f"{kind} policy"
    return f"no {called} is named {name!r}{elsewhere}; {nearest(name, REGISTRY[kind])}"


def _make(spec: str, kind: PolicyKind) -> Any:
    name, _, settings = spec.partition(":")
    return build(f"{kind.word}.{name}", policy_class(name, kind), settings)


def placement_policy(spec: str) -> PlacementPolicy:
    """Return the placement policy that a text describes: a name, or `name:parameter=value,parameter=value`."""
    return cast(PlacementPolicy, _make(spec, PolicyKind.PLACEMENT))


def routing_policy(spec: str) -> RoutingPolicy:
    """Return the routing policy that a text describes."""
    return cast(RoutingPolicy, _make(spec, PolicyKind.ROUTING))


def sending_policy(spec: str) -> SendingPolicy:
    """Return the sending policy that a text describes."""
    return cast(SendingPolicy, _make(spec, PolicyKind.SENDING))


def scaling_policy(spec: str) -> ScalingPolicy:
    """Return the scaling policy that a text describes."""
    return cast(ScalingPolicy, _make(spec, PolicyKind.SCALING))


def forecaster(spec: str) -> Forecaster:
    """Return the forecaster that a text describes."""
    return cast(Forecaster, _make(spec, PolicyKind.FORECAST))
