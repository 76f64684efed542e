"""Queues at a virtual processor, against theory: what an emulated machine must do for placements to be comparable."""

import math
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest

from penstock.model.topology import Distribution, ServiceTime
from penstock.runtime.emulation import ServiceTimes, VirtualCpu

MEAN = 0.002  # s, of service
CONSTANT, EXPONENTIAL = ServiceTime(), ServiceTime(distribution=Distribution.EXPONENTIAL)
WITHIN = 0.1
TUPLES = {0.3: 60_000, 0.5: 80_000, 0.7: 100_000, 0.8: 120_000, 0.9: 300_000}  # by load: waits vary more


class Served(NamedTuple):
    """What became of the tuples, in the order of arrival, and how much of the cores was used."""

    waits: list[float]
    sojourns: list[float]
    utilisation: float


def tuples(load: float, cores: int, service: ServiceTime, seed: int) -> tuple[list[float], list[float]]:
    """Draw arrival times of a Poisson process that gives `load`, and the work of each tuple.

    Gaps and works are scaled to exactly their means, as much of a mean wait's chance is that of the load.
    """
    count = TUPLES[load]
    gaps = np.random.default_rng(seed).exponential(1.0, count)
    times = ServiceTimes(MEAN, service, seed + 1)
    works = np.array([times.draw() for _ in range(count)])
    arrivals = np.cumsum(gaps * (MEAN / (load * cores)) / gaps.mean())
    return arrivals.tolist(), (works * MEAN / works.mean()).tolist()


def serve(cores: int, slots: int, arrivals: list[float], works: list[float], speed: float = 1.0) -> Served:
    """Feed a processor's slots from one queue, first come first served."""
    cpu: VirtualCpu[int] = VirtualCpu(cores, speed, slots)
    idle, queue = list(range(slots)), deque[int]()
    started, ended = [0.0] * len(works), [0.0] * len(works)

    def start(job: int, slot: int, at: float) -> None:
        started[job] = at
        cpu.submit(slot, works[job], at, job)

    def finish() -> None:
        at, slot, job = cpu.complete()
        ended[job] = at
        if queue:
            start(queue.popleft(), slot, at)
        else:
            idle.append(slot)

    for job, at in enumerate(arrivals):
        while cpu.next_completion() <= at:
            finish()
        if idle:
            start(job, idle.pop(), at)
        else:
            queue.append(job)
    while cpu.busy:
        finish()
    return Served(
        waits=[begin - at for begin, at in zip(started, arrivals, strict=True)],
        sojourns=[end - at for end, at in zip(ended, arrivals, strict=True)],
        utilisation=cpu.used(max(ended)) / (cores * max(ended)),
    )


def mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)


def erlang_c_wait(load: float, cores: int) -> float:
    """Return the mean wait of an M/M/c queue, in mean service times."""
    offered = load * cores
    terms = [offered**number / math.factorial(number) for number in range(cores)]
    all_busy = offered**cores / math.factorial(cores) / (1.0 - load)
    return all_busy / (sum(terms) + all_busy) / (cores * (1.0 - load))


def deterministic_wait(load: float, cores: int) -> float:
    """Return the mean wait of an M/D/1 queue, in service times."""
    return load / (2.0 * (1.0 - load))


@pytest.mark.slow
@pytest.mark.parametrize("load", [0.3, 0.5, 0.7, 0.8, 0.9])
@pytest.mark.parametrize(
    ("service", "cores", "theory"),
    [(CONSTANT, 1, deterministic_wait), (EXPONENTIAL, 1, erlang_c_wait), (EXPONENTIAL, 3, erlang_c_wait)],
    ids=["M/D/1", "M/M/1", "M/M/3"],
)
def test_waits_and_utilisation_are_those_of_theory(
    service: ServiceTime, cores: int, theory: Callable[[float, int], float], load: float
) -> None:
    served = serve(cores, cores, *tuples(load, cores, service, seed=1))
    assert mean(served.waits) == pytest.approx(theory(load, cores) * MEAN, rel=WITHIN)
    assert served.utilisation == pytest.approx(load, rel=0.01)


def test_waits_in_one_slot_follow_lindleys_recursion_tuple_by_tuple() -> None:
    arrivals, works = tuples(0.7, 1, EXPONENTIAL, seed=2)
    wait, expected = 0.0, [0.0]
    for job in range(1, len(works)):
        wait = max(0.0, wait + works[job - 1] - (arrivals[job] - arrivals[job - 1]))
        expected.append(wait)
    assert serve(1, 1, arrivals, works).waits == pytest.approx(expected, abs=1e-9)


def test_a_faster_core_serves_faster_in_proportion() -> None:
    arrivals, works = tuples(0.5, 1, EXPONENTIAL, seed=3)
    slow = serve(1, 1, arrivals, works)
    fast = serve(1, 1, arrivals, [4.0 * work for work in works], speed=4.0)
    assert fast.sojourns == pytest.approx(slow.sojourns, abs=1e-9)


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_more_slots_than_cores_share_them_without_loss(load: float) -> None:
    """With exponential work the number present is that of M/M/c, whoever of those present is served how fast."""
    cores = 2
    served = serve(cores, 6, *tuples(load, cores, EXPONENTIAL, seed=4))
    assert mean(served.sojourns) == pytest.approx((erlang_c_wait(load, cores) + 1.0) * MEAN, rel=WITHIN)


@pytest.mark.slow
@pytest.mark.parametrize(
    "service", [CONSTANT, EXPONENTIAL, ServiceTime(distribution=Distribution.GAMMA, cv=2.0)], ids=["M/D", "M/M", "M/G"]
)
def test_a_shared_core_is_fair_for_any_distribution_of_work(service: ServiceTime) -> None:
    """The mean sojourn of M/G/1 with processor sharing depends on the mean work only."""
    load = 0.7
    served = serve(1, 64, *tuples(load, 1, service, seed=5))
    assert max(served.waits) == 0.0  # there was a slot for everyone, as the theory has it
    assert mean(served.sojourns) == pytest.approx(MEAN / (1.0 - load), rel=WITHIN)
