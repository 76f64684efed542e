"""A topology in layers, for drawings: upstream before downstream, few crossings, neighbours close together.

The layers, the order within them and the positions are those of grandalf: Sugiyama, Tagawa and Toda (1981) with the
coordinates of Brandes and Köpf (2001). A stream that skips layers bends in each of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, zip_longest
from math import floor
from typing import Any, NamedTuple

from grandalf.graphs import Edge, Graph, Vertex
from grandalf.layouts import SugiyamaLayout, VertexViewer

from penstock.model.topology import Topology

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
    parts: tuple[tuple[Any, dict[int, Any]], ...]  # grandalf's layouts, one a connected part, and their vertices

    @cached_property
    def segments(self) -> tuple[Segment, ...]:
        """Every stream cut at its bends."""
        return tuple(Segment(a, b, stream) for stream, route in enumerate(self.routes) for a, b in pairwise(route))

    @property
    def vertices(self) -> int:
        """The number of components and bends."""
        return sum(len(layer) for layer in self.layers)

    def layer_of(self, vertex: int) -> int:
        """Return the number of a vertex's layer."""
        return next(number for number, listed in enumerate(self.layers) if vertex in listed)


def layer(topology: Topology) -> Layering:
    """Arrange a topology in layers."""
    vertices = [Vertex(position) for position in range(len(topology.components))]
    for vertex in vertices:
        vertex.view = VertexViewer()
    ends = [(topology.index[stream.source], topology.index[stream.target]) for stream in topology.streams]
    edges = [Edge(vertices[source], vertices[target]) for source, target in ends]
    number: dict[Any, int] = {vertex: position for position, vertex in enumerate(vertices)}
    routes: dict[Any, tuple[int, ...]] = dict(zip(edges, ends, strict=True))
    layouts = []
    for part in Graph(vertices, edges).C:
        layout = SugiyamaLayout(part)
        layout.init_all(optimize=True)
        layout.draw(SWEEPS)
        for edge, bends in layout.ctrls.items():
            route = [bends[rank] for rank in sorted(bends)]
            routes[edge] = tuple(number.setdefault(vertex, len(number)) for vertex in route)
        layouts.append(layout)
    ranks = zip_longest(*(layout.layers for layout in layouts), fillvalue=())
    layers = tuple(tuple(number[vertex] for layers in rank for vertex in layers) for rank in ranks)
    parts = tuple((layout, {number[v]: v for rank in layout.layers for v in rank}) for layout in layouts)
    return Layering(len(vertices), layers, tuple(routes[edge] for edge in edges), parts)


def arrange(layering: Layering, sizes: Sequence[int], apart: int) -> list[int]:
    """Return where every vertex starts across its layer, from 0: without overlaps, near its neighbours."""
    start: dict[int, int] = {}
    for layout, vertices in layering.parts:
        layout.xspace = apart
        for number, vertex in vertices.items():
            vertex.view.w = sizes[number]
        layout.setxy()
        begins = {number: vertex.view.xy[0] - sizes[number] / 2 for number, vertex in vertices.items()}
        shift = max((start[number] + sizes[number] for number in start), default=-apart) + apart - min(begins.values())
        start |= {number: floor(begin + shift + 0.5) for number, begin in begins.items()}
    return [start[vertex] for vertex in range(layering.vertices)]
