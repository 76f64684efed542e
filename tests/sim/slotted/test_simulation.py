"""The simulator against plain Python, slot by slot and tuple by tuple; against queueing theory; and invalid input."""

from typing import Any

import numpy as np
import pytest

from penstock.model.errors import InvalidInput
from penstock.model.kernel import interpreted
from penstock.model.slotted import SlottedSystem
from penstock.policies.registry import PolicyKind, names, routing_policy, sending_policy
from penstock.sim.slotted import Arrivals, Keys, SlottedResult, simulate
from penstock.sim.slotted.simulation import ROWS, run_slots
from penstock.sim.slotted.state import DUE, REAL, SIZE
from tests.sim.slotted.reference import Plain, Root
from tests.sim.slotted.systems import Inside, inspect_run, line, random_arrivals, random_system

KEYED = ("fields", "partial-key")
SPECS = (
    "shuffle",
    "round-robin",
    "least-loaded",
    "load-aware-shuffle",
    "local-first",
    "potus:v=1",
    "potus:v=0,spread=even",
    "potus:v=2,spread=none,in_flight=true",
    "potus:spread=random,beta=0.5",
    "potus-plus",
    "potus-plus:v=1,prices=false",
)


def plainly(system: SlottedSystem, arrivals: Arrivals, inside: Inside, spec: str) -> Plain:
    """Simulate the same in plain Python, with equal arrivals and equal random numbers."""
    first, known = inside.feed.first, inside.feed.known
    roots = []
    for task, slot in np.ndindex(*arrivals.counts.shape):
        for number in range(first[task, slot], first[task, slot + 1]):
            due, real = inside.state.roots[number, [DUE, REAL]]
            assert due == slot
            roots.append(Root(task, slot, bool(real), bool(number < first[task, slot] + known[task, slot])))
    plain = Plain(system, routing_policy(spec).rule, roots, inside.feed.lead.tolist(), inside.turn.tolist(), inside.rng)
    plain.run(arrivals.counts.shape[1])
    return plain


@pytest.mark.slow
@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("spec", SPECS)
def test_queues_costs_and_response_times_equal_plain_python_slot_by_slot(spec: str, ahead: bool) -> None:
    rng = np.random.default_rng([SPECS.index(spec), ahead])
    for number in range(4):
        system = random_system(rng)
        slots = int(rng.integers(25, 50))  # so that the last slots, in which single queues are compared, differ
        arrivals = random_arrivals(system, slots, rng, ahead)
        inside = inspect_run(system, arrivals, spec, seed=number, check=True)
        plain = plainly(system, arrivals, inside, spec)
        counts, outcome = inside.counts, inside.outcome
        assert counts.queued_in.tolist() == [slot["in"] for slot in plain.record]
        assert counts.queued_out.tolist() == [slot["out"] for slot in plain.record]
        assert counts.longest.tolist() == [slot["longest"] for slot in plain.record]
        np.testing.assert_allclose(counts.cost, [slot["cost"] for slot in plain.record])
        sizes = [plain.inside, plain.landing, plain.leaving, plain.out, plain.ahead]
        assert inside.state.lists[:, SIZE].tolist() == [len(own) for kind in sizes for own in kind]
        responses = [max(0, (slots if r.done is None else r.done) - r.due) for r in plain.roots if r.real]
        assert outcome.responses.tolist() == responses
        assert outcome.unfinished == sum(root.real and root.done is None for root in plain.roots)
        assert outcome.dropped == plain.dropped
        np.testing.assert_allclose(inside.lanes.outstanding, plain.lanes.outstanding)


def test_means_are_over_slots_and_tuples_after_the_warm_up() -> None:
    rng = np.random.default_rng(0)
    system = random_system(rng)
    arrivals = random_arrivals(system, 60, rng)
    inside = inspect_run(system, arrivals, "potus", warm_up=20, beta=0.5)
    outcome, counts = inside.outcome, inside.counts
    late = (inside.state.roots[:, DUE] >= 20) & (inside.state.roots[:, REAL] != 0)
    assert outcome.tuples == late.sum() == arrivals.counts[:, 20:].sum() == len(outcome.responses)
    assert outcome.response == pytest.approx(outcome.responses.mean())
    assert outcome.response_max == outcome.responses.max()
    assert outcome.response_p99 == pytest.approx(np.percentile(outcome.responses, 99))
    assert outcome.cost == pytest.approx(counts.cost[20:].mean())
    assert outcome.queued_in == pytest.approx(counts.queued_in[20:].mean())
    assert outcome.queued_out == pytest.approx(counts.queued_out[20:].mean())
    assert outcome.backlog == pytest.approx(outcome.queued_in + 0.5 * outcome.queued_out)  # (12)
    assert outcome.longest == counts.longest[20:].max()
    np.testing.assert_allclose(outcome.series.backlog, counts.queued_in + 0.5 * counts.queued_out)
    assert len(outcome.series.cost) == 60


