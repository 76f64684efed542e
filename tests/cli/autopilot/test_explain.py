"""What `penstock autopilot explain` says that placements were scored by."""

import msgspec
import pytest

from penstock.autopilot.control_target import Reading
from penstock.autopilot.guard import Guard
from penstock.autopilot.ledger import Inputs
from penstock.cli.autopilot.decisions import scored_by

INPUTS = Inputs(
    policy="predictive", objective="delay", seed=1, placement={"in[0]": "m0/0"}, rates={"in": 100.0}, held_s=0.1,
    readings=[Reading(at=1.0, seconds=1.0)], guard=Guard(),
)  # fmt: skip


@pytest.mark.parametrize(
    ("model", "tasks", "expected"),
    [
        ("", {"in[0]": 100.0}, "the estimate of delay"),
        ("wc.npz", {}, "wc.npz, by the loads that tasks were declared to have"),
        ("wc.npz", {"in[0]": 100.0}, "wc.npz, by the loads that tasks were seen to have"),
    ],
)
def test_says_whether_loads_were_observed(model: str, tasks: dict[str, float], expected: str) -> None:
    seen = [msgspec.structs.replace(INPUTS.readings[-1], tasks=tasks)]
    assert scored_by(msgspec.structs.replace(INPUTS, model=model, readings=seen)) == expected
