"""A run of the twin: no tuple is lost without a failure, limits hold, and actions have their effect."""

import numpy as np
import pytest
from msgspec.structs import replace

from penstock.estimate.evaluator import Evaluator
from penstock.model.cluster import Cluster, Distances, Machine
from penstock.model.costs import Costs
from penstock.model.errors import InvalidInput, UnknownMachine, UnknownName
from penstock.model.placement import Placement
from penstock.model.topology import Application, Component, Grouping, Kind, ServiceTime, Stream
from penstock.sim.events import Twin, TwinSpan
from penstock.sim.events.run import TwinRun
from penstock.sim.events.system import FULL
from penstock.workloads.arrivals import Constant, Poisson, StepChange
from tests.sim.events.cases import EXPONENTIAL, NOWHERE, SERVICE, line, machines, three_machines, word_count

VARIED = (EXPONENTIAL,) * 4
SLOTS = [6, 7, 0, 7, 4, 4, 5, 2, 8, 0]


def check_conservation(spans: list[TwinSpan]) -> None:
    """Every emitted source tuple has completed, is lost or is in flight; every due one was emitted or waits."""
    emitted, offered = sum(span.emitted for span in spans), sum(span.offered for span in spans)
    ended = sum(span.completed for span in spans) + sum(span.lost for span in spans)
    assert emitted == ended + spans[-1].in_flight
    assert offered == emitted + spans[-1].waiting
    assert all(span.completed == len(span.latencies) for span in spans)


def same(one: TwinSpan, other: TwinSpan) -> bool:
    return bool(
        np.array_equal(one.latencies, other.latencies)
        and np.array_equal(one.processed, other.processed)
        and np.array_equal(one.edge_tuples, other.edge_tuples)
    )


def test_equal_seeds_give_equal_runs_and_others_do_not() -> None:
    twin = Twin(word_count(100.0, VARIED), three_machines(network_mbps=20.0))
    first, second, other = (twin.start(SLOTS, seed=seed).advance(10.0) for seed in (3, 3, 4))
    assert same(first, second)
    assert not same(first, other)


def test_advancing_in_small_steps_changes_nothing() -> None:
    twin = Twin(word_count(100.0, VARIED), three_machines(network_mbps=20.0))
    whole = twin.start(SLOTS, seed=1).advance(6.0)
    run = twin.start(SLOTS, seed=1)
    steps = [run.advance(seconds) for seconds in (0.0, 1.7, 0.3, 4.0)]
    assert np.array_equal(whole.latencies, np.concatenate([span.latencies for span in steps]))
    assert sum(span.hops for span in steps) == whole.hops
    assert sum(span.busy_s for span in steps) == pytest.approx(whole.busy_s)


def test_recording_changes_nothing() -> None:
    twin = Twin(word_count(100.0, VARIED), three_machines())
    assert same(twin.start(SLOTS, seed=1).advance(5.0), twin.start(SLOTS, seed=1, records=5.0).advance(5.0))


@pytest.mark.parametrize("grouping", list(Grouping))
def test_no_tuple_is_lost_with_any_grouping(grouping: Grouping) -> None:
    application = line(100.0, EXPONENTIAL, EXPONENTIAL, parallelism=1, grouping=grouping, selectivity=2.5)
    if grouping is not Grouping.FORWARD:
        application = line(100.0, EXPONENTIAL, EXPONENTIAL, parallelism=3, grouping=grouping, selectivity=2.5)
    cluster = machines((3, 2), (3, 2), (3, 2))
    slots = [number % cluster.slot_count for number in range(application.task_count)]
    run = Twin(application, cluster, Costs(window=3)).start(slots, seed=2)
    spans = [run.advance(2.0), run.advance(20.0)]
    run.scale(0.0)
    spans.append(run.advance(60.0))
    check_conservation(spans)
    assert spans[-1].in_flight == spans[-1].waiting == 0
    assert spans[-1].queue.sum() == spans[-1].waiting_out.sum() == 0
    copies = 3 if grouping is Grouping.ALL else 1
    tuples = {label: sum(span.stream_tuples[label] for span in spans) for label in spans[0].stream_tuples}
    emitted = sum(span.emitted for span in spans)
    assert tuples["in->step0"] == emitted * copies
    assert tuples["step0->out"] == pytest.approx(emitted * copies * 2.5 * copies, abs=3 * copies)


