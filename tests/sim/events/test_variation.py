"""Varying delays: they have the given mean and deviation, and channels keep their order."""

import math
from collections import defaultdict
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pytest
from msgspec.structs import replace
from scipy import stats

import penstock as ps
from penstock.model.cluster import Cluster, Distances, Machine
from penstock.model.costs import Costs
from penstock.model.errors import InvalidInput
from penstock.model.files import load_costs
from penstock.model.taskgraph import Floats
from penstock.model.topology import Application, ServiceTime
from penstock.sim.events import Twin
from penstock.workloads.arrivals import Constant
from tests.sim.events.cases import EXPONENTIAL, SERVICE, line, machines, three_machines, word_count
from tests.sim.events.test_run import check_conservation

DELAY = 0.001  # s
VARIATION = 0.4
APART = Distances(same_slot_ms=0.0, same_process_ms=0.0, same_host_ms=1.0, other_host_ms=1e3 * DELAY)
SLOTS = [6, 7, 0, 7, 4, 4, 5, 2, 8, 0]  # of the word count's tasks
SURE = 4.0  # standard errors


def delays(application: Application, cluster: Cluster, slots: list[int], costs: Costs) -> Floats:
    """Return the delays of tuples that were sent every 5 ms, so that none waits for another."""
    run = Twin(application, cluster, costs).start(slots, rates={"in": Constant(rate=200.0)}, seed=3, records=-1.0)
    run.advance(100.0)
    hops = run.records().filter(pc.field("kind") == "hop")
    return np.asarray(pc.subtract(hops["arrived"], hops["sent"]))


def check_moments(found: Floats, mean: float, deviation: float) -> None:
    """Compare with a mean and a deviation; the standard errors are those of the sample."""
    size = len(found)
    assert size > 15_000
    fourth = float(stats.kurtosis(found, fisher=False))
    assert found.mean() == pytest.approx(mean, abs=SURE * deviation / np.sqrt(size))
    assert found.std() == pytest.approx(deviation, rel=SURE * math.sqrt((fourth - 1.0) / (4.0 * size)))


def test_delays_to_another_host_have_the_given_mean_and_deviation() -> None:
    cluster = machines((1, 1), (1, 1), distances=APART)
    found = delays(line(200.0, ServiceTime()), cluster, [0, 1], Costs(delay_variation=VARIATION))
    check_moments(found, DELAY, VARIATION * DELAY)
    assert abs(stats.skew(np.log(found))) < SURE * np.sqrt(6.0 / len(found))  # lognormal
    assert len(np.unique(found)) > 0.99 * len(found)  # telemetry has every delay as it was drawn


@pytest.mark.slow
def test_every_link_of_a_path_varies_independently() -> None:
    cluster = ps.cluster("star-8:machines=3,bandwidth_mbps=1000,latency_ms=1")
    hops = line(200.0, ServiceTime(), tuple_bytes=1000.0)
    constant = delays(hops, cluster, [0, cluster.slot_count - 1], Costs())
    assert np.ptp(constant) < 1e-9
    assert constant[0] == pytest.approx(2 * DELAY + 2 * 8e-6)
    found = delays(hops, cluster, [0, cluster.slot_count - 1], Costs(delay_variation=VARIATION))
    check_moments(found, constant[0], VARIATION * DELAY * np.sqrt(2.0))


def test_delays_within_a_host_stay_constant_and_nothing_is_drawn_for_them() -> None:
    hosts = tuple(Machine(name=f"m{number}", slots=3, cores=2, host="one", network_mbps=50.0) for number in range(3))
    cluster = Cluster(name="one", machines=hosts, distances=APART)
    found = []
    for variation in (0.0, 2.0):
        run = Twin(word_count(200.0, (EXPONENTIAL,) * 4), cluster, Costs(delay_variation=variation)).start(SLOTS)
        found.append(run.advance(5.0).latencies)
    assert len(found[0]) > 500
    assert np.array_equal(found[0], found[1])


def test_without_variation_delays_are_as_described() -> None:
    cluster = machines((1, 1), (1, 1), distances=APART)
    found = delays(line(200.0, ServiceTime()), cluster, [0, 1], Costs(delay_variation=0.0))
    assert found == pytest.approx(DELAY, rel=1e-9)  # as far as times near 100 s are exact


@pytest.mark.parametrize("routed", [False, True])
def test_channels_keep_their_order_and_overtake_each_other(routed: bool) -> None:
    cluster = ps.cluster("star-8:machines=3,slots=3") if routed else three_machines()
    run = Twin(word_count(150.0, (EXPONENTIAL,) * 4), cluster, Costs(delay_variation=1.5)).start(
        SLOTS, seed=2, records=-1.0
    )
    run.advance(20.0)
    channels, ways = defaultdict(list), defaultdict(list)
    for row in run.records().to_pylist():
        if row["kind"] == "hop" and row["source_worker"] != row["worker"]:
            channels[row["source"], row["task"]].append((row["sent"], row["arrived"]))
            ways[row["source_worker"], row["worker"]].append((row["sent"], row["arrived"]))
    assert len(channels) > 10
    for times in channels.values():
        arrived = [came for _, came in sorted(times)]
        assert arrived == sorted(arrived)
    held = sum(len(set(times)) - len({came for _, came in times}) for times in channels.values())
    assert held > 0  # some waited for the one before
    assert any([came for _, came in sorted(times)] != sorted(came for _, came in times) for times in ways.values())


