"""Run a system for a number of slots under a routing and a sending policy.

The arguments determine the outcome, compiled or interpreted.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from penstock.model.errors import InvalidInput
from penstock.model.kernel import kernel
from penstock.model.slotted import UNLIMITED, Longs, SlottedSystem
from penstock.model.taskgraph import Bools, Floats
from penstock.policies.api import RoutingPolicy, SendingPolicy
from penstock.policies.tuples.lanes import Lanes, Queues, empty_queues, idle_lanes
from penstock.policies.tuples.sending import STATE
from penstock.sim.slotted import steps
from penstock.sim.slotted.decisions import SharedLinks, allow, decide
from penstock.sim.slotted.result import SlottedResult, measure
from penstock.sim.slotted.state import (
    DONE,
    DUE,
    FAULTS,
    NONE,
    REAL,
    RootArrivals,
    SlotCounts,
    SlottedState,
    first_fault,
    grown,
    new_slotted_state,
)

ROWS = 1 << 12  # initial capacity in tuples
FASTEST = 1e9  # tuples per slot of a task without cost; kernels divide by it


class Arrivals(NamedTuple):
    """The arrivals at every task in every slot, and their predictions; T tasks, S slots."""

    counts: Longs  # [T, S] arriving tuples; 0 except for sources
    predicted: Longs | None = None  # [T, S] predicted tuples; None: exactly the arrivals
    lead: Longs | None = None  # [T] W, number of slots predicted ahead; None: no predictions


class Keys(NamedTuple):
    """The keys of tuples on keyed streams: `number` of them, distributed by Zipf's law."""

    number: int = 1000
    skew: float = 0.0  # 0: uniform


def simulate(
    system: SlottedSystem,
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
) -> SlottedResult:
    """Simulate all slots of `arrivals`; the first `warm_up` of them are excluded from the outcome.

    beta: weight of out-queues in the backlog (12). check: verify after every slot that no tuple was lost or duplicated.
    run: another form of the kernel `run_slots`, such as the interpreted one.
    """
    _refuse_odd(system, arrivals, sending, warm_up)
    rng = np.random.default_rng(seed)
    feed, roots = _roots(arrivals, rng)
    slots = arrivals.counts.shape[1]
    state = new_slotted_state(system, roots, ROWS)
    queues = empty_queues(system.lanes)
    queues.turn[:] = rng.integers(np.maximum(1, np.diff(system.lanes)))  # senders start with different tasks
    speed = np.minimum(system.service[system.target], FASTEST)
    lanes = idle_lanes(system.cost, system.onward, speed, system.senders)
    counts = _counts(slots, len(system.emits))
    links = _links(system)
    sends = None if sending is None else sending.rule
    likely = _cumulative(keys)
    step = run_slots if run is None else run
    rules = (*routing.rule, *((-1, routing.rule.settings) if sends is None or not _limited(system) else sends))
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
    system: SlottedSystem,
    state: SlottedState,
    queues: Queues,
    lanes: Lanes,
    feed: RootArrivals,
    counts: SlotCounts,
    routing: int,
    routing_settings: Floats,
    sending: int,
    sending_settings: Floats,
    links: SharedLinks,
    keys: Floats,
    rng: np.random.Generator,
    begin: int,
    check: bool,
) -> int:
    """Run slots from `begin` on; return the slot before which the tables are too small, or the number of slots.

    sending: negative if links are unlimited. Returns -1 after a slot in which tuples are not conserved.
    """
    sent = np.zeros(len(system.target), dtype=np.int64)
    for slot in range(begin, feed.known.shape[1]):
        if state.free[1] < steps.max_new_tuples(system, state, feed, slot):
            return slot
        steps.arrive(system, state, feed, counts, slot)
        steps.record_queues(system, state, queues, lanes, counts, slot)
        if sending >= 0:
            allow(system, state, queues.waiting, links, sending, sending_settings, slot, rng, queues.allowed)
        decide(system, state, queues, lanes, counts, routing, routing_settings, keys, slot, rng, sent)
        steps.tell_prices(system, queues, lanes)
        steps.serve_tasks(system, state, lanes, counts, slot)
        steps.record(system, state, counts, slot)
        if check and first_fault(system, state, lanes) != 0:
            return -1
    return len(counts.cost)


