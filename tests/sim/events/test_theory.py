"""Queues with known mean times: those of the twin, over independent runs, agree within their confidence interval."""

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from scipy import stats

from penstock.model.cluster import Cluster
from penstock.model.costs import Costs
from penstock.model.topology import Application, Distribution, ServiceTime
from penstock.sim.events import Twin, TwinSpan
from tests.sim.events.cases import EXPONENTIAL, SERVICE, line, machines

RUNS = 20
CONFIDENCE = 0.999
CONSTANT = ServiceTime()


def check(
    application: Application,
    cluster: Cluster,
    slots: Sequence[int],
    expected: float,
    *,
    measure: Callable[[TwinSpan], float] = lambda span: span.mean_s,
    window: int = 1024,
    seconds: float = 60.0,
) -> None:
    """Compare the mean over runs of a measure with what is expected."""
    twin, found = Twin(application, cluster, Costs(window=window)), []
    for seed in range(RUNS):
        run = twin.start(slots, seed=seed)
        run.advance(seconds / 10)
        found.append(measure(run.advance(seconds)))
    error = stats.sem(found) * stats.t.ppf((1 + CONFIDENCE) / 2, RUNS - 1)
    assert error < 0.1 * expected  # the interval is narrow enough
    assert np.mean(found) == pytest.approx(expected, abs=error)


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_one_server_with_exponential_service(load: float) -> None:
    check(line(load / SERVICE, EXPONENTIAL), machines((1, 1), (1, 1)), [0, 1], SERVICE / (1 - load))


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_one_server_with_constant_service(load: float) -> None:
    expected = SERVICE * (1 + load / (2 * (1 - load)))
    check(line(load / SERVICE, CONSTANT), machines((1, 1), (1, 1)), [0, 1], expected)


@pytest.mark.parametrize("distribution", [Distribution.GAMMA, Distribution.LOGNORMAL])
def test_one_server_with_service_of_a_given_variation(distribution: Distribution) -> None:
    """The formula of Pollaczek and Khinchine."""
    load, cv = 0.6, 0.7
    expected = SERVICE * (1 + load * (1 + cv**2) / (2 * (1 - load)))
    service = ServiceTime(distribution=distribution, cv=cv)
    check(line(load / SERVICE, service), machines((1, 1), (1, 1)), [0, 1], expected)


def erlang(servers: int, load: float) -> float:
    """The mean time in M/M/c (Erlang's C formula), for a mean service time of 1."""
    offered = servers * load
    full = offered**servers / math.factorial(servers) / (1 - load)
    waits = full / (sum(offered**k / math.factorial(k) for k in range(servers)) + full)
    return 1.0 + waits / (servers * (1 - load))


@pytest.mark.slow
def test_several_servers_with_one_queue() -> None:
    """With one credit a lane, tuples wait in the out-queue for whichever task is free first."""
    servers, load = 3, 0.8
    application = line(servers * load / SERVICE, EXPONENTIAL, parallelism=servers)
    check(application, machines((1, 1), (3, 3)), [0, 1, 2, 3], SERVICE * erlang(servers, load), window=1)


@pytest.mark.parametrize("service", [CONSTANT, EXPONENTIAL])
def test_processor_sharing(service: ServiceTime) -> None:
    """Its mean time depends only on the mean service; with constant service it exceeds first come, first served."""
    load, slots = 0.6, 40  # of which hardly ever all are busy
    application = line(load / SERVICE, service, parallelism=slots)
    check(application, machines((1, 1), (slots, 1)), range(slots + 1), SERVICE / (1 - load), window=1)


def test_queues_in_tandem() -> None:
    load = 0.7
    application = line(load / SERVICE, EXPONENTIAL, EXPONENTIAL, EXPONENTIAL)
    expected = 3 * SERVICE / (1 - load)
    check(application, machines((1, 1), (1, 1), (1, 1), (1, 1)), [0, 1, 2, 3], expected)


def test_tasks_of_one_slot_are_served_as_one_queue() -> None:
    """Two tasks in a slot receive tuples in turn: M/D/1, because the tuple that has waited longest is served."""
    load = 0.7
    expected = SERVICE * (1 + load / (2 * (1 - load)))
    check(line(load / SERVICE, CONSTANT, parallelism=2), machines((1, 1), (1, 1)), [0, 1, 1], expected)


def test_utilization_of_the_cores_is_the_load() -> None:
    check(
        line(0.6 / SERVICE, EXPONENTIAL),
        machines((1, 1), (2, 2)),
        [0, 1],
        0.3,
        measure=lambda span: float(span.machine_cpu[1]),
    )


def test_littles_law_holds_for_tuples_in_flight() -> None:
    """The number of tuples in flight, at regular times, is the rate times the mean latency."""
    application, cluster = line(0.7 / SERVICE, EXPONENTIAL, EXPONENTIAL), machines((1, 1), (1, 1), (1, 1))
    run = Twin(application, cluster).start([0, 1, 2], seed=5)
    run.advance(5.0)
    spans = [run.advance(0.21) for _ in range(1000)]
    latencies = np.concatenate([span.latencies for span in spans])
    throughput = len(latencies) / (spans[-1].end - spans[0].start)
    assert np.mean([span.in_flight for span in spans]) == pytest.approx(throughput * latencies.mean(), rel=0.05)
