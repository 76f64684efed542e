"""A run that visits placements: moved live, held, saturated, and read through the pipeline."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.experiments.live.running import live_session
from penstock.experiments.predictive_live.fidelity import calibrated
from penstock.experiments.predictive_live.placements import places
from penstock.experiments.predictive_live.settings import Setting
from penstock.experiments.predictive_live.tables import latencies, source_tuples, throughput_tps
from penstock.experiments.predictive_live.visits import Lengths, Place, Timetable, tour
from penstock.model.placement import Placement

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with live_session() as spark:
        yield spark


def test_a_timetable_is_as_long_as_its_visits() -> None:
    [first, second] = places(Setting("word-count", machines=2), 2, seed=0)
    each = Lengths(1.0, 0.5, 1.5)
    assert Timetable([first, second], [first], Lengths(0.0, 0.5, 2.0), each, each, 4.0).steady_s == pytest.approx(9.5)


def test_placements_are_visited_one_after_another_in_one_run(spark: SparkSession, tmp_path: Path) -> None:
    setting = Setting("log-processing", load=0.1, machines=2)
    [first] = places(setting, 1, seed=0)
    slots = first.placement.slots
    second = Place("exchanged", Placement((slots[1], slots[0], *slots[2:])))  # two moves, not thirty
    lengths = Lengths(2.0, 0.5, 2.0)
    table = Timetable([first, second], [second], Lengths(0.0, 0.5, 3.0), lengths, lengths, 5.0)
    told: list[str] = []
    toured = tour(setting, table, 2 * setting.maximum_tps, tmp_path, 0, told.append)
    assert [visit.saturated for visit in toured.visits] == [False, False, True]
    assert all(earlier.end <= later.start for earlier, later in zip(toured.visits, toured.visits[1:], strict=False))
    assert second.name in told[1]

    tuples = source_tuples(spark, toured.telemetry)
    under_load = [latencies(tuples, visit.start, visit.end) for visit in toured.visits[:2]]
    assert all(seen.tuples > 10 and seen.mean_ms > 0 for seen in under_load)
    assert throughput_tps(tuples, toured.visits[2].start, toured.visits[2].end) > 2 * setting.rate_tps

    found = calibrated(spark, setting, toured)
    assert found.costs.components["rules"].cpu == pytest.approx(setting.application["rules"].cpu, rel=0.5)
