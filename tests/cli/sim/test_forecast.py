"""`penstock sim forecast`, and the page about it."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.cli.sim.series import find_series, usual_slot
from penstock.model.errors import InvalidInput
from penstock.policies.registry import PolicyKind, names
from penstock.workloads.traces import read_trace
from tests import ROOT
from tests.conftest import Ran
from tests.shared_data import SHARED, needs_shared

Penstock = Callable[..., Ran]
PAGE = ROOT / "docs" / "guides" / "forecasting.md"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A file of counts."""
    path = tmp_path / "arrivals.csv"
    path.write_text("\n".join(map(str, np.random.default_rng(8).poisson(6, 300))) + "\n")
    return path


@pytest.mark.slow
def test_compares_every_forecaster_and_stars_the_best(penstock: Penstock, trace: Path) -> None:
    ran = penstock("sim", "forecast", trace)
    assert ran.code == 0, ran.err
    for name in names(PolicyKind.FORECAST):
        assert name in ran.out
    assert "300 slots of 1 s" in ran.out
    (starred,) = re.findall(r"^(\S+) ★ ", ran.out, re.MULTILINE)
    assert starred == json.loads(penstock("sim", "forecast", trace, "--json").out)["traces"][0]["best"]


def test_answers_programs_for_several_traces(penstock: Penstock, trace: Path) -> None:
    options = ("--forecaster", "ewma:alpha=0.5", "--forecaster", "perfect", "--lead", 3, "--slots", 200)
    ran = penstock("sim", "forecast", trace, "poisson:rate=80,slot=0.1", *options, "--json")
    answer = json.loads(ran.out)
    first, second = answer["traces"]
    assert answer["lead"] == 3
    assert (first["slots"], second["slots"]) == (200, 200)
    assert second["slot_s"] == 0.1
    assert second["mean"] == pytest.approx(8, rel=0.1)
    ewma, perfect = first["forecasters"]
    assert first["best"] == ewma["forecaster"] == "ewma:alpha=0.5"
    assert perfect["mse"] == 0
    assert not perfect["honest"]
    assert ewma["missed"] > 0


def test_a_recordings_own_interval_is_the_slot_however_it_is_named(penstock: Penstock, tmp_path: Path) -> None:
    path = tmp_path / "values.csv"
    rows = [f"2020-01-01 {hour:02d}:{minute:02d}:00,{hour + minute}" for hour in range(9) for minute in range(0, 60, 5)]
    path.write_text("timestamp,value\n" + "\n".join(rows) + "\n")
    scaled = (f"replay:path={path},rate=8", f"{path}:rate=8")
    for text, slot in ((str(path), 300.0), *((text, 300.0) for text in scaled), (f"{path}:speed=300", 1.0)):
        series = find_series(text, None, None, 0)
        assert (series.slot, series.interval, series.interpolated) == (slot, slot, False)
        assert len(series.counts) == len(rows)
    finer = penstock("sim", "forecast", f"replay:path={path},slot=1", "--forecaster", "ewma", "--slots", 500)
    assert "it counts by 300 s; within that, arrivals are assumed to be even" in " ".join(finer.out.split())


def test_all_stands_for_every_forecaster_that_is_not_named_beside_it(penstock: Penstock, trace: Path) -> None:
    both = ("--forecaster", "all", "--forecaster", "kalman", "--forecaster", "kalman:trend=true")
    answer = json.loads(penstock("sim", "forecast", trace, *both, "--json").out)
    listed = [row["forecaster"] for row in answer["traces"][0]["forecasters"]]
    assert [name for name in listed if name.startswith("kalman")] == ["kalman", "kalman:trend=true"]
    assert {"ewma", "none"} < set(listed)


def test_equal_seeds_give_equal_answers(penstock: Penstock) -> None:
    def scores(seed: int) -> list[tuple[float, float]]:
        ran = penstock("sim", "forecast", "poisson:rate=8", "--slots", 500, "--seed", seed, "--json")
        return [(row["mse"], row["bias"]) for row in json.loads(ran.out)["traces"][0]["forecasters"]]

    assert scores(1) == scores(1)
    assert scores(1) != scores(2)