def _refuse_odd(system: SlottedSystem, arrivals: Arrivals, sending: SendingPolicy | None, warm_up: int) -> None:
    counts, slots = arrivals.counts, arrivals.counts.shape[-1]
    _refuse_table("arrivals.counts", counts, (system.tasks, max(1, slots)))
    if counts[~system.source].any():
        task = int(np.flatnonzero(~system.source & counts.any(axis=1))[0])
        raise InvalidInput(f"arrivals.counts[{task}]", "expected 0, because the task is not a source")
    if arrivals.predicted is not None:
        _refuse_table("arrivals.predicted", arrivals.predicted, counts.shape)
        if arrivals.lead is None:
            raise InvalidInput("arrivals.lead", "expected the number of slots predicted ahead, got none; add it")
    if arrivals.lead is not None:
        _refuse_table("arrivals.lead", arrivals.lead, (system.tasks,))
    if not 0 <= warm_up < slots:
        raise InvalidInput("warm_up", f"expected 0 to {slots - 1} slots, got {warm_up}; simulate more slots")
    if sending is None and _limited(system):
        problem = "expected a sending policy for the machines' cards, got none"
        raise InvalidInput("sending", f"{problem}; name one, or build the system without a capacity")


def _refuse_table(path: str, found: Longs, shape: tuple[int, ...]) -> None:
    if found.shape != shape or found.dtype.kind not in "iu" or (found < 0).any():
        has = f"{found.dtype} of shape {found.shape}, the least {found.min(initial=0)}"
        raise InvalidInput(path, f"expected whole numbers ≥ 0 of shape {shape}, got {has}")


def _limited(system: SlottedSystem) -> bool:
    return bool((system.capacity < UNLIMITED).any())


def _roots(arrivals: Arrivals, rng: np.random.Generator) -> tuple[RootArrivals, Longs]:
    """Number all arriving and predicted tuples.

    Of a slot's tuples, the predicted ones come first.
    """
    actual = arrivals.counts
    tasks, slots = actual.shape
    lead = np.zeros(tasks, dtype=np.int64) if arrivals.lead is None else arrivals.lead.astype(np.int64)
    predicted = actual if arrivals.predicted is None else arrivals.predicted
    known = np.where(lead[:, None] > 0, predicted, 0)
    total = np.maximum(actual, known)
    first = np.zeros((tasks, slots + 1), dtype=np.int64)
    first[:, 1:] = np.cumsum(total).reshape(tasks, slots)
    first[1:, 0] = first[:-1, -1]
    roots = np.zeros((int(total.sum()), 4), dtype=np.int64)
    roots[:, DUE] = np.repeat(np.tile(np.arange(slots), tasks), total.ravel())
    roots[:, REAL], roots[:, DONE] = True, NONE
    if (known > actual).any():
        roots[:, REAL] = _come(actual.ravel(), known.ravel(), total.ravel(), rng)
    return RootArrivals(first, known.astype(np.int64), lead), roots


def _come(actual: Longs, known: Longs, total: Longs, rng: np.random.Generator) -> Bools:
    """Choose the tuples that arrive: random ones of those predicted, if too many are; all unpredicted ones."""
    group = np.repeat(np.arange(len(total)), total)
    place = np.arange(len(group)) - np.repeat(np.cumsum(total) - total, total)
    drawn = np.where(place < known[group], rng.random(len(group)), 2.0)
    rank = np.empty(len(group), dtype=np.int64)
    rank[np.lexsort((drawn, group))] = place
    return np.asarray(rank < actual[group])


def _counts(slots: int, queues: int) -> SlotCounts:
    return SlotCounts(
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


def _links(system: SlottedSystem) -> SharedLinks:
    """Return the out-queues of each machine."""
    task = np.repeat(np.arange(system.tasks), np.diff(system.queues))
    machine = system.machine[task]
    members = np.argsort(machine, kind="stable").astype(np.int64)
    begin = np.searchsorted(machine[members], np.arange(len(system.capacity) + 1)).astype(np.int64)
    return SharedLinks(begin, members, np.zeros((len(system.capacity), STATE)))


def _cumulative(keys: Keys) -> Floats:
    weights = np.arange(1, keys.number + 1, dtype=np.float64) ** -keys.skew
    return np.cumsum(weights / weights.sum())
