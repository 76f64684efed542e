import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from penstock.model.errors import FileProblem, UnknownName
from penstock.runtime.handle import LogLine
from penstock.runtime.storage.run_folder import (
    LogFile,
    NoRun,
    RunInfo,
    RunInUse,
    RunLock,
    create,
    find_run,
    find_running,
    latest,
    load,
    mark_ended,
    record_resume,
    refuse_unwritable,
    write_info,
)
from tests.settings import config


def later(info: RunInfo, seconds: int) -> RunInfo:
    """Return a run that began so much later."""
    from datetime import timedelta

    moved = msgspec.structs.replace(info, started=info.started + timedelta(seconds=seconds))
    write_info(moved)
    return moved


def test_a_new_folder_describes_its_run(tmp_path: Path) -> None:
    info = create("word-count", tmp_path / "runs", config=config(master="local[4]"), emulated="trio", policy="r-storm")
    assert info.path.parent == tmp_path / "runs"
    assert info.run == info.path.name
    assert info.run.startswith("word-count-")
    assert info.telemetry_path.is_dir()
    assert info.output_path.is_dir()
    assert load(info.path) == info
    assert (info.master, info.emulated, info.policy, info.pid) == ("local[4]", "trio", "r-storm", os.getpid())


def modes(info: RunInfo) -> list[str]:
    return [f"{path.stat().st_mode & 0o777:o}" for path in (info.path, info.telemetry_path, info.output_path)]


def test_only_its_user_can_read_a_folder_by_default(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    info = create("a", tmp_path / "runs", config=config(folder=str(elsewhere)))
    assert modes(info) == ["700", "700", "700"]
    shared = create("a", tmp_path / "runs", config=config(umask=0o027))
    assert modes(shared) == ["750", "750", "750"]
    info.path.chmod(0o755)  # as an earlier version has made it
    assert modes(record_resume(info, CONFIG, ""))[0] == "700"


def test_an_existing_folder_keeps_its_permissions(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o755)
    assert modes(create("a", tmp_path / "runs", config=config(folder=str(elsewhere)))) == ["700", "755", "700"]


def test_a_run_whose_telemetry_has_no_place_leaves_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FileProblem, match="cannot be made"):
        create("a", tmp_path / "runs", config=config(folder=str(tmp_path / "file" / "telemetry")))
    assert list((tmp_path / "runs").iterdir()) == []


def test_two_runs_of_one_second_get_two_folders(tmp_path: Path) -> None:
    names = [create("a", tmp_path).run for _ in range(4)]
    assert len(set(names)) == 4


def test_a_folder_name_is_valid_for_hadoop(tmp_path: Path) -> None:
    info = create("word-count:sources=2,splitters=4", tmp_path)
    assert info.run.startswith("word-count-sources-2-splitters-4-")
    assert info.application == "word-count:sources=2,splitters=4"


def test_telemetry_may_go_elsewhere(tmp_path: Path) -> None:
    info = create("a", tmp_path / "runs", config=config(folder=str(tmp_path / "elsewhere")))
    assert load(info.path).telemetry_path == tmp_path / "elsewhere"
    assert (tmp_path / "elsewhere").is_dir()


def test_finds_a_folder_that_was_moved(tmp_path: Path) -> None:
    info = create("a", tmp_path / "runs")
    moved = info.path.rename(tmp_path / "kept")
    assert find_run(moved, tmp_path / "runs").telemetry_path == tmp_path / "kept" / "telemetry"


def test_without_a_name_the_latest_is_found_and_by_name_any(tmp_path: Path) -> None:
    first, second = create("b", tmp_path), create("a", tmp_path)
    later(second, 5)
    assert latest(tmp_path).run == second.run
    assert find_run(None, tmp_path).run == second.run
    assert find_run(first.run, tmp_path).run == first.run
    assert find_run(str(first.path), Path("nowhere")).run == first.run


def test_the_latest_that_runs_is_found_behind_one_that_has_ended(tmp_path: Path) -> None:
    first, second = create("a", tmp_path), create("a", tmp_path)
    mark_ended(later(second, 5))
    assert find_running(None, tmp_path).run == first.run


