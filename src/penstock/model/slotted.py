"""The array form of applications in time slots: tasks, the out-queues of each task, the lanes of each out-queue.

This is POTUS's model (§3): a task has an out-queue for every outgoing stream, and a *lane* connects an out-queue to
one downstream task. Tasks of several applications share machines and links. The unit of time is a slot, so rates are in
tuples per slot. Hone's link is the same model with a machine whose out-queues together may send few tuples per slot.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.model.cluster import Cluster
from penstock.model.errors import InvalidInput
from penstock.model.slotgraph import expand_slots
from penstock.model.taskgraph import Bools, Floats, expand_tasks
from penstock.model.topology import Grouping, Topology

Longs = NDArray[np.int64]

UNLIMITED = np.iinfo(np.int64).max // 4
"""A number of tuples that is never reached: stands for no limit."""

OUTFLOW = 2.0  # γ over the maximum service rate; less can make look-ahead unstable


class SlottedSystem(NamedTuple):
    """Tasks, out-queues and lanes; T tasks, Q out-queues, L lanes, K machines."""

    application: Longs  # [T] number of the application
    component: Longs  # [T] number over all applications
    machine: Longs  # [T]
    source: Bools  # [T]
    service: Floats  # [T] μ, tuples per slot; unused for sources
    limit: Longs  # [T] γ, maximum tuples that leave a task per slot
    queues: Longs  # [T + 1] the out-queues of task t are queues[t] .. queues[t + 1]
    emits: Floats  # [Q] tuples emitted per processed tuple
    copies: Bools  # [Q] whether every lane gets every tuple
    keyed: Bools  # [Q] whether a tuple's key decides its lane
    paired: Bools  # [Q] whether a key has two lanes to choose from
    lanes: Longs  # [Q + 1] the lanes of queue q are lanes[q] .. lanes[q + 1]
    target: Longs  # [L] task
    cost: Floats  # [L] U, of a tuple
    onward: Floats  # [L] minimum cost of everything that follows from a tuple there
    senders: Floats  # [L] number of tasks that send to the same target over the same stream
    capacity: Longs  # [K] maximum tuples that leave the out-queues of a machine per slot

    @property
    def tasks(self) -> int:
        """The number of tasks."""
        return len(self.source)


class PlacedApplication(NamedTuple):
    """An application, and the slot of each of its tasks."""

    topology: Topology
    slots: Sequence[int]


def build_slotted_system(
    placed: Sequence[PlacedApplication],
    cluster: Cluster,
    *,
    slot_s: float = 0.01,
    limit: int | None = None,
    capacity: int | None = None,
    cost: Floats | None = None,
) -> SlottedSystem:
    """Build the system of placed applications in time slots.

    limit: γ; None: twice the maximum rate that a task may emit. capacity: of every machine's card; None: unlimited.
    cost: [K, K], per tuple from machine to machine; None: the number of links between them.
    """
    slots = expand_slots(cluster)
    between = hop_counts(cluster) if cost is None else cost
    parts = [_part(number, one, slots.machine, between) for number, one in enumerate(placed)]
    service = _service(placed, cluster, slot_s)
    joined = _join(parts)
    if limit is None:
        limit = _limit(joined, service)
    return SlottedSystem(
        service=service,
        limit=np.full(len(service), limit, dtype=np.int64),
        capacity=np.full(len(cluster.machines), UNLIMITED if capacity is None else capacity, dtype=np.int64),
        **joined,
    )


def hop_counts(cluster: Cluster) -> Floats:
    """Return the number of links between each two machines; in a mesh 1 between hosts, 0 within one. [K, K]"""
    if not cluster.routed:
        slots = expand_slots(cluster)
        hosts = slots.host[slots.first[:-1]]
        return np.asarray(hosts[:, None] != hosts[None, :], dtype=np.float64)
    from scipy.sparse import csr_array  # slow to import, and workers never need it
    from scipy.sparse.csgraph import shortest_path

    nodes, index = len(cluster.node_index), cluster.node_index
    ends = np.array([(index[link.source], index[link.target]) for link in cluster.links]).reshape(-1, 2)
    directed = np.array([link.directed for link in cluster.links], dtype=bool)
    both = np.concatenate([ends, ends[~directed][:, ::-1]])
    graph = csr_array((np.ones(len(both)), (both[:, 0], both[:, 1])), shape=(nodes, nodes))
    at = [index[machine.name] for machine in cluster.machines]
    found = shortest_path(graph, unweighted=True, indices=at)[:, at]
    if np.isinf(found).any():
        a, b = (cluster.machines[int(one)].name for one in np.argwhere(np.isinf(found))[0])
        raise InvalidInput("links", f"there is no path from {a!r} to {b!r}; add a link")
    return np.asarray(found, dtype=np.float64)


def _limit(joined: dict[str, NDArray[Any]], service: Floats) -> int:
    emits = np.asarray(joined["emits"], dtype=np.float64)
    task = np.repeat(np.arange(len(service)), np.diff(joined["queues"]))
    out = np.bincount(task, emits, len(service)) * np.where(np.isfinite(service), service, 0.0)
    return max(1, int(np.ceil(OUTFLOW * max(out.max(initial=0.0), service[np.isfinite(service)].max(initial=1.0)))))


def _service(placed: Sequence[PlacedApplication], cluster: Cluster, slot_s: float) -> Floats:
    """Return the tuples per slot of every task, given equal shares of its slot and of its machine."""
    slots = expand_slots(cluster)
    where = np.concatenate([np.asarray(one.slots, dtype=np.int64) for one in placed])
    tasks = [expand_tasks(one.topology) for one in placed]
    cpu = np.concatenate([one.cpu for one in tasks])
    works = np.concatenate([~one.source for one in tasks])
    in_slot = np.bincount(where[works], minlength=slots.number)
    machine = slots.machine[where]
    busy = np.bincount(slots.machine[np.unique(where[works])], minlength=len(cluster.machines))
    cores = np.array([one.cores for one in cluster.machines], dtype=np.float64)
    speed = np.array([one.speed for one in cluster.machines], dtype=np.float64)
    share = np.minimum(1.0, cores / np.maximum(busy, 1))[machine] / np.maximum(in_slot[where], 1)
    with np.errstate(divide="ignore"):
        return np.asarray(np.where(works, slot_s * speed[machine] * share / cpu, np.inf), dtype=np.float64)


def _part(
    number: int, one: PlacedApplication, machine_of: NDArray[np.int32], between: Floats
) -> dict[str, NDArray[Any]]:
    """Expand one application, with its own numbering."""
    tasks = expand_tasks(one.topology)
    machine = machine_of[np.asarray(one.slots, dtype=np.int64)].astype(np.int64)
    selectivity = [stream.selectivity for stream in one.topology.streams]
    queues, emits, flows, lanes, target, cost = [0], [], [], [0], [], []
    onward = least_costs(one.topology, tasks.first, machine, between)
    for task in range(tasks.number):
        for flow in tasks.flows:
            if flow.source != tasks.component[task]:
                continue
            ends = _ends(tasks.of(flow.source), tasks.of(flow.target), flow.grouping, task)
            emits.append(selectivity[flow.stream])
            flows.append(flow)
            target += list(ends)
            cost += [float(between[machine[task], machine[end]]) for end in ends]
            lanes.append(len(target))
        queues.append(len(emits))
    ends_of = np.array(target, dtype=np.int64)
    stream = np.repeat(np.array([flow.stream for flow in flows], dtype=np.int64), np.diff(lanes))
    same = stream * (tasks.number + 1) + ends_of
    _, inverse, count = np.unique(same, return_inverse=True, return_counts=True)
    return {
        "application": np.full(tasks.number, number, dtype=np.int64),
        "component": tasks.component.astype(np.int64),
        "machine": machine,
        "source": tasks.source,
        "queues": np.array(queues, dtype=np.int64),
        "emits": np.array(emits, dtype=np.float64),
        "copies": np.array([flow.grouping is Grouping.ALL for flow in flows], dtype=bool),
        "keyed": np.array([flow.grouping in (Grouping.FIELDS, Grouping.PARTIAL_KEY) for flow in flows], dtype=bool),
        "paired": np.array([flow.grouping is Grouping.PARTIAL_KEY for flow in flows], dtype=bool),
        "lanes": np.array(lanes, dtype=np.int64),
        "target": ends_of,
        "cost": np.array(cost, dtype=np.float64),
        "onward": onward[ends_of],
        "senders": count[inverse].astype(np.float64),
    }


def _ends(senders: range, receivers: range, grouping: Grouping, task: int) -> Sequence[int]:
    """Return the tasks to which a task may send."""
    if grouping is Grouping.FORWARD:
        return (receivers[task - senders.start],)
    return receivers[:1] if grouping is Grouping.GLOBAL else receivers


def least_costs(topology: Topology, first: NDArray[np.int32], machine: Longs, between: Floats) -> Floats:
    """Return the minimum cost of everything that follows from a tuple at each task, independent of load. [T]"""
    least = np.zeros(len(machine))
    rank = {topology.components[position].name: number for number, position in enumerate(topology.order)}
    for number, position in reversed(list(enumerate(topology.order))):
        own = range(int(first[number]), int(first[number + 1]))
        for stream in topology.streams:
            if stream.source != topology.components[position].name:
                continue
            ends = range(int(first[rank[stream.target]]), int(first[rank[stream.target] + 1]))
            for task in own:
                able = list(_ends(own, ends, stream.grouping, task))
                costs = between[machine[task], machine[able]] + least[able]
                chosen = costs.sum() if stream.grouping is Grouping.ALL else costs.min()
                if stream.grouping in (Grouping.FIELDS, Grouping.PARTIAL_KEY):
                    chosen = costs.mean()  # the key decides, not the sender
                least[task] += stream.selectivity * chosen
    return least


def _join(parts: Sequence[dict[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """Concatenate the tables of several applications, renumbered."""
    tasks = np.cumsum([0] + [len(part["source"]) for part in parts])
    queues = np.cumsum([0] + [len(part["emits"]) for part in parts])
    lanes = np.cumsum([0] + [len(part["target"]) for part in parts])
    components = np.cumsum([0] + [int(part["component"].max(initial=-1)) + 1 for part in parts])
    begin = {"queues": queues, "lanes": lanes}
    shift = {"component": components, "target": tasks}
    joined: dict[str, NDArray[Any]] = {}
    for name in parts[0]:
        if name in begin:
            columns = [part[name][:-1] + begin[name][number] for number, part in enumerate(parts)]
            joined[name] = np.concatenate([*columns, begin[name][-1:]]).astype(np.int64)
        else:
            by = shift.get(name)
            columns = [part[name] if by is None else part[name] + by[n] for n, part in enumerate(parts)]
            joined[name] = np.concatenate(columns)
    return joined
