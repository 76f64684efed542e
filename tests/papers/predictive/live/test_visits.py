"""A run that visits placements: moved live, held, saturated, and read through the pipeline."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

from penstock.experiments.live_cases import live_session
from penstock.experiments.live_tuples import followed
from penstock.model.instance import Instance
from penstock.model.placement import Placement
from penstock.papers.predictive.live.fidelity import calibrated, sink_gains
from penstock.papers.predictive.live.settings import SlowedApplication
from penstock.papers.predictive.live.tables import carried_tps, latencies_between
from penstock.papers.predictive.live.visits import Flood, Lengths, NamedPlacement, Timetable, named_placements, tour

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with live_session() as spark:
        yield spark


def test_a_timetable_is_as_long_as_its_visits() -> None:
    [first, second] = named_placements(SlowedApplication("word-count", machines=2), 2, seed=0)
    each = Lengths(1.0, 0.5, 1.5)
    floods = [Flood(second, 50.0), Flood(first, 60.0)]
    table = Timetable([first, second], floods, Lengths(0.0, 0.5, 2.0), each, each, 4.0)
    assert table.steady_s == pytest.approx(9.5)
    assert np.array(table.raised) == pytest.approx(np.array([(10.5, 12.5, 50.0), (13.5, 15.5, 60.0)]))


def test_placements_are_visited_one_after_another_in_one_run(spark: SparkSession, tmp_path: Path) -> None:
    setting = SlowedApplication("log-processing", load=0.1, machines=2)
    [first] = named_placements(setting, 1, seed=0)
    slots = first.placement.slots
    second = NamedPlacement("exchanged", Placement((slots[1], slots[0], *slots[2:])))  # two moves, not thirty
    lengths = Lengths(2.0, 0.5, 2.0)
    over_tps = 1.2 * setting.maximum_tps
    table = Timetable([first, second], [Flood(second, over_tps)], Lengths(0.0, 0.5, 3.0), lengths, lengths, 5.0)
    reported: list[str] = []
    toured = tour(setting, table, tmp_path, 0, reported.append)
    assert [visit.over_tps for visit in toured.visits] == [None, None, over_tps]
    assert all(earlier.end <= later.start for earlier, later in zip(toured.visits, toured.visits[1:], strict=False))
    assert second.name in reported[1]

    gains = sink_gains(Instance(setting.application, setting.cluster))
    assert gains == pytest.approx({"index-database": 1.0, "count-database": 1.0})
    seen = followed(spark, toured.telemetry, list(gains))
    under_load = [latencies_between(seen.tuples, visit.start, visit.end) for visit in toured.visits[:2]]
    assert all(one.tuples > 10 and one.mean_ms > 0 for one in under_load)
    assert carried_tps(seen.ends, gains, toured.visits[2].start, toured.visits[2].end) > 2 * setting.rate_tps

    found = calibrated(spark, setting, toured)
    true = setting.application["rules"].cpu
    assert 0.5 * true < found.costs.components["rules"].cpu < 3 * true  # a busy host adds to it
