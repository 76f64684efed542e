"""Scarce memory, with which most rules fail: a policy places all tasks if possible, and refuses only otherwise."""

from itertools import product

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import lil_array

from penstock.estimate.evaluator import Evaluator
from penstock.model.cluster import Cluster, Link, Machine
from penstock.model.placement import Constraint, Infeasible, Placement
from penstock.model.topology import Application, Component, Kind, Stream
from penstock.policies.api import PlacementView
from penstock.policies.checks import violations
from penstock.policies.registry import PolicyKind, names, placement_policy
from tests.policies.cases import false_statements

SEEDS = range(80)
BY_RULE = {"cloud-only", "flink", "flink-spread"}  # all on one machine; no two tasks of a component in one slot
SEARCHES = {
    "local-search": "local-search:seconds=none,steps=200",
    "neural-search": "neural-search:seconds=none,steps=200",
    "sparcle-refined": "sparcle-refined:seconds=none,evaluations=200",
}
EXACT = {"optimal"}  # has its own proof, and depends on the clock
POLICIES = [SEARCHES.get(name, name) for name in names(PolicyKind.PLACEMENT) if name not in BY_RULE | EXACT]


def scarce(seed: int) -> PlacementView:
    """Draw tasks of very different sizes for machines that have 1.1 to 1.3 times the memory for all of them.

    Some slots have a limit of their own, some components are pinned or need what only some machines have, and every
    fourth cluster is routed.
    """
    rng = np.random.default_rng([14, seed])
    machines, number = int(rng.integers(3, 6)), int(rng.integers(3, 6))
    width = rng.integers(1, 5, number)
    memory = np.round(rng.choice([1.0, 3.0, 7.0], number) * rng.uniform(50, 150, number))
    components = tuple(
        Component(
            name=f"c{c}",
            kind=Kind.SOURCE if c == 0 else Kind.SINK if c == number - 1 else Kind.OPERATOR,
            parallelism=int(width[c]),
            cpu=float(rng.uniform(0.1, 1.0)),
            memory_mb=float(memory[c]),
            resources={"gpu": 0.1} if rng.random() < 0.1 else {},
            pinned=f"m{rng.integers(machines)}" if rng.random() < 0.1 else None,
        )
        for c in range(number)
    )
    streams = tuple(Stream(source=f"c{c}", target=f"c{c + 1}", tuple_bytes=100.0) for c in range(number - 1))
    share = rng.uniform(0.7, 1.3, machines)
    there_is = float((width * memory).sum()) * rng.uniform(1.1, 1.3) * share / share.sum()
    slots = rng.integers(1, 4, machines)
    limited = seed % 3 == 0
    there = tuple(
        Machine(
            name=f"m{m}",
            memory_mb=float(there_is[m]),
            slots=int(slots[m]),
            slot_memory_mb=float(there_is[m] / slots[m] * rng.uniform(1.0, 1.5)) if limited else None,
            resources={"gpu": 1.0} if m % 2 == 0 else {},
        )
        for m in range(machines)
    )
    links = tuple(Link(source="m0", target=f"m{m}", bandwidth_mbps=10.0) for m in range(1, machines))
    application = Application(name="large", components=components, streams=streams)
    cluster = Cluster(name="scarce", machines=there, links=links if seed % 4 == 3 else ())
    return PlacementView(application, cluster, "throughput", Evaluator(application, cluster).scorer("throughput"))


def can_be_placed(view: PlacementView) -> bool:
    """Return whether all tasks fit, by a separate program: a binary column for every task and slot."""
    tasks, slots = view.tasks.number, view.slots.number
    rows = lil_array((tasks + slots + view.slots.machines, tasks * slots))
    upper = np.ones(tasks * slots)
    for task, slot in product(range(tasks), range(slots)):
        column, machine = task * slots + slot, view.slots.machine[slot]
        rows[task, column] = 1.0
        rows[tasks + slot, column] = view.tasks.memory_mb[task]
        rows[tasks + slots + machine, column] = view.tasks.memory_mb[task]
        component = view.topology.components[view.tasks.position[view.tasks.component[task]]]
        there = view.cluster.machines[machine]
        if component.pinned not in (None, there.name) or not component.resources.keys() <= there.resources.keys():
            upper[column] = 0.0
    low = np.concatenate([np.ones(tasks), np.full(slots + view.slots.machines, -np.inf)])
    high = np.concatenate([np.ones(tasks), view.slots.memory_mb, view.slots.machine_memory_mb])
    found = milp(
        np.zeros(tasks * slots), integrality=np.ones(tasks * slots, dtype=np.int32), bounds=Bounds(0, upper),
        constraints=LinearConstraint(rows.tocsr(), low, high),
    )  # fmt: skip
    assert found.status in (0, 2)
    return bool(found.status == 0)


