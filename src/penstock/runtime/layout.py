"""The tasks, streams and channels of a dataflow, numbered identically by every worker and the controller."""

from functools import cached_property
from typing import NamedTuple

from penstock.api.dataflow import Dataflow, Outlet
from penstock.api.keys import extractor
from penstock.model.topology import Component, Grouping, Kind
from penstock.runtime.protocol.codec import Codec


class StreamFacts(NamedTuple):
    """One stream."""

    number: int
    label: str
    outlet: Outlet
    source: str  # component
    target: str  # component
    codec: Codec


class Layout:
    """Tasks numbered in topological order of their components, streams as the topology lists them."""

    def __init__(self, flow: Dataflow) -> None:
        self.flow = flow
        self.application = flow.application
        self.components: list[Component] = []  # of each task
        self.numbers: list[int] = []  # of each task within its component
        self.first: dict[str, int] = {}  # the first task of each component
        for position in self.application.order:
            component = self.application.components[position]
            self.first[component.name] = len(self.components)
            self.components += [component] * component.parallelism
            self.numbers += range(component.parallelism)
        self.streams = [
            StreamFacts(
                number,
                stream.label,
                outlet,
                stream.source,
                stream.target,
                Codec(stream.label, flow.stream_type(outlet)),
            )
            for number, (stream, (outlet, _)) in enumerate(zip(self.application.streams, flow.inputs(), strict=True))
        ]
        self.keys = [extractor(stream.outlet.keys, flow.stream_type(stream.outlet)) for stream in self.streams]
        self._progress_channels: dict[tuple[int, int], list[tuple[int, int]]] = {}  # a cache

    @cached_property
    def names(self) -> list[str]:
        """The name of each task, `component[number]`."""
        return [f"{c.name}[{number}]" for c, number in zip(self.components, self.numbers, strict=True)]

    @cached_property
    def by_name(self) -> dict[str, int]:
        """The number of each task."""
        return {name: number for number, name in enumerate(self.names)}

    def tasks(self, component: str) -> range:
        """Return the tasks of a component."""
        first = self.first[component]
        return range(first, first + self.application[component].parallelism)

    def outputs(self, task: int) -> list[StreamFacts]:
        """Return the streams that leave a task."""
        return [stream for stream in self.streams if stream.source == self.components[task].name]

    def inputs(self, task: int) -> list[StreamFacts]:
        """Return the streams that enter a task."""
        return [stream for stream in self.streams if stream.target == self.components[task].name]

    def targets(self, stream: StreamFacts, source: int) -> list[int]:
        """Return the tasks that a task has channels to on a stream: on a forward stream one, else all."""
        if stream.outlet.grouping is Grouping.FORWARD:
            return [self.first[stream.target] + self.numbers[source]]
        return list(self.tasks(stream.target))

    def channels_in(self, task: int) -> list[tuple[int, int]]:
        """Return the channels that enter a task, as stream and source task."""
        return [
            (stream.number, source)
            for stream in self.inputs(task)
            for source in self.tasks(stream.source)
            if task in self.targets(stream, source)
        ]

    @cached_property
    def reached(self) -> dict[int, frozenset[int]]:
        """The tasks that tuples of each source task can reach, and the task itself."""
        return {task: self._reached(task) for task, of in enumerate(self.components) if of.kind is Kind.SOURCE}

    def _reached(self, source: int) -> frozenset[int]:
        found = {source}
        for task in range(source, len(self.components)):  # in topological order
            if task in found:
                found.update(target for stream in self.outputs(task) for target in self.targets(stream, task))
        return frozenset(found)

    @cached_property
    def sinks(self) -> dict[int, list[int]]:
        """The tasks of sinks that tuples of each source task can reach."""
        return {
            source: sorted(task for task in tasks if self.components[task].kind is Kind.SINK)
            for source, tasks in self.reached.items()
        }

    def progress_channels(self, task: int, source: int) -> list[tuple[int, int]]:
        """Return the channels into a task that tuples of a source task can take."""
        found = self._progress_channels.get((task, source))
        if found is None:
            found = [channel for channel in self.channels_in(task) if channel[1] in self.reached[source]]
            self._progress_channels[task, source] = found
        return found
