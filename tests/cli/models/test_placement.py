"""`penstock models train placement` and `evaluate placement`: what they print, write and reject."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Ran

pytestmark = pytest.mark.slow


def test_a_small_training_gives_a_network_that_places(penstock: Callable[..., Ran], tmp_path: Path) -> None:
    size = ("--steps", 2, "--pairs", 4, "--batch", 2, "--samples", 2, "--instances", "published")
    trained = penstock("models", "train", "placement", "--output", tmp_path / "own", *size, "--json")
    assert trained.code == 0, trained.err
    made = json.loads(trained.out)
    assert [point["step"] for point in made["curve"]] == [2]
    assert {file.name for file in (tmp_path / "own").iterdir()} == {
        "neural.npz",
        "checkpoint.npz",
        "curve.csv",
        "curve.png",
    }
    planned = penstock("plan", "word-count", "tata-3", "--policy", f"neural:file={made['file']}", "--json")
    assert planned.code == 0, planned.err
    again = penstock("models", "train", "placement", "--output", tmp_path / "own", *size, "--seed", 1)
    assert (again.code, again.err.count("\n")) == (2, 1)
    assert "is of a training with other settings" in again.err


def test_policies_are_compared_on_the_same_instances(penstock: Callable[..., Ran]) -> None:
    policies = ("--policy", "random", "--policy", "neural:samples=4", "--policy", "random")
    ran = penstock("models", "evaluate", "placement", "--pairs", 5, *policies, "--json")
    assert ran.code == 0, ran.err
    first, neural, last = json.loads(ran.out)
    assert (first["reward"], last["difference"]) == (last["reward"], 0.0)
    assert neural["placed"] == 5
    assert neural["difference"] == pytest.approx(neural["reward"] - first["reward"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("train", "placement", "--output", "x", "--network", "nural"), "network: nothing is named 'nural'"),
        (("train", "placement", "--output", "x", "--instances", "all"), "instances: nothing is named 'all'"),
        (("train", "placement", "--output", "x", "--samples", 1), "samples: expected ≥ 2"),
        (("evaluate", "placement", "--instances", "tiny"), "instances: nothing is named 'tiny'"),
        (("evaluate", "placement", "--policy", "neutral"), "no policy is named 'neutral'"),
    ],
)
def test_invalid_input_is_rejected_in_one_line(
    arguments: tuple[str | int, ...],
    message: str,
    penstock: Callable[..., Ran],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = penstock("models", *arguments)
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert message in ran.err
