"""Applications: graphs of components connected by streams, and their costs.

A *component* runs as `parallelism` equal tasks. A *stream* carries tuples from the tasks of one component to those of
another; its grouping determines which task receives which tuple. Costs are relative to a core of speed 1: a component
with `cpu = 0.002` keeps such a core busy for 2 ms per tuple (or, with speeds in GHz, uses 0.002 giga-cycles).
"""

from collections.abc import Mapping
from enum import StrEnum
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from heapq import heappop, heappush

from penstock.model.entity import Count, Entity, Name, NonNegative, Positive, Priority, Share
from penstock.model.errors import (
    CyclicTopology,
    InvalidInput,
    UnequalForward,
    UnknownName,
    UnreachableComponent,
    nearest,
    refuse_duplicates,
)


class Kind(StrEnum):
    """The role of a component: it produces, transforms or consumes tuples."""

    SOURCE = "source"
    OPERATOR = "operator"
    SINK = "sink"


class Grouping(StrEnum):
    """How the downstream task of a tuple is chosen."""

    SHUFFLE = "shuffle"  # any task, evenly
    FIELDS = "fields"  # the task that owns the tuple's key
    PARTIAL_KEY = "partial-key"  # the less loaded of the key's two tasks
    ALL = "all"  # every task gets a copy
    GLOBAL = "global"  # always task 0
    DIRECT = "direct"  # the task named by the sender
    FORWARD = "forward"  # task k to task k
    LOCAL_OR_SHUFFLE = "local-or-shuffle"  # a task in the same process if there is one, else any


class Distribution(StrEnum):
    """How the processing times of one component vary around their mean."""

    CONSTANT = "constant"
    EXPONENTIAL = "exponential"
    GAMMA = "gamma"
    LOGNORMAL = "lognormal"


class ServiceTime(Entity, frozen=True):
    """The distribution of a component's processing time; its mean is the component's `cpu`."""

    distribution: Distribution = Distribution.CONSTANT
    cv: NonNegative = 0.0  # coefficient of variation, for gamma and lognormal

    def _check(self) -> None:
        shaped = self.distribution in (Distribution.GAMMA, Distribution.LOGNORMAL)
        if shaped and self.cv == 0:
            raise InvalidInput("cv", f"expected a number > 0 for {self.distribution} times, got 0")
        if not shaped and self.cv != 0:
            raise InvalidInput("cv", f"expected none for {self.distribution} times, got {self.cv}; use gamma")


class Component(Entity, frozen=True):
    """One vertex of an application: its cost per tuple, and how many tasks may share the work."""

    name: Name
    kind: Kind = Kind.OPERATOR
    parallelism: Count = 1
    min_parallelism: Count = 1
    max_parallelism: Count | None = None  # None: the number of slots
    parallelisable: bool = True  # False: always one task
    cpu: NonNegative = 0.0  # core-seconds per tuple on a core of speed 1
    memory_mb: NonNegative = 0.0  # of one task
    resources: dict[str, NonNegative] = {}  # other needs per tuple, by name (SPARCLE's resource types)
    service: ServiceTime = ServiceTime()
    pinned: str | tuple[str, ...] | None = None  # the machine of all its tasks, or of each task in order
    on: Name | None = None  # a label: its tasks run only on machines with it
    anti_affinity: tuple[Name, ...] = ()  # components whose tasks may not share a machine with its own

    def _check(self) -> None:
        if isinstance(self.pinned, tuple) and len(self.pinned) != self.parallelism:
            problem = f"expected one machine per task, {self.parallelism}, got {len(self.pinned)}"
            raise InvalidInput("pinned", f"{problem}; set parallelism = {len(self.pinned)} or name one machine for all")
        if not self.parallelisable and self.parallelism != 1:
            raise InvalidInput("parallelism", f"expected 1 as parallelisable is false, got {self.parallelism}")
        if self.parallelism < self.min_parallelism:
            raise InvalidInput(
                "parallelism", f"expected ≥ min_parallelism {self.min_parallelism}, got {self.parallelism}"
            )
        if self.max_parallelism is not None and self.parallelism > self.max_parallelism:
            raise InvalidInput(
                "parallelism", f"expected ≤ max_parallelism {self.max_parallelism}, got {self.parallelism}"
            )

    @property
    def pins(self) -> tuple[str | None, ...]:
        """The machine to which each task is pinned; None if it is not."""
        return self.pinned if isinstance(self.pinned, tuple) else (self.pinned,) * self.parallelism

    @property
    def place(self) -> str:
        """Where its tasks must run, for drawings; empty if anywhere."""
        if self.pinned is not None:
            return ", ".join(dict.fromkeys(str(pin) for pin in self.pins))
        return f"any {self.on}" if self.on is not None else ""


class Stream(Entity, frozen=True):
    """An edge between two components."""

    source: Name
    target: Name
    grouping: Grouping = Grouping.SHUFFLE
    keys: tuple[str, ...] = ()  # the fields that a fields or partial-key grouping hashes
    selectivity: NonNegative = 1.0  # tuples sent on this stream per tuple processed by `source`
    tuple_bytes: NonNegative = 100.0

    @property
    def label(self) -> str:
        """The stream's name in output and plans."""
        return f"{self.source}->{self.target}"


