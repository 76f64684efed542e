"""Hone's simulated link (§4): the tasks of one component on one machine, whose card sends one tuple per slot.

It is a slotted system: N source tasks on one machine of capacity 1, and a sink on another machine that is never busy.
The out-queues of the sources are Hone's queues; tuples that arrive at a source in a slot are in its queue at once, so
the sending policy sees them in the same slot. `load` is the total tuples per slot; 1 is the capacity of the card. The
paper's rates, in tuples per second and queue, are loads for the length of its slots.

The paper uses Poisson arrivals, equal for all queues. Skewed ones are ours: half of all tuples in one queue, Zipf's
law, bursts of a hundred slots a quarter of the time, batches of 1 to 32 words (the testbed's sentences).
"""

from collections.abc import Callable

import numpy as np

from penstock.model.cluster import Cluster, Machine
from penstock.model.errors import InvalidInput, UnknownName, nearest
from penstock.model.slotted import Longs, PlacedApplication, SlottedSystem, build_slotted_system
from penstock.model.taskgraph import Floats
from penstock.model.topology import Component, Kind, Stream, Topology
from penstock.workloads.adversaries import batches
from penstock.workloads.arrivals import Counts, OnOff, Poisson, SelfSimilar
from penstock.workloads.potus import NETWORK_TRACES, traces_folder
from penstock.workloads.traces import recording, whole_tuples

SLOT_S = 1e-4  # §4.4: 100 µs
HOT_SHARE = 0.5  # fraction of all tuples in the hot queue
ZIPF = 1.0  # the number of tuples of the k-th queue is proportional to k to minus this
ON, BURST = 0.25, 100.0  # the fraction of the time in bursts, and their mean length in slots
WORDS = 32  # maximum size of a batch

Draw = Callable[[int, int, float, np.random.Generator], Counts]
"""Maps slots, queues, load and a generator to tuples. [slots, N]"""


def hone_link(queues: int) -> SlottedSystem:
    """Return a link with a number of queues."""
    if queues < 1:
        raise InvalidInput("queues", f"expected 1 or more, got {queues}")
    senders = Component(name="senders", kind=Kind.SOURCE, parallelism=queues)
    receiver = Component(name="receiver", kind=Kind.SINK)
    stream = Stream(source="senders", target="receiver")
    topology = Topology(name="link", components=(senders, receiver), streams=(stream,))
    machines = Cluster(name="link", machines=(Machine(name="here"), Machine(name="there")))
    return build_slotted_system([PlacedApplication(topology, [0] * queues + [1])], machines, slot_s=SLOT_S, capacity=1)


def link_load(queues: int, rate_tps: float) -> float:
    """Return the load of a number of queues at a rate per queue."""
    return queues * rate_tps * SLOT_S


def link_arrivals(counts: Counts) -> Longs:
    """Convert tuples by slot and queue [slots, N] to arrivals by task and slot, none for the sink. [T, slots]"""
    return np.vstack([counts.T, np.zeros((1, len(counts)), dtype=np.int64)])


def draw_arrivals(kind: str, slots: int, queues: int, load: float, rng: np.random.Generator) -> Counts:
    """Draw the tuples of every slot and queue, of a kind in `KINDS`. [slots, N]"""
    if kind not in KINDS:
        raise UnknownName("kind", f"no arrivals are named {kind!r}; {nearest(kind, KINDS)}")
    return KINDS[kind](slots, queues, load, rng)


def _poisson(slots: int, queues: int, load: float, rng: np.random.Generator) -> Counts:
    return _independent(slots, np.full(queues, load / queues), rng)


def _hot_queue(slots: int, queues: int, load: float, rng: np.random.Generator) -> Counts:
    rates = np.full(queues, load * (1.0 - HOT_SHARE) / max(1, queues - 1))
    rates[0] = load * (HOT_SHARE if queues > 1 else 1.0)
    return _independent(slots, rates, rng)


def _zipf(slots: int, queues: int, load: float, rng: np.random.Generator) -> Counts:
    weights = np.arange(1, queues + 1, dtype=np.float64) ** -ZIPF
    return _independent(slots, load * weights / weights.sum(), rng)


def _independent(slots: int, rates: Floats, rng: np.random.Generator) -> Counts:
    return np.column_stack([Poisson(rate=rate).counts(slots, rng) for rate in rates.tolist()])


def _on_off(slots: int, queues: int, load: float, rng: np.random.Generator) -> Counts:
    process = OnOff(rate=load / queues, on=ON, burst=BURST)  # its second is a slot
    return np.column_stack([process.counts(slots, rng) for _ in range(queues)])


def _batches(slots: int, queues: int, load: float, rng: np.random.Generator) -> Counts:
    return batches(slots, queues, load, rng, largest=WORDS)


def _trace(slots: int, queues: int, load: float, rng: np.random.Generator) -> Counts:
    """Play recorded network traffic into every queue, each from a random position; synthetic if there is none.

    A recording is played at the speed at which its mean is a queue's share of the load. Then all queues are scaled by
    the same factor, so that their sum is the load: the distribution over queues and time is as recorded.
    """
    folder = traces_folder()
    files = [] if folder is None else [folder / name for name in NETWORK_TRACES if (folder / name).is_file()]
    if not files:
        process = SelfSimilar(rate=load / queues)
        return np.column_stack([process.counts(slots, rng) for _ in range(queues)])
    came = np.empty((slots + 1, queues))
    for queue in range(queues):
        trace = recording(files[queue % len(files)])
        length = load / queues / trace.rate  # of a slot, in seconds of the recording
        begin = rng.uniform(0.0, trace.seconds)
        came[:, queue] = trace.before(begin + length * np.arange(slots + 1, dtype=np.float64))
    came -= came[0]
    came *= load * slots / max(1.0, float(came[-1].sum()))
    return whole_tuples(came)


KINDS: dict[str, Draw] = {
    "poisson": _poisson,
    "hot-queue": _hot_queue,
    "zipf": _zipf,
    "on-off": _on_off,
    "batches": _batches,
    "trace": _trace,
}