def test_groupings_choose_the_right_tasks() -> None:
    shares = {}
    for grouping in Grouping:
        if grouping is Grouping.FORWARD:
            continue
        application = line(300.0, EXPONENTIAL, parallelism=4, grouping=grouping)
        cluster = machines((2, 2), (3, 3), distances=Distances())
        span = Twin(application, cluster).start([0, 1, 2, 3, 4], seed=2).advance(100.0)
        shares[grouping] = span.edge_tuples / span.emitted
    assert shares[Grouping.SHUFFLE] == pytest.approx([0.25] * 4, abs=1e-3)
    assert shares[Grouping.DIRECT] == pytest.approx([0.25] * 4, abs=1e-3)
    assert shares[Grouping.FIELDS] == pytest.approx([0.25] * 4, abs=0.02)
    assert np.ptp(shares[Grouping.FIELDS]) > 1e-3
    assert shares[Grouping.PARTIAL_KEY] == pytest.approx([0.25] * 4, abs=0.02)
    assert shares[Grouping.ALL] == pytest.approx([1.0] * 4, abs=1e-3)
    assert shares[Grouping.GLOBAL] == pytest.approx([1.0], abs=1e-3)
    assert shares[Grouping.LOCAL_OR_SHUFFLE] == pytest.approx([1.0, 0.0, 0.0, 0.0], abs=1e-3)


def test_the_less_loaded_of_two_keys_is_chosen() -> None:
    """A task that is ten times as slow as the other gets less than half, until its queue is as long."""
    application = line(900.0, ServiceTime(), parallelism=2, grouping=Grouping.PARTIAL_KEY)
    slow, fast = Machine(name="slow", speed=0.2), Machine(name="fast", speed=2.0)
    cluster = Cluster(name="two", machines=(slow, fast, Machine(name="from")), distances=NOWHERE)
    span = Twin(application, cluster, Costs(window=64)).start([2, 0, 1], seed=1).advance(100.0)
    assert span.edge_tuples[0] / span.edge_tuples.sum() < 0.2
    assert span.completed == pytest.approx(span.offered, rel=0.01)


def test_back_pressure_bounds_every_queue_and_reaches_the_source() -> None:
    application = line(2.0 / SERVICE, EXPONENTIAL, EXPONENTIAL)
    run = Twin(application, machines((1, 1), (1, 1), (1, 1)), Costs(window=16)).start([0, 1, 2], seed=1)
    spans = [run.advance(30.0) for _ in range(3)]
    check_conservation(spans)
    assert max(span.queue[1:].max() for span in spans) <= 16
    assert max(span.waiting_out.max() for span in spans) <= FULL
    assert spans[-1].waiting_out[0] == FULL  # the source is full, and its tuples wait outside
    assert spans[-1].waiting > 0
    assert spans[-1].blocked_s[0] > 25.0
    assert spans[-1].throughput_tps == pytest.approx(1.0 / SERVICE, rel=0.02)


def test_tuples_in_flight_on_a_lane_are_limited_by_its_credits() -> None:
    distances = Distances(same_slot_ms=0.0, same_process_ms=0.0, same_host_ms=0.0, other_host_ms=100.0)
    application = line(1000.0, ServiceTime(), cpu=1e-6)
    spans = {}
    for window in (1, 4, 40):
        cluster = machines((1, 1), (1, 1), distances=distances)
        run = Twin(application, cluster, Costs(window=window)).start([0, 1], rates={"in": Constant(rate=1000.0)})
        run.advance(10.0)
        spans[window] = run.advance(20.0)
    for window, span in spans.items():  # a window every 100 ms: credits return at once, a quarter at a time
        assert span.throughput_tps == pytest.approx(window / 0.1, rel=0.06)


