"""The slotted simulator: tuple-hops per second, also compared with SimPy, and the cost of a decision.

Grid: a system of POTUS's (Jellyfish, 5 applications, utilisation 0.8, Poisson), 20,000 slots, and the same with ten
times the tuples and the service; every routing policy. SimPy runs the first 2,000 slots of the same arrivals under
shuffle, alternating with ours, 5 times. Decisions: one out-queue with 10 to 10,000 downstream tasks with random queues
and costs, called from Python and in a compiled loop; and at 1,000 tasks with so little room that several are selected.
Times are processor times, because machines are shared; everything runs on one core.
"""

import statistics
from collections.abc import Callable
from subprocess import CalledProcessError
from time import process_time
from typing import NamedTuple

import numpy as np

from benchmarks.simpy_model import REQUIREMENTS, Model, Sparing, simpy_module
from penstock.model.kernel import kernel
from penstock.model.slotted import UNLIMITED, Longs
from penstock.model.taskgraph import Floats
from penstock.policies.registry import PolicyKind, names, routing_policy
from penstock.policies.tuples.lanes import Lanes, Queues, empty_queues, idle_lanes
from penstock.policies.tuples.routing import route, route_lean
from penstock.sim.slotted import Arrivals, SlottedResult, simulate
from penstock.workloads.potus import PotusWorkload, arrival_counts, potus_workload

SLOTS = 20_000
PLAIN_SLOTS = 2_000
WARM_UP = 200
REPEATS = 5
BUSIER = 10
TASKS = (10, 100, 1_000, 10_000)
PICKS = (1, 10, 100, 1_000)
WAITING = 1_000
DECIDED = ("potus", "potus-plus:v=1")
CALLS = 2_000


class Timed(NamedTuple):
    """Time of a run, and its outcome."""

    seconds: float
    outcome: SlottedResult

    @property
    def speed(self) -> float:
        """Tuples served per second."""
        return self.outcome.hops / self.seconds


def busier(setting: PotusWorkload, times: int) -> PotusWorkload:
    """Return a system with a multiple of the tuples, the service and the limit."""
    system = setting.system
    return setting._replace(
        system=system._replace(service=system.service * times, limit=system.limit * times), rates=setting.rates * times
    )


def timed(setting: PotusWorkload, counts: Longs, spec: str) -> Timed:
    """Simulate once."""
    started = process_time()
    outcome = simulate(setting.system, Arrivals(counts), routing_policy(spec))
    return Timed(process_time() - started, outcome)


def measure_speed(setting: PotusWorkload, counts: Longs) -> None:
    """Print the speed of every policy."""
    slots = counts.shape[1]
    for spec in names(PolicyKind.ROUTING):
        timed(setting, counts[:, :10], spec)  # compile
        runs = [timed(setting, counts, spec) for _ in range(REPEATS)]
        speeds = sorted(run.speed / 1e6 for run in runs)
        hops = runs[0].outcome.hops / slots
        print(
            f"  {spec:20} {statistics.median(speeds):6.1f} M hops/s ({speeds[0]:.1f}–{speeds[-1]:.1f}), "
            f"{hops:.0f} hops and {min(run.seconds for run in runs) / slots * 1e6:.1f} µs per slot",
            flush=True,
        )


def compare_with_simpy(setting: PotusWorkload, counts: Longs) -> None:
    """Print the speed relative to SimPy, and the difference of the results."""
    try:
        simpy = simpy_module()
    except CalledProcessError:
        print(f"  SimPy: {REQUIREMENTS.name} could not be installed; is there a network?")
        return
    some = np.ascontiguousarray(counts[:, :PLAIN_SLOTS])
    kinds: dict[str, type[Model]] = {"processes and stores": Model, "minimum number of events": Sparing}
    for title, kind in kinds.items():
        ratios, speeds, theirs, ours = [], [], [], []
        for seed in range(REPEATS):
            started = process_time()
            model = kind(setting.system, some, seed, simpy)
            model.run()
            speeds.append(model.served / (process_time() - started))
            ratios.append(timed(setting, counts, "shuffle").speed / speeds[-1])
            theirs.append(model.response(WARM_UP))
            same = simulate(setting.system, Arrivals(some), routing_policy("shuffle"), warm_up=WARM_UP, seed=seed)
            ours.append(same.response)
        difference = statistics.mean(ours) / statistics.mean(theirs) - 1.0
        print(
            f"  SimPy, {title:24} {statistics.median(speeds):9,.0f} hops/s; ours is {statistics.median(ratios):.0f}× "
            f"({min(ratios):.0f}–{max(ratios):.0f}) as fast; mean response {statistics.mean(theirs):.3f} slots, "
            f"ours {difference:+.2%}",
            flush=True,
        )


