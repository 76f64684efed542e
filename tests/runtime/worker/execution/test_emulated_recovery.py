"""Checkpoints and recoveries on emulated machines, where tuples wait for virtual processors and cross virtual links."""

from collections import Counter
from pathlib import Path
from random import Random

import msgspec
import pytest

import penstock as ps
from penstock.api.dataflow import Dataflow
from penstock.testing import TestCluster, tiny_cluster
from tests.runtime.flows import Count

WORDS = 400


def word(number: int) -> str:
    return f"w{number % 7}"


def counting() -> Dataflow:
    flow = Dataflow("counting")
    words = flow.source("words", ps.Generated(word, rate=100.0, count=WORDS), emits=str, parallelism=2, cpu=0.004)
    counts = flow.operator("count", Count, words.fields(), emits=tuple[str, int], parallelism=2, cpu=0.006)
    flow.sink("out", ps.JsonLines("output"), counts, cpu=0.001)
    return flow


def published(folder: Path) -> Counter[tuple[str, int]]:
    lines = [line for file in sorted(folder.glob("part-*")) for line in file.read_bytes().splitlines()]
    return Counter(msgspec.json.decode(line, type=tuple[str, int]) for line in lines)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_no_tuple_in_service_or_in_flight_is_lost_or_doubled_by_a_recovery(seed: int, tmp_path: Path) -> None:
    rng = Random(seed)
    options = {"capture": False, "folder": str(tmp_path), "checkpoint_s": 0.4, "seed": seed, "window": 16}
    cluster = TestCluster(counting(), emulate=tiny_cluster(3, 2), **options).start()  # type: ignore[arg-type]
    for _ in range(4):
        cluster.advance(rng.uniform(0.1, 1.0))
        cluster.controller.recovery.begin("for the test", cluster.clock())
    result = cluster.finish()
    assert 2 <= result.status.recoveries <= 4  # one that begins during the pause before another is part of it
    assert result.status.checkpoint is not None
    assert published(tmp_path / "output") == Counter(
        (f"w{key}", count) for key in range(7) for count in range(1, len(range(key, WORDS, 7)) + 1)
    )
