"""Where the nodes of a diagram stand: by stress (Kamada and Kawai 1989, networkx), in layers (grandalf), on a circle.

Several layouts are made, the one by stress at several angles; that with the fewest links under nodes, crossings and
wasted room is kept. All start from fixed positions, so that the same diagram always looks the same.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import networkx as nx
import numpy as np
from grandalf.graphs import Edge, Graph, Vertex
from grandalf.layouts import SugiyamaLayout, VertexViewer
from numpy.typing import NDArray

from penstock.model.taskgraph import Floats, Ints

Truths = NDArray[np.bool_]


def boxes_around(centres: Floats, sizes: Floats, margin: float = 0.0) -> Floats:
    """Return boxes [N, 4] (left, top, right, bottom) of nodes with centres and sizes, extended by a margin."""
    half = sizes / 2 + margin
    return np.hstack([centres - half, centres + half])


def overlapping(boxes: Floats, others: Floats) -> Truths:
    """Return which boxes overlap which others: [N, M]."""
    one, other = boxes[:, None, :], others[None, :, :]
    found: Truths = np.all((one[..., :2] < other[..., 2:]) & (other[..., :2] < one[..., 2:]), axis=2)
    return found


def hits(start: Floats, end: Floats, boxes: Floats) -> Truths:
    """Return which segments pass through the inside of which boxes: [N, M] (the slab method)."""
    origin, direction = start[:, None, :], (end - start)[:, None, :]
    still = np.abs(direction) < 1e-12
    step = np.where(still, 1.0, direction)
    near, far = (boxes[None, :, :2] - origin) / step, (boxes[None, :, 2:] - origin) / step
    inside = (boxes[None, :, :2] < origin) & (origin < boxes[None, :, 2:])
    enters = np.where(still, np.where(inside, -np.inf, np.inf), np.minimum(near, far)).max(axis=2)
    leaves = np.where(still, np.where(inside, np.inf, -np.inf), np.maximum(near, far)).min(axis=2)
    found: Truths = (enters < leaves) & (enters < 1.0) & (leaves > 0.0)
    return found


def crossings(start: Floats, end: Floats) -> int:
    """Count the pairs of segments that cross; a shared end is no crossing."""
    direction = end - start

    def side(points: Floats) -> Floats:
        off = points[None, :, :] - start[:, None, :]
        product: Floats = direction[:, None, 0] * off[..., 1] - direction[:, None, 1] * off[..., 0]
        return product

    apart = side(start) * side(end) < -1e-6
    return int(np.triu(apart & apart.T, 1).sum())


def segments(line: Floats) -> tuple[Floats, Floats]:
    """Return the starts and the ends of the segments of a polyline [K, 2]."""
    return line[:-1], line[1:]


def along(line: Floats, shares: Floats) -> Floats:
    """Return the points [N, 2] that shares of a polyline's length lie before."""
    reached = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(line, axis=0).T))])
    return np.column_stack([np.interp(shares * reached[-1], reached, line[:, axis]) for axis in (0, 1)])


def leaving(box: Floats, inside: Floats, outside: Floats) -> Floats:
    """Return where the line from a point inside a box to one outside crosses the box's edge."""
    direction = outside - inside
    room = np.where(direction > 0, box[2:] - inside, inside - box[:2])
    shares = np.divide(room, np.abs(direction), out=np.full(2, np.inf), where=np.abs(direction) > 1e-12)
    point: Floats = inside + direction * min(float(shares.min()), 1.0)
    return point


GAP = 36.0  # between two nodes, at least
BY_STRESS = 300  # nodes; for more, springs are faster
BY_SPRINGS = 2000  # nodes; more stand on a circle
TURNED = 80  # nodes; of more, one angle is tried
ANGLES = np.pi * np.arange(12) / 12
CIRCLE = 16  # nodes that a circle is tried for
PUSHES = 200
PAGE = 1.5  # width by height of a page that drawings should fit


def lay_out(sizes: Floats, ends: Ints, tops: Sequence[int], apart: Floats) -> Floats:
    """Return the centres [N, 2] of connected nodes of `sizes` [N, 2], joined by links `ends` [L, 2]; none overlap.

    `tops` are nodes for the first layer of a layout in layers; `apart` [2] is the room that a link's label needs.
    """
    if len(sizes) == 1:
        return np.zeros((1, 2))
    found = [_without_overlaps(centres, sizes) for centres in _candidates(sizes, ends, tops, apart)]
    return min(found, key=lambda centres: _cost(centres, sizes, ends))


