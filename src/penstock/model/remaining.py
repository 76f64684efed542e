"""The free capacity of a cluster, in the form of a cluster, so that any placement policy can use it.

Partly used cores are represented by fewer and slower ones: of 4 cores of which 1.5 are used, 3 of speed 2.5/3 remain,
so that one thread is nearly as fast as before. A failed machine becomes a switch whose links carry nothing: it neither
runs tasks nor relays, and the network stays routed. In a full mesh it is removed. The links of a failed switch carry
nothing either.
"""

import math
from collections.abc import Collection, Iterable, Mapping

from msgspec.structs import replace

from penstock.model.book import BANDWIDTH, CPU, RECEIVING, SENDING
from penstock.model.cluster import Cluster, Link, Machine
from penstock.model.slotgraph import MEGABIT

Amounts = Mapping[str, Mapping[str, float]]
"""By element and kind: core-seconds, bits or units of another resource, per second or per source tuple."""

EXHAUSTED = 1e-9  # relative to a capacity; smaller remainders are rounding errors
NEXT_TO_NOTHING = 1e-12  # relative to a speed; a machine must have some speed


def capacities(cluster: Cluster) -> dict[str, dict[str, float]]:
    """Return the capacity of each element per second, by kind: machines first, then links."""
    machines = {machine.name: _machine_capacities(machine) for machine in cluster.machines}
    return machines | {link.label: {BANDWIDTH: link.bandwidth_mbps * MEGABIT} for link in cluster.links}


def remaining(
    cluster: Cluster, taken: Amounts, failed: Collection[str] = (), held_mb: Mapping[str, float] | None = None
) -> Cluster:
    """Return the cluster with used capacity subtracted; `held_mb` is the used memory of each machine.

    Raises `ValueError` if every machine has failed.
    """
    left = {
        element: {kind: there_is - taken.get(element, {}).get(kind, 0.0) for kind, there_is in kinds.items()}
        for element, kinds in capacities(cluster).items()
    }
    return with_capacities(cluster, left, failed, held_mb)


def with_capacities(
    cluster: Cluster,
    left: Amounts,
    failed: Collection[str] = (),
    held_mb: Mapping[str, float] | None = None,
    shares: Mapping[str, float] | None = None,
) -> Cluster:
    """Return the cluster with other capacities; elements that are not named keep theirs.

    `shares` is the usable fraction of an element, if below 1: the remainder of a small fraction is not a rounding
    error.
    """
    held, share = held_mb or {}, shares or {}
    working = [machine for machine in cluster.machines if machine.name not in failed]
    if not working:
        raise ValueError("no machine is left")
    lost = [machine.name for machine in cluster.machines if machine.name in failed] if cluster.routed else []
    return Cluster(
        name=cluster.name,
        machines=tuple(
            _machine(machine, left.get(machine.name, {}), held.get(machine.name, 0.0), share.get(machine.name, 1.0))
            for machine in working
        ),
        switches=(*cluster.switches, *lost),
        links=tuple(
            _link(link, left.get(link.label, {}), failed, share.get(link.label, 1.0)) for link in cluster.links
        ),
        distances=cluster.distances,
    )


def scaled(cluster: Cluster, factors: Mapping[str, float]) -> Cluster:
    """Return the cluster with the speed of machines and the bandwidth of links multiplied by factors, by element."""
    return replace(
        cluster,
        machines=tuple(replace(m, speed=m.speed * factors.get(m.name, 1.0)) for m in cluster.machines),
        links=tuple(replace(k, bandwidth_mbps=k.bandwidth_mbps * factors.get(k.label, 1.0)) for k in cluster.links),
    )


def add_up(parts: Iterable[tuple[Amounts, float]]) -> dict[str, dict[str, float]]:
    """Return the sum of amounts, each multiplied by a rate."""
    total: dict[str, dict[str, float]] = {}
    for amounts, rate in parts:
        for element, kinds in amounts.items():
            for kind, amount in kinds.items():
                of_it = total.setdefault(element, {})
                of_it[kind] = of_it.get(kind, 0.0) + rate * amount
    return total


def _machine_capacities(machine: Machine) -> dict[str, float]:
    found = {CPU: machine.cpu, **machine.resources}
    if machine.card_mbps is not None:
        found |= {way: mbps * MEGABIT for way, mbps in zip((SENDING, RECEIVING), machine.card_mbps, strict=True)}
    return found


def _machine(machine: Machine, left: Mapping[str, float], held_mb: float, share: float) -> Machine:
    there_is = _machine_capacities(machine)
    rest = {kind: _rest(left.get(kind, amount), share * amount) for kind, amount in there_is.items()}
    cores = max(math.ceil(rest[CPU] / machine.speed * (1.0 - EXHAUSTED)), 1)
    sends, receives = (
        None if whole is None else max(rest[way] / MEGABIT, whole * share * NEXT_TO_NOTHING)
        for way, whole in zip((SENDING, RECEIVING), machine.card_mbps or (None, None), strict=True)
    )
    return replace(
        machine,
        cores=cores,
        speed=max(rest[CPU] / cores, machine.speed * share * NEXT_TO_NOTHING),
        memory_mb=max(machine.memory_mb - held_mb, machine.memory_mb * NEXT_TO_NOTHING),
        network_mbps=sends,
        receive_mbps=None if receives == sends else receives,
        resources={kind: rest[kind] for kind in machine.resources},
    )


def _link(link: Link, left: Mapping[str, float], failed: Collection[str], share: float) -> Link:
    there_is = link.bandwidth_mbps * MEGABIT
    down = any(name in failed for name in (link.label, link.source, link.target))
    rest = 0.0 if down else _rest(left.get(BANDWIDTH, there_is), share * there_is)
    return replace(link, bandwidth_mbps=rest / MEGABIT)


def _rest(left: float, there_is: float) -> float:
    return left if left > EXHAUSTED * there_is else 0.0
