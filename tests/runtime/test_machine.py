"""Applications on the runtime without I/O: where tasks run, and what runs them, changes nothing of what comes out."""

import random
from collections import Counter
from typing import Any

import pytest

from penstock.testing import TestCluster, tiny_cluster
from tests.runtime import flows


def outputs(cluster: TestCluster) -> dict[str, Counter[str]]:
    result = cluster.start().finish()
    flows.check_telemetry(result)
    assert len(cluster.controller.acker) == 0
    return {sink: Counter(map(repr, values)) for sink, values in result.outputs.items()}


@pytest.mark.parametrize("seed", range(60))
def test_gives_what_a_plain_evaluation_gives_wherever_its_tasks_run(seed: int) -> None:
    rng = random.Random(seed)
    nodes = flows.draw(seed)
    flow, expected = flows.build(nodes), flows.evaluate(nodes)
    tasks = sum(node.parallelism for node in nodes)
    options: dict[str, Any] = {
        "seed": seed,
        "window": rng.choice([1, 2, 5, 64]),
        "in_flight": rng.choice([0, 0, 1, 3, 40]),
    }
    assert outputs(TestCluster(flow, workers=1, **options)) == expected
    assert outputs(TestCluster(flow, workers=tasks, **options)) == expected
    emulated = tiny_cluster(rng.randint(1, 3), rng.randint(1, 3))
    assert outputs(TestCluster(flow, emulate=emulated, **options)) == expected
