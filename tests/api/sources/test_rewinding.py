"""From every position that a source has reported, a new object gives exactly the tuples that follow."""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.api.contracts import Source
from penstock.api.sources.generated import Generated
from penstock.api.sources.landed import END, Landed, batch_name
from penstock.api.sources.lines import Lines
from penstock.model.errors import FileProblem
from penstock.workloads.arrivals import Poisson
from tests.api.clock import Clock, context
from tests.api.sources.polling import Got, poll_at, poll_to_end

Make = Callable[[Path], Source[Any]]

LINES: dict[str, Make] = {
    "free": Lines,
    "rate": lambda folder: Lines(folder, rate=300.0),
    "arrivals": lambda folder: Lines(folder, arrivals=Poisson(rate=300.0)),
    "recorded": lambda folder: Lines(folder, timestamps=lambda line: float(line) / 300),
}
NUMBERS: dict[str, Make] = {
    "free": lambda folder: Generated(str, count=700),
    "rate": lambda folder: Generated(str, rate=300.0, count=700),
    "arrivals": lambda folder: Generated(str, arrivals=Poisson(rate=300.0), count=700),
}
LIMITS = st.lists(st.integers(1, 400), max_size=8)
POSITION_BYTES = 400


def opened(make: Make, folder: Path, task: int, tasks: int, clock: Clock) -> Source[Any]:
    source = make(folder)
    source.open(context(task, tasks, clock=clock, seed=5))
    return source


def resumed(make: Make, folder: Path, task: int, tasks: int, position: str, clock: Clock) -> Got:
    """Return what a new object gives after a position, up to the end."""
    source = opened(make, folder, task, tasks, clock)
    try:
        kind = get_type_hints(source.position)["return"]  # as the runtime reads it
        source.seek(msgspec.json.decode(position, type=kind))
        assert json.dumps(source.position()) == position
        return poll_to_end(source, clock)
    finally:
        source.close()


def check(make: Make, folder: Path, tasks: int, limits: list[int]) -> list[Any]:
    """Rewind to every position; return what all tasks gave."""
    everything = []
    for task in range(tasks):
        clock = Clock(50.0)
        source = opened(make, folder, task, tasks, clock)
        positions = [(0, json.dumps(source.position()))]
        values: list[Any] = []
        for limit in limits:
            values += poll_at(source, clock, [clock.time], limit).values
            positions.append((len(values), json.dumps(source.position())))
            clock.time += 0.25
        values += poll_to_end(source, clock).values
        positions += [(len(values), json.dumps(source.position()))]
        assert source.poll(clock.time, 10) is None
        positions += [(len(values), json.dumps(source.position()))]
        source.close()
        for count, position in positions:
            assert len(position) < POSITION_BYTES
            assert resumed(make, folder, task, tasks, position, Clock(-7.0)).values == values[count:]
        everything += values
    return everything


