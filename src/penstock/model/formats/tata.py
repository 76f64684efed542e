"""The data set of the TATA paper: task graphs and slot graphs, as published beside its code.

Numbers are preserved: task k of a graph is task k of the application's task graph, and slot k of a slot graph is slot k
of the cluster, so that the placements published with the data set apply here. Therefore a file must list vertices
upstream first, the tasks of a vertex together, and the slots of a process together; any other order is rejected.
"""

from collections import defaultdict
from itertools import groupby
from pathlib import Path
from typing import Annotated

import numpy as np
from msgspec import Meta, Struct

from penstock.model.cluster import Cluster, Machine
from penstock.model.entity import NonNegative, Positive
from penstock.model.errors import InvalidInput, UnknownName, choices
from penstock.model.formats.reading import naming, read_json
from penstock.model.topology import Application, Component, Grouping, Kind, Stream

Number = Annotated[int, Meta(ge=0)]
MAX_SPARE_SLOTS = 3

Pairs = dict[tuple[int, int], set[tuple[int, int]]]


class TataTask(Struct):
    """One task of a task graph."""

    id: Number
    vertex_id: Number
    task_id: Number  # its number within the vertex
    is_source: bool
    is_sink: bool
    cpu: NonNegative  # cost of a tuple
    memory: NonNegative  # MB


class TataEdge(Struct):
    """A connection of two tasks."""

    from_id: int
    to_id: int


class TaskGraph(Struct):
    """A task graph as the file has it."""

    operators: list[TataTask]
    edges: list[TataEdge]


class TataSlot(Struct):
    """One slot of a slot graph."""

    id: Number
    cpu: Positive
    memory: Positive  # MB
    process: Number
    device: Number


def read_task_graphs(path: str | Path, split: str = "train") -> tuple[Application, ...]:
    """Read the task graphs of one split of the file (`train`, `valid`): vertex v becomes component `v<v>`.

    Two vertices are connected by a forward stream if they have the same parallelism, above 1, and task k is connected
    to task k only; by a shuffle stream if every task is connected to every task. Other connections are rejected.
    """
    path = Path(path)
    graphs: dict[str, list[TaskGraph]] = read_json(path, dict[str, list[TaskGraph]])
    with naming(path):
        if split not in graphs:
            raise UnknownName("", f"no split is named {split!r}; there are {choices(graphs)}")
        return tuple(
            _application(f"tata-{split}-{number}", f"{split}[{number}]", graph)
            for number, graph in enumerate(graphs[split])
        )


def read_slot_graphs(path: str | Path) -> tuple[Cluster, ...]:
    """Read slot graphs: process p becomes machine `p<p>` on host `d<device>`, with one core per slot."""
    path = Path(path)
    graphs: list[list[TataSlot]] = read_json(path, list[list[TataSlot]])
    with naming(path):
        return tuple(_cluster(f"tata-slots-{number}", f"[{number}]", graph) for number, graph in enumerate(graphs))


def _application(name: str, where: str, graph: TaskGraph) -> Application:
    vertices = _vertices(where, graph.operators)
    pairs = _pairs(where, graph, list(vertices))
    try:
        return Application(
            name=name,
            components=tuple(_component(tasks) for tasks in vertices.values()),
            streams=tuple(
                Stream(
                    source=f"v{source}",
                    target=f"v{target}",
                    grouping=_grouping(where, source, target, len(vertices[source]), len(vertices[target]), joined),
                )
                for (source, target), joined in pairs.items()
            ),
        )
    except InvalidInput as error:
        raise error if error.path.startswith(where) else error.below(where) from None


def _component(tasks: list[TataTask]) -> Component:
    first = tasks[0]
    return Component(
        name=f"v{first.vertex_id}",
        kind=Kind.SOURCE if first.is_source else Kind.SINK if first.is_sink else Kind.OPERATOR,
        parallelism=len(tasks),
        cpu=first.cpu,
        memory_mb=first.memory,
    )


def _vertices(where: str, operators: list[TataTask]) -> dict[int, list[TataTask]]:
    """Group the tasks by vertex, in the file's order."""
    vertices: dict[int, list[TataTask]] = {}
    position = 0
    for vertex, listed in groupby(operators, key=lambda operator: operator.vertex_id):
        path = f"{where}.operators[{position}]"
        tasks = list(listed)
        if vertex in vertices:
            raise InvalidInput(f"{path}.vertex_id", f"vertex {vertex} is listed in two places; list its tasks together")
        for number, task in enumerate(tasks):
            path = f"{where}.operators[{position + number}]"
            _check_operator(path, position + number, number, task, tasks[0])
        vertices[vertex] = tasks
        position += len(tasks)
    return vertices


