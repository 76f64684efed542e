"""`penstock report` on a synthetic run."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.pipeline.session import session
from tests.conftest import Ran
from tests.pipeline.synthetic import Synthetic

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module", autouse=True)
def spark() -> Iterator[None]:
    with session("tests", "local[2]", settings={"spark.sql.shuffle.partitions": "2"}):
        yield


def test_prints_the_phases_and_keeps_the_picture(penstock: Callable[..., Ran], tmp_path: Path) -> None:
    run = Synthetic().write(tmp_path / "runs" / "r1")
    (run / "telemetry" / "m9-0.parquet").write_bytes(b"PAR1")
    ran = penstock("report", run)
    assert ran.code == 0, ran.err
    assert "word-count emulated on hetero-small: round-robin → local-search" in ran.out
    assert (
        max(len(line) for line in ran.out.splitlines() if str(tmp_path) not in line and "unreadable" not in line) <= 80
    )
    assert "workers ran up to 250 ms late" in ran.out
    lines = {line.split()[0]: line for line in ran.out.splitlines() if line.split()}
    assert "×" in lines["throughput,"]
    assert "×6" in lines["count[2]"]
    assert "file m9-0.parquet unreadable" in ran.out
    assert (run / "report" / "latency.png").read_bytes().startswith(b"\x89PNG")
    kept = json.loads((run / "report" / "report.json").read_text())
    assert kept["quarantine"][0]["count"] == 1
    assert (run / "report" / "quarantine").is_dir()


def test_answers_programs_and_takes_a_telemetry_folder(penstock: Callable[..., Ran], tmp_path: Path) -> None:
    run = Synthetic(seed=1).write(tmp_path / "r1")
    ran = penstock("report", run / "telemetry", "--output", tmp_path / "out", "--json", "--no-plot", "--settle", 1)
    assert ran.code == 0, ran.err
    answer = json.loads(ran.out)
    assert answer["emulated"] == "hetero-small"
    assert [phase["settled"] for phase in answer["phases"]] == pytest.approx([1.0, 11.0], abs=0.02)
    assert (tmp_path / "out" / "tuples").is_dir()
    assert not (tmp_path / "out" / "latency.png").exists()
    assert not (run / "report").exists()


def test_refuses_what_is_no_run(penstock: Callable[..., Ran], tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for arguments, problem in (
        ((tmp_path / "empty",), "contains no telemetry"),
        ((tmp_path / "nowhere", "--runs", tmp_path), "no run is named"),
        (("--runs", tmp_path), "there is none in"),
        ((tmp_path / "empty", "--output", __file__), "is not a folder; choose another --output"),
    ):
        ran = penstock("report", *arguments)
        assert ran.code == 2
        assert problem in ran.err
        assert len(ran.err.strip().splitlines()[-1]) > 20
