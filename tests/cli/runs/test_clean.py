"""`penstock runs`: what there is, and what may be removed."""

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from penstock.cli.runs.folders import age
from penstock.model.errors import InvalidInput
from penstock.runtime.storage.run_folder import RunInfo, RunLock, create, load, mark_ended, write_info
from tests.cli.test_status import dead
from tests.conftest import Ran
from tests.fake_run import Served

Penstock = Callable[..., Ran]


def aged(info: RunInfo, hours: float, outcome: str = "completed", reason: str = "its sources ended") -> RunInfo:
    """Return a run that ended so long ago, after an hour."""
    info = mark_ended(info)
    assert info.ended is not None
    end = info.ended - timedelta(hours=hours)
    info = msgspec.structs.replace(info, ended=end, started=end - timedelta(hours=1), outcome=outcome, reason=reason)
    write_info(info)
    return info


@pytest.fixture
def there(tmp_path: Path) -> dict[str, RunInfo]:
    """Make a run of each kind, and what is none."""
    runs = tmp_path / "runs"
    made = {
        "old": aged(create("old", runs), 48),
        "failed": aged(create("failed", runs), 5, "failed", "count[0]: ValueError: [odd]"),
        "new": aged(create("new", runs), 0.1),
        "died": dead(create("died", runs)),
        "going": create("going", runs),
    }
    (runs / "notes").mkdir()
    (runs / "notes" / "text").write_text("mine")
    (runs / "link").symlink_to(aged(create("linked", tmp_path / "elsewhere"), 100).path, target_is_directory=True)
    return made


def test_lists_every_run_with_state_and_outcome_newest_first(
    penstock: Penstock, there: dict[str, RunInfo], tmp_path: Path
) -> None:
    ran = penstock("runs", "list", "--runs", tmp_path / "runs")
    assert ran.code == 0
    lines = {line.split()[1]: line for line in ran.out.splitlines()}
    assert "ended" in lines["old"]
    assert "1:00:00 h" in lines["old"]
    assert lines["failed"].rstrip().endswith("failed: count[0]: ValueError: [odd]")
    assert "died: its driver" in lines["died"]
    assert lines["going"].split()[2] == "starting"
    rows = json.loads(penstock("runs", "list", "--runs", tmp_path / "runs", "--json").out)["runs"]
    assert [row["application"] for row in rows][-3:] == ["failed", "old", "linked"]
    assert {row["application"]: row["outcome"] for row in rows} == {
        "going": None, "died": "died", "new": "completed", "failed": "failed", "old": "completed",
        "linked": "completed",
    }  # fmt: skip


def test_a_run_that_answers_is_running(penstock: Penstock, tmp_path: Path) -> None:
    with Served(tmp_path):
        (row,) = json.loads(penstock("runs", "list", "--runs", tmp_path, "--json").out)["runs"]
    assert (row["state"], row["outcome"]) == ("running", None)


def left(tmp_path: Path) -> set[str]:
    return {path.name.partition("-")[0] for path in (tmp_path / "runs").iterdir()}


ALL = {"old", "failed", "new", "died", "going", "notes", "link"}


@pytest.mark.parametrize(
    ("options", "removed"),
    [
        (["--older-than", "1d"], {"old"}),
        (["--older-than", "3h"], {"old", "failed"}),
        (["--keep", "3"], {"old", "failed"}),
        (["--keep", "0"], {"old", "failed", "new", "died"}),
        (["--keep", "4", "--older-than", "3h"], {"old"}),
    ],
)
def test_removes_what_has_ended_and_is_a_run(
    penstock: Penstock, there: dict[str, RunInfo], tmp_path: Path, options: list[str], removed: set[str]
) -> None:
    command = ["runs", "clean", "--runs", tmp_path / "runs", *options]
    assert penstock(*command, "--dry-run").code == 0
    assert left(tmp_path) == ALL
    refused = penstock(*command)
    assert (refused.code, left(tmp_path)) == (2, ALL)  # there is no terminal
    answer = json.loads(penstock(*command, "--yes", "--json").out)
    assert {name.partition("-")[0] for name in answer["removed"]} == removed
    assert left(tmp_path) == ALL - removed
    assert load(tmp_path / "runs" / "link").application == "linked"


def test_a_run_with_a_live_driver_is_kept_whatever_its_file_contains(
    penstock: Penstock, there: dict[str, RunInfo], tmp_path: Path
) -> None:
    held = RunLock(there["died"])
    assert penstock("runs", "clean", "--runs", tmp_path / "runs", "--keep", "0", "--yes").code == 0
    held.release()
    assert left(tmp_path) == {"died", "going", "notes", "link"}


def test_asks_for_a_choice_and_reads_times(penstock: Penstock, tmp_path: Path) -> None:
    ran = penstock("runs", "clean", "--runs", tmp_path)
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "expected --older-than TIME, --keep N or both" in ran.err
    assert age("1.5h") == timedelta(minutes=90)
    for wrong in ("", "7", "d", "-1d", "1y", "9999999w"):
        with pytest.raises(InvalidInput, match="expected a time such as 45m"):
            age(wrong)
