"""The figure of instances unlike the training: that they are what they say, a case, and what its claims say of rows."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure as Picture

from penstock.papers.tata.unlike import KINDS, POLICIES, UNLIKE, losses
from tests.shared_data import needs_shared


def rows(neural: float) -> pd.DataFrame:
    values = {**dict.fromkeys(POLICIES, 0.3), POLICIES[0]: 0.7, "neural": neural}
    return pd.DataFrame(
        {"kind": "joins", "seed": 0, "instance": number, "policy": policy, "reward": reward, "ms": 1.0}
        for number in range(2)
        for policy, reward in values.items()
    )


def drawn(kind: str) -> list[tuple[int, int, float]]:
    """Return tasks, slots and the ratio of speeds of some instances."""
    rng = np.random.default_rng(3)
    pairs = [KINDS[kind](rng) for _ in range(30)]
    return [
        (job.task_count, cluster.slot_count,
         max(m.speed for m in cluster.machines) / min(m.speed for m in cluster.machines))
        for job, cluster in pairs
    ]  # fmt: skip


def test_kinds_are_what_they_say() -> None:
    assert all(30 <= slots <= 60 for _, slots, _ in drawn("many-slots"))
    assert all(2 <= slots <= 3 for _, slots, _ in drawn("few-slots"))
    assert max(ratio for _, _, ratio in drawn("unequal")) > 4 > max(ratio for _, _, ratio in drawn("published"))
    rng = np.random.default_rng(0)
    job, _ = KINDS["joins"](rng)
    inputs = [sum(stream.target == component.name for stream in job.streams) for component in job.components]
    assert max(inputs) >= 3
    _, far = KINDS["long-delays"](rng)
    assert (far.distances.same_slot_ms, far.distances.other_host_ms) == (1.0, 1000.0)


@needs_shared
@pytest.mark.slow
def test_every_policy_is_asked_on_every_kind() -> None:
    cases = UNLIKE.cases(True)
    assert [case["kind"] for case in cases] == list(KINDS)
    found = pd.DataFrame([dict(row) for row in UNLIKE.run({**cases[3], "instances": 1})])
    assert list(found["policy"]) == list(POLICIES)
    assert found["reward"].notna().all()


def test_a_placement_is_compared_with_the_best_of_its_instance() -> None:
    found = losses(rows(neural=0.68)).set_index("policy")["loss"]
    assert found[POLICIES[0]].tolist() == [0.0, 0.0]
    assert found["neural"].tolist() == pytest.approx([0.02, 0.02])


def test_a_large_loss_is_no_success() -> None:
    assert UNLIKE.claims(rows(neural=0.68))[0].holds
    assert not UNLIKE.claims(rows(neural=0.5))[0].holds


def test_its_picture_is_drawn() -> None:
    picture = Picture()
    UNLIKE.draw(rows(neural=0.68), picture)
    assert [axis.get_xlabel() for axis in picture.axes] == ["kind of instance"]
