"""What Spark sums up is what the records say; telemetry without content is rejected in one line."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pyspark.sql import SparkSession

from penstock import testing
from penstock.calibration.observation import KEPT, summarise_run
from penstock.model.errors import FileProblem
from penstock.model.telemetry import Record
from penstock.pipeline.session import session
from penstock.runtime.storage.telemetry_writer import Recorder
from penstock.workloads.dataflows import any_dataflow
from tests.calibration.observed import observed
from tests.calibration.test_components import APP, PAIR

pytestmark = pytest.mark.spark

SMALL = {  # what is worth it for large tables only takes longest for small ones
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with session("calibration", settings=SMALL) as made:
        yield made


@pytest.fixture(scope="module")
def records() -> Sequence[Record]:
    run = testing.TestCluster(any_dataflow(APP), emulate=PAIR, capture=False).start()
    run.advance(3.0)
    return run.result().records


def written(records: Sequence[Record], folder: Path) -> Path:
    folder.mkdir()
    recorder = Recorder(str(folder), "m0")
    recorder.add(list(records))
    recorder.close()
    return folder


def test_sums_records_up(spark: SparkSession, records: Sequence[Record], tmp_path: Path) -> None:
    found = summarise_run(spark, written(records, tmp_path / "t"), "test", settle_s=1.0)
    expected = observed(records, 1.0)
    assert (found.run, found.emulated) == ("test", True)
    assert found.seconds == pytest.approx(expected.seconds)
    singly = {name: one.ways.pop("times").tolist() for name, one in (("found", found), ("expected", expected))}
    for name in ("tasks", "workers", "services", "streams", "trees", "ways"):
        pd.testing.assert_frame_equal(
            _sorted(getattr(found, name)), _sorted(getattr(expected, name)), check_dtype=False, rtol=1e-6, atol=1e-9
        )
    kept, known = ([time for times in singly[name] for time in times] for name in ("found", "expected"))
    assert len(kept) == len(known) == found.ways["count"].clip(upper=KEPT).sum()
    assert np.sort(kept) == pytest.approx(np.sort(known), abs=1e-6)


def _sorted(table: pd.DataFrame) -> pd.DataFrame:
    columns = sorted(table.columns)
    texts = [name for name in columns if table[name].dtype == object]
    filled = table[columns].assign(**{name: table[name].fillna("").astype(str) for name in texts})
    return filled.sort_values(columns).reset_index(drop=True)


def test_refuses_telemetry_without_measurements(spark: SparkSession, records: Sequence[Record], tmp_path: Path) -> None:
    hops = [one for one in records if one.kind == "hop"]
    tasks = [one for one in records if one.kind == "task"]
    for name, kept, problem in (
        ("hops", hops, "has no records of tasks"),
        ("short", records, "but the first 60 s do not count; let it run longer"),
        ("unfollowed", tasks, "it has no traced tuple; run the application with --sample"),
    ):
        with pytest.raises(FileProblem, match=problem):
            summarise_run(spark, written(kept, tmp_path / name), settle_s=60.0 if name == "short" else 1.0)