@pytest.mark.slow
def test_draws_a_picture_of_all_traces(penstock: Penstock, trace: Path, tmp_path: Path) -> None:
    picture = tmp_path / "forecast.svg"
    ran = penstock("sim", "forecast", trace, "constant:rate=5", "--slots", 120, "--plot", picture)
    assert ran.code == 0, ran.err
    assert f"drew {picture}" in ran.out.replace("\n", "")
    drawn = picture.read_text()
    assert "<!-- arrivals.csv -->" in drawn
    assert "<!-- kalman -->" in drawn


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("missing.csv",), "missing.csv: cannot be read, no such file"),
        (("bad.csv",), "bad.csv: line 3: count: expected"),
        (("poison:rate=0.8",), "no file and no arrival process is named 'poison:rate=0.8'; the processes are"),
        (("poisson",), "arrivals.poisson.rate: missing; add rate=VALUE"),
        (("poisson:rate=8", "--lead", "0"), "--lead: expected a number ≥ 1, got '0'"),
        (("poisson:rate=8", "--slots", "20", "--lead", "20"), "lead: expected fewer than the 20 slots"),
        (("poisson:rate=8", "--slot", "0"), "slot: expected a number of seconds > 0, got 0"),
        (("poisson:rate=8,slot=2", "--slot", "3"), "slot: expected one length, got 3 and another"),
        (("short.csv", "--slot", "1e-9"), "slot: expected at most 10,000,000 slots"),
        (("short.csv", "--slot", "60"), "slot: expected two slots or more, got 0 of 60 s"),
        (("poisson:rate=8", "--forecaster", "magic"), "no forecast policy is named 'magic'; there are all-true-"),
        (("poisson:rate=8", "--forecaster", "round-robin"), "'round-robin' is a placement policy"),
        (("poisson:rate=8", "--forecaster", "ewma:alpha=2"), "forecast.ewma.alpha: expected a number ≤ 1, got '2'"),
        (("poisson:rate=8", "--plot", "picture.doc"), "picture.doc: expected a name that ends in .png"),
    ],
)
def test_invalid_input_ends_in_one_line_and_code_two(
    penstock: Penstock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.csv").write_text("1\n2\nthree\n")
    Path("short.csv").write_text("1\n2\n3\n")
    ran = penstock("sim", "forecast", *arguments)
    assert ran.code == 2
    assert ran.err.startswith("error: ")
    assert ran.err.count("\n") == 1
    assert message in ran.err


def test_a_forecaster_is_no_placement_policy(penstock: Penstock) -> None:
    ran = penstock("plan", "word-count", "li-10", "--policy", "kalman")
    assert ran.code == 2
    assert "'kalman' is a forecast policy" in ran.err
    assert ran.err.count("\n") == 1


def test_policies_lists_kinds_apart_and_one_with_its_option(penstock: Penstock) -> None:
    listed = penstock("policies", "list").out
    for kind in PolicyKind:
        assert re.search(rf"^{kind}: ", listed, re.MULTILINE)
    assert (
        "Defaults: --forecaster kalman:trend=false,level=none,slope=none" in penstock("policies", "show", "kalman").out
    )
    both = json.loads(penstock("policies", "show", "round-robin", "--json").out)
    assert [one["kind"] for one in both] == ["placement", "routing", "sending"]


def test_a_trace_has_slots_as_long_as_its_intervals_and_no_more_than_it_has(trace: Path, tmp_path: Path) -> None:
    values = tmp_path / "values.csv"
    values.write_text("timestamp,value\n2024-01-01 00:00:00,3\n2024-01-01 00:05:00,7\n2024-01-01 00:10:00,2\n")
    found = find_series(str(values), None, 1000, 0)
    assert found.slot == 300
    assert found.counts.tolist() == [3, 7, 2]
    assert find_series(str(values), 150.0, None, 0).counts.sum() == 12
    assert (
        find_series(f"replay:path={trace}", None, None, 0).counts.tolist()
        == find_series(str(trace), None, None, 0).counts.tolist()
    )


def test_a_trace_of_single_tuples_has_slots_of_a_few(tmp_path: Path) -> None:
    packets = tmp_path / "packets.txt"
    packets.write_text("".join(f"{number * 0.0023:.4f} 64\n" for number in range(1000)))
    assert usual_slot(read_trace(packets)) == 0.01
    assert find_series(str(packets), None, None, 0).counts.mean() == pytest.approx(4.35, rel=0.01)


def test_a_file_may_be_named_like_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("poisson").write_text("4\n4\n")
    assert find_series("poisson", None, None, 0).counts.tolist() == [4, 4]
    with pytest.raises(InvalidInput, match="no file and no arrival process is named 'other'"):
        find_series("other", None, None, 0)


@needs_shared
@pytest.mark.parametrize("name", sorted(path.name for path in (SHARED / "arrivals").glob("*")))
def test_reads_every_recorded_trace(name: str) -> None:
    series = find_series(str(SHARED / "arrivals" / name), None, None, 0)
    assert len(series.counts) > 2000
    assert 0.5 < series.counts.mean() < 25


def test_the_page_names_only_options_that_there_are(penstock: Penstock) -> None:
    offered = set(re.findall(r"--[a-z][a-z-]+", penstock("sim", "forecast", "--help").out))
    assert set(re.findall(r"(?<!\w)--[a-z][a-z-]+", PAGE.read_text())) <= offered


def test_the_python_on_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    scope: dict[str, Any] = {}
    exec(compile(code, "forecasting.md", "exec"), scope)
    assert re.match(r"MSE [\d.]+, bias [+-]0\.\d+, phantoms \d+%, misses \d+%", capsys.readouterr().out)
    assert scope["score"].mse < scope["counts"].var()
