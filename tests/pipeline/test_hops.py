"""Hops have their true times, whatever the clocks of the workers showed."""

import pytest
from pyspark.sql import SparkSession

from penstock.pipeline.clocks import clocks
from penstock.pipeline.hops import each_once, hops
from penstock.pipeline.ingest import record_schema
from tests.pipeline.conftest import Steps
from tests.pipeline.synthetic import Synthetic

pytestmark = pytest.mark.spark
CLOSE = 1e-6  # s; a time within milliseconds of a clock record may be corrected by the one before it


def test_times_are_on_the_controllers_clock_and_spans_add_up(made: Steps, truth: Synthetic) -> None:
    found = {row["id"]: row for row in made.hops.collect()}
    assert len(found) == len(truth.hops)
    for hop in truth.hops:
        row = found[hop["id"]]
        for name in ("emitted", "sent", "arrived", "started", "finished"):
            assert row[name] == pytest.approx(hop[name], abs=CLOSE)
        assert row["out_wait"] == pytest.approx(hop["sent"] - hop["emitted"], abs=CLOSE)
        assert row["transfer"] == pytest.approx(hop["arrived"] - hop["sent"], abs=CLOSE)
        assert row["wait"] == pytest.approx(hop["started"] - hop["arrived"], abs=CLOSE)
        assert row["processing"] == pytest.approx(hop["finished"] - hop["started"], abs=CLOSE)


def test_a_hop_names_its_components_and_machines(made: Steps, truth: Synthetic) -> None:
    found = {row["id"]: row for row in made.hops.collect()}
    for hop in truth.hops:
        row = found[hop["id"]]
        assert (row["root"], row["parent"], row["bytes"]) == (hop["root"], hop["parent"], hop["bytes"])
        assert (row["source"], row["target"]) == (hop["source"], hop["task"])
        assert f"{row['source_component']}->{row['target_component']}" == row["stream"] == hop["stream"]
        assert (row["source_machine"], row["target_machine"]) == (hop["source_worker"], hop["worker"])
        assert row["remote"] == (hop["source_worker"] != hop["worker"])


def test_without_clock_records_times_stay_as_they_are(spark: SparkSession, made: Steps) -> None:
    none = clocks(spark.createDataFrame([], record_schema()))
    plain = {row["id"]: row["finished"] for row in hops(made.good, none).collect()}
    raw = {row["id"]: row["finished"] for row in made.good.where("kind = 'hop'").collect()}
    assert plain == raw
    corrected = {row["id"]: row["finished"] for row in made.hops.collect()}
    assert any(abs(corrected[each] - plain[each]) > 1 for each in plain)


def test_a_restarted_worker_has_its_own_clock(spark: SparkSession) -> None:
    base = dict.fromkeys(record_schema().names)
    base |= {"run": "r", "worker": "m0", "version": 1, "epoch": 0, "emulated": False}
    clock = {"kind": "clock", "drift": 0.0}
    rows = [base | clock | {"incarnation": number, "at": 5.0, "offset": 10.0 * number} for number in (1, 2)]
    hop = {"kind": "hop", "at": 0.0, "source_worker": "m0", "source_incarnation": 1, "incarnation": 2, "task": "b[0]"}
    times = {"emitted": 100.0, "sent": 100.0, "arrived": 111.0, "started": 111.0, "finished": 112.0}
    rows.append(base | hop | times | {"source": "a[0]", "root": 1, "id": 2, "parent": 1, "stream": "a->b"})
    names = record_schema().names
    frame = spark.createDataFrame([tuple(row[name] for name in names) for row in rows], record_schema())
    (found,) = hops(frame, clocks(frame)).collect()
    assert (found["emitted"], found["arrived"], found["transfer"]) == (90.0, 91.0, 1.0)


def test_a_hop_that_was_recorded_twice_counts_once(made: Steps) -> None:
    assert each_once(made.hops.unionByName(made.hops)).count() == made.hops.count()


def test_slots_belong_to_their_machine(made: Steps) -> None:
    from pyspark.sql import functions as sf

    slots = made.good.where("kind = 'hop'").limit(5).withColumns(
        {"worker": sf.lit("host/1"), "source_worker": sf.lit("host/0")}
    )  # fmt: skip
    rows = hops(slots, made.clocks).collect()
    assert {(row["source_worker"], row["target_worker"], row["target_machine"], row["remote"]) for row in rows} == {
        ("host/0", "host/1", "host", False)
    }
