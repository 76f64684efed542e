from itertools import pairwise

import numpy as np
import pytest

from penstock.model.errors import InvalidInput
from penstock.model.taskgraph import expand_tasks
from penstock.model.topology import Application, Grouping, Kind
from penstock.workloads.topologies import draw_job, layered, random_job

JOBS = 2000


@pytest.fixture(scope="module")
def jobs() -> list[Application]:
    rng = np.random.default_rng(11)
    return [draw_job(rng) for _ in range(JOBS)]


def inner(job: Application) -> list[int]:
    return [component.parallelism for component in job.components[1:-1]]


def test_jobs_stay_within_the_papers_ranges(jobs: list[Application]) -> None:
    tasks = [job.task_count for job in jobs]
    assert (min(tasks), max(tasks)) == (3, 36)
    assert {c.parallelism for job in jobs for c in job.components} == set(range(1, 11))
    assert {len(job.components) for job in jobs} == {3, 4, 5, 6}
    assert {c.cpu for job in jobs for c in job.components} == {1, 2, 3, 4, 5, 6}
    memory = [c.memory_mb for job in jobs for c in job.components]
    assert (min(memory), max(memory)) == (32, 256)


def test_jobs_have_one_source_task_and_one_sink_task(jobs: list[Application]) -> None:
    for job in jobs:
        ends = [c for c in job.components if c.kind is not Kind.OPERATOR]
        assert [(c.kind, c.parallelism) for c in ends] == [(Kind.SOURCE, 1), (Kind.SINK, 1)]


def test_forty_percent_of_neighbours_are_equally_parallel(jobs: list[Application]) -> None:
    pairs = [a == b for job in jobs for a, b in pairwise(inner(job))]
    assert np.mean(pairs) == pytest.approx(0.4, abs=0.03)


def test_thirty_percent_of_jobs_are_equally_parallel_throughout(jobs: list[Application]) -> None:
    """Chains of two operators are so in 40 % of cases, as each is a pair of neighbours; longer ones rarely."""
    longer = [len(set(inner(job))) == 1 for job in jobs if len(inner(job)) > 2]
    assert np.mean(longer) == pytest.approx(0.3, abs=0.04)


def test_half_of_the_possible_forward_streams_are(jobs: list[Application]) -> None:
    possible = [
        stream.grouping is Grouping.FORWARD
        for job in jobs
        for stream in job.streams
        if job[stream.source].parallelism == job[stream.target].parallelism > 1
    ]
    assert np.mean(possible) == pytest.approx(0.5, abs=0.04)


@pytest.mark.parametrize("seed", range(3))
def test_equal_seeds_give_equal_applications(seed: int) -> None:
    assert random_job(seed) == random_job(seed)
    assert random_job(seed).components != random_job(seed + 1).components
    assert layered(seed=seed) == layered(seed=seed)
    assert layered(seed=seed).streams != layered(seed=seed + 1).streams


@pytest.mark.parametrize("seed", range(10))
def test_the_number_of_layers_is_as_specified(seed: int) -> None:
    found = layered(components=25, depth=6, join=3, seed=seed)
    level: dict[str, int] = {}
    for position in found.order:
        name = found.components[position].name
        upstream = {level[s.source] for s in found.streams if s.target == name}
        assert len(upstream) <= 1
        level[name] = max(upstream, default=-1) + 1
    assert max(level.values()) + 1 == 6
    assert {level[c.name] for c in found.components if c.kind is Kind.SINK} == {5}
    assert {level[c.name] for c in found.components if c.kind is Kind.SOURCE} == {0}


@pytest.mark.parametrize("seed", range(5))
def test_a_source_tuple_stays_one_tuple_in_every_layer(seed: int) -> None:
    tasks = expand_tasks(layered(components=30, depth=5, join=3, seed=seed))
    assert tasks.gain[tasks.source].sum() == pytest.approx(1.0)
    assert tasks.gain[tasks.sink].sum() == pytest.approx(1.0)
    assert tasks.gain.sum() == pytest.approx(5.0)


def test_layers_fork_and_join() -> None:
    found = layered(components=30, depth=5, join=3, seed=0)
    assert max(sum(s.source == c.name for s in found.streams) for c in found.components) > 1
    assert max(sum(s.target == c.name for s in found.streams) for c in found.components) > 1


def test_generates_ten_thousand_tasks() -> None:
    assert layered(components=100, parallelism=100, depth=10).task_count == 10_000


def test_parallelism_varies_if_a_minimum_is_set() -> None:
    widths = {c.parallelism for c in layered(components=60, parallelism=5, min_parallelism=3).components}
    assert widths == {3, 4, 5}


def test_rejects_more_layers_than_components() -> None:
    with pytest.raises(InvalidInput, match="depth: expected ≤ the 4 components, got 5"):
        layered(components=4, depth=5)
    with pytest.raises(InvalidInput, match="min_parallelism: expected ≤ parallelism 2, got 3"):
        layered(parallelism=2, min_parallelism=3)
