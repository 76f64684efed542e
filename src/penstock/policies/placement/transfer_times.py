"""Transfer times between slots: latency, and bits divided by the bandwidth on the route.

Inside a machine and on a full mesh, latency follows from the cluster's distances; between machines of a mesh, the
slower of the two network cards limits. On a routed cluster tuples are forwarded link by link, each receiving them
completely before the next, along the fastest route through the empty network for tuples of mean size.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.model.kernel import kernel
from penstock.model.slotgraph import Links
from penstock.model.taskgraph import Floats, Ints
from penstock.policies.api import PlacementView

MILLISECOND = 1e-3


class TransferTimes(NamedTuple):
    """Input of the kernels; S slots, M machines."""

    slot_machine: Ints  # [S]
    slot_process: Ints  # [S]
    first: Ints  # [M + 1] number of the machine's first slot
    host: Ints  # [M]
    level_s: Floats  # [4] same slot, same process, same host, other host
    card: Floats  # [2, M] bits per second that it sends and receives, infinite if unknown
    route_latency_s: Floats  # [M, M] on a routed cluster, else empty; 0 without a route
    route_bit_s: Floats  # [M, M] seconds per bit, summed over the links of the route; infinite without a route


def transfer_times(view: PlacementView, usual_bits: float) -> TransferTimes:
    """Collect the times of a view's cluster; routes are the fastest for `usual_bits`."""
    slots = view.slots
    nothing = np.empty((0, 0))
    routed = view.cluster.routed
    latency_s, bit_s = quickest_ways(view.links, slots.machines, usual_bits) if routed else (nothing, nothing)
    return TransferTimes(
        slot_machine=slots.machine,
        slot_process=slots.process,
        first=slots.first,
        host=slots.host[slots.first[:-1]],
        level_s=slots.delay_ms * MILLISECOND,
        card=slots.machine_network,
        route_latency_s=latency_s,
        route_bit_s=bit_s,
    )


def mean_transfer(times: TransferTimes) -> tuple[float, float]:
    """Return the mean latency and the mean seconds per bit over all pairs of different connected slots."""
    width = np.diff(times.first).astype(np.float64)
    in_process = _pairs(np.bincount(times.slot_process))
    in_machine = _pairs(width)
    latency = times.level_s[1] * in_process + times.level_s[2] * (in_machine - in_process)
    if len(times.route_bit_s):
        joined = np.where(np.isfinite(times.route_bit_s), np.outer(width, width), 0.0)
        np.fill_diagonal(joined, 0.0)
        pairs = in_machine + joined.sum()
        latency += (times.route_latency_s * joined).sum()
        seconds = np.where(joined > 0, times.route_bit_s, 0.0)
        bit = float((seconds * joined).sum())
    else:
        pairs = _pairs(np.array([width.sum()]))
        in_host = _pairs(np.bincount(times.host, width))
        latency += times.level_s[2] * (in_host - in_machine) + times.level_s[3] * (pairs - in_host)
        bit = _over_cards(times.card, width)
    return (float(latency / pairs), bit / float(pairs)) if pairs > 0 else (0.0, 0.0)


def _over_cards(card: Floats, width: Floats) -> float:
    """Return the sum of seconds per bit over all ordered pairs of slots of different machines."""
    sends, receives = card
    if np.array_equal(sends, receives):
        slowest_first = np.argsort(sends, kind="stable")  # the slower card of a pair is the earlier one
        faster = width.sum() - np.cumsum(width[slowest_first])
        return float(2.0 * (width[slowest_first] / sends[slowest_first] * faster).sum())
    seconds = np.outer(width, width) / np.minimum.outer(sends, receives)
    return float(seconds.sum() - seconds.trace())


def _pairs(sizes: NDArray[np.int64] | Floats) -> float:
    """Return the number of ordered pairs of different members in groups of these sizes."""
    return float((sizes * (sizes - 1.0)).sum())


@kernel
def quickest_ways(links: Links, machines: int, bits: float) -> tuple[Floats, Floats]:
    """Return latency in seconds and seconds per bit on the fastest route for `bits` between all machines. [M, M]

    Of equally fast routes the first one found is kept; the lowest node is settled first.
    """
    latency_s = np.zeros((machines, machines))
    bit_s = np.full((machines, machines), np.inf)
    for source in range(machines):
        latency, bit = np.zeros(links.nodes), np.full(links.nodes, np.inf)
        settled = np.zeros(links.nodes, dtype=np.bool_)
        time = np.full(links.nodes, np.inf)
        bit[source], time[source] = 0.0, 0.0
        for _ in range(links.nodes):
            node = -1
            for candidate in range(links.nodes):
                if not settled[candidate] and time[candidate] < (time[node] if node >= 0 else np.inf):
                    node = candidate
            if node < 0:
                break
            settled[node] = True
            for arc in range(links.start[node], links.start[node + 1]):
                link, head = links.link[arc], links.head[arc]
                later = links.latency_ms[link] * MILLISECOND
                a_bit = 1.0 / links.bandwidth[link]
                if a_bit < np.inf and time[node] + later + bits * a_bit < time[head]:
                    time[head] = time[node] + later + bits * a_bit
                    latency[head], bit[head] = latency[node] + later, bit[node] + a_bit
        latency_s[source], bit_s[source] = latency[:machines], bit[:machines]
    return latency_s, bit_s


@kernel
def between_machines(times: TransferTimes, here: int, there: int, bits: float) -> float:
    """Return the seconds to transfer bits from one machine to another."""
    if len(times.route_bit_s) > 0:
        on_links = bits * times.route_bit_s[here, there] if bits > 0.0 else 0.0
        return float(times.route_latency_s[here, there] + on_links)
    latency = times.level_s[2] if times.host[here] == times.host[there] else times.level_s[3]
    return float(latency + bits / min(times.card[0, here], times.card[1, there]))


@kernel
def inside_machine(times: TransferTimes, here: int, there: int) -> float:
    """Return the seconds that tuples of any size take between two slots of one machine."""
    if here == there:
        return float(times.level_s[0])
    return float(times.level_s[1] if times.slot_process[here] == times.slot_process[there] else times.level_s[2])
