"""The constants of a simulation: the tasks' costs, their out-queues, and the lanes of each queue.

An out-queue belongs to a task and a stream; a lane connects it to one downstream task. Lanes have the numbers of the
edges of `model.taskgraph`.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.model.costs import Costs
from penstock.model.instance import Instance
from penstock.model.slotted import Longs
from penstock.model.taskgraph import Bools, Floats
from penstock.model.topology import Distribution, Grouping, ServiceTime

Small = NDArray[np.int32]

FULL = 4096  # tuples in an out-queue at which its task is blocked, as in the runtime

CONSTANT, EXPONENTIAL, GAMMA, LOGNORMAL = range(4)
"""The distributions of service times."""

_DRAWN = {
    Distribution.CONSTANT: CONSTANT,
    Distribution.EXPONENTIAL: EXPONENTIAL,
    Distribution.GAMMA: GAMMA,
    Distribution.LOGNORMAL: LOGNORMAL,
}

TURNS, KEY, TWO_KEYS, COPIES, FIRST, NAMED, NEAR = range(7)
"""The lane of a tuple: the next with capacity; its key's; the less loaded of its key's two; all; the first; each in
turn regardless of capacity; the next with capacity in the same process if there is one."""

_BOUND = {
    Grouping.SHUFFLE: TURNS,
    Grouping.FIELDS: KEY,
    Grouping.PARTIAL_KEY: TWO_KEYS,
    Grouping.ALL: COPIES,
    Grouping.GLOBAL: FIRST,
    Grouping.FORWARD: FIRST,  # its only lane
    Grouping.DIRECT: NAMED,
    Grouping.LOCAL_OR_SHUFFLE: NEAR,
}


class TwinSystem(NamedTuple):
    """Tasks, out-queues and lanes; T tasks, Q out-queues, E lanes. Seconds are a core's of speed 1."""

    source: Bools  # [T]
    drawn: Small  # [T] CONSTANT .. LOGNORMAL
    service: Floats  # [T, 2] a scale and a shape, as `draw_service_time` takes them
    queues: Small  # [T + 1] the out-queues of task t are queues[t] .. queues[t + 1]
    bound: Small  # [Q] TURNS .. NEAR
    selectivity: Floats  # [Q] tuples per tuple processed by its task
    tuple_bytes: Floats  # [Q]
    receive_s: Floats  # [Q] per tuple from another process
    lanes: Small  # [Q + 1] the lanes of queue q are lanes[q] .. lanes[q + 1]
    queue: Small  # [E] its out-queue
    sender: Small  # [E] task
    target: Small  # [E] task
    window: int  # maximum tuples in flight per lane
    credit_at: int  # processed tuples after which credit is returned
    in_flight: int  # maximum source tuples in flight per source task
    full: int  # tuples in an out-queue at which its task is blocked
    frame_bytes: float
    most: int  # maximum number of immediate results of one tuple
    tasks: int  # T; in the table of lists, the start of out-queues
    in_lanes: int  # start of lanes
    in_pipes: int  # start of pipes


def build_twin_system(instance: Instance, costs: Costs) -> TwinSystem:
    """Build the tables of an application with an engine's costs."""
    tasks, edges, topology = instance.tasks, instance.edges, instance.topology
    services = [topology.components[position] for position in tasks.position]
    drawn = np.array([_DRAWN[component.service.distribution] for component in services], dtype=np.int32)
    shaped = np.array([_shape(component.cpu, component.service) for component in services])
    first = _queue_starts(edges.source, edges.stream)
    stream = edges.stream[first]
    counts = np.bincount(edges.source[first], minlength=tasks.number)
    tuple_bytes = edges.tuple_bytes[first].astype(np.float64)
    selectivity = np.array([topology.streams[number].selectivity for number in stream])
    bound = np.array([_BOUND[topology.streams[number].grouping] for number in stream], dtype=np.int32)
    lanes = np.concatenate([first, [len(edges.source)]]).astype(np.int32)
    width = np.diff(lanes)
    follow = (np.floor(selectivity) + 1.0) * np.where(bound == COPIES, width, 1)
    queues = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return TwinSystem(
        source=np.array(tasks.source, dtype=np.bool_),
        drawn=drawn[tasks.component],
        service=shaped[tasks.component],
        queues=queues,
        bound=bound,
        selectivity=selectivity.astype(np.float64),
        tuple_bytes=tuple_bytes,
        receive_s=costs.receive_cpu + costs.receive_byte_cpu * tuple_bytes,
        lanes=lanes,
        queue=np.repeat(np.arange(len(first), dtype=np.int32), width),
        sender=edges.source.astype(np.int32),
        target=edges.target.astype(np.int32),
        window=costs.window,
        credit_at=max(1, costs.window // 4),  # as in the runtime
        in_flight=np.iinfo(np.int32).max if costs.in_flight is None else costs.in_flight,
        full=FULL,
        frame_bytes=costs.frame_bytes,
        most=int(np.bincount(np.repeat(np.arange(tasks.number), counts), follow, tasks.number).max(initial=0)),
        tasks=tasks.number,
        in_lanes=tasks.number + len(first),
        in_pipes=tasks.number + len(first) + len(edges.source),
    )


def queue_streams(instance: Instance) -> Longs:
    """Return the position of every out-queue's stream in the topology. [Q]"""
    edges = instance.edges
    return edges.stream[_queue_starts(edges.source, edges.stream)].astype(np.int64)


def _queue_starts(source: Small, stream: Small) -> Longs:
    """Return the first lane of every out-queue, at which the sender or the stream changes. [Q]"""
    if not len(source):
        return np.empty(0, dtype=np.int64)
    other = (source[1:] != source[:-1]) | (stream[1:] != stream[:-1])
    return np.concatenate([[0], np.flatnonzero(other) + 1]).astype(np.int64)


def _shape(mean: float, service: ServiceTime) -> tuple[float, float]:
    """Return the parameters of a service time, a scale and a shape, as in `runtime.emulation.ServiceTimes`."""
    variance = service.cv**2
    match service.distribution:
        case Distribution.GAMMA:
            return mean * variance, 1.0 / variance
        case Distribution.LOGNORMAL:
            spread = math.log1p(variance)
            return mean * math.exp(-spread / 2.0), math.sqrt(spread)
        case _:
            return mean, 0.0
