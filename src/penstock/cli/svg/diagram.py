"""A diagram of nodes and links: positions of nodes, routes of links around other nodes, places of labels.

No two nodes overlap, no link passes under a node that it does not join, and no label touches a node, another label or
the end of a link. A label stands on its own link, as near to the middle as possible. If there is no such
place for one, the nodes move apart and everything is placed again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import networkx as nx
import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from penstock.cli.svg.layout import GAP, along, boxes_around, hits, lay_out, leaving, overlapping, segments
from penstock.model.taskgraph import Floats, Ints

CLEAR = 7.0  # between a link and the nodes that it passes
BESIDE = 16.0  # between two links that join the same nodes
END = 9.0  # of every link that stays visible at both ends
GROWTH = 1.12
ROUNDS, PATIENCE = 60, 5
HIDDEN = 0.15  # links that a label may hide on average; above it, nodes move apart a few times
PLACES = 0.5 + np.array([0, *(sign * step for step in range(1, 18) for sign in (1, -1))]) / 40  # along a link
LABEL_GAP = 2.0


class Node(NamedTuple):
    """A box of the diagram."""

    name: str
    width: float
    height: float
    top: bool = False  # whether it belongs into the first layer, if there are layers


class Link(NamedTuple):
    """A line between two nodes, with the size of its label."""

    source: int
    target: int
    width: float = 0.0  # 0: no label
    height: float = 0.0


@dataclass(frozen=True)
class Diagram:
    """Where everything is."""

    boxes: Floats  # [N, 4]: left, top, right, bottom
    lines: list[Floats]  # by link: the points of its line, from edge to edge
    labels: list[Floats | None]  # by link: left, top, right, bottom

    @property
    def extent(self) -> Floats:
        """The left, upper, right and lower edge of all."""
        corners = [*self.boxes, *(label for label in self.labels if label is not None)]
        points = np.vstack([np.reshape(corners, (-1, 2)), *self.lines])
        return np.hstack([points.min(axis=0), points.max(axis=0)])


def arrange(nodes: Sequence[Node], links: Sequence[Link], left: float, top: float, width: float) -> Diagram:
    """Place a diagram on a page; parts that no link joins stand beside each other, within `width` if they can."""
    ends = np.array([(link.source, link.target) for link in links], dtype=np.int32).reshape(-1, 2)
    whole = Diagram(np.zeros((len(nodes), 4)), [np.zeros((2, 2))] * len(links), [None] * len(links))
    x, y, row = left, top, 0.0
    for part in _parts(len(nodes), ends):
        own = np.flatnonzero(np.isin(ends[:, 0], part)).tolist()
        found = _place(
            [nodes[n] for n in part], [links[n] for n in own], np.searchsorted(part, ends[own]).astype(np.int32)
        )
        low, high = found.extent.reshape(2, 2)
        if x > left and x + high[0] - low[0] > left + width:
            x, y, row = left, y + row + GAP / 2, 0.0
        shift = np.array([x, y]) - low
        whole.boxes[part] = found.boxes + np.tile(shift, 2)
        for number, line, label in zip(own, found.lines, found.labels, strict=True):
            whole.lines[number] = line + shift
            whole.labels[number] = None if label is None else label + np.tile(shift, 2)
        x, row = x + high[0] - low[0] + GAP / 2, max(row, high[1] - low[1])
    return whole


def _place(nodes: Sequence[Node], links: Sequence[Link], ends: Ints) -> Diagram:
    """Place a connected part of a diagram, so that every label has a place."""
    sizes = np.array([(node.width, node.height) for node in nodes], dtype=float)
    apart = np.array([max((link[axis] for link in links), default=0.0) for axis in (2, 3)])
    centres = lay_out(sizes, ends, [number for number, node in enumerate(nodes) if node.top], apart)
    patience = PATIENCE
    for _ in range(ROUNDS):
        lines = route(centres, sizes, ends)
        labels, hidden = _labels(centres, sizes, links, lines)
        if len(labels) == len(links):
            patience -= 1
            if hidden <= HIDDEN * len(links) or not patience:
                break
        centres = centres * GROWTH
    return Diagram(boxes_around(centres, sizes), lines, labels or [None] * len(links))


def _parts(count: int, ends: Ints) -> list[Ints]:
    """Return the nodes of every connected part, the largest part first."""
    joined = coo_array((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(count, count))
    number, label = connected_components(joined, directed=False)
    return sorted(
        (np.flatnonzero(label == part).astype(np.int32) for part in range(number)),
        key=lambda part: (-len(part), part[0]),
    )


def route(centres: Floats, sizes: Floats, ends: Ints) -> list[Floats]:
    """Return the line of every link: straight if possible, else around the nodes that it does not join."""
    boxes, walls = boxes_around(centres, sizes), boxes_around(centres, sizes, CLEAR)
    lines = []
    for number, (a, b) in enumerate(ends):
        shift = _aside(number, ends) * _normal(centres[min(a, b)], centres[max(a, b)])
        shift = np.clip(shift, -sizes[[a, b]].min(axis=0) / 2 + 2, sizes[[a, b]].min(axis=0) / 2 - 2)
        others = np.delete(walls, [a, b], axis=0)
        line = _around(centres[a] + shift, centres[b] + shift, others, CLEAR / 2 + 4.0 * (number % 3))
        line[0], line[-1] = leaving(boxes[a], line[0], line[1]), leaving(boxes[b], line[-1], line[-2])
        lines.append(line)
    return lines


def _aside(number: int, ends: Ints) -> float:
    """Return the offset of a link from the straight line between its nodes, to separate parallel links."""
    alike = np.flatnonzero((np.sort(ends, axis=1) == np.sort(ends[number])).all(axis=1))
    return BESIDE * (float(np.searchsorted(alike, number)) - (len(alike) - 1) / 2)


def _normal(start: Floats, end: Floats) -> Floats:
    direction = end - start
    length = float(np.hypot(*direction)) or 1.0
    return np.array([-direction[1], direction[0]]) / length


def _around(start: Floats, end: Floats, walls: Floats, clear: float) -> Floats:
    """Return the shortest path between two points around walls, over their corners."""
    met: set[int] = set()
    line = np.vstack([start, end])
    while True:
        new = {int(wall) for wall in np.argwhere(hits(*segments(line), walls))[:, 1]} - met
        if not new:
            return line
        met |= new
        near = walls[sorted(met)] + clear * np.array([-1, -1, 1, 1])
        corners = near[:, [[0, 1], [2, 1], [2, 3], [0, 3]]].reshape(-1, 2)
        covered = overlapping(np.hstack([corners - 1e-6, corners + 1e-6]), walls).any(axis=1)
        points = np.vstack([start, end, corners[~covered]])
        first, second = np.triu_indices(len(points), 1)
        free = ~hits(points[first], points[second], walls[sorted(met)]).any(axis=1)
        graph = nx.Graph()
        graph.add_nodes_from((0, 1))
        lengths = np.hypot(*(points[first] - points[second]).T)
        graph.add_weighted_edges_from(zip(first[free], second[free], lengths[free], strict=True))
        if not nx.has_path(graph, 0, 1):
            return line
        line = points[nx.dijkstra_path(graph, 0, 1)]


def _labels(
    centres: Floats, sizes: Floats, links: Sequence[Link], lines: Sequence[Floats]
) -> tuple[list[Floats | None], int]:
    """Return a place for every label, or no places if one has none, and how many links they hide."""
    boxes = boxes_around(centres, sizes, LABEL_GAP)
    starts, stops = (np.vstack([segments(line)[end] for line in lines] or [np.zeros((0, 2))]) for end in (0, 1))
    owner = np.repeat(np.arange(len(lines)), [len(line) - 1 for line in lines])
    tips = np.vstack([line[[0, -1]] for line in lines] or [np.zeros((0, 2))])
    taken = np.vstack([boxes, boxes_around(tips, np.zeros_like(tips), END)])
    found: list[Floats | None] = [None] * len(links)
    hidden = 0
    lengths = [float(np.hypot(*np.diff(line, axis=0).T).sum()) for line in lines]
    for number in sorted(range(len(links)), key=lambda number: lengths[number]):
        link = links[number]
        if not link.width:
            continue
        at = along(lines[number], PLACES)
        places = boxes_around(at, np.array([[link.width, link.height]]))
        free = ~overlapping(places, taken).any(axis=1)
        if not free.any():
            return [], hidden
        crossed = (hits(starts, stops, places) & (owner != number)[:, None]).sum(axis=0)
        best = int(np.argmin(np.where(free, crossed + np.arange(len(PLACES)) / 20, np.inf)))
        found[number] = places[best]
        hidden += int(crossed[best])
        taken = np.vstack([taken, places[best] + LABEL_GAP * np.array([-1, -1, 1, 1])])
    return found, hidden
