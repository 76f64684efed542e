import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from pyspark.errors import PySparkException

from penstock.autopilot.pilot import caution
from penstock.cli.autopilot.options import AutopilotOptions, check_autopilot
from penstock.cli.models.evaluate import show_accuracy
from penstock.cli.models.train import report_damage
from penstock.estimate.latency import Loads
from penstock.estimate.latency_models import LatencyModels, load_models, save_models
from penstock.model.cluster import Cluster, Machine
from penstock.model.errors import FileProblem
from penstock.model.files import save
from penstock.model.instance import Instance
from penstock.model.topology import Application, Component, Kind, Stream
from penstock.pipeline.accuracy import Compared
from penstock.runtime.config import RunConfig
from penstock.workloads.applications import application
from penstock.workloads.clusters import cluster
from tests.conftest import Ran
from tests.estimate.latency_cases import random_models
from tests.pipeline.latency_tables import CPU, RATE, WIDTHS, write_tables

Penstock = Callable[..., Ran]


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """Latency models of word count on Li's cluster, with random coefficients."""
    instance = Instance(application("word-count"), cluster("li-10"))
    rates = {source.name: 100.0 for source in instance.topology.sources}
    loads = Loads.declared(instance, rates)
    drawn = random_models(np.random.default_rng(0), instance, loads, kind="svr-rbf")
    save_models(drawn, tmp_path / "models.npz")
    return tmp_path / "models.npz"


def test_plans_for_the_least_predicted_latency(penstock: Penstock, models: Path) -> None:
    policies = [part for name in ("round-robin", "predictive", "predictive-search") for part in ("--policy", name)]
    ran = penstock("plan", "word-count", "li-10", *policies, "--model", models, "--rate", 100, "--json")
    assert ran.code == 0, ran.err
    answer = json.loads(ran.out)
    latency = {one["policy"]: one["latency_ms"] for one in answer["decisions"]}
    assert answer["objective"] == "latency"
    assert latency["predictive-search"] <= latency["predictive"] <= latency["round-robin"]
    assert latency[answer["best"]] == min(latency.values())
    assert answer["decisions"][0]["latency"]["worst_path"][0] in [s.name for s in application("word-count").sources]


def test_warns_of_loads_beyond_the_training_data(penstock: Penstock, models: Path) -> None:
    ran = penstock("plan", "word-count", "li-10", "--policy", "round-robin", "--model", models, "--rate", 1000)
    assert ran.code == 0, ran.err
    assert "beyond the training data of the models" in ran.out
    assert "latency" in ran.out
    assert "best by predicted latency" in ran.out


@pytest.fixture
def observed(tmp_path: Path) -> tuple[Path | str, ...]:
    """The arguments of a plan for an application whose tables show twice the cpu that it declares."""
    kinds = {"in": Kind.SOURCE, "out": Kind.SINK}
    topology = Application(
        name="imaginary",
        components=tuple(
            Component(name=n, kind=kinds.get(n, Kind.OPERATOR), parallelism=w, cpu=CPU[n] / 2)
            for n, w in WIDTHS.items()
        ),
        streams=(Stream(source="in", target="split"), Stream(source="split", target="out")),
    )
    machines = Cluster(name="three", machines=tuple(Machine(name=f"m{i}") for i in range(3)))
    instance = Instance(topology, machines)
    drawn = random_models(np.random.default_rng(0), instance, Loads.declared(instance, {"in": RATE}), kind="svr-rbf")
    save_models(drawn, tmp_path / "imaginary.npz")
    save(topology, tmp_path / "application.toml")
    save(machines, tmp_path / "cluster.toml")
    write_tables(tmp_path / "tables", seed=5)
    where = tmp_path / "application.toml", tmp_path / "cluster.toml"
    return (*where, "--policy", "round-robin", "--model", tmp_path / "imaginary.npz", "--json")


def test_plans_by_what_the_last_minutes_of_a_run_show(
    penstock: Penstock, observed: tuple[Path | str, ...], tmp_path: Path
) -> None:
    def busiest(*more: object) -> float:
        ran = penstock("plan", *observed, *more)
        assert ran.code == 0, ran.err
        return float(json.loads(ran.out)["decisions"][0]["latency"]["busiest"])

    declared = busiest("--rate", RATE)
    shown = busiest("--tables", tmp_path / "tables")
    assert shown == pytest.approx(2 * declared, rel=0.02)
    named = ("--tables", tmp_path / "tables", "--run", "imaginary-20250101-000000")
    assert busiest(*named, "--rate", RATE / 4) == pytest.approx(shown / 4)


