"""The array form of a topology: its tasks, the edges between them, and what flows along them.

Tasks are numbered component by component in topological order, so a pass over ascending numbers visits every task after
all of its upstream tasks. Flows are per *source tuple*: a task's `gain` is the number of tuples that it processes per
tuple emitted by all sources together, if streams split evenly.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.model.topology import Application, Component, Grouping, Kind, Topology

Ints = NDArray[np.int32]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


SPREAD, FORWARD, GLOBAL = 0, 1, 2
"""The receivers of a sender on a stream: every task, the task with the same number, the first task."""

_HEARD = {Grouping.FORWARD: FORWARD, Grouping.GLOBAL: GLOBAL}


LABEL = "label "
"""Prefix of a resource that stands for a label: a machine has an infinite amount of it, or none."""


class Flow(NamedTuple):
    """A stream between numbered components, with the traffic from one task to one task."""

    source: int  # component, in task-graph order
    target: int
    grouping: Grouping
    share: float  # tuples from a task to each of its receivers, per processed tuple
    tuple_bytes: float
    stream: int  # position in the topology's streams

    @property
    def chosen(self) -> bool:
        """Whether senders give tuples to any receiver that has room."""
        return self.grouping in (Grouping.SHUFFLE, Grouping.LOCAL_OR_SHUFFLE)

    @property
    def local(self) -> bool:
        """Whether a sender with receivers in its own process sends only to these."""
        return self.grouping is Grouping.LOCAL_OR_SHUFFLE

    @property
    def heard(self) -> int:
        """The receivers of a sender: SPREAD, FORWARD or GLOBAL."""
        return _HEARD.get(self.grouping, SPREAD)


class FlowTraffic(NamedTuple):
    """The traffic of a stream: from sender k to receiver k if forward, else from every sender to every receiver."""

    tuples: Floats  # [senders] to each receiver, per source tuple
    source: Ints  # [senders] their locations
    target: Ints  # [receivers] their locations; for a global stream only the first


class Tasks(NamedTuple):
    """The tasks of a topology; T tasks, C components in topological order, R resources beside cpu."""

    position: Ints  # [C] position of the component in the topology
    first: Ints  # [C + 1] number of the component's first task; the last entry is T
    component: Ints  # [T] in topological order
    cpu: Floats  # [T] core-seconds per tuple at speed 1
    memory_mb: Floats  # [T]
    needs: Floats  # [T, R] of other resources, per tuple
    resources: tuple[str, ...]  # the R names; a label counts as one
    gain: Floats  # [T] tuples processed per source tuple
    source: Bools  # [T]
    sink: Bools  # [T]
    flows: tuple[Flow, ...]  # by ascending source

    @property
    def number(self) -> int:
        """The number of tasks."""
        return len(self.component)

    def sent(self, flow: Flow, place: Ints) -> FlowTraffic:
        """Return the traffic of a flow's senders and the locations of its senders and receivers; `place` is [T]."""
        sender, receiver = self.of(flow.source), self.of(flow.target)
        heard = 1 if flow.heard == GLOBAL else len(receiver)
        return FlowTraffic(
            tuples=self.gain[sender.start : sender.stop] * flow.share,
            source=place[sender.start : sender.stop],
            target=place[receiver.start : receiver.start + heard],
        )

    def of(self, component: int) -> range:
        """The tasks of a component."""
        return range(int(self.first[component]), int(self.first[component + 1]))

    def near(self, flow: Flow, process: Ints) -> Floats:
        """Return the number of receivers in its own process among which each sender of a flow chooses. [senders]

        `process` locates each task. Only a local stream has such senders; they send nothing to other processes.
        """
        sender, receiver = self.of(flow.source), self.of(flow.target)
        if not flow.local:
            return np.zeros(len(sender))
        there = np.bincount(process[receiver.start : receiver.stop], minlength=int(process.max()) + 1)
        return there[process[sender.start : sender.stop]].astype(np.float64)

    def placed(self, process: Ints) -> "Tasks":
        """Return the tasks with their gains in a placement: local streams do not spread evenly."""
        if not any(flow.local for flow in self.flows):
            return self
        gain = np.where(self.source, self.gain, 0.0)
        for flow in self.flows:
            sender, receiver = self.of(flow.source), self.of(flow.target)
            sent = gain[sender.start : sender.stop] * flow.share
            received = gain[receiver.start : receiver.stop]
            if flow.heard == FORWARD:
                received += sent
            elif flow.heard == GLOBAL:
                received[0] += sent.sum()
            else:
                near = self.near(flow, process)
                received += sent[near == 0].sum()
                for place in np.flatnonzero(near):
                    mine = process[receiver.start : receiver.stop] == process[sender.start + place]
                    received[mine] += sent[place] * len(receiver) / near[place]
        return self._replace(gain=gain)


class Edges(NamedTuple):
    """Every pair of tasks connected by a stream, sorted by sender; E edges."""

    start: Ints  # [T + 1] the edges of sender t are start[t] .. start[t + 1]
    source: Ints  # [E] sending task
    target: Ints  # [E] receiving task
    share: Floats  # [E] tuples sent per tuple processed by the sender
    tuple_bytes: Floats  # [E]
    stream: Ints  # [E] position in the topology's streams


