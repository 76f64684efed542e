from itertools import permutations
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from penstock.api.sources import pace as pace_module
from penstock.api.sources.pace import ArrivalProcess, Pace
from penstock.model.errors import InvalidInput
from penstock.workloads.arrivals import Constant, Diurnal, OnOff, Poisson, SelfSimilar, StepChange
from tests.api.clock import Clock, context

START = 1000.0
PROCESSES: list[ArrivalProcess] = [
    Constant(rate=37.3, slot=0.1),
    Constant(rate=5.0),
    Poisson(rate=3000.0),
    Poisson(rate=40.0, slot=0.003),
    OnOff(rate=20.0, slot=0.5, burst=3.0),
    SelfSimilar(rate=50.0, slot=0.25),
    Diurnal(rate=20.0, period=15.0),
    StepChange(rate=30.0, factor=0.0, at=7.0),
]


def opened(task: int = 0, tasks: int = 1, seed: int = 0, clock: Clock | None = None, **how: Any) -> Pace:
    pace = Pace(**how)
    pace.open(context(task, tasks, component="numbers", seed=seed, clock=clock))
    return pace


def counts(process: ArrivalProcess, slots: int, seed: int) -> NDArray[np.int64]:
    """Return what the process says when it is asked by the generator that the docstring names."""
    drawn = process.counts(pace_module.DRAWN_FIRST, np.random.default_rng([seed, crc32(b"numbers")]))
    assert slots <= len(drawn)
    return drawn[:slots]


def named(process: ArrivalProcess) -> str:
    return f"{type(process).__name__}-{process.slot}"


@pytest.mark.parametrize("rate", [1.0, 3.0, 7.7, 1e5])
@pytest.mark.parametrize("tasks", [1, 3])
def test_even_dues_are_the_numbers_divided_by_the_rate(rate: float, tasks: int) -> None:
    for task in range(tasks):
        pace = opened(task, tasks, rate=rate)
        dues = [due for step in range(101) for due in pace.take(START + step * 0.3 / rate, 1000)]
        numbers = range(task, int(100 * 0.3) + 1, tasks)
        assert dues == pytest.approx([START + number / rate for number in numbers], abs=1e-9)


@pytest.mark.parametrize("process", PROCESSES, ids=named)
@pytest.mark.parametrize("tasks", [1, 2, 5])
def test_tasks_together_give_the_counts_of_the_process(process: ArrivalProcess, tasks: int) -> None:
    slots, seed = int(20 / process.slot), 4
    expected = counts(process, slots, seed)
    end = START + slots * process.slot
    dues = [due for task in range(tasks) for due in _all(opened(task, tasks, seed, arrivals=process), end)]
    # A due time within a rounding error of a slot's edge may be counted on either side.
    found = np.searchsorted(np.sort(dues), START + np.arange(slots + 1) * process.slot - 1e-9)
    assert np.diff(found).tolist() == expected.tolist()


def test_tasks_take_turns() -> None:
    process = Poisson(rate=500.0)
    everything = _all(opened(arrivals=process), START + 5)
    for task in range(3):
        assert _all(opened(task, 3, arrivals=process), START + 5) == everything[task::3]


def test_counts_continue_as_if_drawn_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Diurnal(rate=20.0, slot=0.1, period=15.0)
    at_once = _all(opened(arrivals=process), START + 40)
    monkeypatch.setattr(pace_module, "DRAWN_FIRST", 7)
    assert _all(opened(arrivals=process), START + 40) == at_once


def test_poisson_arrivals_are_poisson_within_a_slot_too() -> None:
    dues = np.array(_all(opened(arrivals=Poisson(rate=5000.0)), START + 20))
    gaps = np.diff(dues)
    assert gaps.std() / gaps.mean() == pytest.approx(1.0, abs=0.02)
    fine = np.histogram(dues, bins=np.arange(START, START + 19, 0.001))[0]
    assert fine.var() / fine.mean() == pytest.approx(1.0, abs=0.05)


def test_constant_arrivals_are_even_within_a_slot_too() -> None:
    gaps = np.diff(_all(opened(arrivals=Constant(rate=100.0)), START + 5))
    assert gaps.tolist() == pytest.approx([0.01] * len(gaps), abs=1e-9)


