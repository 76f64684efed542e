"""Random instances for training: an application on a cluster, and the same as arrays of one shape.

Two kinds. `published` has the statistics of TATA's data set: chains, and as many slots as the largest parallelism or up
to three more. `varied` has forks, joins, keyed and global streams, machines with fewer cores than slots, several
processes, network cards, any delays, and more slots.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from penstock.estimate.evaluator import Evaluator
from penstock.estimate.flow import TATA, UNLIMITED_TPS
from penstock.model.cluster import Cluster, Distances, Machine
from penstock.model.errors import FileProblem, InvalidInput, UnknownName, choices
from penstock.model.formats.tata import MAX_SPARE_SLOTS
from penstock.model.placement import Placement
from penstock.model.routes import BITS
from penstock.model.taskgraph import FORWARD, GLOBAL, Tasks, sum_by
from penstock.model.topology import Application, Grouping
from penstock.policies.api import PlacementView
from penstock.policies.placement.learned.features import levels, slot_memory, tokens
from penstock.policies.registry import placement_policy
from penstock.workloads.clusters import draw_slots
from penstock.workloads.topologies import draw_job, layered

Arrays = dict[str, Any]  # of NumPy or of JAX
Pair = tuple[Application, Cluster]

REFERENCES = ("i-storm", "flink")  # the reward is relative to these (TATA, eq. (11)-(13))
NO_LIMIT = 1e12  # stands for infinity, which gradients and float32 do not bear
CPU = (1, 6)  # of a tuple, as in the paper's data
MEMORY_MB = (32, 256)


class Shape(NamedTuple):
    """The maximum size of the instances of a set."""

    components: int
    tasks: int
    machines: int
    slots: int


SMALL = Shape(components=10, tasks=40, machines=18, slots=18)
LARGE = Shape(components=16, tasks=160, machines=32, slots=64)
HUGE = Shape(components=24, tasks=640, machines=128, slots=256)


def published_pair(rng: np.random.Generator) -> Pair:
    """Draw a pair with the statistics of TATA's data set."""
    job = draw_job(rng)
    widest = max(component.parallelism for component in job.components)
    while True:
        cluster = draw_slots(rng)
        if widest <= cluster.slot_count <= widest + MAX_SPARE_SLOTS:
            return job, cluster


def varied_pair(rng: np.random.Generator) -> Pair:
    """Draw a pair of any structure, of up to 40 tasks and 18 slots."""
    return _varied(rng, SMALL, widest=6)


def large_pair(rng: np.random.Generator) -> Pair:
    """Draw a pair of any structure, of up to 160 tasks and 64 slots."""
    return _varied(rng, LARGE, widest=24)


def huge_pair(rng: np.random.Generator) -> Pair:
    """Draw a pair of any structure, of 160 to 640 tasks and up to 256 slots."""
    return _varied(rng, HUGE, widest=100, fewest=LARGE.tasks)


