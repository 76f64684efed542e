"""The parallelism of an application: the number of tasks of each component, its bounds, and changes of it.

Components that forward streams join have equal numbers of tasks, so they change together.
"""

from collections.abc import Mapping
from math import inf
from typing import NamedTuple, TypeVar

import msgspec

from penstock.model.cluster import Cluster
from penstock.model.errors import InvalidInput, UnknownName, nearest
from penstock.model.topology import Component, Grouping, Topology

Parallelism = Mapping[str, int]
"""The number of tasks of each component, by name."""

SomeTopology = TypeVar("SomeTopology", bound=Topology)


class Bounds(NamedTuple):
    """The minimum and the maximum number of tasks of a component."""

    least: int
    most: int


def parallelism_of(topology: Topology) -> dict[str, int]:
    """Return the number of tasks of each component, upstream before downstream."""
    return {
        topology.components[position].name: topology.components[position].parallelism for position in topology.order
    }


def resized(topology: SomeTopology, parallelism: Parallelism) -> SomeTopology:
    """Return the topology with other numbers of tasks; components that are not named keep theirs."""
    for name in parallelism:
        if name not in topology.index:
            problem = f"no component is named {name!r}; {nearest(name, topology.index)}"
            raise UnknownName(f"parallelism.{name}", problem)
    components = tuple(with_tasks(component, parallelism.get(component.name)) for component in topology.components)
    return msgspec.structs.replace(topology, components=components)


def bounds(topology: Topology, cluster: Cluster, most: int | None = None) -> dict[str, Bounds]:
    """Return the bounds of each component's parallelism, the same for components joined by forward streams.

    They follow from the component's own limits, from pins of single tasks, and from the number of slots if it states no
    maximum. `most` is a limit for all components; the present number of tasks is always allowed.
    """
    own = {component.name: _own_bounds(component, cluster, most) for component in topology.components}
    found = {}
    for group in forward_groups(topology):
        least, highest = max(own[name].least for name in group), min(own[name].most for name in group)
        found.update({name: Bounds(least, highest) for name in group})
    return found


def allowed(topology: Topology, limits: Mapping[str, Bounds], wanted: Mapping[str, float]) -> dict[str, int]:
    """Return the allowed parallelism next to a wanted one; of components joined by forward streams, the largest.

    Components that are not in `wanted` keep their number of tasks, unless a forward stream joins them to one that is.
    """
    found = {}
    for group in forward_groups(topology):
        named = [wanted[name] for name in group if name in wanted]
        number = max(named, default=float(topology[group[0]].parallelism))
        least, most = limits[group[0]]
        clamped = int(min(max(number, least), most)) if number < inf else most
        found.update(dict.fromkeys(group, clamped))
    return {name: found[name] for name in parallelism_of(topology)}


def forward_groups(topology: Topology) -> list[tuple[str, ...]]:
    """Return the components in groups of equal parallelism: those that forward streams join, directly or indirectly."""
    group = {component.name: [component.name] for component in topology.components}
    for stream in topology.streams:
        if stream.grouping is Grouping.FORWARD and group[stream.source] is not group[stream.target]:
            joined = group[stream.source] + group[stream.target]
            group.update(dict.fromkeys(joined, joined))
    return [tuple(names) for name, names in group.items() if names[0] == name]


def shares_work(topology: Topology, name: str) -> bool:
    """Return whether more tasks of a component would each process fewer tuples.

    They would not if every task gets a copy of each tuple (all), or one task gets every tuple (global).
    """
    groupings = {stream.grouping for stream in topology.streams if stream.target == name}
    return not groupings & {Grouping.ALL, Grouping.GLOBAL}


def with_tasks(component: Component, number: int | None) -> Component:
    """Return the component with a number of tasks; None: with its own."""
    if number is None or number == component.parallelism:
        return component
    try:
        return msgspec.structs.replace(component, parallelism=number)
    except InvalidInput as error:
        raise InvalidInput(f"parallelism.{component.name}", error.problem) from None


def _own_bounds(component: Component, cluster: Cluster, most: int | None) -> Bounds:
    now = component.parallelism
    if not component.parallelisable or isinstance(component.pinned, tuple):
        return Bounds(now, now)
    highest = component.max_parallelism or max(cluster.slot_count, now)
    if most is not None:
        highest = min(highest, max(most, now, component.min_parallelism))
    return Bounds(component.min_parallelism, highest)
