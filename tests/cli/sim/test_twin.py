import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from penstock.cli.sim.twin import RAREST, longer
from penstock.model.costs import Costs
from penstock.model.files import save
from tests.conftest import Ran

Penstock = Callable[..., Ran]

SHORT = ("--duration", "2", "--rate", "500")


def test_latency_throughput_and_where_time_goes_are_shown(penstock: Penstock) -> None:
    ran = penstock("sim", "twin", "word-count", "li-10", *SHORT)
    assert ran.code == 0, ran.err
    assert "placed by t-heron" in ran.out
    for word in ("latency", "p50", "p95", "p99", "throughput", "split->count", "database", "m0", "nothing ran"):
        assert word in ran.out
    assert "overload" not in ran.out


def test_the_json_has_the_same_and_more(penstock: Penstock) -> None:
    ran = penstock("sim", "twin", "word-count", "li-10", *SHORT, "--seed", "0", "--seed", "1", "--json")
    answer = json.loads(ran.out)
    assert answer["latency"]["mean_s"] <= answer["latency"]["p99_s"]
    assert answer["throughput_tps"] == pytest.approx(500, rel=0.1)
    assert [row["component"] for row in answer["components"]] == ["source", "split", "count", "database"]
    assert {row["stream"] for row in answer["streams"]} == {"source->split", "split->count", "count->database"}
    assert len(answer["machines"]) == 10
    assert len(answer["tasks"]) == 30
    assert answer["warning"] is None


def test_reports_overload(penstock: Penstock) -> None:
    ran = penstock("sim", "twin", "word-count", "li-10", "--duration", "1", "--rate", "80000")
    assert ran.code == 0, ran.err
    assert "overload: " in ran.out


def test_a_plan_a_picture_and_telemetry(penstock: Penstock, tmp_path: Path) -> None:
    plan, picture, kept = tmp_path / "plan.toml", tmp_path / "twin.png", tmp_path / "kept"
    assert penstock("plan", "word-count", "li-10", "--policy", "r-storm", "--save", plan).code == 0
    costs = tmp_path / "costs.toml"
    save(Costs(hop_cpu=1e-5, window=64, delay_variation=0.3), costs)
    ran = penstock(
        "sim", "twin", "word-count", "li-10", *SHORT, "--plan", plan, "--plot", picture, "--records", kept,
        "--costs", costs,
    )  # fmt: skip
    assert ran.code == 0, ran.err
    assert picture.stat().st_size > 1000
    assert [path.name for path in kept.iterdir()] == ["twin-0.parquet"]
    assert "penstock report" in ran.out


@pytest.mark.parametrize(("tuples", "rarest"), [(1, 1.0), (200, 1 / 200), (10**6, RAREST)])
def test_latencies_are_drawn_down_to_the_share_of_one_tuple(tuples: int, rarest: float) -> None:
    times, shares = longer(np.arange(1.0, tuples + 1.0))
    assert shares[0] == 1.0
    assert shares[-1] == pytest.approx(rarest)
    assert times[0] == 1.0
    assert times[-1] == pytest.approx(1.0 + (1.0 - rarest) * (tuples - 1.0))


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--rate", "0"], "rate: expected tuples per second > 0, got 0; choose another --rate, or omit it"),
        (["--rate", "inf"], "rate: expected tuples per second > 0, got inf; choose another --rate"),
        (["--duration", "0"], "duration: expected a number of seconds > 0, got 0; choose another --duration"),
    ],
)
def test_a_number_that_makes_no_sense_is_refused_and_not_passed_over(
    penstock: Penstock, arguments: list[str], problem: str
) -> None:
    ran = penstock("sim", "twin", "word-count", "li-10", *arguments)
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert problem in ran.err


def test_rejects_an_unwritable_telemetry_folder_before_the_simulation(penstock: Penstock, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ran = penstock("sim", "twin", "word-count", "li-10", "--duration", "1e5", "--records", tmp_path / "file")
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "is not a folder; choose another --records" in ran.err
