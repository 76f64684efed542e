"""`penstock runs limit` on a run that only pretends."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from penstock.admission.reconciler.state import PathPhase, PathState, ReconcilerState, logs_folder, write_state
from penstock.cli.runs.limit import operated
from penstock.runtime.storage.run_folder import write_info
from tests.conftest import Ran
from tests.fake_run import Served
from tests.settings import config

Penstock = Callable[..., Ran]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Served]:
    with Served(tmp_path / "runs") as served:
        yield served


def test_limits_pauses_and_lifts_and_status_shows_it(penstock: Penstock, run: Served) -> None:
    assert penstock("runs", "limit", "500", "--run", run.info.path).out == "in limited to 500/s\n"
    assert "in limited to 500/s" in penstock("status", run.info.path).out
    assert penstock("runs", "limit", "in=0", "--run", run.info.path).out == "in paused\n"
    assert json.loads(penstock("runs", "limit", "in=12.5", "--json", "--run", run.info.path).out) == {"in": 12.5}
    assert json.loads(penstock("status", run.info.path, "--json").out)["limits"] == {"in": 12.5}
    assert penstock("runs", "limit", "none", "--run", run.info.path).out == "no source has a limit\n"
    assert "limited" not in penstock("status", run.info.path).out


def test_finds_the_latest_run(penstock: Penstock, run: Served) -> None:
    ran = penstock("runs", "limit", "in=3", "--run", "latest", "--runs", run.info.path.parent)
    assert ran.out == "in limited to 3.00/s\n"
    assert run.handle.limits == {"in": 3.0}


@pytest.mark.parametrize(
    ("rates", "problem"),
    [
        (["fast"], "rate: expected tuples per second ≥ 0, or none for no limit, got 'fast'"),
        (["in=fast"], "rate: expected tuples per second ≥ 0, or none for no limit, got 'in=fast'"),
        (["in=1", "2"], "rate: expected SOURCE=RATE, as there are several, got '2'"),
        (["in=1", "in=2"], "rate: 'in' has one already, got 'in=2' too"),
        (["split=1"], "limits: no source is named 'split'; there are in"),
        (["in=nan"], "rate: expected tuples per second ≥ 0, or none for no limit, got 'in=nan'"),
        (["in=-1"], "rate: expected tuples per second ≥ 0, or none for no limit, got 'in=-1'"),
    ],
)
def test_refuses_what_is_no_limit(penstock: Penstock, run: Served, rates: list[str], problem: str) -> None:
    ran = penstock("runs", "limit", *rates, "--run", run.info.path)
    assert ran.code == 2
    assert problem in ran.err
    assert run.handle.limits == {}


def test_reports_how_long_a_limit_lasts_on_a_booked_run(penstock: Penstock, run: Served, tmp_path: Path) -> None:
    book = tmp_path / "cell.json"
    machines = logs_folder(book) / "machines-x"
    write_info(msgspec.structs.replace(run.info, config=config(share=str(machines))))
    assert (
        penstock("runs", "limit", "5", "--run", run.info.path).out == "in limited to 5.00/s\n"
    )  # others share machines, too
    path = PathState(
        application="words",
        number=0,
        phase=PathPhase.RUNNING,
        run=str(run.info.path),
        booked_tps=8.0,
        sources={"in": 8.0},
    )
    write_state(book, ReconcilerState(pid=os.getpid(), at=0.0, version=1, paths=(path,)))
    lower = penstock("runs", "limit", "5", "--run", run.info.path).out
    assert (
        "penstock cluster serve runs this for words, booked 8.00/s: a lower limit is kept until this run ends" in lower
    )
    for rate in ("9", "none"):
        assert "a higher limit is reset" in penstock("runs", "limit", rate, "--run", run.info.path).out
    assert penstock("runs", "limit", "8", "--run", run.info.path).out.endswith("booked 8.00/s: it follows the book\n")
    assert json.loads(penstock("runs", "limit", "5", "--json", "--run", run.info.path).out) == {"in": 5.0}


def test_says_of_each_source_what_its_limit_is_worth() -> None:
    sources = {"cameras": 20.0, "logs": 5.0, "meters": 5.0}
    path = PathState(application="words", number=0, phase=PathPhase.RUNNING, booked_tps=30.0, sources=sources)
    mixed = operated(path, {"cameras": 2.0, "logs": 6.0})  # together less than is booked, and meters without a limit
    assert "a lower limit (cameras, booked 20.0/s) is kept until this run ends" in mixed
    assert "a higher limit (logs, booked 5.00/s, meters, booked 5.00/s) is reset" in mixed
    more = operated(path, {"cameras": 30.0, "logs": 4.0, "meters": 5.0})  # together more than is booked
    assert "a lower limit (logs, booked 5.00/s) is kept" in more
    assert "a higher limit (cameras, booked 20.0/s) is reset" in more
    assert operated(path, sources).endswith("booked 30.0/s: it follows the book")
