"""Boxes, segments and polylines: which overlap, cross or touch, for many at once."""

import numpy as np
from numpy.typing import NDArray

from penstock.model.taskgraph import Floats

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
