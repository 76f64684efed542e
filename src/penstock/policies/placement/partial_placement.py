"""Input and state of SPARCLE's assignment in array form, for its kernels."""

from typing import NamedTuple

import numpy as np

from penstock.model.kernel import part, stage
from penstock.model.placement import MEMORY_SLACK
from penstock.model.routes import BITS
from penstock.model.slotgraph import Links
from penstock.model.taskgraph import FORWARD, GLOBAL, Bools, Floats, Ints
from penstock.policies.api import PlacementView
from penstock.policies.placement.transports import Streams, streams_of


class Workload(NamedTuple):
    """Tasks to be placed; T tasks, C components, R resources beside cpu."""

    first: Ints  # [C + 1] number of the component's first task; the last entry is T
    component: Ints  # [T]
    gain: Floats  # [T] tuples processed per source tuple
    work: Floats  # [T] core-seconds per source tuple
    memory: Floats  # [T] MB
    needs: Floats  # [T, R] per source tuple
    pin: Ints  # [T] machine, -1: free
    conflicts: Bools  # [C, C] components that may not share a machine; empty if all may
    streams: Streams


class Capacities(NamedTuple):
    """Capacities of the cluster; M machines, S slots."""

    first: Ints  # [M + 1] number of the machine's first slot; the last entry is S
    slot_cpu: Floats  # [M] of each of its slots
    slot_memory: Floats  # [S] MB
    cpu: Floats  # [M]
    memory: Floats  # [M] MB
    capacity: Floats  # [M, R]
    card: Floats  # [2, M] bits per second that it sends and receives
    links: Links
    routed: bool
    carded: bool  # whether cards limit


class Placed(NamedTuple):
    """The tasks placed so far, and the free capacity."""

    slot: Ints  # [T] -1: not placed
    machine: Ints  # [T]
    slot_load: Floats  # [S] core-seconds per source tuple
    load: Floats  # [M]
    slot_free: Floats  # [S] MB
    free: Floats  # [M] MB
    used: Floats  # [M, R] per source tuple
    tasks_on: Floats  # [C, M] tasks that receive tuples
    gain_on: Floats  # [C, M] tuples that they process per source tuple


class Scratch(NamedTuple):
    """Scratch space; V nodes, A arcs, L links, M machines, G groups, C components, T tasks."""

    width: Floats  # [V] of one tree
    tail: Ints  # [V]
    via: Ints  # [V]
    reached: Ints  # [V]
    heap_rates: Floats  # [A + 1]
    heap_nodes: Ints  # [A + 1]
    loaded: Floats  # [L]
    added: Floats  # [L] 0 between two uses
    charged: Bools  # [L]
    only: Ints  # [M] the only link of a machine, -1: it has several
    speed: Floats  # [M]
    gamma: Floats  # [M]
    bits: Floats  # [M]
    detour: Floats  # [M]
    seen: Ints  # [M]
    touched: Bools  # [G]
    closed: Bools  # [C]
    reachable: Bools  # [C, C]
    listed: Ints  # [T]


def workload_of(view: PlacementView) -> Workload:
    """Return the tasks of a view."""
    tasks = view.tasks
    return Workload(
        first=tasks.first,
        component=tasks.component,
        gain=tasks.gain,
        work=view.work,
        memory=tasks.memory_mb,
        needs=tasks.needs * tasks.gain[:, None],
        pin=view.pins,
        conflicts=np.zeros((0, 0), dtype=np.bool_) if view.conflicts is None else view.conflicts,
        streams=streams_of(tasks),
    )


def capacities_of(view: PlacementView) -> Capacities:
    """Return the capacities of a view's cluster."""
    slots, routed = view.slots, view.cluster.routed
    return Capacities(
        first=slots.first,
        slot_cpu=slots.cpu[slots.first[:-1]],
        slot_memory=slots.memory_mb * (1 + MEMORY_SLACK),
        cpu=slots.machine_cpu,
        memory=slots.machine_memory_mb * (1 + MEMORY_SLACK),
        capacity=slots.capacity,
        card=slots.machine_network,
        links=view.links,
        routed=routed,
        carded=not routed and bool(np.isfinite(slots.machine_network).any()),
    )


def empty_placement(workload: Workload, capacities: Capacities) -> Placed:
    """Allocate arrays for placed tasks."""
    tasks, components, machines = len(workload.component), len(workload.first) - 1, len(capacities.cpu)
    return Placed(
        np.empty(tasks, dtype=np.int32),
        np.empty(tasks, dtype=np.int32),
        np.empty(len(capacities.slot_memory)),
        np.empty(machines),
        np.empty(len(capacities.slot_memory)),
        np.empty(machines),
        np.empty(capacities.capacity.shape),
        np.empty((components, machines)),
        np.empty((components, machines)),
    )


