"""A run's windows are read without Spark: those that the manifest names, and nothing else."""

from pathlib import Path
from urllib.parse import quote

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.model.errors import FileProblem, InvalidInput, UnknownName
from penstock.pipeline.manifest import MANIFEST, Manifest
from penstock.pipeline.patterns import literal
from penstock.pipeline.reading import read_run
from tests.pipeline.latency_tables import write_tables

NAMES = ("features", "shares")


def store(folder: Path, parts: dict[str, list[str]], derived: dict[str, str]) -> dict[str, dict[str, pa.Table]]:
    """Write a store by hand: the runs of which each part has rows, and which part is valid for each run."""
    made: dict[str, dict[str, pa.Table]] = {}
    for number, (part, runs) in enumerate(parts.items()):
        for run in runs:
            written = write_tables(folder / f"_{part}{number}{quote(run, safe='')}", seed=number, places=1)
            for name in NAMES:
                rows = pq.ParquetFile(written / name / "part-0.parquet").read().drop_columns("run")
                place = folder / name / part / f"run={quote(run, safe='')}"
                place.mkdir(parents=True)
                pq.write_table(rows, place / "a.parquet")
                made.setdefault(f"{part} {run}", {})[name] = rows
    manifest = Manifest(mode="batch", input="", window_s=5.0, lateness_s=0.0, derived=derived)
    (folder / MANIFEST).write_bytes(msgspec.json.encode(manifest))
    return made


def test_reads_only_the_valid_part_of_a_run(tmp_path: Path) -> None:
    made = store(tmp_path, {"000001": ["a b/c", "other"], "000002": ["a b/c"]}, {"a b/c": "000002", "other": "000001"})
    found = read_run(tmp_path, "a b/c")
    assert (found.run, found.window_s) == ("a b/c", 5.0)
    for name, table in zip(NAMES, (found.features, found.shares), strict=True):
        assert set(table["run"].to_pylist()) == {"a b/c"}
        own = table.drop_columns("run")
        assert own.to_pylist() == made["000002 a b/c"][name].select(own.column_names).to_pylist()
    other = read_run(tmp_path, "other").features
    assert other["machine"].to_pylist() == made["000001 other"]["features"]["machine"].to_pylist()


def test_requires_a_run_if_there_are_several(tmp_path: Path) -> None:
    store(tmp_path, {"000001": ["a", "b"]}, {"a": "000001", "b": "000001"})
    with pytest.raises(InvalidInput, match="contains 2 runs, a, b; select one with --run"):
        read_run(tmp_path)
    with pytest.raises(UnknownName, match="no run 'c'; there are a, b"):
        read_run(tmp_path, "c")


def test_reads_tables_that_stand_alone(tmp_path: Path) -> None:
    found = read_run(write_tables(tmp_path / "tables", seed=3, places=1))
    assert (found.run, found.window_s) == ("imaginary-20250101-000000", 30.0)
    assert len(found.features) == 21
    assert len(found.shares) == 36


def test_rejects_folders_without_windows(tmp_path: Path) -> None:
    with pytest.raises(FileProblem, match="expected the output of penstock models tables"):
        read_run(tmp_path)
    store(tmp_path, {}, {})
    with pytest.raises(FileProblem, match="contain no run"):
        read_run(tmp_path)
    store(tmp_path, {}, {"a": "000001"})
    with pytest.raises(FileProblem, match="the windows of run 'a' contain no tuples"):
        read_run(tmp_path)
    folder = write_tables(tmp_path / "old", seed=3, places=1)
    path = folder / "features" / "part-0.parquet"
    table = pq.ParquetFile(path).read()
    pq.write_table(table.drop_columns("used_cpu"), path)
    with pytest.raises(FileProblem, match="features has no column used_cpu"):
        read_run(folder)
    path.write_bytes(b"PAR1 nothing")
    with pytest.raises(FileProblem, match="table features cannot be read"):
        read_run(folder)


def test_a_name_with_wildcards_becomes_a_pattern_that_only_it_matches() -> None:
    assert literal(Path("/runs/word count-1,2: 50%#~")) == "/runs/word count-1,2: 50%#~"
    assert literal(Path("/a[1]/{b,c}*?")) == r"/a\[1\]/\{b,c\}\*\?"
    assert literal(Path("/back\\slash")) == r"/back\\slash"
    assert literal(Path("runs:1")) == str(Path.cwd() / "runs:1")


def test_rejects_names_without_a_hadoop_pattern() -> None:
    with pytest.raises(FileProblem, match=r"^/runs/14:25/\[1\]: Spark cannot read a path with a colon and one of .*; "):
        literal(Path("/runs/14:25/[1]"))
