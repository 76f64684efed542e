"""No tuple is lost or duplicated under any policy; and a state in which one is, is detected."""

from collections.abc import Callable

import numpy as np
import pytest

from penstock.model.kernel import interpreted
from penstock.model.topology import Grouping
from penstock.policies.registry import PolicyKind, names, routing_policy, sending_policy
from penstock.sim.slotted import Keys, simulate
from penstock.sim.slotted.simulation import run_slots
from penstock.sim.slotted.state import FAULTS, HEAD, LANE, PENDING, SIZE, TAIL, SlottedState, first_fault
from tests.sim.slotted.systems import Inside, inspect_run, line, random_arrivals, random_system

EVERYTHING = (Grouping.SHUFFLE, Grouping.ALL, Grouping.FIELDS, Grouping.PARTIAL_KEY, Grouping.GLOBAL)


@pytest.mark.parametrize("name", names(PolicyKind.ROUTING))
def test_all_tuples_add_up_after_every_slot(name: str) -> None:
    rng = np.random.default_rng(21)
    for sends in (None, *names(PolicyKind.SENDING)):
        system = random_system(rng, EVERYTHING)
        if sends is not None:
            system = system._replace(capacity=rng.integers(2, 7, 3))
        arrivals = random_arrivals(system, 60, rng, ahead=True)
        policy = None if sends is None else sending_policy(sends)
        outcome = simulate(system, arrivals, routing_policy(name), policy, check=True, keys=Keys(20, 1.0))
        assert outcome.tuples == arrivals.counts.sum()
        assert outcome.hops > 0


def filled() -> Inside:
    """Return a state with tuples in every kind of list."""
    rng = np.random.default_rng(2)
    system = line(1, 2, 2, limit=5)
    counts = np.zeros((5, 30), dtype=np.int64)
    counts[0] = rng.poisson(3.0, 30)
    arrivals = random_arrivals(system, 30, rng)._replace(counts=counts, lead=np.array([3, 0, 0, 0, 0]))
    return inspect_run(system, arrivals, "potus:v=0")


def longest(state: SlottedState, begin: int = 0, end: int | None = None) -> int:
    return begin + int(np.argmax(state.lists[begin:end, SIZE]))


def shorten(inside: Inside) -> None:
    inside.state.lists[longest(inside.state), SIZE] -= 1


def forget_the_end(inside: Inside) -> None:
    inside.state.lists[longest(inside.state), TAIL] = inside.state.lists[longest(inside.state), HEAD]


def run_out(inside: Inside) -> None:
    inside.state.free[1] += 1


def double(inside: Inside) -> None:
    target = longest(inside.state)
    source = int(np.argsort(inside.state.lists[:, SIZE])[-2])
    inside.state.lists[source] = inside.state.lists[target]


def lose(inside: Inside) -> None:
    inside.state.free[1] -= 1


def forget(inside: Inside) -> None:
    inside.state.roots[np.argmax(inside.state.roots[:, PENDING]), PENDING] -= 1


def swap(inside: Inside) -> None:
    """The sum over all roots remains correct."""
    waits = np.flatnonzero(inside.state.roots[:, PENDING])
    inside.state.roots[waits[0], PENDING] += 1
    inside.state.roots[waits[-1], PENDING] -= 1


def mislead(inside: Inside) -> None:
    """The sum over all lanes remains correct."""
    number = longest(inside.state, 0, 15)
    row = inside.state.lists[number, HEAD]
    inside.state.rows[row, LANE] = (inside.state.rows[row, LANE] + 1) % len(inside.lanes.outstanding)


@pytest.mark.parametrize(
    ("damage", "fault"),
    [(shorten, 1), (forget_the_end, 1), (run_out, 1), (double, 2), (lose, 3), (forget, 4), (swap, 4), (mislead, 5)],
)
def test_a_broken_state_is_detected(damage: Callable[[Inside], None], fault: int) -> None:
    system, inside = line(1, 2, 2, limit=5), filled()
    assert first_fault(system, inside.state, inside.lanes) == 0
    damage(inside)
    for how in (first_fault, interpreted(first_fault)):
        assert FAULTS[how(system, inside.state, inside.lanes)] == FAULTS[fault]


def test_a_checked_run_that_loses_a_tuple_stops() -> None:
    system = line(1, 1, service=0.5)
    arrivals = random_arrivals(system, 20, np.random.default_rng(0))

    def careless(*tables: object) -> int:
        tables[3].outstanding[0] = 1.0  # type: ignore[attr-defined]
        return run_slots(*tables)  # type: ignore[arg-type]

    simulate(system, arrivals, routing_policy("shuffle"), run=careless)
    with pytest.raises(AssertionError, match=FAULTS[5]):
        simulate(system, arrivals, routing_policy("shuffle"), run=careless, check=True)