@part
def clear_placement(placed: Placed, capacities: Capacities) -> None:
    """Record that no task is placed."""
    placed.slot[:], placed.machine[:], placed.slot_load[:], placed.load[:] = -1, -1, 0.0, 0.0
    placed.used[:], placed.tasks_on[:], placed.gain_on[:] = 0.0, 0.0, 0.0
    for slot in range(len(placed.slot_free)):
        placed.slot_free[slot] = capacities.slot_memory[slot]
    for machine in range(len(placed.free)):
        placed.free[machine] = capacities.memory[machine]


def allocate_scratch(workload: Workload, capacities: Capacities, groups: int) -> Scratch:
    """Allocate scratch space."""
    nodes, arcs, links = capacities.links.nodes, len(capacities.links.head), len(capacities.links.bandwidth)
    tasks, components, machines = len(workload.component), len(workload.first) - 1, len(capacities.cpu)
    return Scratch(
        np.empty(nodes),
        np.empty(nodes, dtype=np.int32),
        np.empty(nodes, dtype=np.int32),
        np.empty(nodes, dtype=np.int32),
        np.empty(arcs + 1),
        np.empty(arcs + 1, dtype=np.int32),
        np.empty(links),
        np.empty(links),
        np.empty(links, dtype=np.bool_),
        np.empty(machines, dtype=np.int32),
        np.empty(machines),
        np.empty(machines),
        np.empty(machines),
        np.empty(machines),
        np.empty(machines, dtype=np.int32),
        np.empty(groups, dtype=np.bool_),
        np.empty(components, dtype=np.bool_),
        np.empty((components, components), dtype=np.bool_),
        np.empty(tasks, dtype=np.int32),
    )


@stage
def least_loaded(placed: Placed, capacities: Capacities, machine: int, memory: float) -> int:
    """Return the least loaded slot of a machine with room for a task, ties by number; -1: none."""
    found = -1
    if placed.free[machine] >= memory:
        for slot in range(capacities.first[machine], capacities.first[machine + 1]):
            fits = placed.slot_free[slot] >= memory
            if fits and (found < 0 or placed.slot_load[slot] < placed.slot_load[found]):
                found = slot
    return found


@part
def able(workload: Workload, capacities: Capacities, task: int, machine: int) -> bool:
    """Return whether a machine has some of every resource beside cpu that a task needs."""
    for resource in range(capacities.capacity.shape[1]):
        if workload.needs[task, resource] != 0.0 and not capacities.capacity[machine, resource] > 0.0:
            return False
    return True


@part
def conflicting(workload: Workload, placed: Placed, task: int, machine: int) -> bool:
    """Return whether a machine has a task that this one may not share a machine with."""
    if workload.conflicts.shape[0] > 0:
        for other in range(len(placed.machine)):
            if (
                placed.machine[other] == machine
                and workload.conflicts[workload.component[task], workload.component[other]]
            ):
                return True
    return False


@part
def put(placed: Placed, workload: Workload, capacities: Capacities, task: int, machine: int) -> None:
    """Place a task in the least loaded slot of a machine that has room for it."""
    slot = least_loaded(placed, capacities, machine, workload.memory[task])
    placed.slot[task], placed.machine[task] = slot, machine
    placed.slot_load[slot] += workload.work[task]
    placed.load[machine] += workload.work[task]
    placed.slot_free[slot] -= workload.memory[task]
    placed.free[machine] -= workload.memory[task]
    for resource in range(placed.used.shape[1]):
        placed.used[machine, resource] += workload.needs[task, resource]
    if workload.gain[task] > 0.0:  # a task without tuples exchanges none
        placed.tasks_on[workload.component[task], machine] += 1.0
        placed.gain_on[workload.component[task], machine] += workload.gain[task]


@stage
def set_exchange(workload: Workload, placed: Placed, flow: int, task: int, sends: bool, bits: Floats) -> None:
    """Set the bits per source tuple that a task sends over a stream to the tasks on every machine, or receives. [M]"""
    streams, other = workload.streams, workload.streams.target[flow] if sends else workload.streams.source[flow]
    heard, number = streams.heard[flow], task - workload.first[workload.component[task]]
    amount = (workload.gain[task] if sends else 1.0) * streams.share[flow] * streams.tuple_bytes[flow] * BITS
    if heard == FORWARD:
        partner = workload.first[other] + number
        at_only(bits, placed.machine[partner], amount if sends else workload.gain[partner] * amount)
    elif heard == GLOBAL and sends:
        at_only(bits, placed.machine[workload.first[other]], amount)
    elif heard == GLOBAL and number > 0:
        bits[:] = 0.0
    else:
        received = placed.tasks_on if sends else placed.gain_on
        for machine in range(len(bits)):
            bits[machine] = amount * received[other, machine]


@part
def at_only(bits: Floats, machine: int, amount: float) -> None:
    """Set traffic with one machine only; none if it is -1."""
    bits[:] = 0.0
    if machine >= 0:
        bits[machine] = amount