def _candidates(sizes: Floats, ends: Ints, tops: Sequence[int], apart: Floats) -> Iterator[Floats]:
    graph = nx.Graph()
    graph.add_nodes_from(range(len(sizes)))
    length = np.hypot(*sizes.T)[ends].mean(axis=1) + 0.6 * apart[0] + GAP
    graph.add_weighted_edges_from((int(a), int(b), float(d)) for (a, b), d in zip(ends, length, strict=True))
    if len(sizes) > BY_SPRINGS:
        yield _points(nx.circular_layout(graph)) * len(sizes) * float(sizes.max()) / 3
        return
    if len(sizes) > BY_STRESS:
        yield _points(nx.spring_layout(graph, seed=0, weight=None)) * float(np.sqrt(len(sizes)) * length.mean())
        return
    flat = by_stress(graph)
    if len(ends) == len(sizes) - 1 and max(dict(graph.degree).values()) <= 2:
        yield flat  # a chain is a row, however long
        return
    for angle in ANGLES if len(sizes) <= TURNED else ANGLES[:1]:
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        yield flat @ turn.T
    if len(sizes) <= CIRCLE:
        yield _points(nx.circular_layout(graph)) * float(length.mean()) * len(sizes) / 6
    if len(sizes) <= TURNED:
        links = _downwards(graph, tops)
        for room in (2 * GAP, 5 * GAP):
            yield in_layers(sizes, links, GAP, float(apart[1]) + room)
            yield in_layers(sizes[:, ::-1], links, GAP, float(apart[0]) + room)[:, ::-1]


def by_stress(graph: Any) -> Floats:
    """Return centres whose distances are near the lengths of the shortest paths; the longer axis lies level."""
    lengths = dict(nx.all_pairs_dijkstra_path_length(graph))
    wanted = np.array([[lengths[a][b] for b in graph] for a in graph])
    start = _scaled_down(wanted)
    found = _points(nx.kamada_kawai_layout(graph, dist=lengths, pos=dict(enumerate(start))))
    found -= found.mean(axis=0)
    distance = np.hypot(*(found[:, None, :] - found[None, :, :]).transpose(2, 0, 1))
    found *= (wanted * distance).sum() / max((distance**2).sum(), 1e-12)
    _, axes = np.linalg.eigh(found.T @ found)
    level: Floats = found @ axes[:, ::-1]
    return level


def _scaled_down(wanted: Floats) -> Floats:
    """Return points in the plane by classical scaling (Torgerson 1952), exact for a chain; no two are the same."""
    centring = np.eye(len(wanted)) - 1 / len(wanted)
    values, vectors = np.linalg.eigh(-0.5 * centring @ wanted**2 @ centring)
    points: Floats = vectors[:, [-1, -2]] * np.sqrt(np.maximum(values[[-1, -2]], 0.0))
    _, alike = np.unique(points.round(3), axis=0, return_inverse=True)
    for group in np.flatnonzero(np.bincount(alike.ravel()) > 1):
        members = np.flatnonzero(alike.ravel() == group)
        angle = 2 * np.pi * np.arange(len(members)) / len(members)
        points[members] += np.column_stack([np.cos(angle), np.sin(angle)])
    return points


def in_layers(sizes: Floats, links: Sequence[tuple[int, int]], beside: float, below: float) -> Floats:
    """Return centres in layers from top to bottom, every link pointing downwards."""
    vertices = [Vertex(number) for number in range(len(sizes))]
    for vertex, (width, height) in zip(vertices, sizes.tolist(), strict=True):
        vertex.view = VertexViewer(width, height)
    whole = Graph(vertices, [Edge(vertices[a], vertices[b]) for a, b in links])
    for part in whole.C:
        layout = SugiyamaLayout(part)
        layout.xspace, layout.yspace = beside, below
        layout.init_all(optimize=True)
        layout.draw(6)
    return np.array([vertex.view.xy for vertex in vertices])


def _downwards(graph: Any, tops: Sequence[int]) -> list[tuple[int, int]]:
    """Return the links of a network, each from the end that is nearer to the top."""
    depth = nx.multi_source_dijkstra_path_length(graph, set(tops) or set(nx.center(graph)), weight=None)
    return [(a, b) if (depth[a], a) < (depth[b], b) else (b, a) for a, b in graph.edges]


def _points(found: dict[int, Floats]) -> Floats:
    return np.array([found[node] for node in range(len(found))])


def _without_overlaps(centres: Floats, sizes: Floats) -> Floats:
    """Push nodes apart that are too near; if that does not end, scale everything."""
    at = centres.copy()
    for push in range(4 * PUSHES):
        boxes = boxes_around(at, sizes, GAP / 2)
        near = np.triu(overlapping(boxes, boxes), 1)
        if not near.any():
            break
        if push >= PUSHES:
            at *= 1.05
            continue
        for a, b in np.argwhere(near):
            off = at[b] - at[a]
            missing = (sizes[a] + sizes[b]) / 2 + GAP - np.abs(off)
            axis = int(np.argmin(missing))
            if missing[axis] > 0:
                move = (missing[axis] / 2 + 0.5) * (1 if off[axis] >= 0 else -1)
                at[a, axis] -= move
                at[b, axis] += move
    return at


def _cost(centres: Floats, sizes: Floats, ends: Ints) -> float:
    """Return how bad a layout is: links under nodes and crossings per link, long links, wasted room."""
    start, end = centres[ends[:, 0]], centres[ends[:, 1]]
    under = hits(start, end, boxes_around(centres, sizes, GAP / 4))
    under[np.arange(len(ends))[:, None], ends] = False
    tangled = (8.0 * under.sum() + crossings(start, end)) / len(ends)
    long = np.hypot(*(end - start).T).mean() / np.hypot(*sizes.T).mean()
    across, down = np.ptp(centres, axis=0) + sizes.mean(axis=0)
    page = max(across, down * PAGE) ** 2 / PAGE
    return float(4 * tangled + long + np.sqrt(page / sizes.prod(axis=1).sum()))