def test_refuses_tables_that_are_not_there_or_of_another_application(
    penstock: Penstock, observed: tuple[Path | str, ...], models: Path, tmp_path: Path
) -> None:
    plain = observed[:-1]  # not as JSON
    words = ("word-count", "li-10", "--policy", "round-robin", "--model", models)
    for arguments, expected in (
        ((*plain, "--tables", tmp_path), "there is no table features"),
        ((*plain, "--tables", tmp_path / "tables", "--run", "r1"), "contains no run 'r1'; there are imaginary-2025"),
        ((*plain, "--run", "r1"), "add --tables DIR"),
        (("word-count", "li-10", "--tables", tmp_path / "tables"), "add --model FILE"),
        ((*words, "--tables", tmp_path / "tables"), "which 'word-count' does not have; choose tables of its runs"),
    ):
        ran = penstock("plan", *(argument for argument in arguments if argument != "--json"))
        assert (ran.code, ran.err.count("\n")) == (2, 1), ran.err
        assert expected in ran.err


def test_says_that_a_prediction_was_stretched_only_where_it_was(penstock: Penstock, models: Path) -> None:
    policies = [part for name in ("round-robin", "r-storm", "t-heron", "random") for part in ("--policy", name)]
    ran = penstock("plan", "word-count", "li-10", *policies, "--model", models, "--rate", 100)
    assert ran.code == 0, ran.err
    assert "longest path alone" not in ran.out
    full = penstock("plan", "word-count", "li-10", "--policy", "round-robin", "--model", models, "--rate", 15_000)
    assert "its fullest machine, slot or link needs 97% of what it has; the longest path alone takes" in full.out


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--rate", 0], "rate: expected tuples per second > 0, got 0; choose another --rate"),
        (["--tables", "pyproject.toml"], "pyproject.toml: there is no such folder; check --tables"),
    ],
)
def test_refuses_a_load_that_is_none(penstock: Penstock, models: Path, arguments: list[object], problem: str) -> None:
    ran = penstock("plan", "word-count", "li-10", "--policy", "predictive", "--model", models, *arguments)
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert problem in ran.err


def test_explains_the_slowest_paths(penstock: Penstock, models: Path) -> None:
    command = ("plan", "word-count", "li-10", "--policy", "round-robin", "--model", models, "--rate", 100, "--explain")
    ran = penstock(*command, "--json")
    answer = json.loads(ran.out)
    latency = answer["decisions"][0]["latency"]
    assert answer["paths"][0]["path"] == latency["worst_path"]
    assert answer["paths"][0]["seconds"] == pytest.approx(latency["longest_path_s"])
    assert " → ".join(latency["worst_path"]) in penstock(*command).out


def test_warns_of_another_parallelism_than_in_training(penstock: Penstock, models: Path) -> None:
    save_models(dataclasses.replace(load_models(models), parallelism={"split": 3}), models)
    ran = penstock("plan", "word-count", "li-10", "--policy", "round-robin", "--model", models, "--rate", 100)
    tasks = application("word-count")["split"].parallelism
    assert f"the models were trained on split with 3 tasks, not {tasks}" in ran.out


def test_warns_of_models_that_were_trained_on_other_machines(
    penstock: Penstock, models: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ("plan", "word-count", "li-10", "--policy", "round-robin", "--model", models, "--rate", 100)
    own = {one.name: (one.cpu, one.memory_mb) for one in cluster("li-10").machines}
    save_models(dataclasses.replace(load_models(models), machines=own), models)
    assert "the model was trained on" not in penstock(*command).out
    known = load_models(models)
    assert autopilot_caution(models) == ""
    other = dict.fromkeys(list(own)[:1], (8.0, 512.0))
    save_models(dataclasses.replace(known, machines=other), models)
    expected = f"the model was trained on {next(iter(own))} (cpu 8, 512 MB), not on "
    remedy = "of 'li-10'; its predictions may be inaccurate: train again on runs of this cluster"
    for text in (penstock(*command).out, autopilot_caution(models)):
        assert expected in text
        assert remedy in text
    capsys.readouterr()
    words, machines = application("word-count"), cluster("li-10")
    check_autopilot(AutopilotOptions(), words, RunConfig(), model=models, cluster=machines)
    assert expected in capsys.readouterr().err


def autopilot_caution(models: Path) -> str:
    return caution("predictive", str(models), None, cluster("li-10"))


def test_refuses_models_that_do_not_fit(penstock: Penstock, models: Path, tmp_path: Path) -> None:
    ran = penstock("plan", "log-processing", "li-10", "--model", models, "--rate", 100)
    assert ran.code == 2
    assert ran.err.count("\n") == 1
    assert "was trained for 'word-count'" in ran.err
    ran = penstock("plan", "word-count", "li-10", "--model", tmp_path / "none.npz", "--rate", 100)
    assert (ran.code, "cannot be read" in ran.err) == (2, True)
    ran = penstock("plan", "word-count", "li-10", "--rate", 100)
    assert (ran.code, "--model" in ran.err) == (2, True)


def test_a_run_refuses_models_that_do_not_fit_before_it_starts(
    penstock: Penstock, models: Path, tmp_path: Path
) -> None:
    shared = ("--policy", "predictive", "--model", models, "--rate", 50, "--runs", tmp_path / "runs")
    ran = penstock("run", "word-count", *shared)
    assert (ran.code, "--emulate" in ran.err) == (2, True)
    ran = penstock("run", "log-processing", "--emulate", "li-10", *shared)
    assert (ran.code, "was trained for 'word-count'" in ran.err) == (2, True)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--output", "models.toml"), ".npz"),
        (("--output", "models.npz", "--kind", "forest"), "no kind of model is named 'forest'"),
        (("--output", "nowhere/models.npz"), "is not a folder"),
        (("--output", "models.npz"), "no task_windows"),
    ],
)
def test_training_refuses_before_spark_starts(
    penstock: Penstock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], expected: str
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = penstock("models", "train", "latency", tmp_path, *arguments)
    assert ran.code == 2
    assert expected in ran.err
    assert ran.err.count("\n") == 1


