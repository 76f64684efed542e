"""Training: the baselines, and that it is repeatable, resumable, and improves placements."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from penstock.learn.instances import draw_table
from penstock.learn.job import train_network
from penstock.learn.networks import Form
from penstock.learn.training import Settings, advantages, batch_sizes, rewards, train
from penstock.model.errors import InvalidInput
from penstock.policies.placement.learned.weights import load_network

TINY = Form(width=16, layers=1, heads=2, hidden=8)


@pytest.mark.slow
def test_a_placement_is_compared_with_the_others_of_its_instance() -> None:
    reward = jnp.array([[1.0, 2.0, 6.0], [0.0, 0.0, 3.0]])
    found = np.asarray(advantages(reward, "samples"))
    spread = np.asarray(reward.std(1, keepdims=True) + jnp.median(reward.std(1)) + 1e-3)
    np.testing.assert_allclose(found * spread, [[-3.0, -1.5, 4.5], [-1.5, -1.5, 3.0]], rtol=1e-5)


def test_the_published_baseline_is_the_mean_of_the_batch() -> None:
    found = advantages(jnp.array([[1.0], [5.0]]), "batch")
    assert found.tolist() == [[-2.0], [2.0]]


@pytest.mark.slow
def test_too_much_memory_is_penalised() -> None:
    from penstock.learn.estimators import expand

    row = {name: values[0] for name, values in draw_table("published", 1, 0).items()}
    row["slot_memory"] = np.zeros_like(row["slot_memory"])
    placed = jnp.zeros((1, len(row["cpu"])), int)
    assert rewards(expand(row), row, placed, jnp.array(0.8), jnp.array(0.0), 6).tolist() == [-5.0]


@pytest.mark.slow
def test_a_stopped_training_continues_to_the_same_network(tmp_path: Path) -> None:
    table = draw_table("published", 8, 0)
    settings = Settings(steps=4, instances=4, samples=4, form=TINY)
    whole, curve = train(settings, [table], table, every=2)
    file = tmp_path / "checkpoint"
    first, _ = train(settings, [table], table, file, every=2, seconds=0.0)
    assert int(first.step) < 4
    resumed, again = train(settings, [table], table, file, every=2)
    assert int(resumed.step) == 4
    assert curve[-1].greedy == again[-1].greedy
    assert all(bool((whole.params[name] == values).all()) for name, values in resumed.params.items())
    with pytest.raises(ValueError, match="other settings"):
        train(Settings(steps=5, instances=4, samples=4, form=TINY), [table], table, file)


@pytest.mark.slow
def test_a_training_continues_from_the_weights_of_a_file(tmp_path: Path) -> None:
    settings = Settings(steps=1, instances=4, samples=4, form=TINY)
    first = train_network(settings, ["published"], 8, tmp_path / "first")
    still = Settings(steps=1, instances=4, samples=4, rate=0.0, last_rate=0.0)
    second = train_network(still, ["published"], 8, tmp_path / "second", start=first)
    before, after = (load_network(file, "neural") for file in (first, second))
    assert all((after.arrays[name] == values).all() for name, values in before.arrays.items())
    assert after.provenance.data == "8 pairs each of published, after 1 steps with 8 pairs each of published"
    assert after.provenance.settings["form"] == TINY._asdict()


def test_larger_instances_are_fewer_per_step() -> None:
    tables = [{"cpu": np.zeros((1, tasks)), "slot_cpu": np.zeros((1, slots))} for tasks, slots in ((40, 10), (160, 40))]
    assert batch_sizes(Settings(instances=64), tables) == [64, 16]


@pytest.mark.slow
def test_training_improves_placements(tmp_path: Path) -> None:
    settings = Settings(steps=40, instances=16, samples=16, form=TINY, rate=1e-2, entropy=0.0)
    points: list[float] = []
    train_network(settings, ["published"], 64, tmp_path, lambda point: points.append(point.reward))
    assert points[-1] > points[0] + 0.05


@pytest.mark.slow
@pytest.mark.parametrize("network", ["neural", "tata", "ni"])
def test_training_writes_a_network(network: str, tmp_path: Path) -> None:
    if network == "neural":
        settings = Settings(steps=2, instances=4, samples=4, form=TINY)
    else:
        settings = Settings.as_published(network=network, steps=2, instances=4)
    loaded = load_network(train_network(settings, ["published"], 8, tmp_path, lambda _: None), network)
    assert loaded.provenance.steps == 2
    assert (tmp_path / "curve.csv").read_text().startswith("step,seconds,reward")
    with pytest.raises(InvalidInput, match="other settings"):
        train_network(Settings(steps=1, form=TINY), ["published"], 4, tmp_path)


def test_jax_runs_on_the_processor() -> None:
    assert jax.devices()[0].platform == "cpu"