def test_rejects_an_ended_run_if_a_running_one_is_needed(tmp_path: Path) -> None:
    info = mark_ended(create("a", tmp_path))
    for what in (None, info.run):
        with pytest.raises(NoRun, match=f"{info.run} has ended, .* its telemetry is in .*telemetry") as found:
            find_running(what, tmp_path)
        assert str(found.value).endswith("answers soon") is (what is None)  # one that starts has no folder yet


def test_a_run_whose_driver_lives_is_preferred_to_a_later_dead_one(tmp_path: Path) -> None:
    first, second = create("a", tmp_path), create("a", tmp_path)
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    write_info(msgspec.structs.replace(later(second, 5), pid=int(gone.stdout)))
    assert find_running(None, tmp_path).run == first.run


def test_reports_that_there_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(NoRun, match=r"there is none in .*nowhere; start one with penstock run"):
        find_run(None, tmp_path / "nowhere")


def test_suggests_names_for_an_unknown_run(tmp_path: Path) -> None:
    info = create("a", tmp_path)
    with pytest.raises(UnknownName, match=f"no run is named 'b'; there are {info.run}"):
        find_run("b", tmp_path)
    with pytest.raises(NoRun, match=r"is not a run's folder, it has no run\.json"):
        find_run(tmp_path, tmp_path)


def test_rejects_a_foreign_file_without_hiding_other_runs(tmp_path: Path) -> None:
    info = create("a", tmp_path)
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "run.json").write_text('{"run": 3}')
    with pytest.raises(FileProblem, match=r"odd/run\.json: not what a run writes"):
        find_run("odd", tmp_path)
    assert latest(tmp_path).run == info.run


def test_rejects_a_path_that_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FileProblem, match=r"cannot be made, .*file is not a folder; choose another --telemetry"):
        refuse_unwritable(tmp_path / "file" / "below", "--telemetry")
    with pytest.raises(FileProblem, match="cannot be made"):
        create("a", tmp_path / "file")
    refuse_unwritable(tmp_path / "new" / "below", "--telemetry")
    assert not (tmp_path / "new").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
def test_rejects_a_folder_that_is_not_writable(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(FileProblem, match="is not yours to write; choose another --runs"):
        refuse_unwritable(tmp_path / "runs", "--runs")
    with pytest.raises(FileProblem, match="cannot be made, permission denied"):
        create("a", tmp_path / "runs")


def test_log_lines_have_their_origin_and_none_follow_the_end(tmp_path: Path) -> None:
    info = create("a", tmp_path)
    log = LogFile(info)
    log(LogLine(at=0.25, level="warning", component="split", task=2, worker="m0", text="odd tuple"))
    log(LogLine(at=0.25, level="info", component="", task=None, worker="m0", text="ready"))
    log.close()
    log(LogLine(at=1.0, level="info", component="", task=None, worker="m0", text="late"))
    lines = info.log_path.read_text().splitlines()
    assert [line.partition(".250 ")[2] for line in lines] == ["warning split[2]: odd tuple", "info    m0: ready"]


# What a driver needs that takes a run over


CONFIG = config(
    app="words:make",
    rate_tps=500.0,
    arrivals="poisson",
    input="/data/book.txt",
    directory="/home/a",
    master="spark://head:7077",
    policy="r-storm",
    slots=4,
    seed=7,
    enabled=False,
)


def test_a_folder_has_the_settings_of_its_run(tmp_path: Path) -> None:
    info = create("a", tmp_path, config=CONFIG)
    assert load(info.path).config == CONFIG


@pytest.fixture
def home() -> Iterator[Path]:
    """Give a folder of a control socket as a driver makes it, with one that nobody answers."""
    made = Path(tempfile.mkdtemp(prefix="penstock-", dir="/tmp"))
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(made / "control"))
    yield made
    shutil.rmtree(made, ignore_errors=True)


