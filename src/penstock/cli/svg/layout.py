"""Where the nodes of a network stand in a drawing: by shape where it has one, else by forces.

A line is drawn as a row, a star around its hub, a tree or a switch fabric in levels, anything else that is small on a
circle. The rest is left to springs along links and repulsion between all nodes (Fruchterman and Reingold 1991), from
a fixed start, so that the same network always looks the same.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from math import cos, pi, sin, sqrt

import numpy as np

from penstock.model.cluster import Cluster
from penstock.model.taskgraph import Floats

Point = tuple[float, float]
Neighbours = Mapping[str, dict[str, None]]  # in the order of the links

SMALL = 16  # nodes for a circle
STEPS = 300
FORCED = 400  # nodes; forces between more would take long, they go on a circle


def lay_out(cluster: Cluster, width: float, height: float) -> dict[str, Point]:
    """Return the middle of every node, the nodes being `width` by `height`; no two overlap."""
    joined: dict[str, dict[str, None]] = {name: {} for name in cluster.node_index}
    for link in cluster.links:
        joined[link.source][link.target] = None
        joined[link.target][link.source] = None
    edges = sum(len(others) for others in joined.values()) // 2
    most = max(len(others) for others in joined.values())
    tree = edges == len(joined) - 1 and len(_distances(joined, [next(iter(joined))])) == len(joined)
    if tree and most <= 2 and len(joined) <= SMALL:
        return _row(joined, width)
    if tree and most == len(joined) - 1 and len(joined) <= SMALL:
        hub = max(joined, key=lambda name: len(joined[name]))
        return {**_circle([name for name in joined if name != hub], width, height), hub: (0.0, 0.0)}
    if tree and not cluster.switches:
        root = min(joined, key=lambda name: max(_distances(joined, [name]).values()))
        depths = _distances(joined, [root])
        return _in_rows(depths, joined, width, height)
    heights = _distances(joined, cluster.machine_index)
    level = any(heights.get(a) == heights.get(b) for a, others in joined.items() for b in others)
    if cluster.switches and len(heights) == len(joined) and not level:
        rows = _in_rows(heights, joined, width, height)
        return {name: (x, -y) for name, (x, y) in rows.items()}
    if len(joined) <= SMALL or len(joined) > FORCED:
        return _circle(list(joined), width, height)
    return _by_forces(joined, width, height)


def _distances(joined: Neighbours, start: Iterable[str]) -> dict[str, int]:
    """Return how many links every node is from the nearest of some nodes."""
    found = dict.fromkeys(start, 0)
    waiting = deque(found)
    while waiting:
        node = waiting.popleft()
        for other in joined[node]:
            if other not in found:
                found[other] = found[node] + 1
                waiting.append(other)
    return found


def _row(joined: Neighbours, width: float) -> dict[str, Point]:
    end = next(name for name, others in joined.items() if len(others) <= 1)
    return {name: (place * (width + 90), 0.0) for name, place in _distances(joined, [end]).items()}


def _circle(names: Sequence[str], width: float, height: float) -> dict[str, Point]:
    step = 2 * pi / len(names)
    reach = max(sqrt(width**2 + height**2) * 1.3 / step, 1.6 * width)
    return {name: (1.25 * reach * sin(place * step), -reach * cos(place * step)) for place, name in enumerate(names)}


def _in_rows(rank: Mapping[str, int], joined: Neighbours, width: float, height: float) -> dict[str, Point]:
    """Return rows of nodes by rank, each row in the order of what its nodes are joined to in the row before."""
    rows = [[name for name in rank if rank[name] == number] for number in range(max(rank.values()) + 1)]
    for before, row in pairwise(rows):
        place = {name: number for number, name in enumerate(before)}
        middle = {name: float(np.mean([place[other] for other in joined[name] if other in place])) for name in row}
        row.sort(key=middle.__getitem__)
    across = max(len(row) for row in rows) * (width + 16)
    down = max(height + 70, across / 9)
    return {
        name: ((number + 0.5) / len(row) * across, place * down)
        for place, row in enumerate(rows)
        for number, name in enumerate(row)
    }


def _by_forces(joined: Neighbours, width: float, height: float) -> dict[str, Point]:
    names = list(joined)
    number = {name: place for place, name in enumerate(names)}
    apart = 1.5 * max(width, 2 * height)
    angle = 2 * pi * np.arange(len(names)) / len(names)
    at = np.column_stack([np.cos(angle), np.sin(angle)]) * apart * sqrt(len(names)) / 2
    springs = np.zeros((len(names), len(names)))
    for name, others in joined.items():
        springs[number[name], [number[other] for other in others]] = 1.0
    for step in range(STEPS):
        away = at[:, None, :] - at[None, :, :]
        distance = np.maximum(np.sqrt((away**2).sum(axis=2)), 1.0)
        force = apart**2 / distance - springs * distance**2 / apart
        moved = (away / distance[:, :, None] * force[:, :, None]).sum(axis=1)
        length = np.maximum(np.sqrt((moved**2).sum(axis=1, keepdims=True)), 1e-9)
        at = at + moved / length * np.minimum(length, apart * (1 - step / STEPS))
    at = _without_overlaps(at, width + 8, height + 8)
    return {name: (float(at[place, 0]), float(at[place, 1])) for name, place in number.items()}


def _without_overlaps(at: Floats, width: float, height: float) -> Floats:
    """Scale a layout up until no two nodes overlap."""
    away = np.abs(at[:, None, :] - at[None, :, :])
    upper = np.triu_indices(len(at), 1)
    dx, dy = away[..., 0][upper], away[..., 1][upper]
    needed = np.minimum(width / np.maximum(dx, 1e-6), height / np.maximum(dy, 1e-6))
    return at * max(1.0, float(needed.max()))
