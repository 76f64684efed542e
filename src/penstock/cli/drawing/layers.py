"""A topology in layers, for drawings: upstream before downstream, few crossings, everything near what it is joined to.

The method is that of Sugiyama, Tagawa and Toda (1981): every component gets a layer, a stream that skips layers bends
in each of them, the order within layers is improved by barycentres, and positions are the nearest to the neighbours'
that keep the order (isotonic regression).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import floor
from typing import NamedTuple

from penstock.model.topology import Kind, Topology

SWEEPS = 8


class Segment(NamedTuple):
    """The part of a stream between two neighbouring layers."""

    source: int  # vertex
    target: int  # vertex
    stream: int


@dataclass(frozen=True)
class Layering:
    """Vertices by layer; those below `components` are components of the topology, the others bends of streams."""

    components: int
    layers: tuple[tuple[int, ...], ...]
    routes: tuple[tuple[int, ...], ...]  # per stream: its vertices from source to target

    @cached_property
    def segments(self) -> tuple[Segment, ...]:
        """Every stream cut at its bends."""
        return tuple(Segment(a, b, stream) for stream, route in enumerate(self.routes) for a, b in pairwise(route))

    @property
    def vertices(self) -> int:
        """How many components and bends there are."""
        return sum(len(layer) for layer in self.layers)


def layer(topology: Topology) -> Layering:
    """Arrange a topology in layers."""
    depth = _depths(topology)
    layers: list[list[int]] = [[] for _ in range(max(depth) + 1)]
    for component in topology.order:
        layers[depth[component]].append(component)
    routes: list[tuple[int, ...]] = []
    vertices = len(depth)
    for stream in topology.streams:
        source, target = topology.index[stream.source], topology.index[stream.target]
        bends = range(vertices, vertices + depth[target] - depth[source] - 1)
        for bend, skipped in zip(bends, range(depth[source] + 1, depth[target]), strict=True):
            layers[skipped].append(bend)
        routes.append((source, *bends, target))
        vertices += len(bends)
    unordered = Layering(len(depth), tuple(tuple(listed) for listed in layers), tuple(routes))
    return Layering(len(depth), _with_few_crossings(unordered), tuple(routes))


def arrange(layering: Layering, sizes: Sequence[int], apart: int) -> list[int]:
    """Return where every vertex starts across its layer, from 0: without overlaps, near what it is joined to.

    The fullest layer is packed; the layers beside it follow it outwards, every vertex centred on its neighbours.
    """
    layers = layering.layers
    extent = [sum(sizes[v] for v in listed) + apart * (len(listed) - 1) for listed in layers]
    fullest = extent.index(max(extent))
    start: dict[int, float] = {}
    for reach in sorted(range(len(layers)), key=lambda number: abs(number - fullest)):
        centres = {v: start[v] + sizes[v] / 2 for v in start}
        wanted: list[float | None] = []
        for vertex in layers[reach]:
            near = [centres[other] for other in _joined(layering, vertex) if other in centres]
            wanted.append(sum(near) / len(near) - sizes[vertex] / 2 if near else None)
        start.update(zip(layers[reach], _spread(wanted, [sizes[v] for v in layers[reach]], apart), strict=True))
    lowest = min(start.values())
    return [floor(start[vertex] - lowest + 0.5) for vertex in range(layering.vertices)]


def _depths(topology: Topology) -> list[int]:
    """Return the layer of every component: the longest way from a source; a source stands just before its targets."""
    depth = [0] * len(topology.components)
    for component in topology.order:
        for stream in topology.streams:
            if topology.index[stream.source] == component:
                target = topology.index[stream.target]
                depth[target] = max(depth[target], depth[component] + 1)
    for position, described in enumerate(topology.components):
        if described.kind is Kind.SOURCE:
            depth[position] = min(
                depth[topology.index[s.target]] for s in topology.streams if s.source == described.name
            )
            depth[position] -= 1
    return depth


def _joined(layering: Layering, vertex: int) -> list[int]:
    return [s.target if s.source == vertex else s.source for s in layering.segments if vertex in (s.source, s.target)]


def _with_few_crossings(layering: Layering) -> tuple[tuple[int, ...], ...]:
    layers = [list(listed) for listed in layering.layers]
    before: dict[int, list[int]] = {}
    after: dict[int, list[int]] = {}
    for segment in layering.segments:
        before.setdefault(segment.target, []).append(segment.source)
        after.setdefault(segment.source, []).append(segment.target)
    best, fewest = [list(listed) for listed in layers], crossings(layering.segments, layers)
    for sweep in range(SWEEPS):
        forwards = sweep % 2 == 0
        neighbours = before if forwards else after
        for listed in layers if forwards else reversed(layers):
            place = {vertex: number for others in layers for number, vertex in enumerate(others)}
            weight = {
                vertex: sum(place[n] for n in neighbours[vertex]) / len(neighbours[vertex])
                if vertex in neighbours
                else place[vertex]
                for vertex in listed
            }
            listed.sort(key=weight.__getitem__)
        found = crossings(layering.segments, layers)
        if found < fewest:
            best, fewest = [list(listed) for listed in layers], found
    return tuple(tuple(listed) for listed in best)


def crossings(segments: Sequence[Segment], layers: Sequence[Sequence[int]]) -> int:
    """Count the pairs of segments that cross when the layers are in this order."""
    place = {vertex: number for listed in layers for number, vertex in enumerate(listed)}
    layer_of = {vertex: number for number, listed in enumerate(layers) for vertex in listed}
    gaps: dict[int, list[tuple[int, int]]] = {}
    for segment in segments:
        gaps.setdefault(layer_of[segment.source], []).append((place[segment.source], place[segment.target]))
    return sum(
        (a - c) * (b - d) < 0
        for ends in gaps.values()
        for number, (a, b) in enumerate(ends)
        for c, d in ends[number + 1 :]
    )


def _spread(wanted: Sequence[float | None], sizes: Sequence[int], apart: int) -> list[float]:
    """Return starts in order, at least `apart` from end to start, nearest to the wanted ones (pooled neighbours)."""
    offsets = [0.0]
    for size in sizes:
        offsets.append(offsets[-1] + size + apart)
    blocks: list[tuple[float, int]] = []  # mean of what its members want, less their offsets; how many
    for number, start in enumerate(wanted):
        value = start - offsets[number] if start is not None else blocks[-1][0] if blocks else 0.0
        count = 1
        while blocks and blocks[-1][0] > value:
            earlier, members = blocks.pop()
            value, count = (earlier * members + value * count) / (members + count), members + count
        blocks.append((value, count))
    flat = [value for value, count in blocks for _ in range(count)]
    return [value + offset for value, offset in zip(flat, offsets, strict=False)]