class Topology(Entity, frozen=True, dict=True):
    """A directed acyclic graph of components, each on a path from a source to a sink."""

    name: Name
    components: tuple[Component, ...]
    streams: tuple[Stream, ...] = ()

    def _check(self) -> None:
        if not self.components:
            raise InvalidInput("components", "expected at least one component, got none")
        refuse_duplicates("components", [component.name for component in self.components])
        refuse_duplicates("streams", [stream.label for stream in self.streams])
        for position, stream in enumerate(self.streams):
            self._check_stream(f"streams[{position}]", stream)
        self._check_anti_affinity()
        self._check_acyclic()
        self._check_reachable()

    def _check_stream(self, path: str, stream: Stream) -> None:
        for end, name in (("source", stream.source), ("target", stream.target)):
            if name not in self.index:
                raise UnknownName(f"{path}.{end}", f"no component is named {name!r}; {nearest(name, self.index)}")
        source, target = self[stream.source], self[stream.target]
        if source.kind is Kind.SINK:
            raise InvalidInput(f"{path}.source", f"{source.name!r} is a sink and sends nothing; make it an operator")
        if target.kind is Kind.SOURCE:
            raise InvalidInput(
                f"{path}.target", f"{target.name!r} is a source and receives nothing; make it an operator"
            )
        if stream.grouping is Grouping.FORWARD and source.parallelism != target.parallelism:
            raise UnequalForward(
                f"{path}.grouping",
                f"forward joins task k to task k, but {source.name!r} has {source.parallelism} tasks and "
                f"{target.name!r} {target.parallelism}; make them equal or use shuffle",
            )

    def _check_anti_affinity(self) -> None:
        for position, component in enumerate(self.components):
            for number, name in enumerate(component.anti_affinity):
                if name not in self.index:
                    path = f"components[{position}].anti_affinity[{number}]"
                    raise UnknownName(path, f"no component is named {name!r}; {nearest(name, self.index)}")

    def _check_acyclic(self) -> None:
        try:
            self.order  # noqa: B018  computing it is the check
        except CycleError as error:
            cycle = " -> ".join(self.components[position].name for position in error.args[1])
            raise CyclicTopology("streams", f"they form a cycle, {cycle}; remove one of them") from None

    def _check_reachable(self) -> None:
        fed = {stream.target for stream in self.streams}
        feeds = {stream.source for stream in self.streams}
        for position, component in enumerate(self.components):
            path = f"components[{position}]"
            if component.kind is not Kind.SOURCE and component.name not in fed:
                raise UnreachableComponent(path, f"no stream leads to {component.name!r}; add one or make it a source")
            if component.kind is not Kind.SINK and component.name not in feeds:
                raise UnreachableComponent(
                    path, f"no stream leads on from {component.name!r}; add one or make it a sink"
                )

    def __getitem__(self, name: str) -> Component:
        return self.components[self.index[name]]

    @cached_property
    def index(self) -> Mapping[str, int]:
        """The position of each component, by name."""
        return {component.name: position for position, component in enumerate(self.components)}

    @cached_property
    def order(self) -> tuple[int, ...]:
        """Positions of the components, upstream before downstream; otherwise in the listed order."""
        upstream: dict[int, set[int]] = {position: set() for position in range(len(self.components))}
        for stream in self.streams:
            upstream[self.index[stream.target]].add(self.index[stream.source])
        sorter = TopologicalSorter(upstream)
        sorter.prepare()
        waiting, done = sorted(sorter.get_ready()), []
        while waiting:
            done.append(heappop(waiting))
            sorter.done(done[-1])
            for position in sorter.get_ready():
                heappush(waiting, position)
        return tuple(done)

    @property
    def sources(self) -> tuple[Component, ...]:
        """The components that produce tuples."""
        return tuple(component for component in self.components if component.kind is Kind.SOURCE)

    @property
    def task_count(self) -> int:
        """The number of tasks of the topology."""
        return sum(component.parallelism for component in self.components)


class Application(Topology, frozen=True, dict=True):
    """A topology to run: its offered load, its priority and its guarantee."""

    rate_tps: dict[Name, Positive] = {}  # offered load of each source component; absent: unknown
    priority: Priority = 1.0  # among applications without a guarantee
    guaranteed_tps: Positive | None = None  # None: best effort
    availability: Share | None = None  # fraction of the time for which the guarantee, or at least one path, must hold

    def _check(self) -> None:
        super()._check()
        for name in self.rate_tps:
            sources = [component.name for component in self.sources]
            if name not in sources:
                raise UnknownName(f"rate_tps.{name}", f"no source is named {name!r}; {nearest(name, sources)}")
        without = [component.name for component in self.sources if component.name not in self.rate_tps]
        if self.rate_tps and without:
            raise InvalidInput("rate_tps", f"expected a rate for every source or none at all, {without[0]!r} has none")

    @property
    def offered_tps(self) -> float | None:
        """The offered load of all sources together, if known."""
        return sum(self.rate_tps.values()) if self.rate_tps else None