def sized_pair(rng: np.random.Generator, tasks: int) -> Pair:
    """Draw a pair of any structure with about this number of tasks, a tenth as many machines and a third of the slots.

    Pairs with fewer than three quarters of these slots are drawn again.
    """
    near = tasks // 10
    shape = Shape(components=max(6, tasks // 25), tasks=tasks + near, machines=tasks // 10, slots=tasks // 3)
    while True:
        job, cluster = _varied(rng, shape, widest=100, fewest=tasks - near)
        if sum(machine.slots for machine in cluster.machines) > shape.slots * 3 // 4:
            return job, cluster


KINDS: Mapping[str, tuple[Callable[[np.random.Generator], Pair], Shape]] = {
    "published": (published_pair, SMALL),
    "varied": (varied_pair, SMALL),
    "large": (large_pair, LARGE),
    "huge": (huge_pair, HUGE),
}


def _varied(rng: np.random.Generator, shape: Shape, widest: int, fewest: int = 1) -> Pair:
    while True:
        job = _varied_job(rng, shape, widest)
        if fewest <= job.task_count <= shape.tasks:
            return job, _varied_cluster(rng, shape)


def _varied_job(rng: np.random.Generator, shape: Shape, widest: int) -> Application:
    components = int(rng.integers(2, shape.components + 1))
    job = layered(
        components=components,
        depth=int(rng.integers(2, min(components, 6) + 1)),
        parallelism=int(rng.integers(1, widest + 1)),
        min_parallelism=1,
        join=int(rng.integers(1, 4)),
        keyed=float(rng.choice([0.0, 0.3, 1.0])),
        seed=int(rng.integers(2**31)),
    )
    uneven = float(rng.choice([1.0, 1.0, 0.3, 3.0]))  # some streams filter or multiply
    width = {component.name: component.parallelism for component in job.components}
    return msgspec.structs.replace(
        job,
        components=tuple(
            msgspec.structs.replace(
                component,
                cpu=float(rng.integers(CPU[0], CPU[1] + 1)),
                memory_mb=float(rng.integers(MEMORY_MB[0], MEMORY_MB[1] + 1)),
            )
            for component in job.components
        ),
        streams=tuple(
            msgspec.structs.replace(
                stream,
                selectivity=stream.selectivity * float(rng.uniform(min(uneven, 1.0), max(uneven, 1.0))),
                grouping=_grouping(rng, stream.grouping, width[stream.source] == width[stream.target] > 1),
            )
            for stream in job.streams
        ),
    )


def _grouping(rng: np.random.Generator, drawn: Grouping, equal: bool) -> Grouping:
    if equal and rng.random() < 0.5:
        return Grouping.FORWARD
    return Grouping.GLOBAL if rng.random() < 0.05 else drawn


def _varied_cluster(rng: np.random.Generator, shape: Shape) -> Cluster:
    machines: list[Machine] = []
    most = int(rng.integers(2, shape.slots + 1))
    kinds = int(rng.integers(1, 5))
    sizes = rng.integers(1, int(rng.choice([1, 2, 4, 6])) + 1, kinds)
    speeds, memory = rng.uniform(20, 20 * rng.choice([1.0, 2.0, 4.0]), kinds), rng.uniform(700, 2500, kinds)
    own_limit, busy, carded = rng.random() < 0.5, rng.random() < 0.3, rng.random() < 0.2
    hosts, split = int(rng.integers(1, most + 1)), rng.random() < 0.2
    while len(machines) < shape.machines:
        kind = int(rng.integers(kinds))
        slots = min(int(sizes[kind]), most - sum(machine.slots for machine in machines))
        if slots == 0:
            break
        machines.append(
            Machine(
                name=f"m{len(machines)}",
                cores=max(1, slots // 2) if busy else slots,
                speed=float(speeds[kind]),
                slots=slots,
                processes=int(rng.integers(1, slots + 1)) if split else 1,
                memory_mb=float(memory[kind]) * slots,
                slot_memory_mb=float(memory[kind]) if own_limit else None,
                host=f"h{int(rng.integers(hosts))}",
                network_mbps=float(rng.uniform(0.01, 0.2)) if carded else None,
            )
        )
    far = float(rng.uniform(1.5, 20.0))
    near = sorted(rng.uniform(1.0, far, 2).tolist())
    drawn = Distances(same_slot_ms=1.0, same_process_ms=near[0], same_host_ms=near[1], other_host_ms=far)
    levels_ms = drawn if rng.random() < 0.7 else Distances()
    return Cluster(name="varied", machines=tuple(machines), distances=levels_ms)


def draw_pairs(kind: str, number: int, seed: int) -> Iterator[tuple[PlacementView, NDArray[np.float64]]]:
    """Yield instances of a kind that the references can place, with the references' mean rates and delays."""
    if kind not in KINDS:
        raise UnknownName("instances", f"no kind is named {kind!r}; there are {choices(KINDS)}")
    return placeable(KINDS[kind][0], number, seed)


def placeable(
    draw: Callable[[np.random.Generator], Pair], number: int, seed: int
) -> Iterator[tuple[PlacementView, NDArray[np.float64]]]:
    """Yield drawn instances that the references can place, with the references' mean rates and delays."""
    rng, found = np.random.default_rng(seed), 0
    while found < number:
        view = PlacementView(*draw(rng))
        reference = references(view)
        if reference is not None:
            found += 1
            yield view, reference


def references(view: PlacementView) -> NDArray[np.float64] | None:
    """Return the references' mean rate and delay, by TATA's estimate and with even streams: [2, 2], or None."""
    paper, planning = Evaluator(view.topology, view.cluster, TATA), Evaluator(view.topology, view.cluster)
    found = []
    for name in REFERENCES:
        placed = placement_policy(name).place(view, np.random.default_rng(0))
        if isinstance(placed, Placement):
            published, own = paper.evaluate(placed), planning.evaluate(placed)
            found.append([[published.throughput_tps, published.delay_ms], [own.even_tps, own.delay_ms]])
    mean = np.mean(found, axis=0) if found else np.zeros((2, 2))
    return mean if np.isfinite(mean).all() and (mean > 0).all() else None


def to_arrays(view: PlacementView, shape: Shape, reference: NDArray[np.float64]) -> Arrays:
    """Return an instance as arrays of a shape; what it has less than that is masked."""
    tasks, slots = view.tasks, view.slots
    sizes = (len(tasks.position), tasks.number, slots.machines, slots.number)
    if any(own > most for own, most in zip(sizes, shape, strict=True)):
        raise InvalidInput("instances", f"expected at most {tuple(shape)} of {shape._fields}, got {sizes}")
    seen = tokens(view)
    c, t, m, s = shape
    return {
        "component_features": _padded(seen.component, c),
        "machine_features": _padded(seen.machine, m),
        "shared_features": seen.shared,
        "down": _padded(seen.down, c, c),
        "component_mask": _padded(np.ones(sizes[0]), c),
        "machine_mask": _padded(np.ones(sizes[2]), m),
        "level": _padded(levels(view), c).astype(np.int32),
        "component": _padded(tasks.component, t).astype(np.int32),
        "number": _padded(np.arange(tasks.number) - tasks.first[tasks.component], t).astype(np.int32),
        "task_mask": _padded(np.ones(sizes[1]), t),
        "cpu": _padded(tasks.cpu, t),
        "gain": _padded(tasks.gain, t),
        "memory": _padded(tasks.memory_mb, t),
        "source": _padded(tasks.source, t),
        "sink": _padded(tasks.sink, t),
        "needs_nothing": _padded(np.where(tasks.cpu > 0, 0.0, UNLIMITED_TPS), t),
        **_streams(tasks, c),
        "slot_cpu": _padded(slots.cpu, s, fill=1.0),
        "slot_memory": _padded(np.minimum(slots.memory_mb, NO_LIMIT), s),
        "mean_memory": np.float32(slot_memory(view).mean()),
        "slot_mask": _padded(np.ones(sizes[3]), s),
        "slot_machine": _padded(slots.machine, s, fill=m - 1).astype(np.int32),
        "slot_process": _padded(slots.process, s, fill=-1).astype(np.int32),
        "slot_host": _padded(slots.host, s, fill=-1).astype(np.int32),
        "machine_cpu": _padded(_machine_limit(view), m, fill=NO_LIMIT),
        "machine_memory": _padded(np.minimum(slots.machine_memory_mb, NO_LIMIT), m),
        "card": _padded(np.minimum(slots.machine_network, NO_LIMIT).T, m, fill=NO_LIMIT),
        "delay_ms": slots.delay_ms.astype(np.float32),
        "reference": reference.astype(np.float32),
    }


def _machine_limit(view: PlacementView) -> NDArray[np.float64]:
    """Return the cpu of machines whose slots could use more, else no limit. [M]"""
    slots = view.slots
    every = sum_by(slots.machine, slots.cpu, slots.machines)
    return np.where(every > slots.machine_cpu * (1 + 1e-9), slots.machine_cpu, NO_LIMIT)


def _padded(values: Any, *lengths: int, fill: float = 0.0) -> NDArray[np.float32]:
    array = np.asarray(values, dtype=np.float32)
    missing = [length - own for length, own in zip(lengths, array.shape, strict=False)]
    widths = [(0, each) for each in missing] + [(0, 0)] * (array.ndim - len(missing))
    return np.pad(array, widths, constant_values=fill)


def _streams(tasks: Tasks, components: int) -> Arrays:
    """Return tables of streams by sending and receiving component: kind, shares, bits per processed tuple. [C, C]"""
    tables = {name: np.zeros((components, components), np.float32) for name in ("even_share", "share", "bits")}
    kind = np.full((components, components), -1, dtype=np.int32)
    width = np.diff(tasks.first)
    heard = {flow: 1 if flow.heard in (FORWARD, GLOBAL) else int(width[flow.target]) for flow in tasks.flows}
    receivers = np.zeros(len(width))
    for flow in tasks.flows:
        receivers[flow.source] += heard[flow]
    for flow in tasks.flows:
        at = flow.source, flow.target
        if kind[at] >= 0:
            raise InvalidInput("instances", "two streams lead from a component to another; training knows one")
        kind[at] = flow.heard
        tables["even_share"][at] = 1.0 / receivers[flow.source]
        tables["share"][at], tables["bits"][at] = flow.share, flow.share * flow.tuple_bytes * BITS
    return {"stream_kind": kind, **tables}


def stack(rows: Sequence[Arrays]) -> Arrays:
    """Return instances of one shape as one table."""
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}


def draw_table(kind: str, number: int, seed: int, on_progress: Callable[[int], object] = int) -> Arrays:
    """Draw instances of a kind as arrays."""
    rows = []
    for view, reference in draw_pairs(kind, number, seed):
        rows.append(to_arrays(view, KINDS[kind][1], reference))
        on_progress(len(rows))
    return stack(rows)


def save_table(path: Path, table: Arrays) -> None:
    """Write instances to a file, for a training on another machine."""
    np.savez_compressed(path, **table)


def load_table(path: Path) -> Arrays:
    """Read instances from a file."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (OSError, ValueError) as error:
        raise FileProblem(f"{path}: holds no instances, {error}; draw them again") from None