@pytest.mark.slow
@settings(max_examples=40)
@given(
    how=st.sampled_from(sorted(LINES)),
    lengths=st.lists(st.integers(0, 300), min_size=1, max_size=4),
    tasks=st.integers(1, 3),
    limits=LIMITS,
)
def test_lines_rewind_exactly(how: str, lengths: list[int], tasks: int, limits: list[int]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder, first = Path(name), 0
        for number, length in enumerate(lengths):
            (folder / f"{number}").write_text("".join(f"{first + i}\n" for i in range(length)))
            first += length
        assert sorted(map(int, check(LINES[how], folder, tasks, limits))) == list(range(first))


@settings(max_examples=40)
@given(how=st.sampled_from(sorted(NUMBERS)), tasks=st.integers(1, 3), limits=LIMITS)
def test_generated_tuples_rewind_exactly(how: str, tasks: int, limits: list[int]) -> None:
    assert sorted(map(int, check(NUMBERS[how], Path(), tasks, limits))) == list(range(700))


@settings(max_examples=40)
@given(sizes=st.lists(st.integers(0, 30), max_size=6), tasks=st.integers(1, 3), limits=LIMITS)
def test_landed_batches_rewind_exactly(sizes: list[int], tasks: int, limits: list[int]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for batch, size in enumerate(sizes):
            rows = "".join(json.dumps({"batch": batch, "row": row}) + "\n" for row in range(size))
            (folder / batch_name(batch)).write_text(rows)
        (folder / END).touch()
        assert len(check(Landed, folder, tasks, limits)) == sum(sizes)


@pytest.mark.parametrize("recorded", [False, True])
def test_lines_that_are_repeated_rewind_exactly(tmp_path: Path, recorded: bool) -> None:
    for name, text in (("a", "1\n2\n3\n"), ("b", ""), ("c", "4\n5")):
        (tmp_path / name).write_text(text)

    def make(folder: Path) -> Lines:
        return Lines(folder, timestamps=float, repeat=True) if recorded else Lines(folder, rate=1.0, repeat=True)

    clock = Clock()
    source = opened(make, tmp_path, 1, 2, clock)
    positions, values = [json.dumps(source.position())], []
    for second in range(30):
        values.append(poll_at(source, clock, [second]).values)
        positions.append(json.dumps(source.position()))
    source.close()
    for given_seconds, position in enumerate(positions):
        again = opened(make, tmp_path, 1, 2, Clock())
        again.seek(json.loads(position))
        # Time continues from the second of the last poll.
        times = range(max(0, given_seconds - 1), 30)
        found = poll_at(again, Clock(), times).values
        again.close()
        assert found == [value for polled in values[given_seconds:] for value in polled]


@pytest.fixture
def half_read(tmp_path: Path) -> tuple[Path, str]:
    """A folder of which one task has read the first file and a line of the second."""
    for name, text in (("b", "1\n2\n"), ("d", "3\n4\n5\n"), ("f", "6\n")):
        (tmp_path / name).write_text(text)
    source = opened(Lines, tmp_path, 0, 1, Clock())
    assert source.poll(0.0, 2) == ["1", "2"]
    assert source.poll(0.0, 1) == ["3"]
    position = json.dumps(source.position())
    source.close()
    return tmp_path, position


def rest(folder: Path, position: str) -> list[str]:
    return resumed(Lines, folder, 0, 1, position, Clock()).values


def test_files_that_are_added_later_are_left_out(half_read: tuple[Path, str]) -> None:
    folder, position = half_read
    (folder / "g").write_text("7\n")
    (folder / "a").write_text("0\n")  # before what is still to be read
    (folder / "b").unlink()
    assert rest(folder, position) == ["4", "5", "6"]


@pytest.mark.parametrize(
    ("name", "text", "reported"),
    [
        ("d", "3\n4\n5\n6\n", "d: had 6 bytes when it was read and has 8 now"),
        ("d", "3", "d: had 6 bytes when it was read and has 1 now"),
        ("d", "x\n4\n5\n", "d: holds other lines before byte 2 than when it was read"),
        ("d", None, "d: no longer exists"),
        ("e", "0\n", "expected the 2 remaining files, up to 'f', found 3 or others"),
        ("f", None, "expected the 2 remaining files, up to 'f', found 1 or others"),
    ],
)
def test_changed_files_are_rejected(half_read: tuple[Path, str], name: str, text: str | None, reported: str) -> None:
    folder, position = half_read
    if text is None:
        (folder / name).unlink()
    else:
        (folder / name).write_text(text)
    with pytest.raises(FileProblem, match=reported) as raised:
        rest(folder, position)
    assert str(raised.value).startswith(str(folder))
    assert "restore" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_source_that_had_ended_stays_so_whatever_becomes_of_its_files(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1\n2\n")
    for make in (Lines, lambda folder: Lines(folder, timestamps=float)):
        source = opened(make, tmp_path, 0, 1, Clock())
        poll_to_end(source, Clock())
        position = json.dumps(source.position())
        source.close()
        (tmp_path / "a").write_text("1\n2\n3\n")
        assert resumed(make, tmp_path, 0, 1, position, Clock()).values == []
        (tmp_path / "a").write_text("1\n2\n")


def test_a_missing_single_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1\n2\n")
    source = opened(Lines, tmp_path / "a", 0, 1, Clock())
    source.poll(0.0, 1)
    position = json.dumps(source.position())
    source.close()
    assert rest(tmp_path / "a", position) == ["2"]
    (tmp_path / "a").unlink()
    with pytest.raises(FileProblem, match="a: does not exist"):
        rest(tmp_path / "a", position)


def test_a_position_in_a_large_folder_is_small(tmp_path: Path) -> None:
    for number in range(1000):
        (tmp_path / f"part-count-0-{number:06}-d618fb.jsonl").write_text("x\n")
    source = opened(Lines, tmp_path, 0, 1, Clock())
    assert len(source.poll(0.0, 500) or ()) == 500
    position = json.dumps(source.position())
    source.close()
    assert len(position) < POSITION_BYTES
    assert len(rest(tmp_path, position)) == 500


@pytest.mark.parametrize(
    ("rows", "reported"),
    [
        ([0, 1], "lacks row 3"),
        ([0, 1, 7, 3, 4], "holds other rows than the 3 that were read"),
        (None, "cannot be read, no such file"),
    ],
)
def test_a_changed_batch_is_rejected(tmp_path: Path, rows: list[int] | None, reported: str) -> None:
    batch = tmp_path / batch_name(0)
    batch.write_text("".join(f'{{"row": {row}}}\n' for row in range(5)))
    source = opened(Landed, tmp_path, 0, 1, Clock())
    source.poll(0.0, 3)
    position = source.position()
    source.close()
    batch.unlink()
    if rows is not None:
        batch.write_text("".join(f'{{"row": {row}}}\n' for row in rows))
    source = opened(Landed, tmp_path, 0, 1, Clock())
    with pytest.raises(FileProblem, match=f"{batch.name}: {reported}"):
        source.seek(position)
    source.close()
