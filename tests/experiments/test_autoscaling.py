"""The comparison of scaling policies: accounting, restarts, and what policies see."""

import msgspec
import numpy as np
import pytest

from penstock.experiments.autoscaling import (
    ScalingOutcome,
    ScalingScenario,
    _Stage,
    compare_scaling,
    on_front,
    run_policy,
)
from penstock.model.cluster import Cluster, Machine
from penstock.model.errors import InvalidInput
from penstock.model.topology import Application, Component, Kind, Stream
from penstock.planning.sizing import Sizer
from penstock.policies.api import Sized
from penstock.policies.registry import PolicyKind, names
from penstock.workloads.arrivals import Constant, Diurnal, StepChange

MACHINES = Cluster(name="six", machines=tuple(Machine(name=f"m{n}", cores=2, slots=2) for n in range(6)))
CLICKS = Application(
    name="clicks",
    components=(
        Component(name="clicks", kind=Kind.SOURCE, cpu=0.0002),
        Component(name="enrich", cpu=0.01),
        Component(name="store", kind=Kind.SINK, cpu=0.002),
    ),
    streams=(Stream(source="clicks", target="enrich"), Stream(source="enrich", target="store")),
)


def scenario(**changes: object) -> ScalingScenario:
    settings = {
        "arrivals": Diurnal(rate=250.0, amplitude=0.8, period=240.0),
        "intervals": 24,
        "interval_s": 10.0,
        "rescale_s": 0.5,
        "late_s": 1.0,
        **changes,
    }
    return ScalingScenario(CLICKS, MACHINES, **settings)  # type: ignore[arg-type]


def size(case: ScalingScenario, rate: float) -> Sized:
    found = Sizer(CLICKS, MACHINES).for_rate(rate)
    assert isinstance(found, Sized)
    return found


def test_every_tuple_is_counted_once_whatever_rescales_happen() -> None:
    case = scenario()
    for spec in ("fixed", "ds2"):
        outcome = run_policy(case, spec, case.first)
        offered = np.array([interval.offered for interval in outcome.intervals])
        np.testing.assert_array_equal(offered, case.arrived)
        assert (outcome.rescales == 0) == (spec == "fixed")


def test_no_tuple_is_lost_or_doubled_by_many_restarts() -> None:
    case = scenario(arrivals=Diurnal(rate=300.0, amplitude=0.9, period=100.0), intervals=12)
    stage, completed = _Stage(case, size(case, 150.0), 0.0, 0), 0
    for number in range(12):
        span, _ = stage.advance(number, 0.0)
        completed += span.completed
        assert completed + stage._unfinished == case.arrived[: number + 1].sum()
        stage = stage.restarted(size(case, 100.0 + 40.0 * (number % 7)), number + 1)


def test_a_restart_processes_what_was_left_and_keeps_due_times() -> None:
    case = scenario(arrivals=Constant(rate=150.0), intervals=6)
    slow, fast = size(case, 60.0), size(case, 400.0)
    stage = _Stage(case, slow, 0.0, 0)
    span, _ = stage.advance(0, np.inf)
    left = span.in_flight + span.waiting
    assert left == pytest.approx(10 * (150 - slow.throughput_tps), rel=0.1)
    following, _ = stage.restarted(fast, 1).advance(1, 0.0)
    assert following.completed == pytest.approx(left + 1500, rel=0.02)  # all of them, and what arrived meanwhile
    oldest = 10 - left / 150
    assert following.latencies.max() >= 10 + case.rescale_s - oldest  # due before the restart, complete after it
    assert following.latencies[-50:].max() < case.late_s


def test_nothing_is_processed_during_a_rescale() -> None:
    case = scenario(arrivals=Constant(rate=50.0), intervals=3, rescale_s=4.0)
    after = size(case, 200.0)
    span, _ = _Stage(case, after, 10.0, 3).advance(1, 0.0)
    assert span.latencies.max() == pytest.approx(4.0, abs=0.3)
    # a tuple due u seconds after the start completes 4 s + u × 50/s / capacity after it
    waited = 50 * 3.5 / (1 - 50 / after.throughput_tps)
    assert (span.latencies > 0.5).sum() == pytest.approx(3 + waited, rel=0.05)


