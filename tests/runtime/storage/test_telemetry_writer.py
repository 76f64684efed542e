"""Telemetry files: whole or not at all, and no reason for a run to end."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep

import pyarrow.parquet as pq
import pytest

from penstock.model.telemetry import Record, RecordKind, arrow_schema
from penstock.runtime.storage import telemetry_writer as recording
from penstock.runtime.storage.telemetry_writer import ROWS, Recorder

LONG = 3600.0  # s between files: only `close`, or many records, make one


def event(number: int) -> Record:
    return Record(kind=RecordKind.EVENT, run="r", worker="a/0", at=float(number), event="start", detail=str(number))


def written(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.name[0] != "_")


def wait_until(true: Callable[[], object]) -> None:
    deadline = monotonic() + 10
    while not true():
        assert monotonic() < deadline
        sleep(0.01)


def test_what_was_added_is_in_files_of_the_schema_at_the_end(tmp_path: Path) -> None:
    recorder = Recorder(str(tmp_path), "a/0-1", LONG)
    recorder.add([event(0), event(1)])
    recorder.add([event(2)])
    recorder.close()
    (path,) = written(tmp_path)
    assert path.name == f"a.0-1-{os.getpid()}-000000.parquet"
    table = pq.read_table(path)
    assert table.schema.equals(arrow_schema())
    assert table.column("detail").to_pylist() == ["0", "1", "2"]
    assert table.column("root").null_count == 3
    assert (recorder.lost, recorder.problem) == (0, "")


def test_files_in_a_folder_that_others_may_enter_are_private_all_the_same(tmp_path: Path) -> None:
    recorder = Recorder(str(tmp_path), "controller", umask=0o077)
    recorder.add([event(1)])
    recorder.close()
    (file,) = tmp_path.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600


def test_writes_a_file_periodically_and_none_without_records(tmp_path: Path) -> None:
    recorder = Recorder(str(tmp_path), "a", 0.05)
    sleep(0.15)
    assert list(tmp_path.iterdir()) == []
    recorder.add([event(0)])
    wait_until(lambda: len(written(tmp_path)) == 1)
    recorder.add([event(1)])
    wait_until(lambda: len(written(tmp_path)) == 2)
    recorder.close()
    assert [pq.read_table(path).num_rows for path in written(tmp_path)] == [1, 1]


def test_writes_many_records_early(tmp_path: Path) -> None:
    recorder = Recorder(str(tmp_path), "a", LONG)
    recorder.add([event(number) for number in range(ROWS)])
    wait_until(lambda: written(tmp_path))
    recorder.close()
    assert sum(pq.read_table(path).num_rows for path in written(tmp_path)) == ROWS


def test_the_name_of_a_temporary_file_begins_with_an_underscore(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    write = pq.write_table

    def watched(table: object, path: Path) -> None:
        write(table, path)
        seen.extend(file.name for file in tmp_path.iterdir())

    monkeypatch.setattr(pq, "write_table", watched)
    recorder = Recorder(str(tmp_path), "a", LONG)
    recorder.add([event(0)])
    recorder.close()
    (final,) = written(tmp_path)
    assert seen == [f"_{final.name}"]
    assert list(tmp_path.iterdir()) == [final]


def test_reports_a_missing_folder_once_and_uses_it_when_it_returns(tmp_path: Path) -> None:
    folder = tmp_path / "telemetry"
    folder.mkdir()
    recorder = Recorder(str(folder), "a", 0.02)
    shutil.rmtree(folder)
    recorder.add([event(0), event(1)])
    wait_until(lambda: recorder.lost == 2)
    assert recorder.problem.startswith(f"telemetry: records are lost, {folder}/a-")
    assert "\n" not in recorder.problem
    recorder.problem = ""
    recorder.add([event(2)])
    wait_until(lambda: recorder.lost == 3)
    assert recorder.problem == ""
    folder.mkdir()
    recorder.add([event(3)])
    recorder.close()
    assert [pq.read_table(path).column("detail").to_pylist() for path in written(folder)] == [["3"]]


def test_a_folder_that_is_a_file_loses_records_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "telemetry").write_text("mine")
    recorder = Recorder(str(tmp_path / "telemetry"), "a", LONG)
    recorder.add([event(0)])
    recorder.close()
    assert recorder.lost == 1
    assert "cannot be written" in recorder.problem
    assert (tmp_path / "telemetry").read_text() == "mine"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written_loses_records_and_nothing_else(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    recorder = Recorder(str(tmp_path), "a", LONG)
    recorder.add([event(0)])
    recorder.close()
    tmp_path.chmod(0o700)
    assert recorder.lost == 1
    assert list(tmp_path.iterdir()) == []


def test_bounds_and_counts_records_that_come_too_fast(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "MAX_WAITING", 5)
    recorder = Recorder(str(tmp_path), "a", LONG)
    recorder.add([event(number) for number in range(8)])
    assert recorder.problem == "telemetry: records are lost, they come faster than they can be written"
    recorder.problem = ""
    recorder.add([event(8)])
    assert recorder.problem == ""
    recorder.close()
    assert recorder.lost == 4
    assert recorder.problem.startswith("telemetry: 4 records were lost in total")
    assert [pq.read_table(path).column("detail").to_pylist() for path in written(tmp_path)] == [list("01234")]


def test_an_error_of_any_kind_loses_a_file_and_not_those_after_it(tmp_path: Path) -> None:
    recorder = Recorder(str(tmp_path), "a", 0.02)
    recorder.add([None])  # type: ignore[list-item]
    wait_until(lambda: recorder.lost == 1)
    assert "cannot be written: 'NoneType' object has no attribute" in recorder.problem
    recorder.add([event(1)])
    recorder.close()
    assert [pq.read_table(path).column("detail").to_pylist() for path in written(tmp_path)] == [["1"]]
