"""Run a system for a number of slots under a routing and a sending policy.

Everything is decided by the arguments: equal ones give equal outcomes, compiled or interpreted.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from penstock.model.errors import InvalidInput
from penstock.model.kernel import kernel
from penstock.model.slotted import UNLIMITED, Longs, System
from penstock.model.taskgraph import Floats
from penstock.policies.api import RoutingPolicy, SendingPolicy
from penstock.policies.tuples.lanes import Lanes, Queues, empty_queues, idle_lanes
from penstock.policies.tuples.sending import STATE
from penstock.sim.slotted import steps
from penstock.sim.slotted.conservation import FAULTS, first_fault
from penstock.sim.slotted.decisions import Links, allow, decide
from penstock.sim.slotted.outcome import Outcome, measure
from penstock.sim.slotted.state import DONE, DUE, NONE, REAL, Counts, Feed, State, empty_state, grown

ROWS = 1 << 12  # tuples for which there is room at first
FASTEST = 1e9  # tuples a slot of a task that is never busy; kernels divide by it


class Arrivals(NamedTuple):
    """What comes to every task in every slot, and what is said of it beforehand; T tasks, S slots."""

    counts: Longs  # [T, S] tuples that come; 0 for all but sources
    predicted: Longs | None = None  # [T, S] tuples that are predicted; None: exactly those that come
    lead: Longs | None = None  # [T] W, how many slots ahead they are; None: nothing is predicted


class Keys(NamedTuple):
    """What the keys of tuples are on streams by key: `number` of them, drawn by Zipf's law."""

    number: int = 1000
    skew: float = 0.0  # 0: all equally often


def simulate(
    system: System,
    arrivals: Arrivals,
    routing: RoutingPolicy,
    sending: SendingPolicy | None = None,
    *,
    warm_up: int = 0,
    seed: int = 0,
    beta: float = 1.0,
    keys: Keys = Keys(),  # noqa: B008  a constant
    check: bool = False,
    run: Callable[..., int] | None = None,
) -> Outcome:
    """Simulate all slots that `arrivals` covers; the first `warm_up` of them are not counted.

    beta: weighs out-queues in the backlog (12). check: verify after every slot that no tuple was lost or doubled.
    run: another form of the kernel `run_slots`, such as the interpreted one.
    """
    _refuse_odd(system, arrivals, warm_up)
    rng = np.random.default_rng(seed)
    feed, roots = _roots(arrivals, rng)
    slots = arrivals.counts.shape[1]
    state = empty_state(system, roots, ROWS)
    queues = empty_queues(system.lanes)
    queues.turn[:] = rng.integers(np.maximum(1, np.diff(system.lanes)))  # senders do not begin all with the same task
    speed = np.minimum(system.service[system.target], FASTEST)
    lanes = idle_lanes(system.cost, system.onward, speed, system.senders)
    counts = _counts(slots, len(system.emits))
    links = _links(system)
    sends = None if sending is None else sending.rule
    limited = bool((system.capacity < UNLIMITED).any())
    likely = _cumulative(keys)
    step = run_slots if run is None else run
    rules = (*routing.rule, *((-1, routing.rule.settings) if sends is None or not limited else sends))
    slot = 0
    while slot < slots:
        slot = step(system, state, queues, lanes, feed, counts, *rules, links, likely, rng, slot, check)
        if slot < 0:
            raise AssertionError(FAULTS[first_fault(system, state, lanes)])
        if slot < slots:
            state = grown(state)
    return measure(arrivals.counts, roots, counts, warm_up, beta)


