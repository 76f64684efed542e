"""`penstock autopilot`, and the options of `penstock run` that set one up, on a run that only pretends."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.cli.autopilot import line
from penstock.model.status import PilotStatus
from tests.conftest import Ran
from tests.fake_run import Served

Penstock = Callable[..., Ran]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Served]:
    with Served(tmp_path / "runs") as served:
        yield served


def test_asks_and_steers_the_autopilot_of_a_run(penstock: Penstock, run: Served) -> None:
    where = ("--run", run.info.path)
    assert penstock("autopilot", *where).out == "autopilot off\n"
    ran = penstock("autopilot", "local-search:seconds=1", *where, "--shadow")
    assert ran.out == "autopilot local-search:seconds=1 in shadow, observing\n"
    assert penstock("autopilot", "off", "--act", *where).code == 0
    assert json.loads(penstock("autopilot", "status", *where, "--json").out)["policy"] is None
    assert run.handle.steered == [(None, None), ("local-search:seconds=1", True), ("off", False), (None, None)]


def test_says_of_one_that_is_put_off_what_it_still_ends() -> None:
    still = PilotStatus(policy=None, state="measuring after decision 2")
    assert line(still, put_off=True) == "autopilot off; first it ends what is under way: measuring after decision 2"
    assert line(PilotStatus(policy=None), put_off=True) == "autopilot off"


def test_refuses_a_policy_that_nobody_knows_before_asking(penstock: Penstock, run: Served) -> None:
    ran = penstock("autopilot", "wishful", "--run", run.info.path)
    assert ran.code == 2
    assert "no policy is named 'wishful'" in ran.err
    assert run.handle.steered == []


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--shadow",), "error: shadow: expected --autopilot POLICY beside --shadow, got none; name one"),
        (("--max-moves", 3), "error: max-moves: expected --autopilot POLICY beside --max-moves, got none; name one"),
        (("--autopilot", "x"), "error: policy: no policy is named 'x'"),
        (("--autopilot", "flink", "--threshold", "much"), "error: threshold: expected a share such as 5% or 0.05"),
        (("--autopilot", "flink", "--interval", 0), "error: interval: expected a number > 0, got 0"),
        (("--autopilot", "flink", "--sample", "none"), "error: sample: an autopilot needs latencies"),
    ],
)
def test_run_refuses_options_that_make_no_autopilot(
    penstock: Penstock, tmp_path: Path, options: tuple[object, ...], problem: str
) -> None:
    ran = penstock("run", "word-count", "--runs", tmp_path / "runs", *options)
    assert ran.code == 2
    assert ran.err.startswith(problem)
