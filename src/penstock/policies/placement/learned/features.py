"""What a network sees of an application on a cluster: components and machines, the tokens of its encoder.

Tasks of a component are alike, and so are slots of a machine. So the encoder's work depends on the number of components
and machines, however many tasks there are. All features are relative (to the mean slot, to the total load, to the
farthest delay), so that applications and clusters of any size and unit look alike.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.model.instance import Instance
from penstock.model.taskgraph import FORWARD, GLOBAL, Floats, sum_by

Singles = NDArray[np.float32]

MOST = 20.0  # features are clipped here


class Tokens(NamedTuple):
    """The input of the encoder; C components, M machines."""

    component: Singles  # [C, features]
    machine: Singles  # [M, features]
    shared: Singles  # features of the whole, which every token gets
    down: Singles  # [C, C] the part of a component's tuples that goes to another


class Traffic(NamedTuple):
    """Tuples per source tuple between components, as arrays; C components."""

    spread: Floats  # [C, C] from each task of one to all of the other
    forward: Floats  # [C, C] to the task with the same number


def component_traffic(instance: Instance) -> Traffic:
    """Return the tuples that a task of each component sends to each other component, per source tuple, on average."""
    tasks = instance.tasks
    number = len(tasks.position)
    width = np.diff(tasks.first)
    spread, forward = np.zeros((number, number)), np.zeros((number, number))
    mean_gain = sum_by(tasks.component, tasks.gain, number) / width
    for flow in tasks.flows:
        receivers = 1 if flow.heard in (FORWARD, GLOBAL) else int(width[flow.target])
        table = forward if flow.heard == FORWARD else spread
        table[flow.source, flow.target] += mean_gain[flow.source] * flow.share * receivers
    return Traffic(spread, forward)


def norm_load(instance: Instance) -> float:
    """Return the factor from load per source tuple and unit of cpu to utilisation, if load were balanced perfectly."""
    total = float(instance.work.sum())
    return usable_cpu(instance) / total if total > 0 else 0.0


def usable_cpu(instance: Instance) -> float:
    """Return the cpu that tasks can use: of slots, limited by machines."""
    slots = instance.slots
    return float(np.minimum(sum_by(slots.machine, slots.cpu, slots.machines), slots.machine_cpu).sum())


def slot_memory(instance: Instance) -> Floats:
    """Return the memory of each slot: its own limit, or its share of the machine's. [S]"""
    slots = instance.slots
    shared = slots.machine_memory_mb / np.diff(slots.first)
    return np.where(np.isfinite(slots.memory_mb), slots.memory_mb, shared[slots.machine])


def tokens(instance: Instance) -> Tokens:
    """Return the input of the encoder, without the weight of throughput, which it gets in addition."""
    traffic = component_traffic(instance)
    width = np.diff(instance.tasks.first).astype(np.float64)
    volume = (traffic.spread + traffic.forward) * width[:, None]
    sent = volume.sum(axis=1, keepdims=True)
    return Tokens(
        component=_clipped(_component_features(instance, traffic, volume)),
        machine=_clipped(_machine_features(instance, float(volume.sum()))),
        shared=_clipped(_shared_features(instance)),
        down=np.divide(volume, sent, out=np.zeros_like(volume), where=sent > 0).astype(np.float32),
    )


def _clipped(columns: list[Floats | float]) -> Singles:
    table = np.stack(np.broadcast_arrays(*columns), axis=-1)
    clipped: Singles = np.clip(table, -MOST, MOST).astype(np.float32)
    return clipped


def _component_features(instance: Instance, traffic: Traffic, volume: Floats) -> list[Floats | float]:
    tasks, slots = instance.tasks, instance.slots
    number = len(tasks.position)
    width = np.diff(tasks.first).astype(np.float64)
    first = tasks.first[:-1]
    work = sum_by(tasks.component, instance.work, number)
    busy = work / width * norm_load(instance) / slots.cpu.mean()  # of a mean slot, by one task
    mean_cpu = max(float(tasks.cpu.mean()), 1e-300)
    exchanged = volume.sum(axis=0) + volume.sum(axis=1)
    forward = traffic.forward * width[:, None]
    return [
        work / max(work.sum(), 1e-300),
        busy,
        np.log1p(busy),
        width / slots.number,
        np.log(width),
        tasks.memory_mb[first] / max(float(slot_memory(instance).mean()), 1e-300),
        tasks.source[first].astype(np.float64),
        tasks.sink[first].astype(np.float64),
        _levels(instance),
        exchanged / max(2 * volume.sum(), 1e-300),
        forward.sum(axis=0) / np.maximum(volume.sum(axis=0), 1e-300),
        forward.sum(axis=1) / np.maximum(volume.sum(axis=1), 1e-300),
        tasks.cpu[first] / mean_cpu,
        (volume > 0).sum(axis=0) / 4.0,
        (volume > 0).sum(axis=1) / 4.0,
    ]


def _levels(instance: Instance) -> Floats:
    """Return how far each component is from the sources, 1 for the farthest. [C]"""
    level = levels(instance)
    return level / max(float(level.max()), 1.0)


def levels(instance: Instance) -> Floats:
    """Return the length of the longest path from a source to each component. [C]"""
    level = np.zeros(len(instance.tasks.position))
    for flow in instance.tasks.flows:  # by ascending source
        level[flow.target] = max(level[flow.target], level[flow.source] + 1)
    return level


def _machine_features(instance: Instance, volume: float) -> list[Floats | float]:
    tasks, slots = instance.tasks, instance.slots
    number = np.diff(slots.first).astype(np.float64)
    cpu = sum_by(slots.machine, slots.cpu, slots.machines)
    usable = np.minimum(cpu, slots.machine_cpu)
    first = slots.first[:-1]
    host = slots.host[first]
    on_host, machines_on_host = np.bincount(host, usable), np.bincount(host)
    memory = sum_by(slots.machine, slot_memory(instance), slots.machines)
    mean_memory = max(float(tasks.memory_mb.mean()), 1e-9)
    processes = np.array([machine.processes for machine in instance.cluster.machines], dtype=np.float64)
    bits = sum(flow.tuple_bytes for flow in tasks.flows) / max(len(tasks.flows), 1) * 8.0 * volume
    rate = norm_load(instance)  # source tuples per second at full utilisation
    card = bits * rate / slots.machine_network.min(axis=0)
    return [
        slots.cpu[first] / slots.cpu.mean(),
        number / 4.0,
        np.log(number),
        usable / cpu,
        usable / usable.mean(),
        np.log1p(slot_memory(instance)[first] / mean_memory),
        memory / memory.mean(),
        on_host[host] / usable.sum(),
        np.log(machines_on_host[host].astype(np.float64)),
        processes / number,
        np.log1p(card),
    ]


def _shared_features(instance: Instance) -> list[Floats | float]:
    tasks, slots = instance.tasks, instance.slots
    far = max(float(slots.delay_ms[3]), 1e-300)
    wanted, there = float(tasks.memory_mb.sum()), float(slot_memory(instance).sum())
    return [
        *(slots.delay_ms[:3] / far),
        np.log(tasks.number / slots.number),
        np.log(tasks.number) / 4.0,
        np.log(slots.number) / 4.0,
        np.log(slots.machines) / 4.0,
        wanted / max(there, 1e-300),
        float(slots.cpu.std() / slots.cpu.mean()),
    ]