def test_the_queue_of_a_server_is_as_with_constant_delays() -> None:
    """Independent delays keep a Poisson stream Poisson (Mirasol), so M/D/1 holds for any variation.

    Tuples wait for each other only within a channel: 30 senders send 10 per second each; delays vary by 1 ms.
    """
    load, senders, delay = 0.6, 30, 0.002
    plain = line(load / SERVICE, ServiceTime())
    source = replace(plain.components[0], parallelism=senders)
    application = replace(plain, components=(source, *plain.components[1:]))
    cluster = machines((senders, senders), (1, 1), distances=replace(APART, other_host_ms=1e3 * delay))
    expected = delay + SERVICE * (1 + load / (2 * (1 - load)))
    for variation in (0.0, 0.5):
        twin = Twin(application, cluster, Costs(delay_variation=variation))
        found = [twin.start(list(range(senders + 1)), seed=seed).advance(60.0).mean_s for seed in range(20)]
        error = stats.sem(found) * stats.t.ppf(0.9995, len(found) - 1)
        assert error < 0.03 * expected
        assert np.mean(found) == pytest.approx(expected, abs=error)


def test_an_almost_idle_server_has_only_the_mean_delay() -> None:
    cluster = machines((1, 1), (1, 1), distances=APART)
    application = line(10.0, ServiceTime(), cpu=1e-6)
    for variation in (0.0, 0.3, 1.0):
        twin = Twin(application, cluster, Costs(delay_variation=variation))
        span = twin.start([0, 1], seed=1).advance(2_000.0)
        error = SURE * variation * DELAY / np.sqrt(span.completed)
        assert span.mean_s == pytest.approx(DELAY + 1e-6, abs=error + 1e-7)


def test_a_tuple_waits_for_those_before_it_on_its_channel() -> None:
    """Each arrives after its own delay, or with the one before it if that is later."""
    rate, size, runs = 2000.0, 20_000, 20
    cluster = machines((1, 1), (1, 1), distances=APART)
    twin = Twin(line(rate, ServiceTime(), cpu=1e-9), cluster, Costs(delay_variation=VARIATION))
    found = [twin.start([0, 1], seed=seed).advance(size / rate).mean_s for seed in range(runs)]
    rng, spread = np.random.default_rng(0), np.sqrt(np.log1p(VARIATION**2))
    sent = np.cumsum(rng.exponential(1.0 / rate, (runs, size)), axis=1)
    own = sent + DELAY * np.exp(spread * rng.standard_normal((runs, size)) - spread**2 / 2)
    expected = (np.maximum.accumulate(own, axis=1) - sent).mean(axis=1)
    assert expected.mean() > 1.1 * DELAY
    error = SURE * np.hypot(stats.sem(found), stats.sem(expected))
    assert error < 0.01 * DELAY
    assert np.mean(found) == pytest.approx(expected.mean(), abs=error)


def test_only_tuples_on_a_failed_machine_are_lost() -> None:
    run = Twin(word_count(300.0, (EXPONENTIAL,) * 4), three_machines(100.0), Costs(delay_variation=1.0)).start(
        SLOTS, seed=6
    )
    spans = [run.advance(2.0)]
    run.fail("m1")
    spans.append(run.advance(1.0))
    run.restore("m1")
    run.move({4: 1, 7: 3})
    spans.append(run.advance(2.0))
    check_conservation(spans)
    assert spans[1].lost + spans[0].lost > 0
    run.scale(0.0)
    spans.append(run.advance(30.0))
    check_conservation(spans)
    assert spans[-1].in_flight == 0


def test_frames_in_transit_keep_their_order_if_others_between_them_are_lost() -> None:
    """Failures remove frames from the middle of full pipes; the frames behind keep their order."""
    far = replace(three_machines(), distances=replace(APART, other_host_ms=50.0))
    run = Twin(word_count(200.0, (EXPONENTIAL,) * 4), far, Costs(delay_variation=1.0)).start(SLOTS, seed=6)
    spans = []
    for machine in ("m1", "m2", "m0") * 4:
        spans.append(run.advance(0.5))
        run.fail(machine)
        spans.append(run.advance(0.1))
        run.restore(machine)
    run.scale(0.0)
    spans.append(run.advance(30.0))
    check_conservation(spans)
    assert sum(span.lost for span in spans) > 100
    assert spans[-1].in_flight == 0


@pytest.mark.parametrize("value", ["-0.1", '"wide"', "inf"])
def test_an_invalid_variation_is_rejected(tmp_path: Path, value: str) -> None:
    path = tmp_path / "costs.toml"
    path.write_text(f"delay_variation = {value}\n")
    with pytest.raises(InvalidInput, match="delay_variation"):
        load_costs(path)