def test_a_resumed_run_has_its_new_settings_and_what_was_left_behind_is_removed(tmp_path: Path, home: Path) -> None:
    info = create("a", tmp_path / "runs", policy="heft", config=CONFIG)
    (info.path / "spark" / "local").mkdir(parents=True)
    dead = msgspec.structs.replace(mark_ended(info), pid=1, socket=str(home / "control"), version="0.0.1")
    write_info(dead)
    mine = record_resume(load(info.path), config(slots=3), "t-storm")
    assert load(info.path) == mine
    assert (mine.pid, mine.socket, mine.ended, mine.resumed) == (os.getpid(), "", None, 1)
    assert (mine.policy, mine.version, mine.started) == ("t-storm", info.version, info.started)
    assert (mine.config, mine.master) == (config(slots=3), "embedded")
    assert not home.exists()
    assert not (info.path / "spark").exists()


def test_removes_nothing_but_a_dead_socket(tmp_path: Path, home: Path) -> None:
    info = create("a", tmp_path / "runs", config=CONFIG)
    elsewhere, linked = tmp_path / "penstock-mine", Path(f"{home}-linked")
    elsewhere.mkdir()
    (elsewhere / "precious").write_text("")
    with socket.socket(socket.AF_UNIX) as live, socket.socket(socket.AF_UNIX) as dead:
        live.bind(str(home / "live"))
        live.listen()
        dead.bind(str(elsewhere / "control"))
        (home / "precious").write_text("")
        linked.symlink_to(elsewhere)
        named = [elsewhere / "precious", elsewhere / "control", home / "precious", home / "live", linked / "control"]
        try:
            for path in named:
                record_resume(msgspec.structs.replace(info, socket=str(path)), CONFIG, "")
                assert all(each.exists() for each in named), path
        finally:
            linked.unlink()


def test_rejects_a_folder_with_invalid_values(tmp_path: Path) -> None:
    info = create("a", tmp_path, config=CONFIG)
    raw = msgspec.json.decode((info.path / "run.json").read_bytes())
    for change in ({"pid": 2**70}, {"pid": -1}, {"started": "2025-01-01T00:00:00"}):
        (info.path / "run.json").write_bytes(msgspec.json.encode(raw | change))
        with pytest.raises(FileProblem, match="not what a run writes"):
            load(info.path)


def test_a_driver_that_was_replaced_does_not_end_the_run(tmp_path: Path) -> None:
    first = create("a", tmp_path, config=CONFIG)
    second = record_resume(first, CONFIG, "")
    assert mark_ended(first) == second
    assert load(first.path).ended is None
    assert mark_ended(second).ended is not None


# One driver a run


HOLDER = """
import sys
from pathlib import Path
from penstock.runtime.storage.run_folder import RunLock, load
lock = RunLock(load(Path(sys.argv[1])))
print("held", flush=True)
sys.stdin.read()
"""


def test_rejects_a_second_driver_until_the_first_dies(tmp_path: Path) -> None:
    info = create("a", tmp_path)
    command = [sys.executable, "-c", HOLDER, str(info.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(RunInUse) as refused:
            RunLock(info)
        holder.kill()
        holder.wait()
    reported = str(refused.value)
    assert reported.startswith(f"run {info.run} is being run by process {holder.pid} on ")
    assert f"end it by penstock stop {info.path}" in reported
    assert "\n" not in reported
    RunLock(info).release()


def test_two_drivers_in_one_process_are_two_as_well(tmp_path: Path) -> None:
    info = create("a", tmp_path)
    lock = RunLock(info)
    with pytest.raises(RunInUse, match=f"is being run by process {os.getpid()} on "):
        RunLock(info)
    lock.release()
    RunLock(info).release()


def test_what_a_driver_starts_does_not_hold_its_lock(tmp_path: Path) -> None:
    info = create("a", tmp_path)
    lock = RunLock(info)
    with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE):
        lock.release()
        RunLock(info).release()


def test_a_missing_folder_has_no_lock(tmp_path: Path) -> None:
    info = create("a", tmp_path)
    info.path.rename(tmp_path / "gone")
    with pytest.raises(FileProblem, match="lock: cannot be written, no such file or directory"):
        RunLock(info)