@pytest.fixture(scope="module")
def cases() -> list[tuple[PlacementView, bool]]:
    return [(view, can_be_placed(view)) for view in map(scarce, SEEDS)]


def test_most_cases_can_be_placed_and_some_cannot(cases: list[tuple[PlacementView, bool]]) -> None:
    assert 40 <= sum(possible for _, possible in cases) < len(cases)


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
def test_places_all_feasible_cases_and_proves_the_others_infeasible(
    cases: list[tuple[PlacementView, bool]], policy: str
) -> None:
    for seed, (view, possible) in zip(SEEDS, cases, strict=True):
        found = placement_policy(policy).place(view, np.random.default_rng(0))
        if possible:
            assert isinstance(found, Placement), f"seed {seed}: {found}"
            assert violations(view, found) == [], f"seed {seed}"
        else:
            assert isinstance(found, Infeasible), f"seed {seed}"
            assert found.proven, f"seed {seed}: {found.reason}"
            assert false_statements(view, found) == [], f"seed {seed}"
        assert found == placement_policy(policy).place(view, np.random.default_rng(0)), f"seed {seed}: not repeatable"


@pytest.mark.parametrize("policy", sorted(BY_RULE))
def test_a_rule_that_forbids_more_than_memory_claims_no_proof(
    cases: list[tuple[PlacementView, bool]], policy: str
) -> None:
    for seed, (view, possible) in zip(SEEDS, cases, strict=True):
        found = placement_policy(policy).place(view, np.random.default_rng(0))
        assert isinstance(found, Placement) or not (possible and found.proven), f"seed {seed}: {found}"


def perfect(rng: np.random.Generator, machines: int, tasks: int) -> tuple[Application, Cluster]:
    """Draw machines that are full to the last megabyte in one arrangement; only the sizes are returned."""
    sizes = [rng.multinomial(1000 - 20 * tasks, np.ones(tasks) / tasks) + 20 for _ in range(machines)]
    listed = rng.permutation(np.concatenate(sizes)).tolist()
    components = [Component(name="in", kind=Kind.SOURCE, memory_mb=0.0)]
    components += [Component(name=f"t{t}", kind=Kind.SINK, memory_mb=float(size)) for t, size in enumerate(listed)]
    streams = tuple(Stream(source="in", target=f"t{t}") for t in range(len(listed)))
    application = Application(name="perfect", components=tuple(components), streams=streams)
    there = tuple(Machine(name=f"m{m}", memory_mb=1000.0) for m in range(machines))
    return application, Cluster(name="full", machines=there)


@pytest.mark.parametrize("seed", range(6))
def test_finds_the_arrangement_that_uses_all_memory(seed: int) -> None:
    view = PlacementView(*perfect(np.random.default_rng(seed), 3, 3))
    found = placement_policy("round-robin").place(view, np.random.default_rng(0))
    assert isinstance(found, Placement), found
    assert violations(view, found) == []


# Memory of two machines, then of the tasks in the order in which they are dealt.
DEALT = (
    (100.0, 100.0, 40.0, 40.0, 60.0, 60.0),  # fits if tasks are dealt
    (100.0, 60.0, 50.0, 50.0, 60.0),  # dealing puts 50 on each, and 60 needs the smaller machine to itself
)


@pytest.mark.parametrize("sizes", DEALT)
def test_few_tasks_move(sizes: tuple[float, ...]) -> None:
    components = [Component(name=f"t{t}", kind=Kind.SINK, memory_mb=size, cpu=1.0) for t, size in enumerate(sizes[2:])]
    source = Component(name="in", kind=Kind.SOURCE, memory_mb=0.0, pinned="m0")
    streams = tuple(Stream(source="in", target=component.name) for component in components)
    application = Application(name="few", components=(source, *components), streams=streams)
    machines = tuple(Machine(name=f"m{m}", memory_mb=size) for m, size in enumerate(sizes[:2]))
    view = PlacementView(application, Cluster(name="two", machines=machines))
    found = placement_policy("round-robin").place(view, np.random.default_rng(0))
    assert isinstance(found, Placement)
    assert violations(view, found) == []
    assert found.note in ("", "1 of 4 tasks rearranged to fit into memory")


def test_a_total_that_is_too_small_is_a_proof() -> None:
    application, cluster = perfect(np.random.default_rng(0), 3, 3)
    view = PlacementView(application, Cluster(name="small", machines=cluster.machines[:2]))
    for policy in ("round-robin", "sparcle", "r-storm"):
        found = placement_policy(policy).place(view, np.random.default_rng(0))
        assert isinstance(found, Infeasible)
        assert found.constraint is Constraint.MEMORY
        assert found.proven
        assert found.reason.startswith("all tasks together need 3000 MB and there are 2000 MB")
