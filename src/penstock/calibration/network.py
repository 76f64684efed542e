"""Delays and bandwidths of the network, from the transfer times of single tuples of several sizes between slots.

A transfer time is linear in the unknowns: a delay that depends on the distance of the slots and, between machines, the
tuple's bytes times the time per byte on the sender's and on the receiver's card; on a routed network, delays and bytes
add up over the links of the route. Least squares over all times gives the unknowns. If times cannot distinguish two
cards, as with only two machines, the solution nearest to the description is used. The variation of delays is that of
single times around the median of their pair of slots; differences between pairs do not count.
"""

import math
from typing import NamedTuple

import msgspec
import numpy as np

from penstock.calibration.findings import Findings, Measured, Unmeasured
from penstock.estimate.hops import slot_delays
from penstock.model.cluster import Cluster, Distances, Machine
from penstock.model.placement import Hop
from penstock.model.routes import BITS
from penstock.model.slotgraph import MEGABIT, expand_slots
from penstock.model.slotted import Longs
from penstock.model.taskgraph import Bools, Floats

MILLISECOND = 1e-3
SEEN_S = 1e-6  # by which a larger tuple must take longer for its bytes to count
DISTANCES = ("same_slot_ms", "same_process_ms", "same_host_ms", "other_host_ms")
OTHER_HOST = DISTANCES.index("other_host_ms")
FEWEST = 30  # minimum number of timed tuples between machines to know their variation
QUARTILE = 0.67449  # of a standard normal distribution
OF_QUARTILES = 1.17  # standard error of a deviation estimated from quartiles, relative to it, times √n
VARIATION = "variation of delays between machines"


class Transfer(NamedTuple):
    """Tuples of one size sent from one slot to another, one at a time."""

    source: int  # slot
    target: int  # slot
    size: float  # bytes
    seconds: float  # median transfer time
    tuples: int
    times: tuple[float, ...] = ()  # single transfer times in s


class MeasuredNetwork(NamedTuple):
    """A cluster with its measured network."""

    cluster: Cluster
    measured: list[Measured]
    left: list[Unmeasured]


class _Unknowns(NamedTuple):
    """The unknowns, in s and s per byte: delays by distance, delays of links, bytes on cards or links."""

    names: list[str]
    described: Floats
    units: Floats  # factors that bring them to the same magnitude


class _Fit(NamedTuple):
    """The solution and its inputs."""

    values: Floats  # of the unknowns
    rows: Floats  # coefficients of the unknowns in each time, by `Transfer`
    used: Longs  # unknowns with a coefficient in some time
    determined: Floats  # for each of those, whether the times determine it: 1, or less


class _VariableParts(NamedTuple):
    """The variable parts of transfer times, by `Transfer`; s."""

    far: Bools  # whether it went to another host
    delay: Floats  # between hosts, of all links
    alike: Floats  # a single delay with the same variation as the delays of the links, which are independent


def measure_network(
    cluster: Cluster, sent: list[Transfer], routes: dict[Hop, tuple[int, ...]] | None = None
) -> MeasuredNetwork:
    """Return a cluster with measured delays and bandwidths; `routes` are those that the tuples took."""
    largest = max((one.size for one in sent), default=0.0)
    unknowns = _unknowns(cluster, largest)
    return _apply_fit(cluster, unknowns, _fit(cluster, unknowns, sent, routes or {}), sent, largest)


def measure_variation(
    cluster: Cluster, sent: list[Transfer], routes: dict[Hop, tuple[int, ...]] | None = None
) -> Measured | Unmeasured:
    """Return the standard deviation relative to the mean of delays between hosts, from the interquartile range.

    For a lognormal time, (q3 - q1) / median = 2 sinh(0.674 σ), where σ is the deviation of its logarithm. Outliers
    caused by the host hardly affect this.
    """
    ways = _split_times(cluster, sent, routes or {})
    around = [
        1.0 + (np.array(one.times) - one.seconds) / alike
        for one, alike in zip(sent, ways.alike, strict=True)
        if alike > 0
    ]
    timed = sum(len(one.times) for one, far in zip(sent, ways.far, strict=True) if far)
    if timed < FEWEST:
        return Unmeasured(what=VARIATION, why=f"only {timed} tuples went to another host, at least {FEWEST} are needed")
    found = np.concatenate(around) if around else np.zeros(1)  # if measured delays are not positive
    low, middle, high = np.quantile(found, [0.25, 0.5, 0.75])
    if low <= 0:
        return Unmeasured(what=VARIATION, why="clock errors exceed the delays")
    deviation = math.asinh((high - low) / (2.0 * middle)) / QUARTILE
    value = math.sqrt(math.expm1(deviation**2))
    spread = value * OF_QUARTILES / math.sqrt(len(found))
    return Measured(what=VARIATION, value=value, unit="", spread=spread, count=len(found), described=0.0)


