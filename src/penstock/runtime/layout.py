"""The fixed facts of a dataflow that every worker and the controller number alike: tasks, streams, channels."""

from functools import cached_property
from typing import NamedTuple

from penstock.api.dataflow import Dataflow, Outlet
from penstock.api.keys import extractor
from penstock.model.topology import Component, Grouping, Kind
from penstock.runtime.codecs import Codec


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
            StreamFacts(number, stream.label, outlet, stream.source, stream.target, self._codec(stream.label, outlet))
            for number, (stream, (outlet, _)) in enumerate(zip(self.application.streams, flow.inputs(), strict=True))
        ]
        self.keys = [extractor(stream.outlet.keys) for stream in self.streams]

    def _codec(self, label: str, outlet: Outlet) -> Codec:
        return Codec(label, self.flow.stream_type(outlet))

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
    def sinks(self) -> list[int]:
        """The tasks of sinks."""
        return [task for task, component in enumerate(self.components) if component.kind is Kind.SINK]

    @cached_property
    def origins(self) -> dict[str, frozenset[str]]:
        """The source components from which the tuples of each component can come."""
        found: dict[str, frozenset[str]] = {}
        for position in self.application.order:
            name = self.application.components[position].name
            above = [found[stream.source] for stream in self.streams if stream.target == name]
            own = frozenset([name]) if self.application[name].kind is Kind.SOURCE else frozenset[str]()
            found[name] = own.union(*above)
        return found

    def progress_channels(self, task: int, origin: int) -> list[tuple[int, int]]:
        """Return the channels into a task that tuples of a source task can come by."""
        source = self.components[origin].name
        return [
            (stream, upstream)
            for stream, upstream in self.channels_in(task)
            if source in self.origins[self.components[upstream].name]
            and (self.components[upstream].name != source or upstream == origin)
        ]
