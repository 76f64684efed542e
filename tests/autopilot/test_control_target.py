"""Task rates over the last ten minutes, from their counts at each reading."""

from pathlib import Path
from typing import cast

import msgspec
import pytest

from penstock.autopilot.control_target import TaskCounts
from penstock.autopilot.live_target import LiveTarget
from penstock.model.status import Latency, Status
from penstock.runtime.run import Run
from penstock.runtime.storage.run_folder import create
from tests.fake_run import FakeHandle


def test_rates_are_those_since_the_first_count() -> None:
    counts = TaskCounts()
    assert counts.take(10.0, {"a[0]": 100, "a[1]": 7}) == {}
    assert counts.take(12.0, {"a[0]": 120, "a[1]": 7}) == {"a[0]": 10.0, "a[1]": 0.0}
    assert counts.take(20.0, {"a[0]": 120, "a[1]": 8}) == {"a[0]": 2.0, "a[1]": 0.1}


def test_only_the_last_ten_minutes_count() -> None:
    counts = TaskCounts()
    for at in range(0, 1210, 10):  # twice as fast from the eleventh minute on
        rate = counts.take(float(at), {"a[0]": at + max(0, at - 600)})
    assert rate == {"a[0]": pytest.approx(2.0)}


def test_restarts_when_counts_are_reset_or_tasks_change() -> None:
    counts = TaskCounts()
    counts.take(0.0, {"a[0]": 1000})
    assert counts.take(1.0, {"a[0]": 5}) == {}
    assert counts.take(2.0, {"a[0]": 10}) == {"a[0]": 5.0}
    assert counts.take(3.0, {"b[0]": 10}) == {}


class SkewedRun:
    """A run whose `split` has skewed keys."""

    processed = (0, 0, 0, 0)

    def __init__(self, status: Status) -> None:
        self._status = status

    def status(self) -> Status:
        counts = {"in": (sum(self.processed),), "split": self.processed, "out": (0,)}
        reported = [msgspec.structs.replace(one, processed=counts[one.name]) for one in self._status.components]
        return msgspec.structs.replace(self._status, components=reported)

    def latency(self, seconds: float) -> Latency | None:
        return self._status.latency if seconds > 0 else None


def test_a_reading_has_the_rates_of_all_tasks(tmp_path: Path) -> None:
    run = SkewedRun(FakeHandle(create("fake", tmp_path)).status())
    target = LiveTarget(cast(Run, run))
    run.processed = (700, 200, 100, 0)
    found = target.reading().tasks
    assert list(found) == ["in[0]", "split[0]", "split[1]", "split[2]", "split[3]", "out[0]"]
    whole = found["in[0]"]
    assert whole > 0
    assert [found[f"split[{n}]"] / whole for n in range(4)] == pytest.approx([0.7, 0.2, 0.1, 0.0], rel=1e-3)