def test_fairness_is_jains_index_of_the_out_queues_left() -> None:
    inside = inspect_run(line(3, 1, limit=2), Arrivals(np.array([[9], [3], [2], [0]])), "shuffle")
    assert inside.state.lists[12:15, SIZE].tolist() == [7, 1, 0]
    assert inside.outcome.fairness == pytest.approx(8**2 / (3 * 50))
    nothing = simulate(line(3, 1), Arrivals(np.zeros((4, 5), dtype=np.int64)), routing_policy("shuffle"))
    assert np.isnan(nothing.series.fairness).all()
    assert nothing.fairness == 1.0
    assert nothing.response == nothing.response_max == 0.0


def test_waiting_in_out_queues_is_counted_in_slots() -> None:
    counts = np.array([[5, 0, 0, 0], [0, 0, 0, 0]])
    assert simulate(line(1, 1, limit=2), Arrivals(counts), routing_policy("shuffle")).queueing == pytest.approx(4 / 5)


def test_a_decision_does_not_see_what_was_sent_in_the_last_slot() -> None:
    """(8): when the second four arrive, both in-queues are still empty, so either is chosen."""
    counts = np.array([[4, 4], [0, 0], [0, 0]])

    def all_to_one(spec: str) -> float:
        slow = line(1, 2, service=0.1)
        found = [inspect_run(slow, Arrivals(counts), spec, seed=seed).lanes.outstanding for seed in range(100)]
        return float(np.mean([outstanding.max() == 8 for outstanding in found]))

    assert 0.3 < all_to_one("potus:v=0") < 0.7
    assert all_to_one("potus:v=0,in_flight=true") == 0.0


def test_tuples_arrive_one_slot_after_they_were_sent_and_may_be_served_then() -> None:
    counts = np.zeros((4, 8), dtype=np.int64)
    counts[0, 2] = 1
    inside = inspect_run(line(1, 1, 1, 1), Arrivals(counts), "shuffle")
    assert inside.outcome.responses.tolist() == [5]  # 2: sent; 3: served, (9); 4: sent; 5: served; 6: sent; 7: served
    assert inside.outcome.hops == 3
    assert np.flatnonzero(inside.counts.cost).tolist() == [2, 4, 6]


def test_the_limit_holds_for_all_queues_of_a_task_together() -> None:
    rng = np.random.default_rng(4)
    for spec in SPECS:
        system = random_system(rng)
        inside = inspect_run(system, random_arrivals(system, 40, rng), spec)
        task = np.repeat(np.arange(system.tasks), np.diff(system.queues))
        gone = np.bincount(task, inside.counts.left, system.tasks)
        assert (gone <= 40 * system.limit).all()
        assert (gone[system.source] > 0).any()


def test_a_tuple_without_descendants_is_done_when_it_arrives() -> None:
    system = line(1, 1)._replace(emits=np.array([0.25]))
    counts = np.array([[1] * 12, [0] * 12])
    responses = simulate(system, Arrivals(counts), routing_policy("shuffle")).responses
    assert responses.tolist() == [0, 0, 0, 1] * 3


@pytest.mark.parametrize("utilisation", [0.5, 0.8, 0.9])
def test_one_queue_has_the_mean_wait_of_theory(utilisation: float) -> None:
    """Q(t + 1) = [Q(t) + A(t − 1) − 1]⁺ with Poisson A: by its generating function, E Q = λ² / 2(1 − λ)."""
    found = []
    for seed in range(8):
        arrived = np.random.default_rng(seed).poisson(utilisation, 100_000)
        counts = np.stack([arrived, np.zeros_like(arrived)])
        found.append(simulate(line(1, 1), Arrivals(counts), routing_policy("shuffle"), warm_up=5_000))
    waits = np.array([outcome.response - 1.0 for outcome in found])
    theory = utilisation / (2 * (1 - utilisation))
    error = waits.std(ddof=1) / np.sqrt(len(waits))
    assert abs(waits.mean() - theory) < 4 * error
    assert error < 0.05 * theory
    queued = np.array([outcome.queued_in for outcome in found])
    assert queued.mean() == pytest.approx(utilisation * theory, rel=0.05)


def test_littles_law_holds() -> None:
    """The mean number of tuples in the system is the rate times the mean response time."""
    slots, rate = 30_000, 2.4
    counts = np.zeros((6, slots), dtype=np.int64)
    counts[0] = np.random.default_rng(6).poisson(rate, slots)
    inside = inspect_run(line(1, 3, 2, service=[1, 1, 1, 1.5, 1.5]), Arrivals(counts), "potus-plus")
    flying = inside.counts.left.sum() / slots  # every tuple that is sent is in flight for one slot
    arriving = counts.sum() / slots  # these are in an out-queue when a slot starts, but leave in it
    waiting = inside.counts.queued_in.mean() + inside.counts.queued_out.mean() - arriving
    assert (flying + waiting) / rate == pytest.approx(inside.outcome.response, rel=0.02)


