import math
from collections import deque
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import cycle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.runtime.emulation import VirtualCpu

DAY = 86_400.0


@dataclass(frozen=True)
class Load:
    """A processor and, for each of its slots, the arrival time and the work of its jobs, first come first served."""

    cores: int
    speed: float
    jobs: list[list[tuple[float, float]]]


@dataclass
class Outcome:
    """When each job was complete, by slot, and the core-seconds used after each stretch of even progress."""

    ends: list[list[float]]
    used: list[tuple[float, float]] = field(default_factory=list)


quarters = st.integers(0, 40).map(lambda quarter: quarter / 4)  # coarse, so that events often coincide


@st.composite
def loads(draw: st.DrawFn) -> Load:
    slots = draw(st.integers(1, 5))
    jobs = [sorted(draw(st.lists(st.tuples(quarters, quarters), max_size=5))) for _ in range(slots)]
    return Load(draw(st.integers(1, 4)), draw(st.sampled_from([0.5, 1.0, 3.8])), jobs)


def stepwise(load: Load) -> Outcome:
    """Work the load out in exact fractions, keeping what is left of every job and moving from event to event."""
    waiting = [deque((Fraction(at), Fraction(work)) for at, work in jobs) for jobs in load.jobs]
    left: dict[int, Fraction] = {}
    outcome = Outcome([[] for _ in load.jobs])
    now, used = Fraction(0), Fraction(0)
    while left or any(waiting):
        for slot, jobs in enumerate(waiting):
            if slot not in left and jobs and jobs[0][0] <= now:
                left[slot] = jobs.popleft()[1]
        rate = Fraction(load.speed) * min(Fraction(1), Fraction(load.cores, max(1, len(left))))
        steps = [jobs[0][0] - now for slot, jobs in enumerate(waiting) if slot not in left and jobs]
        step = min(steps + [rest / rate for rest in left.values()])
        now += step
        used += step * min(load.cores, len(left))
        outcome.used.append((float(now), float(used)))
        left = {slot: rest - step * rate for slot, rest in left.items()}
        for slot in [slot for slot, rest in left.items() if rest == 0]:
            del left[slot]
            outcome.ends[slot].append(float(now))
    return outcome


def emulated(load: Load, probes: list[float]) -> Outcome:
    """Run the load on a virtual processor, asking for its use at the times `probes`."""
    cpu: VirtualCpu[float] = VirtualCpu(load.cores, load.speed, len(load.jobs))
    waiting = [deque(jobs) for jobs in load.jobs]
    idle = set(range(len(load.jobs)))
    free = [0.0] * len(load.jobs)
    outcome = Outcome([[] for _ in load.jobs])
    pending = deque(probes)
    while True:
        starts = [(max(waiting[slot][0][0], free[slot]), slot) for slot in idle if waiting[slot]]
        start, slot = min(starts, default=(math.inf, -1))
        soonest = min(start, cpu.next_completion())
        while pending and pending[0] <= soonest:
            at = pending.popleft()
            outcome.used.append((at, cpu.used(at)))
        if soonest == math.inf:
            return outcome
        if start < cpu.next_completion():
            idle.remove(slot)
            cpu.submit(slot, waiting[slot].popleft()[1], start, start)
        else:
            end, slot, token = cpu.complete()
            assert token <= end
            idle.add(slot)
            free[slot] = end
            outcome.ends[slot].append(end)


@given(loads())
def test_completions_and_use_equal_those_worked_out_in_fractions(load: Load) -> None:
    expected = stepwise(load)
    found = emulated(load, [at for at, _ in expected.used])
    assert [len(ends) for ends in found.ends] == [len(jobs) for jobs in load.jobs]
    for ends, right in zip(found.ends, expected.ends, strict=True):
        assert ends == pytest.approx(right, abs=1e-9)
    assert [used for _, used in found.used] == pytest.approx([used for _, used in expected.used], abs=1e-9)


@given(loads())
def test_the_cores_used_have_done_all_of_the_work(load: Load) -> None:
    after = 1e6
    ((_, used),) = emulated(load, [after]).used
    work = sum(work for jobs in load.jobs for _, work in jobs)
    assert used * load.speed == pytest.approx(work, abs=1e-9)