def convert_to_means(
    cluster: Cluster, sent: list[Transfer], variation: float, routes: dict[Hop, tuple[int, ...]] | None = None
) -> list[Transfer]:
    """Return tuples with mean instead of median times, given the variation of delays between hosts.

    The mean of a lognormal time is √(1 + v²) times its median, where v is its deviation relative to its mean.
    """
    ways = _split_times(cluster, sent, routes or {})
    longer = np.hypot(ways.delay, variation * ways.alike) - ways.delay
    return [one._replace(seconds=one.seconds + float(more)) for one, more in zip(sent, longer, strict=True)]


def _split_times(cluster: Cluster, sent: list[Transfer], routes: dict[Hop, tuple[int, ...]]) -> _VariableParts:
    """Return the variable parts of the times of tuples."""
    fit = _fit(cluster, _unknowns(cluster, max((one.size for one in sent), default=0.0)), sent, routes)
    delays = len(DISTANCES) + (len(cluster.links) if cluster.routed else 0)
    between, values = fit.rows[:, OTHER_HOST:delays], fit.values[OTHER_HOST:delays]
    alike = np.linalg.norm(between * values, axis=1)
    return _VariableParts(between.sum(axis=1) > 0, between @ values, alike)


def _fit(cluster: Cluster, unknowns: _Unknowns, sent: list[Transfer], routes: dict[Hop, tuple[int, ...]]) -> _Fit:
    """Solve for the unknowns by least squares."""
    rows = np.array([_row(cluster, one, routes) for one in sent]).reshape(len(sent), len(unknowns.names))
    used = np.flatnonzero(np.abs(rows).sum(axis=0) > 0)
    weight = np.sqrt([one.tuples for one in sent])
    times = np.array([one.seconds for one in sent])
    off = times - rows @ unknowns.described
    scaled = rows[:, used] / unknowns.units[used]
    change, *_ = np.linalg.lstsq(scaled * weight[:, None], off * weight, rcond=1e-9)  # nearest to the description
    values = unknowns.described.copy()
    values[used] = np.maximum(0.0, values[used] + change / unknowns.units[used])
    return _Fit(values, rows, used, np.diag(np.linalg.pinv(scaled, rcond=1e-9) @ scaled))


def _unknowns(cluster: Cluster, largest: float) -> _Unknowns:
    distances = [f"delay, {name.removesuffix('_ms').replace('_', ' ')}" for name in DISTANCES]
    delays = [getattr(cluster.distances, name) * MILLISECOND for name in DISTANCES]
    if cluster.routed:
        latency = [f"delay of {link.label}" for link in cluster.links]
        cards = [f"bandwidth of {link.label}" for link in cluster.links]
        delays += [link.latency_ms * MILLISECOND for link in cluster.links]
        widths: list[float | None] = [link.bandwidth_mbps or None for link in cluster.links]
    else:
        latency, cards = [], [f"bandwidth of {machine.name}" for machine in cluster.machines]
        widths = [machine.network_mbps for machine in cluster.machines]
    bytes_s = [0.0 if width is None else BITS / (width * MEGABIT) for width in widths]
    return _Unknowns(
        names=[*distances, *latency, *cards],
        described=np.array([*delays, *bytes_s]),
        units=np.array([1.0] * len(delays) + [max(largest, 1.0)] * len(bytes_s)),
    )


