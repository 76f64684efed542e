from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pytest

from penstock.model.errors import InvalidInput
from penstock.workloads.dataflows import dataflow
from penstock.workloads.flink_applications import EVENTS_A_RESULT
from penstock.workloads.running.top_speed import (
    CARS,
    DISTANCE_M,
    REPORT_S,
    WINDOW_S,
    CarEvent,
    CarRecords,
    TopSpeed,
    TopSpeeds,
    timed,
)
from tests.workloads.running.executor import Executor


def events(turns: int, cars: int = 20) -> list[CarEvent]:
    """Return the events of some of the cars, in which each reports `turns` times."""
    make = CarRecords()
    return [timed(make(turn * CARS + car)) for turn in range(turns) for car in range(cars)]


def expected(seen: list[CarEvent]) -> list[TopSpeed]:
    """Return the top speeds by their definition, from all events at once."""
    found = []
    by_car: dict[int, list[CarEvent]] = defaultdict(list)
    for event in seen:
        by_car[event.car].append(event)
    for car, own in by_car.items():
        for before, event in pairwise(own):
            if int(event.metres / DISTANCE_M) > int(before.metres / DISTANCE_M):
                since = event.time_ms - 1000 * WINDOW_S
                window = [one.speed for one in own if since < one.time_ms <= event.time_ms]
                found.append(TopSpeed(car, max(window), event.time_ms))
    return sorted(found, key=lambda one: (one.car, one.time_ms))


def test_a_record_depends_only_on_its_number_and_the_seed() -> None:
    assert CarRecords(1)(70_000) == CarRecords(1)(70_000) != CarRecords(2)(70_000)


def test_cars_drive_the_distance_that_their_speed_gives() -> None:
    own = [event for event in events(300) if event.car == 17]
    assert len(own) == 300
    driven = sum(REPORT_S * (one.speed + other.speed) / 2 for one, other in pairwise(own))
    assert own[-1].metres - own[0].metres == pytest.approx(driven, rel=1e-3)


def test_a_car_has_a_top_speed_as_often_as_the_topology_says() -> None:
    window = TopSpeeds()
    found = [speed for event in events(1200) for speed in window.process(event)]
    assert len(found) * EVENTS_A_RESULT == pytest.approx(20 * 1199, rel=0.02)


def test_a_top_speed_is_the_highest_of_the_last_seconds() -> None:
    window, seen = TopSpeeds(), events(400)
    found = [speed for event in seen for speed in window.process(event)]
    assert sorted(found, key=lambda one: (one.car, one.time_ms)) == expected(seen)
    assert len(found) > 100


def test_the_sink_stores_the_top_speeds_of_all_cars(tmp_path: Path) -> None:
    ran = Executor(dataflow("top-speed-windowing", rate=1000, count=CARS * 20), tmp_path).run()
    found = sorted(ran.sent["window->sink"], key=lambda one: (one.car, one.time_ms))
    assert found == expected(events(20, CARS))
    assert len(found) > 100
    lines = [line for file in tmp_path.rglob("part-*.jsonl") for line in file.read_text().splitlines()]
    assert len(lines) == len(found)


def test_speeds_before_the_window_are_forgotten() -> None:
    window = TopSpeeds()
    seen = [CarEvent(1, 30.0, 10.0, 0), CarEvent(1, 12.0, 50.0, 5_000), CarEvent(1, 11.0, 90.0, 9_000)]
    found = [speed for event in [*seen, CarEvent(1, 10.0, 110.0, 10_000)] for speed in window.process(event)]
    assert found == [TopSpeed(1, 12.0, 10_000)]
    assert [time_ms for time_ms, _ in window.recent[1]] == [5_000, 9_000, 10_000]


def test_windows_move_with_the_task() -> None:
    seen = events(200)
    whole, first, second = TopSpeeds(), TopSpeeds(), TopSpeeds()
    half = len(seen) // 2
    early = [speed for event in seen[:half] for speed in first.process(event)]
    second.restore(first.snapshot())
    late = [speed for event in seen[half:] for speed in second.process(event)]
    assert early + late == [speed for event in seen for speed in whole.process(event)]


@pytest.mark.parametrize("record", ["(1,55.0,15.27,1424951918630)", "1,55,15.27,1424951918630\n"])
def test_records_may_have_parentheses_as_flinks_have(record: str) -> None:
    assert timed(record) == CarEvent(1, 55.0, 15.27, 1424951918630)


@pytest.mark.parametrize("record", ["", "1,2,3", "a,2,3,4", "1,2,3,4,5"])
def test_a_record_of_another_form_is_rejected_with_its_text(record: str) -> None:
    with pytest.raises(InvalidInput, match=r"record: expected car,speed,metres,milliseconds, got '"):
        timed(record)