@pytest.mark.parametrize("jobs", [1, 2, 5, 64])
def test_n_jobs_on_one_core_take_n_times_as_long(jobs: int) -> None:
    cpu: VirtualCpu[None] = VirtualCpu(cores=1, speed=2.0, slots=jobs)
    for slot in range(jobs):
        cpu.submit(slot, 1.0, 10.0, None)
    ends = [cpu.complete() for _ in range(jobs)]
    assert [slot for _, slot, _ in ends] == list(range(jobs))
    assert [end for end, _, _ in ends] == pytest.approx([10.0 + jobs / 2.0] * jobs)
    assert cpu.used(100.0) == pytest.approx(jobs / 2.0)


def test_a_single_job_uses_one_core() -> None:
    cpu: VirtualCpu[str] = VirtualCpu(cores=4, speed=1.0, slots=4)
    cpu.submit(2, 3.0, 1.0, "job")
    assert cpu.used(2.0) == 1.0
    assert cpu.complete() == (4.0, 2, "job")
    assert cpu.next_completion() == math.inf


def test_work_of_nothing_is_complete_at_once_even_beside_other_jobs() -> None:
    cpu: VirtualCpu[str] = VirtualCpu(cores=1, speed=1.0, slots=2)
    cpu.submit(0, 1.0, 0.0, "long")
    cpu.submit(1, 0.0, 0.5, "nothing")
    assert cpu.complete() == (0.5, 1, "nothing")
    assert cpu.complete() == (1.0, 0, "long")


def test_simultaneous_completions_are_in_the_order_of_slots() -> None:
    cpu: VirtualCpu[str] = VirtualCpu(cores=2, speed=1.0, slots=3)
    for slot, token in ((2, "c"), (0, "a"), (1, "b")):
        cpu.submit(slot, 1.0, 0.0, token)
    assert [cpu.complete()[1:] for _ in range(3)] == [(0, "a"), (1, "b"), (2, "c")]


def test_a_job_submitted_for_the_past_starts_at_the_last_event() -> None:
    cpu: VirtualCpu[str] = VirtualCpu(cores=2, speed=1.0, slots=2)
    cpu.submit(0, 1.0, 5.0, "first")
    cpu.submit(1, 1.0, 3.0, "second")
    assert cpu.complete()[0] == cpu.complete()[0] == 6.0


def test_jobs_complete_before_a_later_submission_keep_their_times_and_hold_their_slots() -> None:
    cpu: VirtualCpu[str] = VirtualCpu(cores=1, speed=1.0, slots=3)
    cpu.submit(0, 1.0, 0.0, "a")
    cpu.submit(1, 2.0, 0.0, "b")
    cpu.submit(2, 1.0, 10.0, "c")
    assert cpu.busy == 3
    with pytest.raises(ValueError, match="slot 0 is busy"):
        cpu.submit(0, 1.0, 10.0, "d")
    assert cpu.next_completion() == 2.0
    assert [cpu.complete() for _ in range(3)] == [(2.0, 0, "a"), (3.0, 1, "b"), (11.0, 2, "c")]
    assert cpu.used(20.0) == 4.0


@pytest.mark.parametrize("work", [-1.0, math.nan, math.inf])
def test_work_must_be_a_finite_amount(work: float) -> None:
    cpu: VirtualCpu[None] = VirtualCpu(cores=1, speed=1.0, slots=1)
    with pytest.raises(ValueError, match="expected work of 0 or more"):
        cpu.submit(0, work, 0.0, None)


def test_an_idle_processor_has_nothing_to_complete() -> None:
    cpu: VirtualCpu[None] = VirtualCpu(cores=1, speed=1.0, slots=1)
    with pytest.raises(ValueError, match="no job is left"):
        cpu.complete()


def test_completions_never_go_back_and_lose_no_work_over_days_without_a_pause() -> None:
    cpu: VirtualCpu[None] = VirtualCpu(cores=3, speed=1.3, slots=7)
    start = last = 30 * DAY
    works = cycle([1e-7, 7.7, 1e-4, 31.0, 0.3, 1e-9, 123.0, 2.5])
    given_work = 0.0
    for step in range(50_000):
        end, slot = (start, step) if step < 7 else cpu.complete()[:2]
        assert end >= last
        work, last = next(works), end
        cpu.submit(slot, work, end, None)
        given_work += work
    assert last - start > 2 * DAY
    assert cpu.busy == 7
    for _ in range(7):
        last = cpu.complete()[0]
    assert cpu.used(last) * 1.3 == pytest.approx(given_work, rel=1e-10)
    assert cpu.used(last) == pytest.approx(3 * (last - start), rel=1e-2)
