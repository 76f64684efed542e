from pathlib import Path

import numpy as np
import pytest

from penstock.model.errors import InvalidInput, UnknownName
from penstock.model.slotted import UNLIMITED
from penstock.workloads.arrivals import Counts
from penstock.workloads.hone import HOT_SHARE, KINDS, WORDS, draw_arrivals, hone_link, link_arrivals, link_load
from penstock.workloads.potus import traces_folder
from tests.shared_data import SHARED, needs_shared

SLOTS, QUEUES, LOAD = 20_000, 8, 0.9


def drawn(kind: str, seed: int = 3) -> Counts:
    return draw_arrivals(kind, SLOTS, QUEUES, LOAD, np.random.default_rng(seed))


@pytest.mark.parametrize("queues", [1, 2, 10, 64])
def test_a_link_has_its_queues_on_one_machine_that_sends_one_tuple_a_slot(queues: int) -> None:
    link = hone_link(queues)
    assert link.source.tolist() == [True] * queues + [False]
    assert np.diff(link.queues).tolist() == [1] * queues + [0]
    assert set(link.machine[:queues]) == {0}
    assert link.machine[queues] == 1
    assert link.capacity[0] == 1
    assert np.isinf(link.service[queues])  # the sink is never busy
    assert link.limit.min() >= 1
    assert link.limit.max() < UNLIMITED


def test_a_link_without_queues_is_rejected() -> None:
    with pytest.raises(InvalidInput, match=r"queues: expected 1 or more, got 0"):
        hone_link(0)


def test_arrivals_are_per_task_and_slot_and_the_sink_has_none() -> None:
    counts = np.array([[1, 0], [2, 3], [0, 4]])
    assert link_arrivals(counts).tolist() == [[1, 2, 0], [0, 3, 4], [0, 0, 0]]


def test_rates_are_loads_by_the_length_of_a_slot() -> None:
    assert link_load(10, 1000) == pytest.approx(1.0)
    assert link_load(20, 500) == pytest.approx(1.0)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_its_load(kind: str) -> None:
    counts = drawn(kind)
    assert counts.shape == (SLOTS, QUEUES)
    assert counts.dtype == np.int64
    assert counts.min() == 0
    assert counts.sum() / SLOTS == pytest.approx(LOAD, rel=0.1)


@pytest.mark.parametrize("kind", KINDS)
def test_equal_seeds_are_equal_draws(kind: str) -> None:
    assert np.array_equal(drawn(kind, 5), drawn(kind, 5))
    assert not np.array_equal(drawn(kind, 5), drawn(kind, 6))


@pytest.mark.parametrize("kind", KINDS)
def test_one_queue_has_the_whole_load(kind: str) -> None:
    counts = draw_arrivals(kind, SLOTS, 1, 0.8, np.random.default_rng(0))
    assert counts.shape == (SLOTS, 1)
    assert counts.sum() / SLOTS == pytest.approx(0.8, rel=0.2)


def test_the_hot_queue_has_its_share_and_the_others_are_equal() -> None:
    totals = drawn("hot-queue").sum(axis=0)
    assert totals[0] / totals.sum() == pytest.approx(HOT_SHARE, abs=0.02)
    assert totals[1:].max() < 1.3 * totals[1:].min()


def test_the_load_of_zipf_queues_depends_on_their_number() -> None:
    totals = drawn("zipf").sum(axis=0)
    assert totals[0] / totals[3] == pytest.approx(4.0, rel=0.15)
    assert totals[0] / totals[7] == pytest.approx(8.0, rel=0.2)


def test_batches_are_of_one_to_thirty_two_tuples() -> None:
    sizes = drawn("batches")
    sizes = sizes[sizes > 0]
    assert sizes.min() == 1
    assert sizes.max() == WORDS
    assert sizes.mean() == pytest.approx((1 + WORDS) / 2, rel=0.1)


def test_bursts_make_a_queue_vary_more_than_poisson_does() -> None:
    """Variance over mean of windows as long as a burst: 1 for Poisson."""

    def index(kind: str) -> float:
        windows = drawn(kind).reshape(SLOTS // 100, 100, QUEUES).sum(axis=1)
        return float((windows.var(axis=0) / windows.mean(axis=0)).mean())

    assert index("poisson") == pytest.approx(1.0, abs=0.25)
    assert index("on-off") > 5.0


@needs_shared
def test_traces_keep_the_differences_of_queues_and_add_up_to_the_load() -> None:
    assert traces_folder() == SHARED / "arrivals"
    counts = drawn("trace")
    assert counts.sum() / SLOTS == pytest.approx(LOAD, abs=0.001)
    totals = counts.sum(axis=0)
    assert totals.max() > 1.1 * totals.min()


def test_bursts_at_every_scale_are_generated_without_a_trace(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with_traces = drawn("trace")
    monkeypatch.setattr("penstock.workloads.potus.FOLDER", tmp_path)  # a folder without the files
    made_up = drawn("trace")
    monkeypatch.setattr("penstock.workloads.potus.FOLDER", tmp_path / "nowhere")
    assert np.array_equal(made_up, drawn("trace"))
    assert np.array_equal(made_up, with_traces) != SHARED.is_dir()
    assert made_up.sum() / SLOTS == pytest.approx(LOAD, rel=0.1)


def test_an_unknown_kind_is_rejected_with_the_choices() -> None:
    with pytest.raises(UnknownName, match=r"no arrivals are named 'poison'; did you mean poisson\?"):
        draw_arrivals("poison", 10, 2, 0.5, np.random.default_rng(0))
