"""The worked examples of CONTRIBUTING.md, executed: a policy, its row and its test; a test of the protocol."""

import re
import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from penstock.policies import registry
from penstock.policies.api import PlacementView
from penstock.policies.checks import violations
from penstock.workloads.applications import application
from penstock.workloads.clusters import cluster
from tests import ROOT

TEXT = ROOT / "CONTRIBUTING.md"


def blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", TEXT.read_text(), re.DOTALL)


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    policy, row, test, _ = blocks()
    name = "penstock.policies.placement.longest_first"
    module = ModuleType(name)
    monkeypatch.setitem(sys.modules, name, module)  # where dataclasses look up the annotations
    exec(compile(policy, name, "exec"), module.__dict__)
    for key, entry in eval(f"{{{row}}}", vars(registry)).items():
        monkeypatch.setitem(registry.REGISTRY[registry.PolicyKind.PLACEMENT], key, entry)
    scope: dict[str, Any] = {}
    exec(compile(test, "test_longest_first", "exec"), scope)
    return scope


def test_its_own_test_passes(example: dict[str, Any]) -> None:
    example["test_balances_the_example_of_the_paper"]()


@pytest.mark.parametrize("machines", ["tata-3", "li-10", "line-8"])
def test_it_is_found_by_name_and_its_placements_are_valid(example: dict[str, Any], machines: str) -> None:
    assert "longest-first" in registry.names(registry.PolicyKind.PLACEMENT)
    view = PlacementView(application("throughput-test"), cluster(machines))
    result = registry.placement_policy("longest-first:usable=0.9").place(view, np.random.default_rng(0))
    assert violations(view, result) == []  # type: ignore[arg-type]


@pytest.mark.slow
def test_its_test_of_the_protocol_passes() -> None:
    scope: dict[str, Any] = {}
    exec(compile(blocks()[-1], "CONTRIBUTING.md", "exec"), scope)
    scope["test_keeps_the_order_of_a_channel_while_its_task_moves"]()
