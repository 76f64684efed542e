"""Time of a SPARCLE assignment at growing sizes, compared with the same algorithm written directly on networkx.

Grid: 10, 30, 100, 300 machines × 5, 10, 20, 50 tasks; a layered graph whose sources and sinks are pinned to random
machines, on a Jellyfish with as many switches as machines, links and machines as fast as one another (spread 0.5).
`sparcle` is the policy with its defaults, `paper` the paper's algorithm (ties to the lowest, transports rated
separately), which both sides of the comparison compute. The direct version has two variants, with one run of Algorithm
1 for all machines and, like the pseudocode, with one for each, if a run takes at most `LIMIT_S`. Times are processor
times of one
core: the median of `REPEATS`, of more if these take less than `SHORT_S`, or one run if it takes long. Exponents are
least squares over the sizes with at least 30 machines and 10 tasks.
"""

from collections.abc import Callable
from time import process_time

import msgspec
import numpy as np

from benchmarks.plain_sparcle import LiteralSparcle, PlainSparcle
from penstock.estimate.evaluator import Evaluator
from penstock.model.placement import Placement
from penstock.model.topology import Application, Kind
from penstock.policies.api import PlacementPolicy, PlacementView
from penstock.policies.registry import placement_policy
from penstock.workloads.networks import Capacities, jellyfish
from penstock.workloads.topologies import layered

MACHINES = (10, 30, 100, 300)
TASKS = (5, 10, 20, 50)
REPEATS = 5
SHORT_S = 0.1  # minimum total time of repeated runs
MOST = 200  # maximum number of repeats
LONG_S = 0.5  # longer runs are not repeated
LIMIT_S = 60.0
LITERAL_RUNS = 0.5  # approximate time of Algorithm 1 to one machine, relative to all
POLICIES = {
    "sparcle": "sparcle",
    "paper": "sparcle:ties=lowest,together=false",
    "refined": "sparcle-refined:seconds=none",
}
BALANCED = Capacities(cores=1, slots=1, bandwidth_mbps=2.2, spread=0.5, memory_mb=1e6)
"""A task takes 1 ms of a core and a tuple has 2,200 bits on average, so that either may limit."""


def view_of(machines: int, tasks: int) -> PlacementView:
    """Return the case of a size."""
    network = jellyfish(switches=machines, degree=4, servers=machines, capacities=BALANCED, seed=1)
    application = layered(components=tasks, depth=min(5, tasks), parallelism=1, memory_mb=1.0, seed=1)
    view = PlacementView(_pinned(application, machines), network, "throughput")
    view.tasks, view.slots, view.links, view.pins, view.work  # noqa: B018  made once, not by the first policy
    return view


def _pinned(application: Application, machines: int) -> Application:
    rng = np.random.default_rng(1)
    components = tuple(
        component
        if component.kind is Kind.OPERATOR
        else msgspec.structs.replace(component, pinned=f"m{rng.integers(machines)}")
        for component in application.components
    )
    return msgspec.structs.replace(application, components=components)


def timed(policy: PlacementPolicy, view: PlacementView) -> tuple[float, float]:
    """Return seconds and the rate."""
    return measured(lambda: policy.place(view, np.random.default_rng(0)), view)


def direct(version: type[PlainSparcle], view: PlacementView) -> tuple[float, float]:
    """Return seconds and the rate of a direct version."""
    return measured(lambda: version(view).place(), view)


def measured(place: Callable[[], object], view: PlacementView) -> tuple[float, float]:
    """Return the median of the seconds, repeated if they are few, and the rate."""
    seconds: list[float] = []
    while len(seconds) < MOST and (len(seconds) < REPEATS or sum(seconds) < SHORT_S):
        started = process_time()
        answer = place()
        seconds.append(process_time() - started)
        if seconds[-1] > LONG_S:
            break
    assert isinstance(answer, Placement)
    return float(np.median(seconds)), rate(view, answer)


def compared(view: PlacementView, took: dict[str, float], expected: float) -> str:
    """Return the times of the direct versions, also relative to the policies, and any difference of rates."""
    plain, found = direct(PlainSparcle, view)
    line = f"{plain * 1e3:13.0f}" + "".join(f"{plain / took[name]:7.0f}×" for name in ("paper", "sparcle"))
    others = [found]
    if plain * view.slots.machines * LITERAL_RUNS > LIMIT_S:
        return line + f"{'–':>13}" + 2 * f"{'–':>8}" + differing(others, expected)
    literal, found = direct(LiteralSparcle, view)
    line += f"{literal * 1e3:13.0f}" + "".join(f"{literal / took[name]:7.0f}×" for name in ("paper", "sparcle"))
    return line + differing([*others, found], expected)


def differing(rates: list[float], expected: float) -> str:
    """Return a note about unexpected rates."""
    wrong = [found for found in rates if abs(found / expected - 1) > 1e-9]
    return "".join(f"  unexpected rate: {found:g}, not {expected:g}" for found in wrong)


def rate(view: PlacementView, placement: Placement) -> float:
    """Return the bottleneck rate."""
    return Evaluator(view.topology, view.cluster).evaluate(placement).throughput_tps


def growth(seconds: dict[tuple[int, int], float]) -> tuple[float, float]:
    """Return the exponents of the time in machines and in tasks."""
    sizes = [size for size in seconds if size[0] >= 30 and size[1] >= 10]
    factors = np.array([[np.log(machines), np.log(tasks), 1.0] for machines, tasks in sizes])
    found, *_ = np.linalg.lstsq(factors, np.log([seconds[size] for size in sizes]))
    return float(found[0]), float(found[1])


def main() -> None:
    policies = {name: placement_policy(spec) for name, spec in POLICIES.items()}
    for policy in policies.values():
        policy.place(view_of(10, 5), np.random.default_rng(0))  # compile
    took: dict[str, dict[tuple[int, int], float]] = {name: {} for name in policies}
    names = "".join(f"{f'{name}, ms':>14}" for name in policies)
    ratios = f"{'/paper':>8}{'/sparcle':>8}"
    print(f"{'machines':>8} {'tasks':>6}{names}   direct, ms{ratios}  literal, ms{ratios}")
    for machines in MACHINES:
        for tasks in TASKS:
            view, rates = view_of(machines, tasks), {}
            for name, policy in policies.items():
                took[name][machines, tasks], rates[name] = timed(policy, view)
            line = "".join(f"{took[name][machines, tasks] * 1e3:14.2f}" for name in policies)
            now = {name: took[name][machines, tasks] for name in policies}
            print(f"{machines:8} {tasks:6}{line}{compared(view, now, rates['paper'])}", flush=True)
    for name in policies:
        by_machines, by_tasks = growth(took[name])
        print(f"{name}: time grows with machines^{by_machines:.2f} tasks^{by_tasks:.2f}")


if __name__ == "__main__":
    main()
