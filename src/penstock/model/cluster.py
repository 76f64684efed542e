"""Clusters: machines with slots, and the network between them.

A *slot* is one thread of execution: at most one core's worth of cpu, and together with the other slots of its machine
at most the machine's cores. Any number of tasks may share a slot. Slots are grouped into processes, machines and hosts
(two machines on one host are two containers or virtual machines). Without links the network is a full mesh whose delay
depends on how far apart two slots are; with links it is a routed network of machines and switches.
"""

from collections.abc import Mapping
from functools import cached_property

from penstock.model.entity import Count, Entity, Name, NonNegative, Positive, Probability
from penstock.model.errors import InvalidInput, UnknownMachine, UnknownName, nearest, refuse_duplicates
from penstock.model.topology import Component, Topology


class Machine(Entity, frozen=True):
    """A computer (or container) that runs tasks in its slots."""

    name: Name
    cores: Count = 1
    speed: Positive = 1.0  # of one core, relative; a tuple of `cpu` c takes c / speed seconds
    memory_mb: Positive = 4096.0  # shared by its slots
    slots: Count = 1
    slot_memory_mb: Positive | None = None  # a limit per slot, if slots do not share the machine's memory
    processes: Count = 1  # its slots are divided among them in equal blocks
    host: Name | None = None  # None: a host of its own
    network_mbps: Positive | None = None  # bandwidth of its network card in each direction; None: unlimited
    receive_mbps: Positive | None = None  # receive bandwidth of the card, if it differs from the send bandwidth
    resources: dict[str, NonNegative] = {}  # other capacities per second, by name
    labels: tuple[Name, ...] = ()  # labels that components can request with `on`
    failure_probability: Probability = 0.0

    def _check(self) -> None:
        if self.processes > self.slots:
            raise InvalidInput("processes", f"expected ≤ the {self.slots} slots, got {self.processes}")
        if self.receive_mbps is not None and self.network_mbps is None:
            problem = f"expected none without network_mbps, the send bandwidth, got {self.receive_mbps}"
            raise InvalidInput("receive_mbps", f"{problem}; give both")

    @property
    def cpu(self) -> float:
        """Its capacity: core-seconds per second, on cores of speed 1."""
        return self.cores * self.speed

    @property
    def card_mbps(self) -> tuple[float, float] | None:
        """The send and receive bandwidth of its network card; None if unlimited."""
        return None if self.network_mbps is None else (self.network_mbps, self.receive_mbps or self.network_mbps)


class Link(Entity, frozen=True):
    """A connection between two machines or switches; both directions share its bandwidth unless it is directed."""

    source: Name
    target: Name
    bandwidth_mbps: NonNegative
    latency_ms: NonNegative = 0.0
    directed: bool = False
    failure_probability: Probability = 0.0

    @property
    def label(self) -> str:
        """The link's name in output and plans."""
        return f"{self.source}->{self.target}" if self.directed else f"{self.source}--{self.target}"


class Distances(Entity, frozen=True):
    """The delay between two slots by their distance; the defaults are TATA's."""

    same_slot_ms: NonNegative = 1.0
    same_process_ms: NonNegative = 1.5
    same_host_ms: NonNegative = 2.0
    other_host_ms: NonNegative = 4.0


NEAR = Distances(same_slot_ms=0.01, same_process_ms=0.02, same_host_ms=0.05, other_host_ms=0.05)
"""Delays inside a machine that are small compared with a link's latency, for routed networks."""