def test_evaluating_refuses_a_damaged_file_before_spark_starts(penstock: Penstock, tmp_path: Path) -> None:
    (tmp_path / "models.npz").write_bytes(b"PK nothing")
    ran = penstock("models", "evaluate", "latency", tmp_path, "--model", tmp_path / "models.npz")
    assert ran.code == 2
    assert "is not a valid file of latency models" in ran.err


@pytest.mark.spark
def test_trains_and_evaluates(penstock: Penstock, tmp_path: Path) -> None:
    known, other = (write_tables(tmp_path / f"t{seed}", seed=seed, places=6) for seed in (0, 1))
    file, plot = tmp_path / "models.npz", tmp_path / "accuracy.png"
    trained = penstock("models", "train", "latency", known, "--output", file, "--kind", "linear")
    assert trained.code == 0, trained.err
    assert "in->split" in trained.out
    assert "6 placements" in trained.out
    evaluated = penstock("models", "evaluate", "latency", other, "--model", file, "--plot", plot, "--json")
    assert evaluated.code == 0, evaluated.err
    rows = {row["name"]: row for row in json.loads(evaluated.out)["rows"]}
    assert rows["paths"]["windows"] == 18
    assert rows["in->split"]["accuracy"]["model"] > rows["in->split"]["accuracy"]["mean"]
    assert plot.stat().st_size > 10_000


def test_the_picture_of_accuracy_names_its_axes_their_unit_and_its_colours(tmp_path: Path) -> None:
    import matplotlib

    from penstock.cli.models.evaluate import plot_accuracy

    kinds = [("component", "split"), ("stream", "split->count"), ("overall", "paths"), ("overall", "trees")]
    predicted = {"model": [0.001, 0.002], "linear": [0.001, 0.003], "mean": [0.0015, 0.0015]}
    compared = [Compared(of, name, [0.001, 0.0021], predicted) for of, name in kinds]
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        plot_accuracy(compared, "word-count", tmp_path / "accuracy.svg")
    drawn = (tmp_path / "accuracy.svg").read_text()
    assert drawn.count("measured (ms)") == drawn.count("predicted (ms)") == len(kinds)
    for text in ("model, of the whole", "mean predictor", "predicted = measured"):
        assert text in drawn


def test_shows_accuracy_beside_that_of_simpler_models(capsys: pytest.CaptureFixture[str]) -> None:
    predicted = {"model": [2.2e-3, 1.8e-3], "linear": [3e-3, 3e-3], "mean": [4e-3, 4e-3]}
    rows = [
        Compared("component", "split", [2e-3, 2e-3], predicted),
        Compared("overall", "trees", [2e-3] * 2, predicted),
    ]
    notes = {"component split": {"accuracy": 0.925, "rows": 40}}
    show_accuracy(rows, LatencyModels({}, {}, application="words", notes=notes))
    printed = capsys.readouterr().out
    assert "overall, whole tuples" in printed
    for share in ("90.0 %", "50.0 %", "0.0 %", "92.5 %"):
        assert share in printed


def test_reports_a_damaged_table_in_one_line(tmp_path: Path) -> None:
    with (
        pytest.raises(
            FileProblem, match=r"/t/edge_windows/part-0\.parquet cannot be read, it is damaged; run penstock"
        ),
        report_damage(tmp_path),
    ):
        raise PySparkException("[FAILED_READ_FILE.NO_HINT] file:///t/edge_windows/part-0.parquet. SQLSTATE")
    with pytest.raises(PySparkException), report_damage(tmp_path):
        raise PySparkException("something else")