def test_a_source_has_no_more_tuples_in_flight_than_its_limit() -> None:
    application = line(2.0 / SERVICE, EXPONENTIAL, EXPONENTIAL)
    run = Twin(application, machines((1, 1), (1, 1), (1, 1)), Costs(in_flight=5)).start([0, 1, 2], seed=1)
    spans = [run.advance(0.01) for _ in range(2000)]
    check_conservation(spans)
    assert max(span.in_flight for span in spans) == 5
    assert spans[-1].waiting > 100


def falls_behind(twin: Twin, slots: list[int], tps: float) -> bool:
    """Whether the backlog grows by more than random variation, at a rate of the only source."""
    run = twin.start(slots, rates={"source": tps})
    first, last = run.advance(5_000 / tps), run.advance(30_000 / tps)
    return last.in_flight + last.waiting - first.in_flight - first.waiting > 0.01 * last.offered


@pytest.mark.slow
def test_network_cards_limit_throughput_as_the_bottleneck_predicts() -> None:
    """The streams are by key, because a sender with a choice avoids slow receivers."""
    cluster, shuffled = three_machines(network_mbps=1.0), word_count(1.0)
    keyed = tuple(replace(stream, grouping=Grouping.FIELDS, keys=("word",)) for stream in shuffled.streams)
    application = replace(shuffled, streams=keyed)
    rng = np.random.default_rng(7)
    limits = set()
    for _ in range(6):
        slots = rng.integers(0, cluster.slot_count, application.task_count).tolist()
        limit = Evaluator(application, cluster).evaluate(Placement(tuple(slots))).limits[0]
        limits.add(limit.kind)
        rate = limit.rate_tps
        twin = Twin(application, cluster, Costs(window=64))
        assert not falls_behind(twin, slots, 0.96 * rate), limit
        assert falls_behind(twin, slots, 1.04 * rate), limit
    assert "network" in limits


def test_serialisation_is_charged_at_both_ends_between_processes() -> None:
    costs = Costs(hop_cpu=1e-5, send_cpu=2e-5, send_byte_cpu=1e-7, receive_cpu=4e-5, receive_byte_cpu=2e-7)
    application = line(50.0, ServiceTime(), ServiceTime(), cpu=1e-3, tuple_bytes=100.0, selectivity=3.0)
    cluster = machines((3, 3), (3, 3))
    apart = Twin(application, cluster, costs).start([0, 3, 1], seed=1).advance(20.0).component_processing_s
    assert apart["in"] == pytest.approx(3e-5)
    assert apart["step0"] == pytest.approx(1e-3 + 1e-5 + 6e-5 + 3 * 3e-5)
    assert apart["out"] == pytest.approx(1e-3 + 1e-5 + 6e-5)
    together = Twin(application, cluster, costs).start([0, 1, 2], seed=1).advance(20.0).component_processing_s
    assert together["in"] == pytest.approx(0.0, abs=1e-12)
    assert together["out"] == pytest.approx(1e-3 + 1e-5)


def test_a_moving_task_is_suspended_and_keeps_its_queue() -> None:
    application = line(400.0, ServiceTime(), cpu=1e-3)
    cluster = machines((1, 1), (1, 1), (1, 1), distances=NOWHERE)
    arrivals = {"in": Constant(rate=400.0)}
    run = Twin(application, cluster, Costs(move_s=0.5)).start([0, 1], rates=arrivals)
    before = run.advance(1.0)
    run.move({1: 2})
    still = run.advance(0.5)
    assert run.slots == (0, 2)
    assert still.processed[1] <= 1
    assert still.queue[1] == pytest.approx(200, abs=2)
    after = run.advance(2.0)
    assert after.machine_cpu[1] == 0.0
    assert after.latencies.max() == pytest.approx(0.5, abs=0.01)
    check_conservation([before, still, after])


def test_a_move_within_a_process_costs_nothing() -> None:
    application = line(400.0, ServiceTime(), cpu=1e-3)
    run = Twin(application, machines((1, 1), (2, 2)), Costs(move_s=5.0)).start([0, 1])
    run.advance(1.0)
    run.move({1: 2})
    assert run.advance(1.0).latencies.max() < 0.05


