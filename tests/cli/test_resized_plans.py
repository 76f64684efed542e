"""Plans whose parallelism differs from their application's, in every command that reads plans."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.model.files import save
from penstock.model.parallelism import resized
from penstock.model.placement import Placement
from penstock.model.plan import Plan, to_plan
from penstock.workloads.applications import application
from penstock.workloads.clusters import cluster
from tests.conftest import Ran

Penstock = Callable[..., Ran]


def made(splitters: int) -> Plan:
    """Return a plan of word count with a number of splitters, dealt to the slots in turn."""
    app, machines = resized(application("word-count"), {"split": splitters}), cluster("li-10")
    slots = tuple(task % machines.slot_count for task in range(app.task_count))
    return to_plan(app, machines, Placement(slots), policy="by-hand", objective="throughput")


@pytest.fixture
def grown(tmp_path: Path) -> Path:
    save(made(12), tmp_path / "grown.toml")
    return tmp_path / "grown.toml"


def test_show_draws_its_load(penstock: Penstock, grown: Path) -> None:
    ran = penstock("show", grown, "--application", "word-count", "--cluster", "li-10")
    assert ran.code == 0
    assert "split" in ran.out
    assert penstock("show", grown).out == ran.out  # found by the names of the built-in ones


def test_diff_lists_the_components_whose_number_of_tasks_differs(penstock: Penstock, grown: Path) -> None:
    save(made(8), grown.with_name("before.toml"))
    ran = penstock("plans", "diff", grown.with_name("before.toml"), grown)
    assert ["split", "8", "12", "+4"] in [line.split() for line in ran.out.splitlines()]
    assert "tasks before" not in penstock("plans", "diff", grown, grown).out
    numbers = json.loads(penstock("plans", "diff", grown.with_name("before.toml"), grown, "--json").out)["parallelism"]
    assert numbers["before"] == {"source": 6, "split": 8, "count": 8, "database": 8}
    assert numbers["after"] == {**numbers["before"], "split": 12}


def test_the_twin_simulates_its_tasks(penstock: Penstock, grown: Path) -> None:
    arguments = ("--plan", grown, "--rate", "100", "--duration", "1", "--json")
    found = json.loads(penstock("sim", "twin", "word-count", "li-10", *arguments).out)
    assert sum(task["task"].startswith("split[") for task in found["tasks"]) == 12


def test_a_run_rejects_it_and_names_the_remedy(penstock: Penstock, grown: Path) -> None:
    ran = penstock("run", "word-count", "--emulate", "li-10", "--plan", grown)
    remedy = "tasks.split: expected 8 slots, one per task, got 12; plan again, or set parallelism = 12"
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert remedy in ran.err