def _row(cluster: Cluster, one: Transfer, routes: dict[Hop, tuple[int, ...]]) -> Floats:
    """Return the coefficients of the unknowns in a tuple's time."""
    slots = expand_slots(cluster)
    row = np.zeros(len(DISTANCES) + (2 * len(cluster.links) if cluster.routed else len(cluster.machines)))
    a, b = int(slots.machine[one.source]), int(slots.machine[one.target])
    if a != b and cluster.routed:
        for link in routes[Hop(0, a, b)]:
            row[len(DISTANCES) + link] += 1.0
            row[len(DISTANCES) + len(cluster.links) + link] += one.size
        return row
    apart = slots._replace(delay_ms=np.arange(len(DISTANCES), dtype=np.float64))
    source, target = np.array([one.source], dtype=np.int32), np.array([one.target], dtype=np.int32)
    row[int(slot_delays(apart, source, target)[0])] = 1.0
    if a != b:
        row[len(DISTANCES) + a] += one.size
        row[len(DISTANCES) + b] += one.size / _of_sending(cluster.machines[b])
    return row


def _of_sending(machine: Machine) -> float:
    """Return the receiving bandwidth of a card relative to its sending bandwidth: times cannot distinguish the two."""
    return 1.0 if machine.card_mbps is None else machine.card_mbps[1] / machine.card_mbps[0]


def _apply_fit(
    cluster: Cluster, unknowns: _Unknowns, fit: _Fit, sent: list[Transfer], largest: float
) -> MeasuredNetwork:
    """Return a cluster with the solution, and the figures with their uncertainty."""
    values, rows, used, determined = fit
    residual = np.array([one.seconds for one in sent]) - rows @ values
    found = Findings()
    known: dict[int, float] = {}  # unknown -> ms or Mbps
    for place, column in enumerate(used.tolist()):
        name, value = unknowns.names[column], float(values[column])
        own = rows[:, column] > 0
        count = sum(one.tuples for one, is_own in zip(sent, own, strict=True) if is_own)
        spread = float(np.std(residual[own]))
        if name.startswith("delay"):
            described = float(unknowns.described[column])
            found.add(name, value, "s", spread=spread, count=count, described=described)
            known[column] = value / MILLISECOND
            continue
        if value * largest < SEEN_S:
            found.leave(name, f"tuples of {largest:g} B were not slower than small ones")
            continue
        if determined[place] < 1 - 1e-6:
            why = "it cannot be distinguished from the other end's; the solution nearest to the description is used"
            found.leave(name, why)
        before = float(unknowns.described[column])
        mbps = BITS / value / MEGABIT
        known_mbps = BITS / before / MEGABIT if before > 0 else None
        off = mbps * spread / (value * largest)
        found.add(name, mbps, "Mbit/s", spread=off, count=count, described=known_mbps)
        known[column] = mbps
    for column, name in enumerate(unknowns.names):
        if column not in used and not _beside(cluster, name):
            found.leave(name, "no tuple used it")
    return MeasuredNetwork(_changed(cluster, known), found.measured, found.left)


def _beside(cluster: Cluster, name: str) -> bool:
    """Whether a delay has no meaning on a cluster: between machines joined by links only, or in one process."""
    return cluster.routed and name in ("delay, other host", "delay, same host")


def _with_card(machine: Machine, mbps: float) -> Machine:
    receives = None if machine.receive_mbps is None else mbps * _of_sending(machine)
    return msgspec.structs.replace(machine, network_mbps=mbps, receive_mbps=receives)


def _changed(cluster: Cluster, known: dict[int, float]) -> Cluster:
    """Return a cluster with measured values instead of described ones."""
    distances = Distances(
        **{name: known.get(place, getattr(cluster.distances, name)) for place, name in enumerate(DISTANCES)}
    )
    first = len(DISTANCES)
    if not cluster.routed:
        machines = tuple(
            _with_card(one, known[first + place]) if first + place in known else one
            for place, one in enumerate(cluster.machines)
        )
        return msgspec.structs.replace(cluster, machines=machines, distances=distances)
    links = tuple(
        msgspec.structs.replace(
            one,
            latency_ms=known.get(first + place, one.latency_ms),
            bandwidth_mbps=known.get(first + len(cluster.links) + place, one.bandwidth_mbps),
        )
        for place, one in enumerate(cluster.links)
    )
    return msgspec.structs.replace(cluster, links=links, distances=distances)
