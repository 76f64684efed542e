"""The event-driven twin: tuple-hops per second, also compared with SimPy.

Grid: word count and log processing with 100 tasks each on Li's ten machines (four cores, ten slots, 1 Gbps), a random
placement with one task per slot, at 30, 70 and 90 % of its capacity; with credits, network cards and processor sharing.
SimPy runs a short part of the same word count on the same arrivals, alternating with ours, 3 times. Times are processor
times, because machines are shared; everything runs on one core.
"""

import statistics
from subprocess import CalledProcessError
from time import process_time
from typing import NamedTuple

import numpy as np

from benchmarks.simpy_events import Model, Sparing
from benchmarks.simpy_model import REQUIREMENTS, simpy_module
from penstock.estimate.evaluator import Evaluator
from penstock.model.cluster import Cluster
from penstock.model.costs import Costs
from penstock.model.placement import Placement
from penstock.model.topology import Application
from penstock.sim.events import Twin
from penstock.sim.events.due_times import Sources
from penstock.sim.events.layout import PathTable, build_layout
from penstock.sim.events.system import build_twin_system
from penstock.workloads.applications import application
from penstock.workloads.arrivals import Poisson
from penstock.workloads.clusters import cluster

NAMES = ("word-count-large", "log-processing-large")
LOADS = (0.3, 0.7, 0.9)
HOPS = 3_000_000  # per run
PLAIN_HOPS = 60_000  # per run of SimPy
REPEATS = 5
PLAIN_REPEATS = 3
WARM_UP = 0.5  # s


class Case(NamedTuple):
    """An application, its placement and its load."""

    application: Application
    cluster: Cluster
    slots: list[int]
    rates: dict[str, float]
    hops: float  # per second


def case_of(name: str, load: float) -> Case:
    """Draw a placement, and offer it a share of its capacity."""
    wanted, machines = application(name), cluster("li-10")
    slots = np.random.default_rng(0).permutation(machines.slot_count)[: wanted.task_count].tolist()
    evaluator = Evaluator(wanted, machines)
    rate = load * evaluator.evaluate(Placement(tuple(slots))).throughput_tps
    sources = [source.name for source in wanted.sources]
    hops = float(evaluator.tasks.gain[~evaluator.tasks.source].sum()) * rate
    return Case(wanted, machines, slots, dict.fromkeys(sources, rate / len(sources)), hops)


def measure_speed(case: Case, title: str) -> None:
    """Print the number of tuples processed per second."""
    speeds, latency, events = [], 0.0, 0
    for seed in range(REPEATS):
        run = Twin(case.application, case.cluster).start(case.slots, rates=case.rates, seed=seed)
        run.advance(WARM_UP)
        started = process_time()
        span = run.advance(HOPS / case.hops)
        speeds.append(span.hops / (process_time() - started) / 1e6)
        latency, events = span.mean_s, span.hops
    speeds.sort()
    print(
        f"  {title:34} {statistics.median(speeds):5.2f} M hops/s ({speeds[0]:.2f}–{speeds[-1]:.2f}), "
        f"{events / 1e6:.1f} M hops a run, mean latency {latency * 1e3:.2f} ms",
        flush=True,
    )


def compare_with_simpy(case: Case) -> None:
    """Print the speed relative to SimPy, and the difference of the results."""
    try:
        simpy = simpy_module()
    except CalledProcessError:
        print(f"  SimPy: {REQUIREMENTS.name} could not be installed; is there a network?")
        return
    twin = Twin(case.application, case.cluster)
    system, seconds = build_twin_system(twin.instance, Costs()), PLAIN_HOPS / case.hops
    layout = build_layout(twin.instance, system, Costs(), PathTable(twin.instance, None), case.slots)
    processes = {name: Poisson(rate=rate) for name, rate in case.rates.items()}
    kinds: dict[str, type[Model]] = {"processes, stores and resources": Model, "minimum number of events": Sparing}
    for title, kind in kinds.items():
        ratios, speeds, theirs, ours = [], [], [], []
        for seed in range(PLAIN_REPEATS):
            model = kind(system, layout, Sources(twin.instance, processes, seed, 0.0).take(0.0, seconds), seed, simpy)
            started = process_time()
            model.run(seconds)
            speeds.append(model.hops / (process_time() - started))
            run = twin.start(case.slots, rates=case.rates, seed=seed)
            ours.append(run.advance(seconds).mean_s)
            theirs.append(statistics.mean(model.latencies))
            started = process_time()
            ratios.append(run.advance(HOPS / case.hops).hops / (process_time() - started) / speeds[-1])
        difference = statistics.mean(ours) / statistics.mean(theirs) - 1.0
        print(
            f"  SimPy, {title:32} {statistics.median(speeds):7,.0f} hops/s; ours is {statistics.median(ratios):.0f}× "
            f"({min(ratios):.0f}–{max(ratios):.0f}) as fast; mean latency {statistics.mean(theirs) * 1e3:.3f} ms, "
            f"ours {difference:+.2%}",
            flush=True,
        )


def main() -> None:
    """Print all figures."""
    warm = case_of(NAMES[0], LOADS[0])
    Twin(warm.application, warm.cluster).start(warm.slots, rates=warm.rates).advance(0.01)  # compile
    print("100 tasks on 10 machines: credits, network cards, processor sharing")
    for name in NAMES:
        for load in LOADS:
            measure_speed(case_of(name, load), f"{name} at {load:.0%}")
    compare_with_simpy(case_of(NAMES[0], 0.7))


if __name__ == "__main__":
    main()