def test_a_move_to_a_faster_machine_has_an_effect() -> None:
    fast, slow = Machine(name="fast", speed=4.0), Machine(name="slow")
    cluster = Cluster(name="two", machines=(fast, slow), distances=NOWHERE)
    run = Twin(line(400.0, EXPONENTIAL), cluster).start([1, 1], seed=1)
    before = run.advance(20.0).mean_s
    run.move({1: 0})
    run.advance(1.0)
    assert run.advance(20.0).mean_s < before / 4


def test_load_changes_during_a_run() -> None:
    run = Twin(line(100.0, EXPONENTIAL), machines((1, 1), (1, 1))).start([0, 1], seed=1)
    assert run.advance(100.0).offered == pytest.approx(10_000, rel=0.03)
    run.advance(0.3)
    run.scale(3.0)
    assert run.advance(100.0).offered == pytest.approx(30_000, rel=0.03)
    run.scale(1.0)
    assert run.advance(100.0).offered == pytest.approx(10_000, rel=0.03)
    run.scale(0.0)
    assert run.advance(10.0).offered == 0


def test_arrival_processes_are_independent_of_steps() -> None:
    process = StepChange(rate=100.0, factor=4.0, at=10.0)
    run = Twin(line(1.0, EXPONENTIAL), machines((1, 1), (1, 1))).start([0, 1], rates={"in": process}, seed=1)
    assert run.advance(10.0).offered == pytest.approx(1_000, rel=0.1)
    assert run.advance(10.0).offered == pytest.approx(4_000, rel=0.1)


def test_tuples_on_a_failed_machine_are_lost_and_it_resumes_after_recovery() -> None:
    application = line(0.8 / SERVICE, EXPONENTIAL, EXPONENTIAL)
    run = Twin(application, machines((1, 1), (1, 1), (1, 1)), Costs(window=32)).start([0, 1, 2], seed=1)
    spans = [run.advance(10.0)]
    run.fail("m1")
    spans.append(run.advance(5.0))
    assert spans[-1].processed[1] == 0
    assert spans[-1].machine_cpu[1] == 0.0
    assert spans[-1].completed <= 32  # tuples that had left it continue
    run.restore("m1")
    spans.append(run.advance(120.0))
    check_conservation(spans)
    assert 0 < sum(span.lost for span in spans) < 100
    assert spans[-1].throughput_tps == pytest.approx(0.8 / SERVICE, rel=0.1)
    assert run.advance(10.0).waiting < 50  # the backlog of the source is processed


def test_streams_with_a_choice_avoid_a_failed_machine() -> None:
    application = line(200.0, EXPONENTIAL, parallelism=2)
    run = Twin(application, machines((1, 1), (1, 1), (1, 1)), Costs(window=8)).start([0, 1, 2], seed=1)
    run.advance(5.0)
    run.fail(1)
    span = run.advance(20.0)
    assert span.throughput_tps == pytest.approx(200.0, rel=0.1)
    assert span.processed[1] == 0


def test_tasks_of_a_failed_machine_resume_elsewhere_after_a_move() -> None:
    application = line(0.5 / SERVICE, EXPONENTIAL)
    run = Twin(application, machines((1, 1), (1, 1), (1, 1)), Costs(window=8, move_s=0.1)).start([0, 1], seed=1)
    run.advance(5.0)
    run.fail("m1")
    run.advance(1.0)
    with pytest.raises(InvalidInput, match="'m1' is down"):
        run.move({0: 1})
    run.move({1: 2})
    run.advance(10.0)
    assert run.advance(10.0).throughput_tps == pytest.approx(0.5 / SERVICE, rel=0.1)


def slow_task(window: int) -> TwinRun:
    """Return a run in which the second task, on m1, takes a second for each tuple and gets far more."""
    application = line(100.0, ServiceTime(), cpu=1.0)
    cluster = machines((1, 1), (1, 1), (1, 1))
    return Twin(application, cluster, Costs(window=window)).start([0, 1], rates={"in": Constant(rate=100.0)})


