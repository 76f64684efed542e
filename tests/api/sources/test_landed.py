import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.api.sources.landed import END, LOOK, Landed, batch_name
from penstock.model.errors import FileProblem, InvalidInput
from tests.api.clock import Clock, context
from tests.api.sources.polling import poll_at, poll_to_end


class Reading(msgspec.Struct):
    """A row."""

    sensor: str
    value: float


def land(folder: Path, batch: int, rows: list[Any]) -> None:
    """Write a batch as Spark's side does."""
    temporary = folder / f"_{batch_name(batch)}"
    temporary.write_text("".join(json.dumps(row) + "\n" for row in rows))
    temporary.rename(folder / batch_name(batch))


def opened(folder: Path, task: int = 0, tasks: int = 1, emits: type = dict) -> Landed:
    source = Landed(folder, emits)
    source.open(context(task, tasks))
    return source


def test_emits_rows_batch_by_batch_and_ends(tmp_path: Path) -> None:
    for batch in (0, 1, 2, 11):
        land(tmp_path, batch, [{"batch": batch, "row": row} for row in range(batch + 1) if batch != 1])
    (tmp_path / END).touch()
    got = poll_to_end(opened(tmp_path), Clock(), limit=2)
    assert got.values == [{"batch": batch, "row": row} for batch in (0, 2, 11) for row in range(batch + 1)]


def test_emits_structs(tmp_path: Path) -> None:
    land(tmp_path, 0, [{"sensor": "a", "value": 1, "unit": "K"}])
    source = opened(tmp_path, emits=Reading)
    assert source.poll(0.0, 10) == [Reading("a", 1.0)]
    source.close()
    assert Landed(tmp_path, Reading).emits is Reading


def test_tasks_share_batches(tmp_path: Path) -> None:
    for batch in range(7):
        land(tmp_path, batch, [{"batch": batch}])
    (tmp_path / END).touch()
    found = [poll_to_end(opened(tmp_path, task, 3), Clock()).values for task in range(3)]
    assert [[row["batch"] for row in rows] for rows in found] == [[0, 3, 6], [1, 4], [2, 5]]


def test_sees_neither_half_batches_nor_a_batch_twice(tmp_path: Path) -> None:
    source = opened(tmp_path)
    (tmp_path / f"_{batch_name(0)}").write_text('{"row": ')
    assert source.poll(0.0, 10) == []
    land(tmp_path, 0, [{"row": 0}])
    assert source.poll(1.0, 10) == [{"row": 0}]
    land(tmp_path, 0, [{"row": 0}])
    land(tmp_path, 1, [{"row": 1}])
    assert source.poll(2.0, 10) == [{"row": 1}]
    assert source.poll(3.0, 10) == []
    (tmp_path / END).touch()
    assert source.poll(4.0, 10) is None


def test_looks_at_the_folder_no_more_often_than_needed(tmp_path: Path) -> None:
    source = opened(tmp_path)
    assert source.poll(1.0, 10) == []
    land(tmp_path, 0, [{"row": 0}])
    assert source.poll(1.0 + LOOK / 2, 10) == []
    assert source.next_due(1.0) == 1.0 + LOOK
    assert source.poll(1.0 + LOOK, 10) == [{"row": 0}]
    source.close()


def test_waits_for_a_folder_that_is_not_there_yet(tmp_path: Path) -> None:
    source = opened(tmp_path / "landing")
    assert source.poll(0.0, 10) == []
    (tmp_path / "landing").mkdir()
    land(tmp_path / "landing", 0, [{"row": 0}])
    assert source.poll(1.0, 10) == [{"row": 0}]
    source.close()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(
    sizes=st.lists(st.integers(0, 12), min_size=1, max_size=8),
    limits=st.lists(st.integers(1, 9), max_size=20),
    tasks=st.integers(1, 3),
)
def test_a_moved_source_continues_exactly(tmp_path: Path, sizes: list[int], limits: list[int], tasks: int) -> None:
    for old in tmp_path.iterdir():
        old.unlink()
    for batch, size in enumerate(sizes):
        land(tmp_path, batch, [{"batch": batch, "row": row} for row in range(size)])
    (tmp_path / END).touch()
    expected = poll_to_end(opened(tmp_path, 0, tasks), Clock()).values
    values: list[Any] = []
    position = None
    for limit in [*limits, 1000]:
        source = opened(tmp_path, 0, tasks)
        if position is not None:
            source.seek(position)
            assert source.position() == position
        got = poll_to_end(source, Clock()) if limit == 1000 else poll_at(source, Clock(), [0.0], limit)
        values += got.values
        position = source.position()
        source.close()
    assert values == expected


@pytest.mark.parametrize(
    ("row", "reported"), [('{"sensor": 3}', "str"), ("{oops", "malformed"), ('{"sensor": "\udcff"}', "")]
)
def test_names_the_row_that_cannot_be_read(tmp_path: Path, row: str, reported: str) -> None:
    good = '{"sensor": "a", "value": 2}\n'
    (tmp_path / batch_name(3)).write_text(3 * good + row + "\n", errors="surrogateescape")
    source = opened(tmp_path, emits=Reading)
    source.poll(0.0, 2)
    with pytest.raises(FileProblem, match=rf"batch-000000000003.jsonl: line 4: expected Reading, got .*{reported}"):
        source.poll(0.0, 5)
    source.close()


def test_rejects_what_is_no_folder_or_type(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileProblem, match="expected a folder, this is a file"):
        Landed(tmp_path / "file").check()
    with pytest.raises(InvalidInput, match=r"emits: expected dict or a subclass of msgspec\.Struct"):
        Landed(tmp_path, emits=int)
