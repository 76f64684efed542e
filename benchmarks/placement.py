"""Time of every placement policy at three sizes, and its growth.

Grid: 100 tasks × 10 machines, 1,000 × 100, 10,000 × 1,000; a layered graph of components of up to 100 tasks on a
heterogeneous mesh. The exponent is of the time in the number of tasks, machines growing with them, between the two
largest sizes: 1 is linear, 2 is tasks × machines. Searches are limited by their budget, exact policies by time.
Memory is the peak that the policy itself allocates.
"""

import tracemalloc
from time import perf_counter

import numpy as np

from penstock.estimate.evaluator import Evaluator
from penstock.model.objective import Objective
from penstock.model.placement import Infeasible
from penstock.policies.api import PlacementView
from penstock.policies.registry import PolicyKind, names, placement_policy
from penstock.workloads.clusters import cluster
from penstock.workloads.topologies import layered

SIZES = ((100, 10), (1_000, 100), (10_000, 1_000))
WARM_UP = (20, 4)
SPECS = {"local-search": "local-search:seconds=1", "optimal": "optimal:seconds=5"}
LONG_S = 5.0
"""Slower policies are not run again to measure memory."""
GROWTH, MOST_S = 100, 60.0
"""Assumed growth of the time from size to size, tasks × machines; policies that would exceed the limit are skipped."""


def view_of(tasks: int, machines: int) -> PlacementView:
    """Return the case of a size."""
    components = max(tasks // 100, 10)
    topology = layered(components=components, parallelism=tasks // components, memory_mb=0.1, seed=1)
    machine_park = cluster(f"hetero:machines={machines},seed=1")
    scorer = Evaluator(topology, machine_park).scorer(Objective.THROUGHPUT)
    view = PlacementView(topology, machine_park, "throughput", scorer)
    view.tasks, view.slots, view.pins, view.work  # noqa: B018  made once for all policies, not by the first
    scorer(np.zeros((1, tasks), dtype=np.int32))
    return view


def timed(policy: str, view: PlacementView) -> tuple[float, str]:
    """Return the seconds, and the cell of the table."""
    started = perf_counter()
    result = placement_policy(policy).place(view, np.random.default_rng(0))
    seconds = perf_counter() - started
    memory = ""
    if seconds < LONG_S:
        tracemalloc.start()
        placement_policy(policy).place(view, np.random.default_rng(0))
        memory = f" {tracemalloc.get_traced_memory()[1] / 1e6:.2g} MB"
        tracemalloc.stop()
    return seconds, f"{seconds:.2g} s{memory}" + (f" ({result.constraint})" if isinstance(result, Infeasible) else "")


def main() -> None:
    print(f"{'policy':<24}" + "".join(f"{f'{tasks:,} × {machines:,}':>20}" for tasks, machines in SIZES) + "  exponent")
    warm_up, views = view_of(*WARM_UP), [view_of(*size) for size in SIZES]
    for name in names(PolicyKind.PLACEMENT):
        spec = SPECS.get(name, name)
        timed(spec, warm_up)
        results: list[tuple[float, str]] = []
        for view in views:
            if name in SPECS or not results or results[-1][0] * GROWTH < MOST_S:
                results.append(timed(spec, view))
        (before, _), (last, _) = results[-2:]
        growth = "bounded" if name in SPECS else f"{np.log10(last / before):.2f}"
        results += [(0.0, "-")] * (len(views) - len(results))
        print(f"{spec:<24}" + "".join(f"{cell:>20}" for _, cell in results) + f"{growth:>10}", flush=True)


if __name__ == "__main__":
    main()
