"""An application in the twin: the load it gets, what is said of it, what is written."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from penstock.model.errors import FileProblem, InvalidInput
from penstock.model.placement import Placement
from penstock.model.telemetry import RecordKind, arrow_schema
from penstock.model.topology import Application, ServiceTime
from penstock.sim.events import Twin
from penstock.simulation.twin import simulate_events
from penstock.workloads.arrivals import Constant, OnOff
from tests.sim.events.cases import EXPONENTIAL, SERVICE, line, machines

CLUSTER = machines((1, 1), (1, 1))
PLACEMENT = Placement((0, 1))


def silent() -> Application:
    """Return an application that does not say what comes."""
    known = line(1.0, EXPONENTIAL)
    return Application(name="silent", components=known.components, streams=known.streams)


def test_the_load_is_the_requested_the_own_or_a_default_one() -> None:
    own = simulate_events(Twin(line(100.0, EXPONENTIAL), CLUSTER), PLACEMENT, seconds=50.0)
    assert own.load.offered_tps == 100.0
    assert own.mean("offered") == pytest.approx(5_000, rel=0.1)
    assert own.load.capacity_tps == pytest.approx(1 / SERVICE)
    assert own.load.limit == "machine m1"
    usual = simulate_events(Twin(silent(), CLUSTER), PLACEMENT, seconds=5.0)
    assert usual.load.offered_tps == pytest.approx(0.8 / SERVICE)
    asked = simulate_events(Twin(silent(), CLUSTER), PLACEMENT, rate=20.0, seconds=50.0)
    assert asked.mean("throughput_tps") == pytest.approx(20.0, rel=0.15)
    process = simulate_events(Twin(silent(), CLUSTER), PLACEMENT, arrivals=Constant(rate=10.0), seconds=50.0)
    assert process.mean("offered") == 500
    with pytest.raises(InvalidInput, match="rate: expected a rate or arrivals"):
        simulate_events(Twin(silent(), CLUSTER), PLACEMENT, rate=1.0, arrivals=OnOff(rate=1.0))


def test_an_unlimited_application_needs_a_rate() -> None:
    known = line(1.0, ServiceTime(), cpu=0.0)
    free = Application(name="free", components=known.components, streams=known.streams)
    with pytest.raises(InvalidInput, match="rate: expected a rate, as 'free' has none and nothing limits it"):
        simulate_events(Twin(free, CLUSTER), PLACEMENT)


def test_more_than_can_be_carried_is_known_and_seen() -> None:
    found = simulate_events(Twin(line(1.5 / SERVICE, EXPONENTIAL), CLUSTER), PLACEMENT, seconds=20.0)
    assert found.load.exceeded
    assert found.behind
    fine = simulate_events(Twin(line(0.5 / SERVICE, EXPONENTIAL), CLUSTER), PLACEMENT, seconds=20.0)
    assert not fine.load.exceeded
    assert not fine.behind


def test_several_seeds_are_averaged() -> None:
    found = simulate_events(Twin(line(100.0, EXPONENTIAL), CLUSTER), PLACEMENT, seconds=10.0, seeds=(0, 1, 2))
    means = [span.mean_s for span in found.spans]
    assert found.mean("mean_s") == pytest.approx(np.mean(means))
    assert found.deviation("mean_s") == pytest.approx(np.std(means, ddof=1))
    assert found.average("machine_cpu")[1] == pytest.approx(0.2, rel=0.1)


def test_odd_durations_are_rejected() -> None:
    with pytest.raises(InvalidInput, match="duration: expected a number of seconds > 0"):
        simulate_events(Twin(line(1.0, EXPONENTIAL), CLUSTER), PLACEMENT, seconds=0.0)
    with pytest.raises(InvalidInput, match="duration: expected at most"):
        simulate_events(Twin(line(1e6, EXPONENTIAL), CLUSTER), PLACEMENT, seconds=1e6)


def test_telemetry_is_written_a_file_a_seed(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    simulate_events(Twin(line(100.0, EXPONENTIAL), CLUSTER), PLACEMENT, seconds=5.0, seeds=(0, 1), records=folder)
    assert sorted(path.name for path in folder.iterdir()) == ["twin-0.parquet", "twin-1.parquet"]
    table = pq.read_table(folder / "twin-0.parquet")
    assert table.schema.equals(arrow_schema())
    assert set(table["kind"].to_pylist()) >= {RecordKind.ROOT, RecordKind.HOP, RecordKind.DONE, RecordKind.TASK}
    (tmp_path / "file").touch()
    with pytest.raises(FileProblem, match="cannot be created"):
        simulate_events(
            Twin(line(1.0, EXPONENTIAL), CLUSTER), PLACEMENT, seconds=1.0, records=tmp_path / "file" / "below"
        )