def test_a_size_that_suffices_is_never_late_and_one_that_does_not_falls_behind() -> None:
    case = scenario(arrivals=Constant(rate=200.0), intervals=6)
    roomy = run_policy(case, "fixed", size(case, 300.0))
    assert (roomy.late, roomy.rescales) == (0, 0)
    assert roomy.machine_s == 60.0 * size(case, 300.0).machines
    small = size(case, 100.0)
    behind = run_policy(case, "fixed", small)
    # of 200/s about 100/s are served; what is due later than (60 s - 1 s) × 100 / 200 waits for more than a second
    served = small.throughput_tps / 200.0
    assert behind.late_share == pytest.approx(1 - 1 / 60 / (1 - served), abs=0.05)
    assert behind.unfinished_late > 0


@pytest.mark.slow
@pytest.mark.parametrize("spec", [name for name in names(PolicyKind.SCALING) if name != "fixed"])
def test_adapts_to_a_step_in_the_load(spec: str) -> None:
    step = StepChange(rate=60.0, factor=6.0, at=100.0)
    case = scenario(arrivals=step, intervals=30)
    outcome, small = run_policy(case, spec, size(case, 80.0)), run_policy(case, "fixed", size(case, 80.0))
    assert outcome.rescales >= 1
    assert outcome.intervals[-1].tasks > outcome.intervals[5].tasks
    assert outcome.intervals[-1].machines > outcome.intervals[5].machines
    if spec != "dhalion":  # which grows step by step, and takes longer than the rest of the intervals to catch up
        assert outcome.late_share < 0.7 * small.late_share
        assert outcome.intervals[-1].late == 0


def test_policies_see_the_arrivals_so_far_and_no_later_ones() -> None:
    case = scenario(known=6, intervals=4)
    stage = _Stage(case, case.first, case.begin_s, 0)
    for number in range(3):
        _, view = stage.advance(number, np.inf)
        assert view.arrived.tolist() == case.arrived[: 7 + number].tolist()
        assert view.target_tps == case.arrived[6 + number] / 10.0
        assert view.predicted_tps == case.first.throughput_tps


def test_several_sources_share_the_arrivals_in_the_ratio_of_their_rates() -> None:
    source, enrich, store = CLICKS.components
    views = msgspec.structs.replace(source, name="views")
    two = msgspec.structs.replace(
        CLICKS,
        components=(source, views, enrich, store),
        streams=(*CLICKS.streams, Stream(source="views", target="enrich")),
        rate_tps={"clicks": 30.0, "views": 10.0},
    )
    case = ScalingScenario(two, MACHINES, Diurnal(rate=100.0, period=50.0), intervals=5, interval_s=10.0)
    assert len(case.times["clicks"]) == pytest.approx(3 * len(case.times["views"]), rel=0.1)
    assert len(case.times["clicks"]) + len(case.times["views"]) == case.arrived.sum()
    outcome = run_policy(case, "ds2", case.first)
    assert outcome.offered == case.arrived.sum()


def test_equal_seeds_give_equal_outcomes() -> None:
    one, other = (run_policy(scenario(intervals=8), "look-ahead", scenario().first) for _ in range(2))
    assert one == other


@pytest.mark.slow
def test_fixed_sizes_that_another_fixed_size_beats_are_left_out() -> None:
    found = compare_scaling(scenario(intervals=8), ["ds2"])
    assert found[0].policy == "ds2"
    fixed = found[1:]
    assert fixed
    assert all(on_front(one, fixed) for one in fixed)
    assert [one.machine_s for one in fixed] == sorted(one.machine_s for one in fixed)


def test_the_front_has_every_outcome_that_none_beats_in_both() -> None:
    outcomes = [
        ScalingOutcome(name, 1.0, (), late) for name, late in (("a", 5), ("b", 5), ("c", 6))
    ]  # equal machine-hours: 0
    assert [on_front(one, outcomes) for one in outcomes] == [True, True, False]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"rescale_s": 10.0}, "pause: expected 0 to less than an interval of 10 s, got 10"),
        ({"late_s": 0.0}, "late: expected a number of seconds > 0, got 0"),
        ({"interval_s": float("nan")}, "interval: expected a number of seconds > 0, got nan"),
        ({"intervals": 0}, "intervals: expected 1 or more, got 0"),
        ({"arrivals": Constant(rate=1e9)}, "intervals: expected at most 2,000,000,000 tuples to be processed"),
    ],
)
def test_rejects_a_scenario_that_makes_no_sense(changes: dict[str, object], problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        scenario(**changes)
