"""Alerts: the mean of each sensor's readings per second, and a warning if it is too high.

Windows use the time in the readings. A timer closes each window a while after its first reading, so that late readings
are included; a reading that is even later opens its window again. The operator has two outputs.

    python alerts.py                                              in this process, on a manual clock
    penstock run alerts:flow --emulate hetero-small --duration 20 on Spark, over emulated machines
"""

import msgspec

import penstock as ps
from penstock import testing

SENSORS = ("attic", "cellar", "kitchen")
WINDOW_S = 1.0
LATE_S = 0.5  # maximum delay of a reading after its window's end
LIMIT = 24.0


class Reading(msgspec.Struct, frozen=True):
    """The reading of a sensor."""

    sensor: str
    at: float  # s, on the sensor's clock
    celsius: float


class Mean(msgspec.Struct, frozen=True):
    """The mean of a closed window."""

    sensor: str
    second: int
    readings: int
    celsius: float


class Window(msgspec.Struct):
    """An open window."""

    sensor: str
    second: int
    readings: int = 0
    total: float = 0.0


def reading(number: int) -> Reading:
    """Return a reading of the next sensor; the kitchen is warm for two seconds, from the third on."""
    sensor = SENSORS[number % len(SENSORS)]
    at = number / 30
    warm = 6.0 if sensor == "kitchen" and 3 <= at < 5 else 0.0
    return Reading(sensor, at, 20.0 + 0.5 * (number % 7) + warm)


class Means(ps.Operator[Reading, tuple[str, Mean]]):
    """Emits the mean of each window to `means`, and to `alerts` if it is above the limit."""

    def __init__(self) -> None:
        self.windows: list[Window] = []  # in the order of opening, which is that of their timers

    def open(self, context: ps.TaskContext) -> None:
        """Keep the context, for its clock and timers."""
        self.context = context

    def process(self, value: Reading) -> None:
        """Add a reading to its window."""
        second = int(value.at // WINDOW_S)
        window = next((w for w in self.windows if w.sensor == value.sensor and w.second == second), None)
        if window is None:
            window = Window(value.sensor, second)
            self.windows.append(window)
            self.context.at(self.context.now() + WINDOW_S + LATE_S)
        window.readings += 1
        window.total += value.celsius

    def on_timer(self, when: float) -> list[tuple[str, Mean]]:
        """Close the window opened first."""
        return self.close_first()

    def finish(self) -> list[tuple[str, Mean]]:
        """Close all windows."""
        return [given for _ in list(self.windows) for given in self.close_first()]

    def close_first(self) -> list[tuple[str, Mean]]:
        """Close a window and return its mean."""
        window = self.windows.pop(0)
        mean = Mean(window.sensor, window.second, window.readings, round(window.total / window.readings, 2))
        return [("means", mean), ("alerts", mean)] if mean.celsius > LIMIT else [("means", mean)]

    def snapshot(self) -> list[Window]:
        """Return the open windows; timers move automatically."""
        return self.windows

    def restore(self, state: list[Window]) -> None:
        """Restore the open windows."""
        self.windows = state


flow = ps.Dataflow("alerts")
readings = flow.source("readings", ps.Generated(reading, rate=30, count=180))
means = flow.operator("means", Means, readings.fields("sensor"), parallelism=2, outputs=["means", "alerts"], cpu=0.001)
flow.sink("store", ps.Parquet("output/means"), means["means"].costing(selectivity=0.1))
flow.sink("warn", ps.Console(), means["alerts"].costing(selectivity=0.01))


if __name__ == "__main__":
    result = testing.run(flow)
    for sink in ("store", "warn"):
        print(f"{sink}:")
        for mean in sorted(result[sink], key=lambda mean: (mean.second, mean.sensor)):
            print(f"  {mean.second} {mean.sensor:<8} {mean.readings:3} {mean.celsius:6.2f}")
