"""Channels keep their order when tasks move, whichever path is faster."""

from collections import defaultdict

import numpy as np
import pytest

import penstock as ps
from penstock.model.cluster import Cluster, Distances
from penstock.model.costs import Costs
from penstock.model.kernel import interpreted
from penstock.model.topology import ServiceTime
from penstock.sim.events import Twin
from penstock.sim.events.loop import run_events
from penstock.sim.events.run import TwinRun
from penstock.sim.events.state import AWAITED
from penstock.workloads.arrivals import Constant
from tests.sim.events.cases import EXPONENTIAL, line, machines, three_machines, word_count
from tests.sim.events.test_run import check_conservation

SLOTS = [6, 7, 0, 7, 4, 4, 5, 2, 8, 0]  # of the word count's tasks
FAR = 0.1  # s
NEAR_AND_FAR = Distances(same_slot_ms=0.0, same_process_ms=1.0, same_host_ms=1.0, other_host_ms=1e3 * FAR)

Times = dict[tuple[str, str], list[tuple[float, float, float]]]


def by_channel(run: TwinRun) -> Times:
    """Return when the tuples of every channel were sent, arrived and started, in the order in which they were sent."""
    found: Times = defaultdict(list)
    for row in run.records().to_pylist():
        if row["kind"] == "hop":
            channel = row["source"], row["task"]
            found[channel].append((row["sent"], row["arrived"], row["started"]))
    return {channel: sorted(times) for channel, times in found.items()}


def check_order(channels: Times) -> None:
    """Compare the order in which tuples arrived and started with that in which they were sent."""
    for times in channels.values():
        for which in (1, 2):
            came = [each[which] for each in times]
            assert came == sorted(came)


def test_tuples_on_a_faster_path_after_a_move_wait_for_those_on_the_slower_one() -> None:
    cluster = machines((2, 2), (1, 1), distances=NEAR_AND_FAR)
    twin = Twin(line(200.0, ServiceTime(), cpu=1e-6), cluster, Costs(move_s=0.0))
    run = twin.start([0, 2], rates={"in": Constant(rate=200.0)}, records=-1.0)
    run.advance(1.0)
    run.move({1: 1})
    run.advance(1.0)
    channels = by_channel(run)
    check_order(channels)
    (times,) = channels.values()
    sent, came = np.array([(each[0], each[1]) for each in times]).T
    last = sent[sent < 1.0].max() + FAR  # of the slower path
    held = (sent >= 1.0) & (sent + 0.001 < last)
    assert held.sum() > 10
    assert came[held] == pytest.approx(last, abs=1e-9)
    after = sent + 0.001 > last + 1e-9
    assert came[after] == pytest.approx(sent[after] + 0.001, abs=1e-9)
    assert run._state.lanes[0, AWAITED] < 0  # no frame is left that others could wait for


def cluster_of(routed: bool) -> Cluster:
    """Machines of three slots, linked or with cards, on which frames wait for each other."""
    return ps.cluster("star-8:machines=3,slots=3,bandwidth_mbps=4") if routed else three_machines(4.0)


def moved_run(routed: bool, variation: float, plain: bool = False, seconds: float = 1.0) -> tuple[TwinRun, int]:
    """Run a word count whose tasks move back and forth, faster than its frames travel; return its number of chains."""
    costs = Costs(move_s=0.0, delay_variation=variation)
    run = Twin(word_count(200.0, (EXPONENTIAL,) * 4), cluster_of(routed), costs).start(SLOTS, seed=5, records=-1.0)
    if plain:
        run._loop = interpreted(run_events)
    rng, chains = np.random.default_rng(7), 0
    while run.now < seconds:
        run.advance(float(rng.exponential(0.004)))
        run.move({int(rng.integers(10)): int(rng.integers(9))})
        chains += int((run._state.lanes[:, AWAITED] >= 0).sum())
    return run, chains


@pytest.mark.slow
@pytest.mark.parametrize("variation", [0.0, 1.0])
@pytest.mark.parametrize("routed", [False, True])
def test_channels_keep_their_order_however_often_tasks_move(routed: bool, variation: float) -> None:
    run, chains = moved_run(routed, variation)
    assert chains > 20
    run.scale(0.0)
    ended = run.advance(30.0)
    channels = by_channel(run)
    assert sum(map(len, channels.values())) > 800
    check_order(channels)
    assert ended.in_flight == ended.waiting == 0
    assert (run._state.lanes[:, AWAITED] < 0).all()


def test_compiled_chains_equal_interpreted_ones() -> None:
    compiled, plain = (by_channel(moved_run(True, 0.0, plainly, seconds=0.2)[0]) for plainly in (False, True))
    assert len(compiled) > 10
    assert compiled == plain


def test_waiting_frames_are_lost_with_the_machine_on_which_they_wait() -> None:
    cluster = machines((2, 2), (1, 1), distances=NEAR_AND_FAR)
    run = Twin(line(200.0, ServiceTime(), cpu=1e-6), cluster, Costs(move_s=0.0)).start([1, 2], seed=1)
    spans = [run.advance(1.0)]
    run.move({1: 0})
    spans.append(run.advance(FAR / 2))
    waiting = spans[-1].in_flight
    assert waiting > 0
    run.fail("m0")
    run.restore("m0")
    run.scale(0.0)
    spans.append(run.advance(5.0))
    check_conservation(spans)
    assert spans[-1].lost == waiting
    assert spans[-1].in_flight == 0
