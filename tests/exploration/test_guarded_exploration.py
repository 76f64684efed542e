"""Exploration of a target: few moves at a time, within its bound, and back to where it began."""

import msgspec
import pytest

import penstock as ps
from penstock.autopilot.control_target import Reading, TargetEnded
from penstock.exploration.guarded_exploration import RETURNS, Limits, explore_live
from penstock.exploration.index import Trials
from penstock.exploration.random_placements import Drawing
from penstock.model.errors import InvalidInput, PenstockError
from penstock.model.placement import Placement
from penstock.model.plan import Plan, PlannedRoute
from penstock.model.taskgraph import task_names
from penstock.runtime.handle import MovedTask

CLUSTER = ps.cluster("homogeneous-8:machines=3,cores=2")
APP = msgspec.structs.replace(ps.application("word-count"), rate_tps={"source": 300.0})
LIMITS = Limits(moves=2, reading_s=1.0)


class FakeTarget:
    """A target whose latency a test decides, and which notes all that is done to it."""

    def __init__(self) -> None:
        self.application, self.cluster, self.policy = APP, CLUSTER, "round-robin"
        self.slots = {task: CLUSTER.slot_names[n % 6] for n, task in enumerate(task_names(APP))}
        self.time = 0.0
        self.slow_from = float("inf")  # time from which it is slow
        self.then: float | None = 1.0  # latency from there on
        self.every_s = 0.1  # a tuple comes to its end
        self.read_at = 0.0
        self.ends_at = float("inf")
        self.interrupted_at = float("inf")
        self.moved: list[int] = []  # tasks that each plan moved
        self.applied: list[str] = []
        self.refuses: set[int] = set()  # numbers of plans that fail
        self.plans = 0

    def now(self) -> float:
        """Return the time."""
        return self.time

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.time += seconds
        if self.time >= self.interrupted_at:
            self.interrupted_at = float("inf")
            raise KeyboardInterrupt
        if self.time >= self.ends_at:
            raise TargetEnded

    def routes(self) -> tuple[PlannedRoute, ...]:
        """Return none: there are no links."""
        return ()

    def placement(self) -> dict[str, str]:
        """Return where tasks are."""
        return dict(self.slots)

    def reading(self) -> Reading:
        """Return the latency that the test decided."""
        latency = self.then if self.time >= self.slow_from else 0.01
        count = 0 if latency is None else int(self.time / self.every_s) - int(self.read_at / self.every_s)
        seconds, self.read_at = self.time - self.read_at, self.time
        mean = latency if count else None
        return Reading(at=self.time, seconds=seconds, count=count, mean_s=mean, rates={"source": 300.0})

    def apply(self, plan: Plan) -> list[MovedTask]:
        """Move what differs."""
        self.plans += 1
        if self.plans in self.refuses:
            raise PenstockError("move: no task would go")
        wanted = {f"{name}[{n}]": slot for name, slots in plan.tasks.items() for n, slot in enumerate(slots)}
        done = [
            MovedTask(task, self.slots[task], slot, 0.0) for task, slot in wanted.items() if self.slots[task] != slot
        ]
        self.slots = {task: wanted[task] for task in self.slots}
        self.moved.append(len(done))
        self.applied.append(plan.policy)
        self.policy = plan.policy
        self.read_at = self.time  # as a run does: what ended while tasks moved is nobody's
        return done


def test_moves_few_tasks_at_a_time_and_puts_them_back() -> None:
    target = FakeTarget()
    before = target.placement()
    done = explore_live(target, Trials(3, 4.0, 2.0), LIMITS)
    assert list(done.runs) == ["explore-000", "explore-001", "explore-002"]
    assert max(target.moved) == 2
    assert len({tuple(one.placement.items()) for one in done.runs.values()}) == 3
    assert target.placement() == before
    assert target.policy == "round-robin"
    assert done.stopped == ""
    assert all(one.mean_s == pytest.approx(0.01) and one.rates == {"source": 300.0} for one in done.runs.values())


def test_stops_and_goes_back_when_latency_exceeds_its_bound() -> None:
    target = FakeTarget()
    before, target.slow_from = target.placement(), 12.0
    done = explore_live(target, Trials(50, 4.0, 2.0), LIMITS)
    assert done.stopped.startswith("latency exceeded its bound of 50 ms: 1000 ms")
    assert len(done.runs) < 3
    assert target.time <= 12.0 + 3 * 1.0 + 10.0
    assert target.placement() == before


