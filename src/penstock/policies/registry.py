"""The one table of policies: name, kind, where the code is, where the idea is from, what it does.

Nothing is imported before a policy is asked for. `make("local-search:seconds=0.5")` gives a policy with parameters.
"""

from enum import StrEnum
from importlib import import_module
from typing import Any, NamedTuple, cast

from penstock.model.errors import UnknownName, choices
from penstock.model.spec import build
from penstock.policies.api import PlacementPolicy


class PolicyKind(StrEnum):
    """What a policy decides."""

    PLACEMENT = "placement"


class Entry(NamedTuple):
    """One row of the table."""

    kind: PolicyKind
    where: str  # module:Class
    origin: str
    summary: str


_PLACEMENT = "penstock.policies.placement"

REGISTRY: dict[str, Entry] = {
    "round-robin": Entry(
        PolicyKind.PLACEMENT, f"{_PLACEMENT}.round_robin:RoundRobin", "Storm's default", "deal tasks to slots in turn"
    ),
    "i-storm": Entry(
        PolicyKind.PLACEMENT,
        f"{_PLACEMENT}.i_storm:IStorm",
        "TATA's improved Storm",
        "round-robin, hosts with the most slots first",
    ),
    "flink": Entry(
        PolicyKind.PLACEMENT,
        f"{_PLACEMENT}.flink:Flink",
        "Flink's default",
        "one pipeline a slot, machines filled one after another",
    ),
    "flink-spread": Entry(
        PolicyKind.PLACEMENT,
        f"{_PLACEMENT}.flink_spread:FlinkSpread",
        "Flink, evenly spread out",
        "one pipeline a slot, spread over machines",
    ),
    "r-storm": Entry(
        PolicyKind.PLACEMENT,
        f"{_PLACEMENT}.r_storm:RStorm",
        "Peng et al. 2015",
        "nearest machine in cpu, memory and network space",
    ),
    "t-storm": Entry(
        PolicyKind.PLACEMENT,
        f"{_PLACEMENT}.t_storm:TStorm",
        "Xu et al. 2014",
        "busiest tasks first, where they add least traffic",
    ),
    "t-heron": Entry(
        PolicyKind.PLACEMENT,
        f"{_PLACEMENT}.t_heron:THeron",
        "POTUS's placement",
        "busiest tasks first, least traffic between containers",
    ),
    "heft": Entry(
        PolicyKind.PLACEMENT,
        f"{_PLACEMENT}.heft:Heft",
        "Topcuoglu et al. 2002",
        "highest upward rank first, earliest finish",
    ),
    "vne": Entry(
        PolicyKind.PLACEMENT,
        f"{_PLACEMENT}.vne:NodeRanking",
        "Cheng et al. 2011",
        "match tasks and machines by topology-aware rank",
    ),
    "greedy-sorted": Entry(
        PolicyKind.PLACEMENT,
        f"{_PLACEMENT}.greedy_sorted:GreedySorted",
        "SPARCLE's GS",
        "neediest tasks first, where the rate falls least",
    ),
    "greedy-random": Entry(
        PolicyKind.PLACEMENT,
        f"{_PLACEMENT}.greedy_random:GreedyRandom",
        "SPARCLE's GR",
        "tasks in random order, where the rate falls least",
    ),
    "random": Entry(
        PolicyKind.PLACEMENT, f"{_PLACEMENT}.random:Random", "SPARCLE, Li", "any slot that has room, evenly at random"
    ),
    "cloud-only": Entry(
        PolicyKind.PLACEMENT, f"{_PLACEMENT}.cloud_only:CloudOnly", "SPARCLE", "all on the most powerful machine"
    ),
    "local-search": Entry(
        PolicyKind.PLACEMENT,
        f"{_PLACEMENT}.local_search:LocalSearch",
        "Penstock",
        "simulated annealing on the objective",
    ),
    "optimal": Entry(
        PolicyKind.PLACEMENT,
        f"{_PLACEMENT}.optimal:Optimal",
        "Penstock",
        "exact: MILP for rate and traffic, exhaustive if tiny",
    ),
}


def names(kind: PolicyKind) -> tuple[str, ...]:
    """Return the names of all policies of a kind, in the table's order."""
    return tuple(name for name, entry in REGISTRY.items() if entry.kind is kind)


def policy_class(name: str) -> type[Any]:
    """Import the class behind a name."""
    if name not in REGISTRY:
        raise UnknownName("policy", f"no policy is named {name!r}; there are {choices(REGISTRY)}")
    module, _, attribute = REGISTRY[name].where.partition(":")
    return cast(type[Any], getattr(import_module(module), attribute))


def make(spec: str) -> PlacementPolicy:
    """Return the policy that a text describes: a name, or `name:parameter=value,parameter=value`."""
    name, _, settings = spec.partition(":")
    return cast(PlacementPolicy, build(f"policy.{name}", policy_class(name), settings))
