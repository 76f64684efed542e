"""Top-speed windowing: each car's highest speed in the last seconds, every time it has driven a distance.

Generated records are of cars whose speed swings around a mean, each in a rhythm of its own, and which report ten times
per second. A record depends only on its number and the seed, so a source can continue at any number.
"""

from collections import deque
from collections.abc import Iterator
from math import cos, sin, tau
from random import Random
from typing import NamedTuple

import msgspec

from penstock.api.contracts import Operator
from penstock.api.dataflow import Dataflow
from penstock.api.sinks.discard import Discard
from penstock.api.sinks.json_lines import JsonLines
from penstock.model.errors import InvalidInput
from penstock.model.topology import Application
from penstock.workloads.flink_applications import EVENTS_A_RESULT
from penstock.workloads.running.blueprint import Blueprint, Feed

CARS = 500
START_MS = 1_767_571_200_000  # of the first record: 5 January 2026, UTC
REPORT_S = 0.1  # between two records of a car
MEAN_SPEED, SWING = 20.0, 10.0  # in m/s
RHYTHM_S = (20.0, 60.0)  # shortest and longest time in which a car's speed repeats
WINDOW_S = 10.0
DISTANCE_M = MEAN_SPEED * REPORT_S * EVENTS_A_RESULT


class Car(NamedTuple):
    """How one generated car drives: at time t with the speed MEAN_SPEED + SWING · sin(frequency · t + phase)."""

    frequency: float
    phase: float
    begin_m: float  # its distance at time 0

    def speed(self, seconds: float) -> float:
        """Return its speed."""
        return MEAN_SPEED + SWING * sin(self.frequency * seconds + self.phase)

    def metres(self, seconds: float) -> float:
        """Return the distance that it has driven: the integral of its speed."""
        swung = cos(self.phase) - cos(self.frequency * seconds + self.phase)
        return self.begin_m + MEAN_SPEED * seconds + SWING / self.frequency * swung


class CarRecords:
    """Generates the record of a number: `car,speed,metres,milliseconds`; the cars report in turn."""

    def __init__(self, seed: int = 0) -> None:
        rng = Random(seed)  # noqa: S311  nothing here is secret
        self.cars = [
            Car(tau / rng.uniform(*RHYTHM_S), rng.uniform(0.0, tau), rng.uniform(0.0, DISTANCE_M)) for _ in range(CARS)
        ]

    def __call__(self, number: int) -> str:
        """Return the record."""
        turn, car = divmod(number, CARS)
        seconds = (turn + car / CARS) * REPORT_S
        one = self.cars[car]
        return f"{car},{one.speed(seconds):.2f},{one.metres(seconds):.2f},{START_MS + round(1e3 * seconds)}"


class CarEvent(msgspec.Struct, frozen=True):
    """The state of a car at a time."""

    car: int
    speed: float  # in m/s
    metres: float  # driven so far
    time_ms: int


class TopSpeed(msgspec.Struct, frozen=True):
    """The highest speed of a car in the seconds before a time."""

    car: int
    speed: float
    time_ms: int


def timed(record: str) -> CarEvent:
    """Return the event of a record, with its time."""
    try:
        car, speed, metres, time_ms = record.strip().strip("()").split(",")
        return CarEvent(int(car), float(speed), float(metres), int(time_ms))
    except ValueError:
        raise InvalidInput("record", f"expected car,speed,metres,milliseconds, got {record!r}") from None


class TopSpeeds(Operator[CarEvent, TopSpeed]):
    """Emits a car's top speed in the last ten seconds every time that it has driven another hundred metres."""

    def __init__(self) -> None:
        self.furthest: dict[int, float] = {}
        self.recent: dict[int, deque[tuple[int, float]]] = {}  # time and speed of the events in a car's window

    def process(self, value: CarEvent) -> Iterator[TopSpeed]:
        """Add an event to its car's window."""
        before = self.furthest.get(value.car, value.metres)
        self.furthest[value.car] = max(before, value.metres)
        events = self.recent.setdefault(value.car, deque())
        events.append((value.time_ms, value.speed))
        while events[0][0] <= value.time_ms - 1e3 * WINDOW_S:
            events.popleft()
        if value.metres // DISTANCE_M > before // DISTANCE_M:
            yield TopSpeed(value.car, max(speed for _, speed in events), value.time_ms)

    def snapshot(self) -> list[tuple[int, float, list[tuple[int, float]]]]:
        """Return every car with its distance and window."""
        return [(car, furthest, list(self.recent[car])) for car, furthest in self.furthest.items()]

    def restore(self, state: list[tuple[int, float, list[tuple[int, float]]]]) -> None:
        """Continue from distances and windows."""
        self.furthest = {car: furthest for car, furthest, _ in state}
        self.recent = {car: deque((time_ms, speed) for time_ms, speed in events) for car, _, events in state}


def top_speed_flow(application: Application, feed: Feed, output: bool = True) -> Dataflow:
    """Return the dataflow of top-speed windowing: source, time, window by car, sink.

    Records are generated, or lines of `feed.input` in the same form, with parentheses if any. The sink stores the top
    speeds in `output/top-speeds` of the run's folder.
    """
    flow, model = Dataflow(application.name), Blueprint(application)
    [(name, own)] = feed.split(model.shares()).items()
    records = flow.source(name, own.source(CarRecords(own.seed)), emits=str, **model.costs(name))
    events = flow.map("time", timed, model.outlet(records, "time"), **model.costs("time"))
    speeds = flow.operator("window", TopSpeeds, model.outlet(events, "window", "car"), **model.costs("window"))
    sink = JsonLines("output/top-speeds") if output else Discard()
    flow.sink("sink", sink, model.outlet(speeds, "sink"), **model.costs("sink"))
    return flow
