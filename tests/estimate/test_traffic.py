import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.estimate.bottleneck import machine_traffic
from penstock.estimate.evaluator import Evaluator
from penstock.estimate.traffic import traffic
from penstock.model.cluster import Cluster
from penstock.model.taskgraph import place_edges
from penstock.model.topology import Application
from tests.generators import applications, clusters, random_slots


@given(applications(), clusters(), st.integers(0, 2**32 - 1))
def test_traffic_is_the_sum_over_edges_that_cross(application: Application, cluster: Cluster, seed: int) -> None:
    evaluator = Evaluator(application, cluster)
    slots = evaluator.slots
    placed = random_slots(np.random.default_rng(seed), application, cluster)
    process = slots.process[placed[0]]
    tasks = evaluator.tasks.placed(process)
    edges = place_edges(tasks, evaluator.edges, process)
    amount = tasks.gain[edges.source] * edges.share * edges.tuple_bytes
    found = traffic(tasks, slots, placed[0])
    for where, answer in ((slots.machine, found.machines), (slots.process, found.processes)):
        place = where[placed[0]]
        crossing = amount[place[edges.source] != place[edges.target]].sum()
        assert answer == pytest.approx(crossing, rel=1e-9, abs=1e-9 * found.total)
    assert found.total == pytest.approx(amount.sum())
    bits = machine_traffic(evaluator.rate_net, placed)[0]
    assert bits / 8 == pytest.approx(found.machines, rel=1e-9, abs=1e-9 * found.total)
