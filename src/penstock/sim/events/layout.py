"""The tables of a placement on a cluster: which tasks share a slot, and the pipes from one task to another.

A *pipe* is a network card together with the path to machines at one distance, a link, or the short path inside a
machine. The departure time from a pipe is known on entry, so only the first item of each pipe has to be watched. Tuples
leave in the order in which they entered; if delays vary, this holds for those of one lane, and a lane keeps its order
when its path changes (`chains`). A path is a sequence of pipes.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from penstock.model.costs import Costs
from penstock.model.errors import InvalidInput
from penstock.model.instance import Instance
from penstock.model.placement import Hop
from penstock.model.routes import BITS, widest_path
from penstock.model.slotted import Longs
from penstock.model.taskgraph import Bools, Floats
from penstock.sim.events.system import COPIES, NAMED, NEAR, Small, TwinSystem, queue_streams

MILLISECOND = 1e-3
END = -1  # of a path
WITHIN = 3  # pipes inside a machine: within a slot, within a process, between processes
ABROAD = 2  # pipes that leave a machine of a mesh: to others on the same host, to other hosts


class Layout(NamedTuple):
    """The locations of tasks, and the paths between them; T tasks, S slots, M machines, E lanes, P pipes."""

    slot: Small  # [T]
    machine: Small  # [S]
    begin: Small  # [S + 1] the tasks of slot s are member[begin[s] .. begin[s + 1]]
    member: Small  # [T] tasks, by slot
    first: Small  # [M + 1] first slot of each machine
    cores: Floats  # [M]
    speed: Floats  # [M]
    extra: Floats  # [T] core-seconds per tuple in addition to its service time
    path: Small  # [E] start in `pipes` of the path of a lane
    afar: Bools  # [E] whether it leads to another process
    choice: Small  # [Q, 2] range of lanes used in turn: all, or those of the same process
    near: Small  # [E] for each queue the lanes of the same process, from its first position on
    pipes: Small  # paths one after another, each terminated by END
    card: Small  # [P] the card or link that a tuple occupies on entry; -1: none
    byte_s: Floats  # [P] s per byte
    latency: Floats  # [P] mean delay after entry, s
    spread: Floats  # [P] standard deviation of its logarithm; 0: constant


class PathTable:
    """Finds the path between two slots, and numbers paths: a known path keeps its number whichever tasks move."""

    def __init__(self, instance: Instance, routes: Mapping[Hop, tuple[int, ...]] | None) -> None:
        self._instance = instance
        self._routes = routes or {}
        self._known: dict[tuple[int, ...], int] = {}
        self._widest: dict[tuple[int, int], tuple[int, ...]] = {}
        self.pipes: list[int] = []

    def tables(self) -> tuple[Small, Floats, Floats, Bools]:
        """Return for every pipe the card or link in use, the time per byte, the latency, and whether that may vary."""
        cluster, slots = self._instance.cluster, self._instance.slots
        machines, links = len(cluster.machines), len(cluster.links)
        delay = slots.delay_ms * MILLISECOND
        inside = np.tile([delay[0], delay[1], delay[2]], machines)
        nothing = np.full(len(inside), -1, dtype=np.int32)
        if cluster.routed:
            bandwidth = self._instance.links.bandwidth
            byte_s = np.divide(BITS, bandwidth, out=np.zeros(links), where=bandwidth > 0)
            latency = self._instance.links.latency_ms * MILLISECOND
            card = np.arange(links, dtype=np.int32)
            far = np.ones(links, dtype=np.bool_)
        else:
            sends, receives = BITS / slots.machine_network  # 0 if unlimited
            out = np.where(sends > 0, 2 * np.arange(machines), -1)
            into = np.where(receives > 0, 2 * np.arange(machines) + 1, -1)
            card = np.concatenate([np.repeat(out, ABROAD), into]).astype(np.int32)
            byte_s = np.concatenate([np.repeat(sends, ABROAD), receives])
            latency = np.concatenate([np.tile([delay[2], delay[3]], machines), np.zeros(machines)])
            far = np.concatenate([np.tile([False, True], machines), np.zeros(machines, dtype=np.bool_)])
        free, constant = np.zeros(len(inside)), np.zeros(len(inside), dtype=np.bool_)
        return np.r_[nothing, card], np.r_[free, byte_s], np.r_[inside, latency], np.r_[constant, far]

    def find(self, stream: int, here: int, there: int) -> int:
        """Return the start in `pipes` of the path of a stream from slot to slot."""
        path = self._find_path(stream, here, there)
        if path not in self._known:
            self._known[path] = len(self.pipes)
            self.pipes += [*path, END]
        return self._known[path]

    def _find_path(self, stream: int, here: int, there: int) -> tuple[int, ...]:
        slots, cluster = self._instance.slots, self._instance.cluster
        a, b, machines = int(slots.machine[here]), int(slots.machine[there]), len(cluster.machines)
        if a == b:
            distance = 0 if here == there else 1 if slots.process[here] == slots.process[there] else 2
            return (WITHIN * a + distance,)
        if cluster.routed:
            return tuple(WITHIN * machines + link for link in self.links(Hop(stream, a, b)))
        out = WITHIN * machines + ABROAD * a + (slots.host[here] != slots.host[there])
        into = (WITHIN + ABROAD) * machines + b
        return (int(out), into) if np.isfinite(slots.machine_network[1, b]) else (int(out),)

    def links(self, hop: Hop) -> tuple[int, ...]:
        """Return the links of a hop of a routed network."""
        return self._routes.get(hop) or self._default(hop.source, hop.target)

    def _default(self, a: int, b: int) -> tuple[int, ...]:
        """Return the widest path of an idle network, the default of emulated machines."""
        if (a, b) not in self._widest:
            links = self._instance.links
            _, path = widest_path(links, np.zeros(len(links.bandwidth)), 1.0, a, b)
            if not len(path):
                names = [machine.name for machine in self._instance.cluster.machines]
                name, problem = self._instance.cluster.name, f"no path from {names[a]!r} to {names[b]!r}; add a link"
                raise InvalidInput("links", f"cluster {name!r} has {problem}")
            self._widest[a, b] = tuple(int(link) for link in path)
        return self._widest[a, b]


def build_layout(
    instance: Instance, system: TwinSystem, costs: Costs, paths: PathTable, placed: Sequence[int]
) -> Layout:
    """Build the tables of a placement; `paths` keeps the paths of earlier placements."""
    slots, cluster = instance.slots, instance.cluster
    slot = np.asarray(placed, dtype=np.int32)
    member = np.argsort(slot, kind="stable").astype(np.int32)
    here, there = slot[system.sender], slot[system.target]
    afar = slots.process[here] != slots.process[there]
    choice, near = _nearest(system, afar)
    card, byte_s, latency, far = paths.tables()
    return Layout(
        slot=slot,
        machine=slots.machine.astype(np.int32),
        begin=np.searchsorted(slot[member], np.arange(slots.number + 1)).astype(np.int32),
        member=member,
        first=slots.first.astype(np.int32),
        cores=np.array([float(machine.cores) for machine in cluster.machines]),
        speed=np.array([machine.speed for machine in cluster.machines]),
        extra=_extra(system, costs, afar, choice, near),
        path=_lane_paths(instance, paths, system, here, there),
        afar=afar,
        choice=choice,
        near=near,
        pipes=np.array(paths.pipes or [END], dtype=np.int32),
        card=card,
        byte_s=byte_s,
        latency=latency,
        # Lognormal: network delays have a long tail and are never near 0, unlike gamma with equal variation.
        spread=np.where(far, math.sqrt(math.log1p(costs.delay_variation**2)), 0.0),
    )


def _lane_paths(instance: Instance, paths: PathTable, system: TwinSystem, here: Small, there: Small) -> Small:
    """Find the path of every lane; lanes of one stream between the same slots share one."""
    stream = queue_streams(instance)[system.queue] if instance.cluster.routed else np.zeros(len(here), dtype=np.int64)
    number = instance.slots.number
    code: Longs = (stream * number + here) * number + there
    _, first, which = np.unique(code, return_index=True, return_inverse=True)
    found = [paths.find(int(stream[lane]), int(here[lane]), int(there[lane])) for lane in first]
    return np.array(found, dtype=np.int32)[which.ravel()] if len(found) else np.empty(0, dtype=np.int32)


def _nearest(system: TwinSystem, afar: Bools) -> tuple[Small, Small]:
    """Return, queue by queue, the range in the second table of the lanes used in turn."""
    near = np.arange(len(afar), dtype=np.int32)
    choice = np.stack([system.lanes[:-1], system.lanes[1:]], axis=1).astype(np.int32)
    for queue in np.flatnonzero(system.bound == NEAR):
        begin, end = system.lanes[queue], system.lanes[queue + 1]
        close = np.flatnonzero(~afar[begin:end])
        if len(close):
            near[begin : begin + len(close)] = begin + close
            choice[queue, 1] = begin + len(close)
    return choice, near


def first_turns(instance: Instance, system: TwinSystem, layout: Layout) -> Longs:
    """Return the first lane of each out-queue: as in the runtime, task k of a component starts with the k-th.

    So senders that act simultaneously do not all start with the same receiver. If only near lanes are used in turn, the
    first near lane from that position on is returned. For direct streams, the application decides, and all senders
    start with the first lane. [Q]
    """
    tasks = instance.tasks
    sender = system.sender[system.lanes[:-1]]
    number = sender - tasks.first[tasks.component[sender]]
    turns = np.where(system.bound == NAMED, 0, number % np.diff(system.lanes)).astype(np.int64)
    for queue in np.flatnonzero(system.bound == NEAR):
        lanes = layout.near[layout.choice[queue, 0] : layout.choice[queue, 1]]
        turns[queue] = np.searchsorted(lanes, system.lanes[queue] + turns[queue]) % len(lanes)
    return turns


def _extra(system: TwinSystem, costs: Costs, afar: Bools, choice: Small, near: Small) -> Floats:
    """Return the cost of a tuple in addition to its service: taking it from a queue, and sending its results.

    Sending is charged at its mean over the possible lanes, because the lanes are known only when tuples leave.
    """
    extra = np.where(system.source, 0.0, costs.hop_cpu)
    each = costs.send_cpu + costs.send_byte_cpu * system.tuple_bytes
    if not each.any():
        return extra
    for task in range(system.tasks):
        for queue in range(system.queues[task], system.queues[task + 1]):
            lanes = near[choice[queue, 0] : choice[queue, 1]]
            copies = len(lanes) if system.bound[queue] == COPIES else 1
            extra[task] += system.selectivity[queue] * copies * afar[lanes].mean() * each[queue]
    return extra