def test_names_and_seeds_give_other_arrivals() -> None:
    process = Poisson(rate=100.0)
    other = Pace(arrivals=process)
    other.open(context(component="letters"))
    first, again = (_all(opened(arrivals=process), START + 2) for _ in range(2))
    assert first == again
    assert _all(opened(arrivals=process, seed=1), START + 2) != first
    assert _all(other, START + 2) != first


@pytest.mark.parametrize("how", [{"rate": 50.0}, {"arrivals": Poisson(rate=50.0)}], ids=["rate", "arrivals"])
def test_late_polls_keep_dues(how: dict[str, Any]) -> None:
    prompt, late = opened(**how), opened(**how)
    on_time = [due for step in range(1001) for due in prompt.take(START + step * 0.01, 1000)]
    assert late.take(START, 1000) == [due for due in on_time if due == START]
    at_last = [due for _ in range(100) for due in late.take(START + 10.0, 7)]
    assert at_last == [due for due in on_time if due > START]
    assert len(at_last) > 300


@pytest.mark.parametrize("how", [{"rate": 0.3}, {"arrivals": OnOff(rate=5.0)}], ids=["rate", "arrivals"])
def test_polling_at_next_due_is_sufficient(how: dict[str, Any]) -> None:
    pace, now, dues = opened(**how), START, []
    for _ in range(5000):
        taken = pace.take(now, 10)
        dues += taken
        if not taken:
            later = pace.next_due(now)
            assert later > now
            now = later
    assert dues == _all(opened(**how), now)[: len(dues)]
    assert len(dues) > 10


def test_without_a_pace_everything_is_due_now() -> None:
    pace = opened()
    assert pace.take(START, 3) == [START] * 3
    assert pace.next_due(START) == START
    assert pace.rate_tps is None
    assert not pace.paces


HOWS = st.one_of(
    st.floats(0.5, 500).map(lambda rate: {"rate": rate}),
    st.sampled_from(PROCESSES).map(lambda process: {"arrivals": process}),
)


@pytest.mark.slow
@given(
    how=HOWS,
    steps=st.lists(st.tuples(st.floats(0, 0.7), st.integers(1, 60)), min_size=1, max_size=40),
    data=st.data(),
    tasks=st.integers(1, 4),
    elsewhere=st.floats(-5000, 5000),
)
def test_moving_changes_nothing(
    how: Any, steps: list[tuple[float, int]], data: Any, tasks: int, elsewhere: float
) -> None:
    task = data.draw(st.integers(0, tasks - 1))
    moves = data.draw(st.sets(st.integers(0, len(steps) - 1)))
    clock = Clock(START)
    stays, moving = (opened(task, tasks, clock=clock, **how) for _ in range(2))
    for pace in (stays, moving):
        pace.take(START, 0)  # from which it counts
    ahead = 0.0  # of the clock at the place where the pace is now
    expected: list[float] = []
    dues: list[float] = []
    for number, (wait, limit) in enumerate(steps):
        if number in moves:
            position = moving.position()
            ahead = elsewhere if ahead == 0.0 else 0.0
            moving = opened(task, tasks, clock=Clock(START + ahead), **how)
            moving.seek(position)
            # The time that a move takes does not count: the first poll comes at once.
            moving.take(clock.time + ahead, 0)
        clock.time += wait
        expected += stays.take(clock.time, limit)
        dues += [due - ahead for due in moving.take(clock.time + ahead, limit)]
    common = min(len(dues), len(expected))  # rounding decides whether a tuple is due just now or with the next poll
    assert dues[:common] == pytest.approx(expected[:common], abs=1e-8)
    assert abs(len(dues) - len(expected)) <= 1


def test_a_move_makes_neither_burst_nor_pause() -> None:
    clock = Clock(START)
    here = opened(rate=10.0, clock=clock)
    here.take(START, 100)
    clock.time = START + 5.05
    assert len(here.take(clock.time, 100)) == 50
    there = opened(rate=10.0)
    there.seek(here.position())
    assert there.take(77.0, 100) == []
    assert there.next_due(77.0) == pytest.approx(77.05)
    assert there.count == 51