@kernel
def run_slots(
    system: System,
    state: State,
    queues: Queues,
    lanes: Lanes,
    feed: Feed,
    counts: Counts,
    routing: int,
    routing_settings: Floats,
    sending: int,
    sending_settings: Floats,
    links: Links,
    keys: Floats,
    rng: np.random.Generator,
    begin: int,
    check: bool,
) -> int:
    """Run slots from `begin` on; return the slot before which there is no room, the number of slots when all are done.

    sending: below 0 where links have no limit. A slot after which tuples do not add up gives -1.
    """
    allowed = np.full(len(system.emits), UNLIMITED, dtype=np.int64)
    sent = np.zeros(len(system.target), dtype=np.int64)
    for slot in range(begin, feed.known.shape[1]):
        if state.free[1] < steps.needed(system, state, feed, slot):
            return slot
        steps.arrive(system, state, feed, counts, slot)
        steps.observe(system, state, queues, lanes, counts, slot)
        if sending >= 0:
            allow(system, state, queues.waiting, links, sending, sending_settings, slot, rng, allowed)
        decide(system, state, queues, lanes, counts, routing, routing_settings, keys, allowed, slot, rng, sent)
        steps.tell_prices(system, queues, lanes)
        steps.serve(system, state, lanes, counts, slot)
        steps.record(system, state, counts, slot)
        if check and first_fault(system, state, lanes) != 0:
            return -1
    return len(counts.cost)


def _refuse_odd(system: System, arrivals: Arrivals, warm_up: int) -> None:
    counts = arrivals.counts
    if counts.ndim != 2 or counts.shape[0] != system.tasks:
        raise InvalidInput("arrivals.counts", f"expected a row for each of {system.tasks} tasks, got {counts.shape}")
    if (counts < 0).any() or counts[~system.source].any():
        raise InvalidInput("arrivals.counts", "expected numbers ≥ 0, and none for tasks that are not sources")
    if not 0 <= warm_up < max(counts.shape[1], 1):
        raise InvalidInput("warm_up", f"expected 0 to {counts.shape[1] - 1} slots, got {warm_up}; simulate more slots")


def _roots(arrivals: Arrivals, rng: np.random.Generator) -> tuple[Feed, Longs]:
    """Number all tuples from outside, those that were predicted and do not come among them.

    Of a slot's tuples the predicted ones come first; which of them come is drawn at random where too many are.
    """
    actual = arrivals.counts
    tasks, slots = actual.shape
    lead = np.zeros(tasks, dtype=np.int64) if arrivals.lead is None else arrivals.lead.astype(np.int64)
    predicted = actual if arrivals.predicted is None else arrivals.predicted
    known = np.where(lead[:, None] > 0, predicted, 0)
    total = np.maximum(actual, known)
    first = np.zeros((tasks, slots + 1), dtype=np.int64)
    ends = np.cumsum(total.ravel()).reshape(tasks, slots)
    first[:, 1:] = ends
    first[1:, 0] = ends[:-1, -1] if slots else 0
    group = np.repeat(np.arange(tasks * slots), total.ravel())
    place = np.arange(len(group)) - np.repeat(ends.ravel() - total.ravel(), total.ravel())
    drawn = np.where(place < known.ravel()[group], rng.random(len(group)), 2.0)
    rank = np.empty(len(group), dtype=np.int64)
    rank[np.lexsort((drawn, group))] = place
    roots = np.zeros((len(group), 4), dtype=np.int64)
    roots[:, DUE], roots[:, REAL], roots[:, DONE] = group % max(slots, 1), rank < actual.ravel()[group], NONE
    return Feed(first, known.astype(np.int64), lead), roots


def _counts(slots: int, queues: int) -> Counts:
    return Counts(
        cost=np.zeros(slots),
        queued_in=np.zeros(slots, dtype=np.int64),
        queued_out=np.zeros(slots, dtype=np.int64),
        longest=np.zeros(slots, dtype=np.int64),
        fairness=np.zeros(slots),
        waited=np.zeros(queues),
        left=np.zeros(queues, dtype=np.int64),
        hops=np.zeros(1, dtype=np.int64),
        dropped=np.zeros(1, dtype=np.int64),
    )


def _links(system: System) -> Links:
    """Return the out-queues of each machine."""
    task = np.repeat(np.arange(system.tasks), np.diff(system.queues))
    machine = system.machine[task]
    members = np.argsort(machine, kind="stable").astype(np.int64)
    begin = np.searchsorted(machine[members], np.arange(len(system.capacity) + 1)).astype(np.int64)
    return Links(begin, members, np.zeros((len(system.capacity), STATE)))


def _cumulative(keys: Keys) -> Floats:
    weights = np.arange(1, keys.number + 1, dtype=np.float64) ** -keys.skew
    return np.cumsum(weights / weights.sum())
