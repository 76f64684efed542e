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
    """An open window: the state of a sensor and second."""

    readings: int = 0
    total: float = 0.0


def reading(number: int) -> Reading:
    """Return a reading of the next sensor; the kitchen is warm for two seconds, from the third on."""
    sensor = SENSORS[number % len(SENSORS)]
    at = number / 30
    warm = 6.0 if sensor == "kitchen" and 3 <= at < 5 else 0.0
    return Reading(sensor, at, 20.0 + 0.5 * (number % 7) + warm)


def second(value: Reading) -> int:
    """Return the number of the window of a reading."""
    return int(value.at // WINDOW_S)


class Means(ps.KeyedOperator[Window, Reading, tuple[str, Mean]]):
    """Emits the mean of each window to `means`, and to `alerts` if it is above the limit."""

    def initial(self) -> Window:
        """Return a new window."""
        return Window()

    def process(self, key: ps.KeyContext, state: Window, value: Reading) -> tuple[Window, None]:
        """Add a reading to its window."""
        if state.readings == 0:
            key.at(key.now() + WINDOW_S + LATE_S)
        state.readings += 1
        state.total += value.celsius
        return state, None

    def on_timer(self, key: ps.KeyContext, state: Window) -> tuple[None, list[tuple[str, Mean]]]:
        """Close a window."""
        return None, self.finish(key, state)

    def finish(self, key: ps.KeyContext, state: Window) -> list[tuple[str, Mean]]:
        """Return the mean of a window; at the end, that of every open one."""
        sensor, number = key.key
        mean = Mean(sensor, number, state.readings, round(state.total / state.readings, 2))
        return [("means", mean), ("alerts", mean)] if mean.celsius > LIMIT else [("means", mean)]


flow = ps.Dataflow("alerts")
readings = flow.source("readings", ps.Generated(reading, rate=30, count=180))
windows = readings.fields("sensor", second)
means = flow.keyed_operator("means", Means, windows, parallelism=2, outputs=["means", "alerts"], cpu=0.001)
flow.sink("store", ps.Parquet("output/means"), means["means"].costing(selectivity=0.1))
flow.sink("warn", ps.Console(), means["alerts"].costing(selectivity=0.01))


if __name__ == "__main__":
    result = testing.run(flow)
    for sink in ("store", "warn"):
        print(f"{sink}:")
        for mean in sorted(result[sink], key=lambda mean: (mean.second, mean.sensor)):
            print(f"  {mean.second} {mean.sensor:<8} {mean.readings:3} {mean.celsius:6.2f}")