@pytest.mark.parametrize("window", [1, 8])
def test_a_tuple_lost_at_its_tasks_old_slot_returns_its_credit(window: int) -> None:
    run, spans, here, there = slow_task(window), [], 1, 2
    for _ in range(window):
        spans.append(run.advance(1.5))  # in the middle of a service
        run.move({1: there})
        run.fail(here)
        run.restore(here)
        here, there = there, here
    spans.append(run.advance(20.0))
    assert sum(span.lost for span in spans) == window
    assert spans[-1].throughput_tps == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize("down_s", [0.1, 2.0])
def test_a_tuple_in_service_elsewhere_returns_no_credit_to_new_channels(down_s: float) -> None:
    run = slow_task(window=1)
    run.advance(0.5)
    run.move({1: 2})
    run.fail("m2")
    down = run.advance(down_s)
    assert down.queue[1] == 0  # no task sends to it, even after its tuple in service on m1 has ended
    assert down.completed == (down_s > 0.5)
    run.restore("m2")
    run.advance(0.5)
    spans = [run.advance(0.37) for _ in range(40)]
    assert max(span.queue[1] for span in spans) == 0  # one at a time is in transit or in service
    assert sum(span.completed for span in spans) >= 14


def test_a_recovered_source_emits_the_tuples_due_meanwhile() -> None:
    run = Twin(line(100.0, EXPONENTIAL), machines((1, 1), (1, 1))).start([0, 1], seed=1)
    spans = [run.advance(5.0)]
    run.fail("m0")
    spans.append(run.advance(5.0))
    assert spans[-1].emitted == 0
    run.restore("m0")
    spans.append(run.advance(10.0))
    check_conservation(spans)
    assert sum(span.lost for span in spans) == 0
    assert spans[-1].waiting == 0


def test_two_sources_have_their_own_rates() -> None:
    sink = Component(name="out", kind=Kind.SINK, cpu=1e-4)
    sources = [Component(name=name, kind=Kind.SOURCE, parallelism=2) for name in ("a", "b")]
    application = Application(
        name="two",
        components=(*sources, sink),
        streams=(Stream(source="a", target="out"), Stream(source="b", target="out")),
        rate_tps={"a": 100.0, "b": 300.0},
    )
    twin = Twin(application, machines((5, 5)))
    span = twin.start([0, 1, 2, 3, 4], seed=1).advance(100.0)
    assert span.stream_tuples["a->out"] == pytest.approx(10_000, rel=0.03)
    assert span.stream_tuples["b->out"] == pytest.approx(30_000, rel=0.03)
    assert span.processed[0] == pytest.approx(span.processed[1], abs=1)
    alone = twin.start([0, 1, 2, 3, 4], rates={"b": Poisson(rate=50.0)}).advance(10.0)
    assert alone.stream_tuples["a->out"] == 0


def test_invalid_arguments_are_rejected_by_name() -> None:
    twin = Twin(line(100.0, EXPONENTIAL), machines((1, 1), (1, 1)))
    with pytest.raises(InvalidInput, match="slots: expected the slot of each of 2 tasks, got 1"):
        twin.start([0])
    with pytest.raises(InvalidInput, match=r"slots\[1\]: expected a slot from 0 to 1, got 2"):
        twin.start([0, 2])
    with pytest.raises(UnknownName, match=r"rates\.other: no source is named 'other'"):
        twin.start([0, 1], rates={"other": 1.0})
    run = twin.start([0, 1])
    with pytest.raises(InvalidInput, match="seconds"):
        run.advance(-1.0)
    with pytest.raises(InvalidInput, match=r"moves\[7\]"):
        run.move({7: 0})
    with pytest.raises(InvalidInput, match=r"moves\[1\]: expected a slot below 2, got 9"):
        run.move({1: 9})
    with pytest.raises(UnknownMachine, match="'nowhere'"):
        run.fail("nowhere")
    with pytest.raises(InvalidInput, match="start it with records"):
        run.records()
    with pytest.raises(InvalidInput, match="factor"):
        run.scale(-1.0)
    silent = Application(name="silent", components=twin.application.components, streams=twin.application.streams)
    with pytest.raises(InvalidInput, match="rates: expected a rate"):
        Twin(silent, machines((1, 1), (1, 1))).start([0, 1])
