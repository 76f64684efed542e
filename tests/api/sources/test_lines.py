from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.api.sources import line_reader
from penstock.api.sources.lines import Lines
from penstock.model.errors import FileProblem, InvalidInput
from tests.api.clock import Clock, context
from tests.api.sources.polling import poll_at, poll_to_end

LOG = """\
2015-10-18 18:01:47,978 INFO created
2015-10-18 18:01:48,963 INFO executing
  at a place
2015-10-18 18:01:48,500 INFO late
2015-10-18 18:01:57,978 WARN done
"""
FORM = "%Y-%m-%d %H:%M:%S,%f"


def read(path: Path, task: int = 0, tasks: int = 1, start: float = 0.0, **how: Any) -> Any:
    source = Lines(path, **how)
    source.open(context(task, tasks))
    try:
        return poll_to_end(source, Clock(start))
    finally:
        source.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files whose order by name is not that in which they were made, with two that no reader wants."""
    for name, text in [
        ("b.txt", "3\n4"),
        ("c.txt", ""),
        ("a.txt", "1\n2\n"),
        ("d.txt", "5\n"),
        ("_e", "x\n"),
        (".f", "x\n"),
    ]:
        (tmp_path / name).write_text(text)
    return tmp_path


def test_emits_the_lines_of_a_file_and_ends(tmp_path: Path) -> None:
    file = tmp_path / "text"
    file.write_bytes("one\r\ntwo\n\nd\u2028rei\nv\xefer".encode() + b"\xff\n last")
    assert read(file).values == ["one", "two", "", "d\u2028rei", "v\xefer\ufffd", " last"]


def test_an_empty_file_ends_at_once(tmp_path: Path) -> None:
    (tmp_path / "text").touch()
    for repeat in (False, True):
        assert read(tmp_path / "text", repeat=repeat).values == []


def test_files_of_a_folder_come_in_the_order_of_their_names(folder: Path) -> None:
    assert read(folder).values == ["1", "2", "3", "4", "5"]


def test_tasks_read_files_in_turn(folder: Path) -> None:
    assert [read(folder, task, 2).values for task in range(2)] == [["1", "2"], ["3", "4", "5"]]
    assert [read(folder, task, 3).values for task in range(3)] == [["1", "2", "5"], ["3", "4"], []]
    assert [read(folder, task, 7).values for task in range(7)] == [["1", "2"], ["3", "4"], [], ["5"], [], [], []]


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(
    files=st.lists(st.lists(st.integers(0, 30), max_size=40), min_size=1, max_size=4),
    tasks=st.integers(2, 5),
    cut=st.integers(1, 100),
    last=st.booleans(),
)
def test_splits_of_files_hold_every_line_once_and_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: list[list[int]], tasks: int, cut: int, last: bool
) -> None:
    monkeypatch.setattr(line_reader, "SHORTEST", cut)
    monkeypatch.setattr(line_reader, "LONGEST", cut)
    for old in tmp_path.iterdir():
        old.unlink()
    everything = []
    for number, lengths in enumerate(files):
        lines = [f"{number:02}:{place:03}:{'x' * length}" for place, length in enumerate(lengths)]
        (tmp_path / f"{number}").write_text("\n".join(lines) + "\n" * (last and bool(lines)))
        everything += lines
    shares = [read(tmp_path, task, tasks).values for task in range(tasks)]
    assert sorted(line for share in shares for line in share) == everything
    assert all(share == sorted(share) for share in shares)


def test_a_large_file_is_shared_about_evenly(tmp_path: Path) -> None:
    lines = [f"{number}" for number in range(100_000)]
    (tmp_path / "large").write_text("\n".join(lines))
    for tasks in (2, 3, 8):
        shares = [read(tmp_path / "large", task, tasks).values for task in range(tasks)]
        assert sorted(line for share in shares for line in share) == sorted(lines)
        assert max(map(len, shares)) < 1.2 * min(map(len, shares))


def test_the_rate_is_divided_among_the_tasks_that_have_lines(tmp_path: Path) -> None:
    (tmp_path / "small").write_text("1\n2\n3\n")
    got = [read(tmp_path / "small", task, 4, 50.0, rate=4.0) for task in range(4)]
    assert [one.dues for one in got] == [[50.0, 50.25, 50.5], [], [], []]


def test_rejects_a_position_that_another_number_of_tasks_had(folder: Path) -> None:
    source = Lines(folder)
    source.open(context(0, 2))
    position = source.position()
    source.close()
    source.open(context(0, 3))
    with pytest.raises(FileProblem, match="was read by 2 tasks and has 3 now; restart the run, or use the same number"):
        source.seek(position)
    source.close()


def test_repeats_without_end(folder: Path) -> None:
    source = Lines(folder, repeat=True, rate=10.0)
    source.open(context(1, 2))
    got = poll_at(source, Clock(), [step / 10 for step in range(131)])
    source.close()
    assert got.values == [str(number % 3 + 3) for number in range(65)]
    assert not got.ended


def test_is_paced_by_a_rate(folder: Path) -> None:
    assert read(folder, 1, 2, 50.0, rate=4.0).dues == [50.25, 50.75, 51.25]


def test_is_paced_by_dates(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(LOG)
    got = read(tmp_path / "log", start=7.0, timestamps=FORM)
    assert got.values == LOG.splitlines()
    # The line without a date and the one that is out of order are due with the line before.
    assert got.dues == pytest.approx([7.0, 7.985, 7.985, 7.985, 17.0])
    faster = read(tmp_path / "log", start=7.0, timestamps=FORM, speed=10.0)
    assert faster.dues == pytest.approx([7.0, 7.0985, 7.0985, 7.0985, 8.0])


def test_tasks_count_from_the_same_first_line(tmp_path: Path) -> None:
    for number, line in enumerate(LOG.splitlines()):
        (tmp_path / f"{number}.log").write_text(line)
    assert read(tmp_path, 1, 3, timestamps=FORM).dues == pytest.approx([0.985, 10.0])


@pytest.mark.parametrize(
    ("form", "lines"),
    [
        ("%d/%b/%Y %H", ["9/Jul/1995 9 x", "10/Jul/1995 10 x", "10/Jul/1995 9"]),
        ("[%a %b %d %H:%M:%S %Y]", ["[Sun Dec 04 04:47:44 2005] [notice]", "[Sun Dec 04 04:51:08 2005]"]),
        ("%Y-%m-%dT%H:%M:%S%z", ["2020-01-01T00:00:00+0100", "2020-01-01T00:00:00+0000 text"]),
    ],
)
def test_reads_dates_of_any_length(tmp_path: Path, form: str, lines: list[str]) -> None:
    (tmp_path / "log").write_text("\n".join(lines))
    dates = [line.split(" x")[0].split(" [")[0].split(" text")[0] for line in lines]
    times = [datetime.strptime(date, form) for date in dates]
    seconds = [(time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() for time in times]
    latest = [max(seconds[: number + 1]) - seconds[0] for number in range(len(seconds))]
    assert read(tmp_path / "log", timestamps=form).dues == latest


def test_is_paced_by_a_function(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("".join(f"{number / 8} text\n" for number in range(1000)))
    got = read(tmp_path / "log", timestamps=lambda line: float(line.split()[0]))
    assert got.dues == [number / 8 for number in range(1000)]


@pytest.mark.parametrize("tasks", [1, 2, 3, 5])
def test_recorded_times_continue_from_the_last_when_repeated(tmp_path: Path, tasks: int) -> None:
    for number, time in enumerate((10, 12, 15)):
        (tmp_path / f"{number}.log").write_text(f"{time}\n")
    everything = [5 * lap + due for lap in range(10) for due in (0, 2, 5)]
    for task in range(tasks):
        source = Lines(tmp_path, timestamps=float, repeat=True)
        source.open(context(task, tasks))
        own = [due for number, due in enumerate(everything) if number % 3 % tasks == task and due < 45]
        assert poll_at(source, Clock(), range(45)).dues == own
        source.close()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(
    lengths=st.lists(st.integers(0, 400), min_size=1, max_size=4),
    limits=st.lists(st.integers(1, 300), min_size=1, max_size=12),
    moves=st.sets(st.integers(0, 11)),
    tasks=st.integers(1, 3),
    how=st.sampled_from(["free", "rate", "recorded", "repeated"]),
)
def test_a_moved_source_continues_exactly(
    tmp_path: Path, lengths: list[int], limits: list[int], moves: set[int], tasks: int, how: str
) -> None:
    for old in tmp_path.iterdir():
        old.unlink()
    first = 0
    for number, length in enumerate(lengths):
        (tmp_path / f"{number}").write_text("".join(f"{first + i}\n" for i in range(length)))
        first += length
    rate = {"free": {}, "rate": {"rate": 256.0}}
    recorded = {"timestamps": lambda line: int(line) / 256, "repeat": how == "repeated"}
    paced: dict[str, Any] = rate.get(how, recorded)
    clock = Clock()
    stays, moving = Lines(tmp_path, **paced), Lines(tmp_path, **paced)
    for source in (stays, moving):
        source.open(context(tasks - 1, tasks, clock=clock))
    expected, got = [], []
    for number, limit in enumerate(limits):
        expected.append(poll_at(stays, clock, [clock.time], limit))
        got.append(poll_at(moving, clock, [clock.time], limit))
        if number in moves:
            position = moving.position()
            moving.close()
            moving = Lines(tmp_path, **paced)
            moving.open(context(tasks - 1, tasks, clock=clock))
            moving.seek(position)
            assert moving.position() == position
            moving.poll(clock.time, 0)  # the time that a move takes does not count: it is polled at once
        clock.time += 0.375
    stays.close()
    moving.close()
    assert got == expected  # exactly: all times are multiples of 1/256


def test_a_position_within_a_block_keeps_dues(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("".join(f"{number}\n" for number in range(700)))
    clock = Clock()
    source = Lines(tmp_path / "log", timestamps=float)
    source.open(context(clock=clock))
    before = poll_at(source, clock, range(300))
    position = source.position()
    source.close()
    source = Lines(tmp_path / "log", timestamps=float)
    source.open(context(clock=clock))
    source.seek(position)
    after = poll_at(source, clock, range(299, 700))
    source.close()
    assert before.values + after.values == [str(number) for number in range(700)]
    assert before.dues + after.dues == list(range(700))


@pytest.mark.parametrize("speed", [0.25, 10.0])
def test_another_speed_holds_from_now_on(tmp_path: Path, speed: float) -> None:
    (tmp_path / "log").write_text("".join(f"{number}\n" for number in range(1000)))
    clock = Clock()
    here, there = (Lines(tmp_path / "log", timestamps=float, speed=each) for each in (1.0, speed))
    here.open(context(clock=clock))
    assert len(poll_at(here, clock, [0.0, 500.5]).values) == 501
    there.open(context(clock=clock))
    there.seek(here.position())
    clock.time = 0.0
    got = poll_at(there, clock, [0.0, 1.0 / speed, 10.0 / speed])
    assert got.values == [str(number) for number in range(501, 511)]
    assert got.dues == pytest.approx([(number - 500.5) / speed for number in range(501, 511)], abs=1e-9)
    here.close()
    there.close()


def test_rejects_a_path_that_is_not_there(tmp_path: Path) -> None:
    source = Lines(tmp_path / "nowhere")
    for refused in (source.check, lambda: source.open(context())):
        with pytest.raises(FileProblem, match="nowhere: does not exist; choose a file or folder"):
            refused()


def test_rejects_a_folder_without_files(tmp_path: Path) -> None:
    (tmp_path / "_SUCCESS").touch()
    with pytest.raises(FileProblem, match="expected files in this folder, found none"):
        Lines(tmp_path).check()


def test_accepts_what_can_be_read(folder: Path) -> None:
    Lines(folder).check()
    assert Lines(folder, rate=3.0).rate_tps == 3.0


def test_a_relative_path_is_resolved_before_workers_start(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    source = Lines("a.txt")
    monkeypatch.chdir("/")
    source.open(context())
    assert poll_to_end(source, Clock()).values == ["1", "2"]
    source.close()


def test_rejects_dates_that_are_not_there(folder: Path) -> None:
    with pytest.raises(
        InvalidInput, match="timestamps: expected the first line to start with a date like '%Y', got '1'"
    ):
        read(folder, timestamps="%Y")
    with pytest.raises(InvalidInput, match="expected a time in seconds, got nan for the line '1'"):
        read(folder, timestamps=lambda line: float("nan"))


@pytest.mark.parametrize(
    ("how", "reported"),
    [
        ({"timestamps": "%Y", "rate": 3.0}, "expected no rate or arrivals in addition to"),
        ({"timestamps": 7}, "timestamps: expected a date format or a function"),
        ({"timestamps": "%Y", "speed": 0}, "speed: expected a number > 0"),
    ],
)
def test_rejects_what_does_not_go_together(how: dict[str, Any], reported: str) -> None:
    with pytest.raises(InvalidInput, match=reported):
        Lines("book.txt", **how)
