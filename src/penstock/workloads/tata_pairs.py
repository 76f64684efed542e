"""The validation pairs of the TATA data set: task graphs excluded from training, each with several slot graphs.

The authors pair every task graph with five slot graphs whose number of slots exceeds the graph's maximum parallelism by
0 to 3 (PAPERS: 100 graphs × 5). Which five is random, by seed.
"""

from pathlib import Path

import numpy as np

from penstock.model.cluster import Cluster
from penstock.model.formats.tata import read_slot_graphs, read_task_graphs
from penstock.model.topology import Application

MAX_SPARE_SLOTS = 3


def validation_pairs(
    folder: Path, each: int = 5, seed: int = 0, split: str = "valid"
) -> list[tuple[Application, Cluster, int]]:
    """Return `each` pairs of every task graph of a split with suitable slot graphs, as instances of a sweep."""
    graphs = read_task_graphs(folder / "task_graphs.json", split)
    slots = read_slot_graphs(folder / "slot_graphs.json")
    rng = np.random.default_rng(seed)
    pairs = []
    for graph in graphs:
        widest = max(component.parallelism for component in graph.components)
        suited = [cluster for cluster in slots if widest <= cluster.slot_count <= widest + MAX_SPARE_SLOTS]
        chosen = rng.choice(len(suited), size=min(each, len(suited)), replace=False)
        pairs += [(graph, suited[number], seed) for number in chosen]
    return pairs
