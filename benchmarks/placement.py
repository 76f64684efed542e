"""Every placement policy at three sizes, and how its time and memory grow.

Grid: 100 tasks × 10 machines, 1,000 × 100, 10,000 × 1,000, ten slots a machine, a layered graph of components of up to
100 tasks. Searches are bounded by their own budget and exact ones by a time limit, so theirs is stated, not fitted.
"""

import tracemalloc
from time import perf_counter

import numpy as np

from penstock.estimate.evaluator import Evaluator, Objective
from penstock.model.placement import Infeasible
from penstock.policies.api import PlacementView
from penstock.policies.registry import PolicyKind, make, names
from penstock.workloads.clusters import cluster
from penstock.workloads.topologies import layered

SIZES = ((100, 10), (1_000, 100), (10_000, 1_000))
BOUNDED = {"local-search": "local-search:seconds=1", "optimal": "optimal:seconds=5"}
EXEMPT = ("heft", "vne")  # may take longer than the others at the largest size
PATIENCE_S = 120.0
"""A policy that took longer than this divided by a hundred at one size is not asked at the next."""


def view_of(tasks: int, machines: int, scored: bool) -> PlacementView:
    """Return the case of a size."""
    components = max(tasks // 100, 10)
    topology = layered(components=components, parallelism=tasks // components, seed=1)
    machine_park = cluster(f"hetero:machines={machines},seed=1")
    if not scored:
        return PlacementView(topology, machine_park)
    scorer = Evaluator(topology, machine_park).scorer(Objective.RATE)
    return PlacementView(topology, machine_park, "rate", scorer)


def timed(policy: str, view: PlacementView) -> tuple[float, float, str]:
    """Return seconds, MB of peak memory, and what came out."""
    rng = np.random.default_rng(0)
    view.tasks, view.slots, view.pins, view.work  # noqa: B018  made once for all policies, not by this one
    started = perf_counter()
    result = make(policy).place(view, rng)
    seconds = perf_counter() - started
    tracemalloc.start()
    if seconds < 5:
        make(policy).place(view, np.random.default_rng(0))
    peak = tracemalloc.get_traced_memory()[1] / 1e6
    tracemalloc.stop()
    return seconds, peak, f"no: {result.constraint}" if isinstance(result, Infeasible) else "placed"


def main() -> None:
    titles = "".join(f"{f'{tasks:,} × {machines:,}':>22}" for tasks, machines in SIZES)
    print(f"{'policy':<26}{titles}   exponent in tasks × machines")
    for name in names(PolicyKind.PLACEMENT):
        spec = BOUNDED.get(name, name)
        times: list[float] = []
        cells = []
        for tasks, machines in SIZES:
            if name in BOUNDED and tasks > 1_000:
                cells.append("-")
                continue
            if times and times[-1] > PATIENCE_S / 100:
                cells.append("not asked")
                continue
            seconds, peak, outcome = timed(spec, view_of(tasks, machines, name in BOUNDED))
            times.append(seconds)
            cells.append(f"{seconds:.3g} s {peak:.3g} MB" + ("" if outcome == "placed" else f" {outcome}"))
        sizes = [np.log(tasks * machines) for tasks, machines in SIZES[: len(times)]]
        growth = "bounded by its budget" if name in BOUNDED else f"{np.polyfit(sizes, np.log(times), 1)[0]:.2f}"
        print(f"{spec:<26}" + "".join(f"{cell:>22}" for cell in cells) + f"   {growth}", flush=True)


if __name__ == "__main__":
    main()