def _check_operator(path: str, position: int, number: int, task: TataTask, first: TataTask) -> None:
    if task.id != position:
        raise InvalidInput(f"{path}.id", f"expected {position}, its position, got {task.id}")
    if task.task_id != number:
        raise InvalidInput(f"{path}.task_id", f"expected {number}, the next task of its vertex, got {task.task_id}")
    if task.is_source and task.is_sink:
        raise InvalidInput(f"{path}.is_sink", "expected false for a source, got true")
    for field in ("cpu", "memory", "is_source", "is_sink"):
        if getattr(task, field) != getattr(first, field):
            expected, found = getattr(first, field), getattr(task, field)
            raise InvalidInput(f"{path}.{field}", f"expected {expected} as in task 0 of its vertex, got {found}")


def _pairs(where: str, graph: TaskGraph, order: list[int]) -> Pairs:
    """Return for each pair of connected vertices which of their tasks are connected."""
    rank = {vertex: position for position, vertex in enumerate(order)}
    pairs: Pairs = defaultdict(set)
    for position, edge in enumerate(graph.edges):
        path = f"{where}.edges[{position}]"
        for end, task in (("from_id", edge.from_id), ("to_id", edge.to_id)):
            if not 0 <= task < len(graph.operators):
                raise InvalidInput(
                    f"{path}.{end}", f"expected an operator from 0 to {len(graph.operators) - 1}, got {task}"
                )
        sender, receiver = graph.operators[edge.from_id], graph.operators[edge.to_id]
        if rank[sender.vertex_id] >= rank[receiver.vertex_id]:
            raise InvalidInput(f"{path}.to_id", f"expected a later vertex than {edge.from_id}'s; list upstream first")
        joined = pairs[sender.vertex_id, receiver.vertex_id]
        if (sender.task_id, receiver.task_id) in joined:
            raise InvalidInput(path, f"{edge.from_id} -> {edge.to_id} is listed twice; remove one")
        joined.add((sender.task_id, receiver.task_id))
    return pairs


def _grouping(
    where: str, source: int, target: int, senders: int, receivers: int, joined: set[tuple[int, int]]
) -> Grouping:
    if len(joined) == senders * receivers:
        return Grouping.SHUFFLE
    if senders == receivers and joined == {(task, task) for task in range(senders)}:
        return Grouping.FORWARD
    raise InvalidInput(
        f"{where}.edges",
        f"vertices {source} and {target} are joined by {len(joined)} edges; expected {senders * receivers} "
        f"(all to all) or task k to task k only",
    )


def _cluster(name: str, where: str, slots: list[TataSlot]) -> Cluster:
    machines: dict[int, Machine] = {}
    position = 0
    for process, listed in groupby(slots, key=lambda slot: slot.process):
        own = list(listed)
        if process in machines:
            raise InvalidInput(
                f"{where}[{position}].process", f"process {process} is listed in two places; list its slots together"
            )
        for slot in own:
            _check_slot(f"{where}[{position}]", position, slot, own[0])
            position += 1
        machines[process] = Machine(
            name=f"p{process}",
            cores=len(own),
            speed=own[0].cpu,
            memory_mb=own[0].memory * len(own),
            slots=len(own),
            slot_memory_mb=own[0].memory,
            host=f"d{own[0].device}",
        )
    if not machines:
        raise InvalidInput(where, "expected at least one slot, got none")
    return Cluster(name=name, machines=tuple(machines.values()))


def _check_slot(path: str, position: int, slot: TataSlot, first: TataSlot) -> None:
    if slot.id != position:
        raise InvalidInput(f"{path}.id", f"expected {position}, its position, got {slot.id}")
    for field in ("cpu", "memory", "device"):
        if getattr(slot, field) != getattr(first, field):
            expected, found = getattr(first, field), getattr(slot, field)
            raise InvalidInput(f"{path}.{field}", f"expected {expected} as in its process's first slot, got {found}")


def validation_pairs(folder: Path, each: int, seed: int = 0) -> list[tuple[Application, Cluster, int]]:
    """Return `each` pairs of every task graph of the split `valid` with suitable slot graphs, as cases of a sweep.

    The authors pair each of these graphs, which are excluded from training, with five slot graphs whose number of slots
    exceeds the graph's maximum parallelism by 0 to 3 (PAPERS: 100 graphs × 5). Which five is random, by seed.
    """
    graphs = read_task_graphs(folder / "task_graphs.json", "valid")
    slots = read_slot_graphs(folder / "slot_graphs.json")
    rng = np.random.default_rng(seed)
    pairs = []
    for graph in graphs:
        widest = max(component.parallelism for component in graph.components)
        suited = [cluster for cluster in slots if widest <= cluster.slot_count <= widest + MAX_SPARE_SLOTS]
        chosen = rng.choice(len(suited), size=min(each, len(suited)), replace=False)
        pairs += [(graph, suited[number], seed) for number in chosen]
    return pairs
