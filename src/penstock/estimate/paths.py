"""Paths through an application from its sources to its sinks, and the longest of them.

There are two methods: enumeration of all paths, as in Li's chapter 2, which is readable but may be very long; and the
longest path by dynamic programming, with one step per stream.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from penstock.model.errors import InvalidInput

MAX_PATHS = 10_000

Path = tuple[int, ...]
"""Components on a path, source first."""


class Graph(NamedTuple):
    """Components, numbered upstream before downstream, and the streams between them by ascending source."""

    components: int
    streams: tuple[tuple[int, int], ...]
    sources: tuple[int, ...]


class Longest(NamedTuple):
    """The path that takes longest."""

    seconds: float
    path: Path


def enumerate_paths(graph: Graph) -> list[Path]:
    """Return all paths from a source to a component without output; raise if there are more than `MAX_PATHS`."""
    onward: dict[int, list[int]] = {}
    for source, target in graph.streams:
        onward.setdefault(source, []).append(target)
    found: list[Path] = []
    for path in _walk(onward, [(source,) for source in graph.sources]):
        if len(found) == MAX_PATHS:
            problem = (
                f"expected at most {MAX_PATHS:,} paths from sources to sinks, there are more; request only the longest"
            )
            raise InvalidInput("streams", problem)
        found.append(path)
    return found


def _walk(onward: dict[int, list[int]], begun: list[Path]) -> Iterator[Path]:
    waiting = begun[::-1]
    while waiting:
        path = waiting.pop()
        following = onward.get(path[-1], [])
        if not following:
            yield path
        waiting += [(*path, target) for target in reversed(following)]


def path_time(graph: Graph, path: Path, processing: Sequence[float], transfer: Sequence[float]) -> float:
    """Return t_p (2.4): along a path, the transfer to each component (2.1) and its processing; not the source's."""
    way = dict(zip(graph.streams, transfer, strict=True))
    return sum(way[here, there] + processing[there] for here, there in pairwise(path))


def longest_path(graph: Graph, processing: Sequence[float], transfer: Sequence[float]) -> Longest:
    """Return the maximum over paths (2.5) without enumerating them; the first of equal ones is kept."""
    done = [0.0 if component in graph.sources else float("-inf") for component in range(graph.components)]
    before = [-1] * graph.components
    sends = set()
    for (source, target), way in zip(graph.streams, transfer, strict=True):
        sends.add(source)
        if done[source] + way + processing[target] > done[target]:
            done[target], before[target] = done[source] + way + processing[target], source
    ends = [component for component in range(graph.components) if component not in sends]
    last = max(ends, key=lambda component: done[component])
    path = [last]
    while before[path[-1]] >= 0:
        path.append(before[path[-1]])
    return Longest(done[last], tuple(reversed(path)))