class Cluster(Entity, frozen=True, dict=True):
    """Machines and the network that connects them."""

    name: Name
    machines: tuple[Machine, ...]
    switches: tuple[Name, ...] = ()  # relays that run no tasks
    links: tuple[Link, ...] = ()
    distances: Distances = Distances()

    def _check(self) -> None:
        if not self.machines:
            raise InvalidInput("machines", "expected at least one machine, got none")
        refuse_duplicates("machines", [machine.name for machine in self.machines])
        refuse_duplicates("links", [link.label for link in self.links])
        for position, name in enumerate(self.switches):
            if name in self.machine_index or name in self.switches[:position]:
                raise InvalidInput(f"switches[{position}]", f"{name!r} is already used; rename one")
        if self.switches and not self.links:
            raise InvalidInput("switches", "expected links that join them to machines, got none; add links")
        for position, machine in enumerate(self.machines if self.links else ()):
            if machine.network_mbps is not None:
                problem = f"expected none on a cluster with links, got {machine.network_mbps}"
                raise InvalidInput(f"machines[{position}].network_mbps", f"{problem}; set the bandwidth of its links")
        for position, link in enumerate(self.links):
            for end, name in (("source", link.source), ("target", link.target)):
                if name not in self.node_index:
                    path = f"links[{position}].{end}"
                    raise UnknownName(path, f"no machine or switch is named {name!r}; {nearest(name, self.node_index)}")
            if link.source == link.target:
                raise InvalidInput(f"links[{position}].target", f"expected another end than {link.source!r}")

    @property
    def routed(self) -> bool:
        """Whether tuples between machines follow routes over links."""
        return bool(self.links)

    @cached_property
    def machine_index(self) -> Mapping[str, int]:
        """The position of each machine, by name."""
        return {machine.name: position for position, machine in enumerate(self.machines)}

    @cached_property
    def node_index(self) -> Mapping[str, int]:
        """The number of each node of the network, machines first, then switches, by name."""
        return {name: node for node, name in enumerate([*self.machine_index, *self.switches])}

    @cached_property
    def slot_names(self) -> tuple[str, ...]:
        """The slots in order: `machine/number`."""
        return tuple(f"{machine.name}/{number}" for machine in self.machines for number in range(machine.slots))

    @property
    def slot_count(self) -> int:
        """The number of slots of all machines."""
        return sum(machine.slots for machine in self.machines)


def machine_of(slot: str) -> str:
    """Return the name of the machine that a slot is on."""
    return slot.rpartition("/")[0]


def check_pins(topology: Topology, cluster: Cluster) -> None:
    """Raise `UnknownMachine` if a component is pinned to a machine, or requests a label, that the cluster lacks."""
    labels = dict.fromkeys(label for machine in cluster.machines for label in machine.labels)
    for position, component in enumerate(topology.components):
        path = f"components[{position}]"
        for number, pin in enumerate(component.pins):
            if pin is not None and pin not in cluster.machine_index:
                at = f"[{number}]" if isinstance(component.pinned, tuple) else ""
                problem = f"cluster {cluster.name!r} has no {pin!r}; {nearest(pin, cluster.machine_index)}"
                raise UnknownMachine(f"{path}.pinned{at}", problem)
        if component.on is not None and component.on not in labels:
            there_are = nearest(component.on, labels) if labels else "no machine has labels"
            problem = f"no machine of cluster {cluster.name!r} has the label {component.on!r}; {there_are}"
            raise UnknownMachine(f"{path}.on", problem)
        _check_pins_have_label(path, component, cluster)


def required_machines(topology: Topology, cluster: Cluster) -> set[str]:
    """Return the machines without which no placement exists: those of pins, and the only ones with a required label."""
    found = {pin for component in topology.components for pin in component.pins if pin is not None}
    for label in {component.on for component in topology.components} - {None}:
        able = [machine.name for machine in cluster.machines if label in machine.labels]
        found |= set(able) if len(able) == 1 else set()
    return found


def _check_pins_have_label(path: str, component: Component, cluster: Cluster) -> None:
    for pin in component.pins:
        if pin is None or component.on is None:
            continue
        if component.on not in cluster.machines[cluster.machine_index[pin]].labels:
            problem = f"{component.name!r} is pinned to {pin!r}, which lacks the label {component.on!r}"
            raise InvalidInput(f"{path}.on", f"{problem}; drop one of the two or add the label to the machine")