def expand_tasks(topology: Topology) -> Tasks:
    """Expand a topology into its tasks and, per stream, the traffic between a pair of them."""
    components = [topology.components[position] for position in topology.order]
    rank = {component.name: number for number, component in enumerate(components)}
    width = np.array([component.parallelism for component in components])
    first = np.concatenate([[0], np.cumsum(width)]).astype(np.int32)
    flows = sorted(
        Flow(
            source=rank[stream.source],
            target=rank[stream.target],
            grouping=stream.grouping,
            share=stream.selectivity / _spread(stream.grouping, int(width[rank[stream.target]])),
            tuple_bytes=stream.tuple_bytes,
            stream=number,
        )
        for number, stream in enumerate(topology.streams)
    )
    wanted = [_needs(component) for component in components]
    resources = tuple(sorted({name for needs in wanted for name in needs}))
    needs = np.array([[own.get(name, 0.0) for name in resources] for own in wanted])
    return Tasks(
        position=np.array(topology.order, dtype=np.int32),
        first=first,
        component=np.repeat(np.arange(len(components), dtype=np.int32), width),
        cpu=np.repeat([component.cpu for component in components], width),
        memory_mb=np.repeat([component.memory_mb for component in components], width),
        needs=np.repeat(needs.reshape(len(components), len(resources)), width, axis=0),
        resources=resources,
        gain=_gains(topology, flows, first),
        source=np.repeat([component.kind is Kind.SOURCE for component in components], width),
        sink=np.repeat([component.kind is Kind.SINK for component in components], width),
        flows=tuple(flows),
    )


def _needs(component: Component) -> dict[str, float]:
    """Return the resources that a tuple needs beside cpu, including the label of a machine, which is never used up."""
    return component.resources if component.on is None else {**component.resources, LABEL + component.on: 1.0}


def expand_edges(tasks: Tasks) -> Edges:
    """List every edge between two tasks. Their number is quadratic in the parallelism: only estimators use them."""
    blocks = [_block(tasks, flow) for flow in tasks.flows]
    source, target, share, tuple_bytes, stream = (
        np.concatenate([block[column] for block in blocks]) if blocks else np.empty(0) for column in range(5)
    )
    by_sender = np.argsort(source, kind="stable")
    counts = np.bincount(source.astype(np.int64), minlength=tasks.number)
    return Edges(
        start=np.concatenate([[0], np.cumsum(counts)]).astype(np.int32),
        source=source[by_sender].astype(np.int32),
        target=target[by_sender].astype(np.int32),
        share=share[by_sender].astype(np.float64),
        tuple_bytes=tuple_bytes[by_sender].astype(np.float64),
        stream=stream[by_sender].astype(np.int32),
    )


def place_edges(tasks: Tasks, edges: Edges, process: Ints) -> Edges:
    """Return the edges with their shares in a placement, 0 if a local stream sends nothing there."""
    share = edges.share.copy()
    for flow in (flow for flow in tasks.flows if flow.local):
        mine = edges.stream == flow.stream
        source, target = edges.source[mine], edges.target[mine]
        near = tasks.near(flow, process)[source - tasks.first[flow.source]]
        width = len(tasks.of(flow.target))
        inside = np.where(process[source] == process[target], flow.share * width / np.maximum(near, 1.0), 0.0)
        share[mine] = np.where(near > 0, inside, flow.share)
    return edges._replace(share=share)


def sum_by(place: Ints, amount: Floats, places: int) -> Floats:
    """Add up amounts by location: [places]."""
    return np.bincount(place, amount, places).astype(np.float64)


def task_names(topology: Topology) -> tuple[str, ...]:
    """Name the tasks in task-graph order: `component[number]`."""
    components = (topology.components[position] for position in topology.order)
    return tuple(f"{component.name}[{number}]" for component in components for number in range(component.parallelism))


def _spread(grouping: Grouping, width: int) -> int:
    """Return the number of tasks among which a task's output on a stream is divided."""
    one_gets_all = grouping in (Grouping.FORWARD, Grouping.GLOBAL, Grouping.ALL)
    return 1 if one_gets_all else width


def _gains(topology: Topology, flows: list[Flow], first: Ints) -> Floats:
    gain = np.zeros(int(first[-1]))
    rates = topology.rate_tps if isinstance(topology, Application) else {}
    weights = rates or {source.name: 1.0 for source in topology.sources}
    for number, position in enumerate(topology.order):
        component = topology.components[position]
        if component.name in weights:
            share = weights[component.name] / sum(weights.values())
            gain[first[number] : first[number + 1]] = share / component.parallelism
    for flow in flows:
        sent = gain[first[flow.source] : first[flow.source + 1]] * flow.share
        received = gain[first[flow.target] : first[flow.target + 1]]
        match flow.grouping:
            case Grouping.FORWARD:
                received += sent
            case Grouping.GLOBAL:
                received[0] += sent.sum()
            case _:
                received += sent.sum()
    return gain


def _block(tasks: Tasks, flow: Flow) -> tuple[Ints, Ints, Floats, Floats, Ints]:
    senders = np.arange(tasks.first[flow.source], tasks.first[flow.source + 1])
    receivers = np.arange(tasks.first[flow.target], tasks.first[flow.target + 1])
    match flow.grouping:
        case Grouping.FORWARD:
            source, target = senders, receivers
        case Grouping.GLOBAL:
            source, target = senders, np.full(len(senders), receivers[0])
        case _:
            source, target = np.repeat(senders, len(receivers)), np.tile(receivers, len(senders))
    size = len(source)
    return source, target, np.full(size, flow.share), np.full(size, flow.tuple_bytes), np.full(size, flow.stream)