def test_stops_between_placements_if_latency_exceeds_its_bound() -> None:
    target = FakeTarget()
    before, target.slow_from = target.placement(), 3.0
    done = explore_live(target, Trials(9, 4.0, 2.0), LIMITS)
    assert done.stopped.startswith("latency exceeded its bound of 50 ms: 1000 ms")
    assert "explore-000" not in target.applied
    assert target.time == 4.0  # at the second reading that is beyond
    assert target.placement() == before


def test_combines_readings_during_and_after_moves() -> None:
    undisturbed, target = FakeTarget(), FakeTarget()
    explore_live(undisturbed, Trials(1, 4.0, 2.0), LIMITS)
    pauses = undisturbed.applied.index("explore-000")  # of 1 s each
    target.slow_from = 1.0 + pauses  # the last of them
    done = explore_live(target, Trials(1, 4.0, 2.0), LIMITS)
    assert done.stopped.startswith("latency exceeded")
    assert target.time == target.slow_from + 1.0


def test_keeps_the_reading_interval_during_moves() -> None:
    target = FakeTarget()
    target.slow_from, target.then = 4.5, None
    done = explore_live(target, Trials(1, 8.0, 8.0), Limits(moves=2, reading_s=4.0))
    assert done.stopped.endswith("no tuple completed")
    assert target.time == 12.0  # readings at 8 s and at 12 s


def test_takes_a_second_without_a_tuple_between_moves_for_no_silence() -> None:
    target = FakeTarget()
    target.every_s = 2.3
    done = explore_live(target, Trials(3, 10.0, 5.0), Limits(moves=2, reading_s=5.0))
    assert done.stopped == ""
    assert len(done.runs) == 3


def test_takes_silence_for_a_latency_beyond_any_bound() -> None:
    target = FakeTarget()
    before, target.slow_from, target.then = target.placement(), 3.0, None
    done = explore_live(target, Trials(9, 20.0, 0.0), LIMITS)
    assert done.stopped == "latency exceeded its bound of 50 ms: no tuple completed"
    assert target.placement() == before


def test_refuses_a_target_without_completed_tuples() -> None:
    target = FakeTarget()
    target.slow_from, target.then = 0.0, None
    with pytest.raises(InvalidInput, match="run: no tuple completed"):
        explore_live(target, Trials(1, 2.0, 0.0), LIMITS)
    assert target.applied == []


def test_goes_back_on_ctrl_c() -> None:
    target = FakeTarget()
    before, target.interrupted_at = target.placement(), 9.0
    done = explore_live(target, Trials(50, 4.0, 2.0), LIMITS)
    assert done.stopped == "it was interrupted"
    assert target.placement() == before


def test_leaves_a_run_alone_that_has_ended() -> None:
    target = FakeTarget()
    target.ends_at = 9.0
    done = explore_live(target, Trials(50, 4.0, 2.0), LIMITS)
    assert done.stopped == "the run has ended"
    assert done.left == "its placement was not restored: the run has ended"


def test_keeps_what_was_gathered_and_goes_back_when_a_move_fails() -> None:
    target = FakeTarget()
    before, target.refuses = target.placement(), {45, 46, 47}
    done = explore_live(target, Trials(50, 4.0, 2.0), LIMITS)
    assert (done.stopped, done.left) == ("move: no task would go", "")
    assert 0 < len(done.runs) < 50
    assert target.placement() == before
    assert target.policy == "round-robin"


def test_keeps_what_was_gathered_when_no_further_placement_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn, draw = [0], Drawing.draw

    def two(self: Drawing, factor: float = 1.0) -> Placement:
        drawn[0] += 1
        if drawn[0] > 2:
            raise InvalidInput("rates", "none of 200 random placements carries it")
        return draw(self, factor)

    monkeypatch.setattr(Drawing, "draw", two)
    target = FakeTarget()
    before = target.placement()
    done = explore_live(target, Trials(50, 4.0, 2.0), LIMITS)
    assert done.stopped == "rates: none of 200 random placements carries it"
    assert len(done.runs) == 2
    assert target.placement() == before


def test_reports_tasks_that_were_not_moved_back() -> None:
    target = FakeTarget()
    before, target.refuses = target.placement(), set(range(9, 1000))
    done = explore_live(target, Trials(50, 4.0, 2.0), LIMITS)
    away = sum(slot != before[task] for task, slot in target.placement().items())
    assert away > 0
    assert done.left == f"{away} tasks were not moved back: move: no task would go"
    assert target.plans == 9 + RETURNS


def test_refuses_a_bound_that_is_already_exceeded() -> None:
    target = FakeTarget()
    with pytest.raises(InvalidInput, match="most_latency: latency is 10 ms, already above the bound of 5 ms"):
        explore_live(target, Trials(1, 2.0, 0.0), Limits(2, 0.005, reading_s=1.0))
    assert target.applied == []
