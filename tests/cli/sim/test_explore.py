"""`penstock sim explore`: on the twin, and what it refuses."""

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.cli.sim.explore import _conclude
from penstock.exploration.index import Explored, Index, Trials
from penstock.exploration.twin_exploration import explore_twin
from penstock.model.costs import ComponentCosts, Costs
from penstock.model.errors import InvalidInput
from penstock.model.files import save
from tests.conftest import Ran

SHORT = ("--placements", 2, "--window", 1, "--hold", 2, "--settle", 1)


@pytest.fixture
def inputs(tmp_path: Path) -> tuple[Path, Path]:
    """An application with a load, and a cluster."""
    application, cluster = tmp_path / "app.toml", tmp_path / "cluster.toml"
    save(msgspec.structs.replace(ps.application("word-count"), rate_tps={"source": 100.0}), application)
    save(ps.cluster("homogeneous-8:machines=3"), cluster)
    return application, cluster


def test_the_application_takes_parameters(
    penstock: Callable[..., Ran], inputs: tuple[Path, Path], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    named = ("word-count", inputs[1], "--set", "splitters=2")
    ran = penstock("sim", "explore", *named, *SHORT, "--output", out, "--rates", "50:60")
    assert ran.code == 0, ran.err
    index = json.loads((out / "placements.json").read_text())
    assert index["application"] == "word-count:splitters=2"
    ran = penstock("sim", "explore", "--run", "latest", "--set", "splitters=2", "--output", tmp_path / "live")
    assert ran.err.startswith("error: set: a run has its parameters")


def test_writes_telemetry_and_an_index(penstock: Callable[..., Ran], inputs: tuple[Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    ran = penstock("sim", "explore", *inputs, *SHORT, "--output", out, "--rates", "50:60", "--seed", 4)
    assert ran.code == 0, ran.err
    assert "2 placements of word-count on homogeneous-8:machines=3, on the twin" in ran.out
    assert "explore-001 of 2: " in ran.err
    index = json.loads((out / "placements.json").read_text())
    assert sorted(index["runs"]) == ["explore-000", "explore-001"]
    assert all(50 <= one["rates"]["source"] <= 60 for one in index["runs"].values())
    assert sorted(path.name for path in out.glob("*.parquet")) == ["explore-000.parquet", "explore-001.parquet"]
    again = penstock("sim", "explore", *inputs, *SHORT, "--output", out, "--rates", "50:60", "--seed", 5)
    assert again.code == 2
    assert "it has the runs of another exploration; choose another --output, or remove it" in again.err


def test_charges_measured_costs(penstock: Callable[..., Ran], inputs: tuple[Path, Path], tmp_path: Path) -> None:
    save(Costs(components={"split": ComponentCosts(cpu=0.005)}), tmp_path / "costs.toml")
    out = tmp_path / "out"
    ran = penstock("sim", "explore", *inputs, *SHORT, "--output", out, "--costs", tmp_path / "costs.toml", "--json")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["window_s"] == 1.0
    hops = pq.read_table(out / "explore-000.parquet", filters=[("stream", "=", "source->split")]).to_pandas()
    assert (hops["finished"] - hops["started"]).min() >= 0.005 - 1e-9


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["word-count"], "app: expected APP and CLUSTER, or --run RUN"),
        (["word-count", "li-10", "--hold", 45], "hold: expected a multiple of the window of 30 s"),
        (["word-count", "li-10", "--window", 0], "window: expected a number > 0"),
        (["word-count", "li-10", "--settle", "inf"], "settle: expected a number ≥ 0, got inf; choose another --settle"),
        (["word-count", "li-10", "--rates", "1e6:1e7"], "rates: none of 200 random placements"),
        (["word-count", "li-10", "--rates", "9:3"], "rates: expected LOW:HIGH, tuples per second, such as 500:2000"),
        (["word-count", "li-10", "--run", "latest"], "run: expected APP and CLUSTER or --run"),
        (["word-count", "li-10", "--most-latency", 9], "--most-latency: is for --run"),
        (["word-count", "li-10", "--moves", 2], "moves: is for --run, nothing moves on the twin; leave --moves out"),
        (["--run", "latest", "--sample", 2], "sample: is for the twin; a run traces as many tuples as"),
        (["--run", "latest", "--rates", "1:2"], "rates: a run's load is what arrives"),
        (["word-count", "li-10"], "rate_tps: 'word-count' declares no load"),
        (["word-count", "li-10", "--costs", "none.toml"], "none.toml: cannot be read"),
        (["--run", "latest"], "run: there is none in "),
    ],
)
def test_refuses_in_one_line(
    penstock: Callable[..., Ran], tmp_path: Path, arguments: list[object], problem: str
) -> None:
    ran = penstock("sim", "explore", *arguments, "--output", tmp_path / "out", "--runs", tmp_path / "runs")
    assert ran.code == 2
    assert problem in ran.err
    assert len(ran.err.splitlines()) == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        (InvalidInput("rates", "nothing carries it"), "rates: nothing carries it"),
        (KeyboardInterrupt(), "it was interrupted"),
    ],
)
def test_one_that_ends_early_has_an_index_of_what_was_tried(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], problem: BaseException, expected: str
) -> None:
    def tried(name: str, _: Explored) -> None:
        if name == "explore-001":
            raise problem

    application = msgspec.structs.replace(ps.application("word-count"), rate_tps={"source": 100.0})
    machines, out = ps.cluster("homogeneous-8"), tmp_path / "out"
    index = explore_twin(application, machines, out, Trials(9, 1.0, 0.0, 1.0, margin=0.1, tried=tried))
    assert index.stopped == expected
    assert sorted(index.runs) == sorted(path.stem for path in out.glob("*.parquet")) == ["explore-000", "explore-001"]
    _conclude(index, out / "placements.json")
    assert capsys.readouterr().out.splitlines()[-1] == f"ended early: {expected}"


def test_says_how_to_go_on_with_the_windows_that_placements_were_held_for(
    penstock: Callable[..., Ran], inputs: tuple[Path, Path], tmp_path: Path
) -> None:
    ran = penstock("sim", "explore", *inputs, *SHORT, "--placements", 1, "--output", tmp_path / "out")
    assert "1 placement of word-count" in ran.out
    assert f"next: penstock models tables --input {tmp_path / 'out'} --output TABLES --window 1" in ran.out


@pytest.mark.parametrize(
    ("left", "expected"),
    [
        ("", "ended early: the run has ended; all tasks are back where they were"),
        ("its placement was not restored: the run has ended", "the run has ended; its placement was not restored"),
    ],
)
def test_says_truly_whether_tasks_are_where_they_were(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, left: str, expected: str
) -> None:
    times = {"settle_s": 1.0, "hold_s": 1.0, "window_s": 1.0}
    index = Index(
        application="a", cluster="c", live=True, runs={}, stopped="the run has ended", left=left, **times
    )  # fmt: skip
    _conclude(index, None)
    printed = capsys.readouterr().out
    assert "0 placements of a on c, live; nothing was written\n" in printed
    assert expected in printed
    assert ("all tasks are back where they were" in printed) == (not left)
