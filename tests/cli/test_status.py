import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from penstock.runtime.config import RunConfig
from penstock.runtime.storage.run_folder import RunInfo, create, write_info, write_outcome
from tests.conftest import Ran
from tests.fake_run import PLACEMENT, Served
from tests.kept_run import keep_checkpoint, kept_run

Penstock = Callable[..., Ran]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Served]:
    with Served(tmp_path / "runs") as served:
        yield served


def test_shows_the_latest_run_with_rates_times_machines_and_tasks(penstock: Penstock, run: Served) -> None:
    ran = penstock("status", "--runs", run.info.path.parent)
    assert ran.code == 0
    for text in ("emulated on trio (3 machines)", "1,233", "p99 12.3 ms", "97%", "split[1,3]", "warning: 2 cores"):
        assert text in ran.out


def test_no_task_is_cut_off_when_it_is_piped(penstock: Penstock, run: Served) -> None:
    run.handle.placement = {f"split[{number}]": f"m{number % 2}/0" for number in range(200)}
    out = penstock("status", run.info.path).out
    for number in range(200):
        assert re.search(rf"[\[, ]{number}[\],]", out), number
    assert "…" not in out


def test_a_run_can_be_named_or_its_folder_given(penstock: Penstock, run: Served) -> None:
    runs = run.info.path.parent
    assert penstock("status", run.info.run, "--runs", runs).code == 0
    assert penstock("status", run.info.path).code == 0


def test_json_holds_all_there_is(penstock: Penstock, run: Served) -> None:
    answer = json.loads(penstock("status", run.info.path, "--json").out)
    assert answer["placement"] == PLACEMENT
    assert answer["components"][1]["p99_ms"] == 9.25


@pytest.mark.slow
def test_watching_ends_with_the_run_and_repeats_what_operators_say(run: Served) -> None:
    command = [sys.executable, "-c", "from penstock.cli import main; main()", "status", str(run.info.path), "--watch"]
    watching = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "COLUMNS": "100"})
    with watching:
        assert watching.stdout is not None
        first = watching.stdout.readline()
        run.handle.say("an odd tuple")
        lines = [first, *iter_until(watching.stdout, "an odd tuple")]
        run.handle.stop()
        run.server.close()
        lines += watching.stdout.readlines()
        assert watching.wait(20) == 0
    assert any("1,234/s in" in line for line in lines)
    assert "split[2]: an odd tuple\n" in lines
    assert lines[-1] == f"run {run.info.run} has ended\n"


def iter_until(stream: Iterator[str], text: str) -> Iterator[str]:
    for line in stream:
        yield line
        if text in line:
            return


def test_stopping_drains_and_prints_the_next_command(penstock: Penstock, run: Served) -> None:
    ran = penstock("stop", run.info.path)
    assert ran.code == 0
    assert run.handle.phase == "stopped"
    assert ran.err == f"draining {run.info.run}\n"
    assert f"{run.info.run} has ended; next: penstock report" in ran.out


def test_stopping_at_once_does_not_wait_for_one_that_never_drains(penstock: Penstock, tmp_path: Path) -> None:
    with Served(tmp_path, drains=False) as run:
        ran = penstock("stop", run.info.path, "--now", "--json")
        assert json.loads(ran.out)["drained"] is False
        assert run.handle.wait(0)


def test_what_was_stopped_at_once_can_be_resumed(penstock: Penstock, tmp_path: Path) -> None:
    with Served(tmp_path, drains=False) as run:
        write_info(msgspec.structs.replace(run.info, config=RunConfig()))
        ran = penstock("stop", run.info.path, "--now")
        assert f"{run.info.run} has ended; next: penstock runs resume {run.info.path}" in ran.out


@pytest.mark.parametrize("command", [["status"], ["stop"], ["runs", "move", "split[0]", "m0"]])
def test_no_run_is_one_line(penstock: Penstock, tmp_path: Path, command: list[str]) -> None:
    ran = penstock(*command, "--runs", tmp_path)
    assert ran.code == 2
    assert ran.err.startswith("error: run: there is none in ")
    assert ran.err.count("\n") == 1


def test_shows_the_outcome_reason_and_totals_of_a_run_that_has_ended(penstock: Penstock, run: Served) -> None:
    run.handle.fail("split[2]: ValueError: no number")
    write_outcome(run.info, "failed", "split[2]: ValueError: no number", run.handle.status())
    run.server.close()
    runs = run.info.path.parent
    for named in ((run.info.path,), (run.info.run, "--runs", runs), ("latest", "--runs", runs), ("--runs", runs)):
        ran = penstock("status", *named)
        assert ran.code == 0
        assert re.search(r"^outcome +failed: split\[2\]: ValueError: no number$", ran.out, re.MULTILINE)
        assert "80,210 in" in ran.out
        assert f"penstock report {run.info.path}" in ran.out
    answer = json.loads(penstock("status", run.info.path, "--json").out)
    assert (answer["outcome"], answer["phase"], answer["emitted"]) == ("failed", "failed", 80_210)
    assert answer["reason"] == "split[2]: ValueError: no number"


def test_reports_a_dead_driver_and_the_checkpoint_to_resume_from(penstock: Penstock, tmp_path: Path) -> None:
    info = dead(kept_run(tmp_path / "runs"))
    keep_checkpoint(info, 7)
    ran = penstock("status", info.path)
    assert ran.code == 0
    assert re.search(r"^outcome +died: its driver \(pid \d+\) died or was killed$", ran.out, re.MULTILINE)
    assert re.search(r"^checkpoint +7, the last, after 40 source tuples$", ran.out, re.MULTILINE)
    assert f"penstock runs resume {info.path} resumes from checkpoint 7" in ran.out
    answer = json.loads(penstock("status", info.path, "--json").out)
    assert (answer["outcome"], answer["ended"]) == ("died", None)
    assert answer["last_checkpoint"] == {"number": 7, "source_tuples": 40, "last": False}


def dead(info: RunInfo) -> RunInfo:
    """Return a run whose driver was killed."""
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    info = msgspec.structs.replace(info, pid=int(gone.stdout), socket="/none")
    write_info(info)
    return info


def test_stopping_a_run_with_a_dead_driver_reports_only_that(penstock: Penstock, tmp_path: Path) -> None:
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    info = create("a", tmp_path, config=RunConfig())
    write_info(msgspec.structs.replace(info, pid=int(gone.stdout), socket=str(tmp_path / "none")))
    ran = penstock("stop", info.path)
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert ran.err.endswith(f"has died; resume it with penstock runs resume {info.path}\n")


def test_a_wrong_name_is_one_line(penstock: Penstock, run: Served) -> None:
    ran = penstock("status", "other", "--runs", run.info.path.parent)
    assert (ran.code, ran.err) == (2, f"error: run: no run is named 'other'; there are {run.info.run}\n")


def test_one_that_is_still_starting_is_one_line(penstock: Penstock, tmp_path: Path) -> None:
    ran = penstock("status", create("a", tmp_path).path)
    assert ran.code == 2
    assert "is still starting; ask again in a moment" in ran.err