def test_the_tables_grow_with_the_backlog() -> None:
    counts = np.array([[3 * ROWS] + [0] * 9, [0] * 10])
    outcome = simulate(line(1, 1), Arrivals(counts), routing_policy("shuffle"), check=True)
    assert outcome.unfinished == 3 * ROWS - 9
    assert outcome.series.backlog.max() >= 3 * ROWS - 1000


def flat(outcome: SlottedResult) -> list[Any]:
    """Return all results in comparable form."""
    return [np.nan_to_num(value, nan=-1.0).tolist() for value in (*outcome[:-1], *outcome.series)]


@pytest.mark.parametrize("spec", [*SPECS, *KEYED])
def test_equal_seeds_have_equal_outcomes(spec: str) -> None:
    rng = np.random.default_rng(9)
    system = random_system(rng)
    arrivals = random_arrivals(system, 80, rng, ahead=True)
    one, other = (simulate(system, arrivals, routing_policy(spec), seed=3) for _ in range(2))
    assert flat(one) == flat(other)


@pytest.mark.slow
@pytest.mark.parametrize("spec", ["shuffle", "partial-key", "potus:v=1", "potus-plus:v=1", "load-aware-shuffle"])
def test_compiled_and_interpreted_runs_are_equal(spec: str) -> None:
    rng = np.random.default_rng(12)
    system = random_system(rng)._replace(capacity=np.array([4, 5, 6]))
    arrivals = random_arrivals(system, 25, rng, ahead=True)
    for sends in names(PolicyKind.SENDING):
        settings: Any = {"seed": 1, "check": True, "keys": Keys(50, 1.2)}
        one = simulate(system, arrivals, routing_policy(spec), sending_policy(sends), **settings)
        other = simulate(
            system, arrivals, routing_policy(spec), sending_policy(sends), run=interpreted(run_slots), **settings
        )
        assert flat(one) == flat(other), sends


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"counts": np.zeros((2, 5), dtype=np.int64)}, "arrivals.counts: expected whole numbers ≥ 0 of shape (3, 5), "),
        ({"counts": np.zeros((3, 0), dtype=np.int64)}, "arrivals.counts: expected whole numbers ≥ 0 of shape (3, 1), "),
        ({"counts": np.zeros(3, dtype=np.int64)}, "arrivals.counts: expected whole numbers ≥ 0 of shape (3, 3), "),
        ({"counts": np.full((3, 5), 0.5)}, "arrivals.counts: expected whole numbers ≥ 0 of shape (3, 5), got float64"),
        ({"counts": np.full((3, 5), -1)}, "arrivals.counts: expected whole numbers ≥ 0 of shape (3, 5), got int64 of"),
        (
            {"counts": np.ones((3, 5), dtype=np.int64)},
            "arrivals.counts[1]: expected 0, because the task is not a source",
        ),
        ({"predicted": np.ones((3, 4), dtype=np.int64)}, "arrivals.predicted: expected whole numbers ≥ 0 of shape (3,"),
        ({"predicted": np.ones((3, 5), dtype=np.int64)}, "arrivals.lead: expected the number of slots pred"),
        ({"lead": np.ones(2, dtype=np.int64)}, "arrivals.lead: expected whole numbers ≥ 0 of shape (3,), got int64"),
        ({"lead": np.array([1, 0, -1])}, "arrivals.lead: expected whole numbers ≥ 0 of shape (3,), got int64 of shape"),
    ],
)
def test_invalid_arrivals_are_a_one_line_error(changes: dict[str, Any], message: str) -> None:
    counts = np.zeros((3, 5), dtype=np.int64)
    with pytest.raises(InvalidInput) as caught:
        simulate(line(1, 2), Arrivals(counts)._replace(**changes), routing_policy("shuffle"))
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_an_invalid_warm_up_or_a_missing_rule_is_a_one_line_error() -> None:
    arrivals = Arrivals(np.zeros((3, 5), dtype=np.int64))
    for warm_up in (-1, 5):
        with pytest.raises(InvalidInput, match=r"^warm_up: expected 0 to 4 slots, got -?\d; simulate more slots$"):
            simulate(line(1, 2), arrivals, routing_policy("shuffle"), warm_up=warm_up)
    limited = line(1, 2)._replace(capacity=np.array([5, 5, 5]))
    with pytest.raises(InvalidInput, match=r"^sending: expected a sending policy for the machines' cards, got none"):
        simulate(limited, arrivals, routing_policy("shuffle"))