class Case(NamedTuple):
    """An out-queue with a number of downstream tasks."""

    queues: Queues
    lanes: Lanes
    sent: Longs


def case_of(tasks: int, waiting: int, room: int = UNLIMITED) -> Case:
    """Draw queues and costs as on a fat-tree."""
    rng = np.random.default_rng(tasks)
    queues = empty_queues(np.array([0, tasks], dtype=np.int64))
    queues.waiting[0] = waiting
    cost, speed = rng.choice([0.0, 2.0, 4.0, 6.0], tasks), rng.integers(3, 6, tasks).astype(np.float64)
    lanes = idle_lanes(cost, rng.choice([0.0, 2.0, 4.0], tasks), speed, np.full(tasks, 3.0))
    lanes.backlog[:] = rng.integers(0, 20, tasks)
    lanes.flying[:] = rng.integers(0, 5, tasks)
    lanes.room[:] = room
    return Case(queues, lanes, np.zeros(tasks, dtype=np.int64))


@kernel
def decide_often(
    times: int, kind: int, settings: Floats, queues: Queues, lanes: Lanes, rng: np.random.Generator, sent: Longs
) -> int:
    """Decide many times without Python in between."""
    total = 0
    for _ in range(times):
        sent[:] = 0
        total += route_lean(kind, settings, queues, lanes, 0, 1, UNLIMITED, rng, sent)
    return total


def best_of(run: Callable[[], object], times: int) -> float:
    """Return the minimum processor time of a run in batches of `times`, in microseconds."""
    found = []
    for _ in range(REPEATS):
        started = process_time()
        run()
        found.append((process_time() - started) / times * 1e6)
    return min(found)


def cost_of(spec: str, case: Case) -> tuple[float, float]:
    """Return the microseconds of a decision called from Python, and of one in a compiled loop."""
    rule, rng = routing_policy(spec).rule, np.random.default_rng(0)

    def call() -> None:
        for _ in range(times):
            case.sent[:] = 0
            route(rule.kind, rule.settings, case.queues, case.lanes, 0, 1, UNLIMITED, rng, case.sent)

    def loop() -> None:
        decide_often(times, rule.kind, rule.settings, case.queues, case.lanes, rng, case.sent)

    times = 1
    call()  # compile
    loop()
    times = max(20, CALLS * 100 // max(100, len(case.sent)))
    return best_of(call, times), best_of(loop, times)


def measure_decisions() -> None:
    """Print the cost of decisions, and its growth."""
    for spec in DECIDED:
        for tasks in TASKS:
            called, looped = cost_of(spec, case_of(tasks, waiting=40))
            print(
                f"  {spec:16} {tasks:6,} tasks: {called:8.1f} µs from Python, {looped:8.2f} µs in a kernel", flush=True
            )
        for picks in PICKS:
            called, looped = cost_of(spec, case_of(1_000, WAITING, room=WAITING // picks))
            print(
                f"  {spec:16}  1,000 tasks, {WAITING:,} tuples, {WAITING // picks:,} per task at most: "
                f"{called:8.1f} µs from Python, {looped:8.2f} µs in a kernel",
                flush=True,
            )


def main() -> None:
    """Print all figures."""
    setting = potus_workload("jellyfish", 0, utilisation=0.8)
    counts = arrival_counts(setting, "poisson", SLOTS, np.random.default_rng(0))
    print(f"POTUS's system: {setting.system.tasks} tasks, {len(setting.system.target)} lanes, {SLOTS:,} slots")
    measure_speed(setting, counts)
    compare_with_simpy(setting, counts)
    large = busier(setting, BUSIER)
    print(f"the same with {BUSIER} times the tuples and the service")
    measure_speed(large, arrival_counts(large, "poisson", SLOTS // 4, np.random.default_rng(0)))
    print("one decision")
    measure_decisions()


if __name__ == "__main__":
    main()
