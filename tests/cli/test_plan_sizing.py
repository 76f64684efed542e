import json
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.model.files import load_plan
from tests.conftest import Ran

Penstock = Callable[..., Ran]
SMALL = ("plan", "word-count", "homogeneous-8", "--parallelism", "auto")


@pytest.mark.slow
def test_auto_finds_the_least_machines_for_a_rate_and_saves_the_plan(penstock: Penstock, tmp_path: Path) -> None:
    ran = penstock(*SMALL, "--rate", "8000", "--save", tmp_path / "plan.toml")
    assert ran.code == 0
    assert "parallelism for 8,000/s" in ran.out
    plan = load_plan(tmp_path / "plan.toml")
    tasks = {name: len(slots) for name, slots in plan.tasks.items()}
    assert plan.expected["throughput_tps"] >= 8000
    record = json.loads(penstock(*SMALL, "--rate", "8000", "--json").out)
    assert record["sizing"]["sufficient"] is True
    assert record["sizing"]["sizes"][0]["parallelism"] == tasks
    used = {slot.partition("/")[0] for slots in plan.tasks.values() for slot in slots}
    assert len(used) == record["sizing"]["sizes"][0]["machines"] < 8
    assert penstock("show", tmp_path / "plan.toml").code == 0
    load = ("--plan", tmp_path / "plan.toml", "--rate", "8000", "--duration", "2", "--json")
    simulated = json.loads(penstock("sim", "twin", "word-count", "homogeneous-8", *load).out)
    assert simulated["throughput_tps"] == pytest.approx(8000, rel=0.05)


def test_auto_without_a_rate_finds_the_highest(penstock: Penstock) -> None:
    record = json.loads(penstock(*SMALL, "--json").out)
    assert record["sizing"]["rate_tps"] is None
    plain = json.loads(penstock("plan", "word-count", "homogeneous-8", "--policy", "optimal:seconds=1", "--json").out)
    assert record["decisions"][0]["throughput_tps"] > 2 * plain["decisions"][0]["throughput_tps"]


def test_an_impossible_rate_is_reported(penstock: Penstock) -> None:
    ran = penstock(*SMALL, "--rate", "1e6")
    assert "no parallelism carries 1,000,000/s on these machines; at most" in ran.out
    assert json.loads(penstock(*SMALL, "--rate", "1e6", "--json").out)["sizing"]["sufficient"] is False


def test_several_policies_are_compared(penstock: Penstock) -> None:
    policies = ("--policy", "flink", "--policy", "sparcle")
    record = json.loads(penstock(*SMALL, "--rate", "20000", *policies, "--json").out)
    found = record["sizing"]["sizes"]
    sizes = {size["policy"]: (size["machines"], sum(size["parallelism"].values())) for size in found}
    assert list(sizes) == ["flink", "sparcle"]
    assert record["best"] == min(sizes, key=lambda policy: sizes[policy])


def test_stated_numbers_replace_the_applications(penstock: Penstock) -> None:
    numbers = ("--parallelism", "split=3", "--parallelism", "count=5", "--policy", "r-storm")
    (decision,) = json.loads(penstock("plan", "word-count", "li-10", *numbers, "--json").out)["decisions"]
    assert {name: len(slots) for name, slots in decision["tasks"].items()} == {
        "source": 6,
        "split": 3,
        "count": 5,
        "database": 8,
    }


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--parallelism", "many"), "parallelism: expected auto or COMPONENT=TASKS, got 'many'"),
        (("--parallelism", "splitt=3"), "parallelism.splitt: no component is named 'splitt'; did you mean split?"),
        (("--parallelism", "split=0"), "parallelism.split: expected a whole number ≥ 1, got"),
        (("--parallelism", "split=2", "--parallelism", "split=3"), "parallelism: 'split' is given twice, again as '3'"),
        (("--parallelism", "auto", "--parallelism", "split=3"), "parallelism: expected auto or numbers, got auto and"),
        (("--parallelism", "auto", "--rate", "0"), "rate: expected tuples per second > 0, got 0"),
        (("--parallelism", "auto", "--objective", "delay"), "objective: a parallelism is found for throughput, got"),
        (
            ("--rate", "10"),
            "rate: only latency models use it, got 10.0 without them; add --model FILE or --parallelism",
        ),
    ],
)
def test_wrong_options_are_one_line(penstock: Penstock, options: tuple[str, ...], problem: str) -> None:
    ran = penstock("plan", "word-count", "li-10", *options)
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert problem in ran.err