PACES: list[dict[str, Any]] = [
    {"rate": 10.0},
    {"rate": 1000.0},
    {"arrivals": Poisson(rate=200.0)},
    {"arrivals": Poisson(rate=50.0)},
    {"arrivals": OnOff(rate=50.0, slot=0.5, burst=3.0)},
    {},
]


@pytest.mark.slow
@pytest.mark.parametrize(("before", "after"), list(permutations(PACES, 2)), ids=str)
@pytest.mark.parametrize("tasks", [1, 3])
def test_another_pace_holds_from_now_on(before: dict[str, Any], after: dict[str, Any], tasks: int) -> None:
    clock = Clock(START)
    for task in range(tasks):
        clock.time = START
        slow = opened(task, tasks, clock=clock, **before)
        taken = len(slow.take(START, 1)) + len(slow.take(START + 60.0, 40))
        clock.time = START + 100.0  # most of them are late
        changed, fresh = opened(task, tasks, **after), opened(task, tasks, **after)
        changed.seek(slow.position())
        changed.take(START, 0)
        expected = _all(fresh, START + 3.0)
        assert _all(changed, START + 3.0) == expected
        assert changed.count == taken + len(expected)
        again = opened(task, tasks, **after)  # the new pace continues where it was, like any other
        again.seek({**changed.position(), "elapsed": 3.0})
        again.take(START + 3.0, 0)
        assert again.take(START + 4.0, 50) == pytest.approx(fresh.take(START + 4.0, 50), abs=1e-9)


def test_a_new_rate_holds_at_once_after_a_long_time_at_another() -> None:
    clock = Clock(START)
    here = opened(rate=1000.0, clock=clock)
    here.take(START, 1)
    clock.time = START + 3600.0
    here.take(clock.time, 10_000_000)
    for rate in (10.0, 100_000.0):
        there = opened(rate=rate)
        there.seek(here.position())
        assert there.take(START, 10_000_000) == [START]
        assert len(there.take(START + 1.0, 10_000_000)) == pytest.approx(rate, abs=1)


class Unnamed:
    """An arrival process that does not say what it is."""

    rate, slot = 50.0, 0.1

    def counts(self, slots: int, rng: np.random.Generator) -> NDArray[np.int64]:
        return rng.poisson(5.0, slots)


@pytest.mark.parametrize(
    "how",
    [{"rate": 10.0}, {"arrivals": Poisson(rate=50.0)}, {"arrivals": Unnamed()}],
    ids=["rate", "poisson", "unnamed"],  # an address as an id would differ from process to process
)
def test_positions_of_other_processes_are_read(how: dict[str, Any]) -> None:
    clock = Clock(START)
    here = opened(clock=clock, **how)
    _all(here, START + 5.0)
    clock.time = START + 5.0
    position = here.position()
    expected = here.take(START + 7.0, 1000)
    there = opened(**({"arrivals": Unnamed()} if isinstance(how.get("arrivals"), Unnamed) else how))
    there.seek(position)
    there.take(START + 5.0, 0)
    assert there.take(START + 7.0, 1000) == pytest.approx(expected, abs=1e-9)
    assert len(expected) > 15


@pytest.mark.parametrize(
    ("how", "reported"),
    [
        ({"rate": 0}, "rate: expected a number > 0, got 0"),
        ({"rate": float("nan")}, "rate: expected a number > 0, got nan"),
        ({"rate": "fast"}, "rate: expected a number > 0, got 'fast'"),
        ({"rate": 1e12}, "rate: expected a number ≤ 1e+09"),
        ({"rate": 1, "arrivals": Poisson(rate=1.0)}, "remove one"),
        ({"arrivals": "poisson:rate=3"}, "arrivals: expected an arrival process"),
    ],
)
def test_rejects_what_is_no_pace(how: dict[str, Any], reported: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        Pace(**how)
    assert reported in str(raised.value)


def test_says_the_rate_that_it_offers() -> None:
    assert Pace(rate=5.0).rate_tps == 5.0
    assert Pace(arrivals=Poisson(rate=7.0)).rate_tps == 7.0


def _all(pace: Pace, end: float) -> list[float]:
    """Take everything until a time, a tenth of a second at a time."""
    times = [*np.arange(START, end, 0.1).tolist(), end]
    return [due for time in times for due in pace.take(time, 10_000)]
