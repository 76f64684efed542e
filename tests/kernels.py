"""Compiles the kernels of the simulators into the cache, so that no two test processes do: `python -m tests.kernels`.

The kernels of planning are compiled at set-up.
"""

import numpy as np

import penstock as ps
from penstock.policies import routing_policy
from penstock.simulation import Arrivals, Twin, arrival_counts, potus_workload, simulate


def compile_slotted() -> None:
    """Run the simulation in time slots briefly."""
    workload = potus_workload("fat-tree", seed=1, utilisation=0.5)
    counts = arrival_counts(workload, "poisson", 2, np.random.default_rng(1))
    simulate(workload.system, Arrivals(counts), routing_policy("shuffle"))


def compile_twin() -> None:
    """Run the twin briefly, with a move."""
    application = ps.application("word-count")
    run = Twin(application, ps.cluster("homogeneous-8")).start(
        list(range(application.task_count)), rates={"source": 500.0}
    )
    run.advance(0.01)
    run.move({1: 0})
    run.advance(0.01)


if __name__ == "__main__":
    compile_slotted()
    compile_twin()
