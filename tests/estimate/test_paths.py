import numpy as np
import pytest

from penstock.estimate.paths import Graph, enumerate_paths, longest_path, path_time
from penstock.model.errors import InvalidInput

# Fig. 2.3: sources 0 and 1, PU1 … PU6 are 2 … 7.
FIGURE = Graph(8, ((0, 2), (1, 3), (1, 4), (2, 5), (3, 5), (3, 6), (4, 7), (6, 7)), (0, 1))


def random_graph(rng: np.random.Generator) -> tuple[Graph, list[float], list[float]]:
    number = int(rng.integers(2, 9))
    sources = int(rng.integers(1, number))
    streams = {(int(rng.integers(0, max(c, 1))), c) for c in range(sources, number)}
    streams |= {(a, b) for a in range(number) for b in range(max(a + 1, sources), number) if rng.random() < 0.3}
    graph = Graph(number, tuple(sorted(streams)), tuple(range(sources)))
    return graph, rng.random(number).tolist(), rng.random(len(streams)).tolist()


def brute_force(graph: Graph, processing: list[float], transfer: list[float]) -> float:
    """The longest time from any source to any end, by plain recursion."""
    onward = {c: [(b, way) for (a, b), way in zip(graph.streams, transfer, strict=True) if a == c] for c in range(99)}

    def from_here(component: int) -> float:
        return max((way + processing[there] + from_here(there) for there, way in onward[component]), default=0.0)

    return max(from_here(source) for source in graph.sources)


def test_lists_the_paths_of_the_papers_example() -> None:
    assert enumerate_paths(FIGURE) == [(0, 2, 5), (1, 3, 5), (1, 3, 6, 7), (1, 4, 7)]


def test_dynamic_programming_finds_the_longest_of_all_paths_on_500_random_graphs() -> None:
    rng = np.random.default_rng(20250131)
    for _ in range(500):
        graph, processing, transfer = random_graph(rng)
        found = longest_path(graph, processing, transfer)
        listed = {path: path_time(graph, path, processing, transfer) for path in enumerate_paths(graph)}
        assert found.seconds == pytest.approx(max(listed.values()), rel=1e-12)
        assert found.seconds == pytest.approx(brute_force(graph, processing, transfer), rel=1e-12)
        assert listed[found.path] == pytest.approx(found.seconds, rel=1e-12)


def test_rejects_to_list_more_paths_than_allowed_and_still_finds_the_longest() -> None:
    layers = 20  # 2 ** 20 paths
    streams = [(0, 1), (0, 2)]
    streams += [(a, b) for i in range(layers) for a in (2 * i + 1, 2 * i + 2) for b in (2 * i + 3, 2 * i + 4)]
    graph = Graph(2 * layers + 3, tuple(streams), (0,))
    with pytest.raises(InvalidInput, match="at most 10,000 paths"):
        enumerate_paths(graph)
    found = longest_path(graph, [1.0] * graph.components, [0.5] * len(streams))
    assert found.seconds == pytest.approx(1.5 * (layers + 1))
    assert len(found.path) == layers + 2


def test_the_sources_own_processing_does_not_count() -> None:
    graph = Graph(2, ((0, 1),), (0,))
    assert longest_path(graph, [100.0, 2.0], [1.0]).seconds == 3.0
    assert path_time(graph, (0, 1), [100.0, 2.0], [1.0]) == 3.0
