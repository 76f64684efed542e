"""Schedules of faults: by the thousand, each from its seed, each with the output of a run without faults."""

import os
import subprocess
import sys

import pytest

from penstock.testing.applications import NAMES, known_application, visible_rows
from penstock.testing.bugs import inject_bug
from penstock.testing.fault_schedule import CHANGES, FAULTS, LEAST, Fault, draw_schedule
from penstock.testing.faults import FaultyCluster
from penstock.testing.promises import Violation, difference
from penstock.testing.schedules import Totals, run_all, run_schedule, run_schedules
from penstock.testing.simulated_cluster import FOLDER

BASE = 1_000_000
SCHEDULES = 10_000
BATCH = 1_000  # schedules of one test, so that parallel tests share them


def ran(seed: int, faults: list[Fault] | None = None) -> FaultyCluster:
    schedule = draw_schedule(seed)
    if faults is not None:
        schedule.faults[:] = faults
    cluster = FaultyCluster(schedule)
    cluster.run()
    return cluster


@pytest.mark.slow
@pytest.mark.parametrize("first", range(BASE, BASE + SCHEDULES, BATCH))
def test_ten_thousand_schedules_give_the_output_of_a_run_without_faults(first: int) -> None:
    totals = run_schedules(range(first, first + BATCH))
    assert totals.failures == [], "replay with: python -m penstock.testing.schedules --replay SEED"
    assert totals.schedules == BATCH
    assert totals.fewest >= LEAST
    missing = {*FAULTS, *CHANGES, "drain", "recoveries", "resumed", "resized", "checkpoints", "aborts", "moves"} - {
        *totals.counts
    }
    assert not missing
    assert totals.counts["recoveries"] > BATCH / 2


@pytest.mark.slow
def test_schedules_in_several_processes_add_up_to_those_in_one() -> None:
    seeds = range(BASE, BASE + 120)  # three batches, of which the last is short
    *_, spread = run_all(seeds, processes=2)
    assert spread == run_schedules(seeds)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_without_faults_everything_comes_out_once_and_in_order(name: str) -> None:
    seeds = [seed for seed in range(200) if draw_schedule(seed).application == name][:3]
    for seed in seeds:
        cluster = ran(seed, faults=[])
        expected = cluster.known.expected(cluster.known.sources, True)
        assert sum(map(len, expected.values())) > 0
        assert visible_rows(cluster.disk, FOLDER, cluster.known.group) == expected
        assert cluster.counts["recoveries"] == 0
        assert cluster.drivers == 1


@pytest.mark.slow
def test_equal_seeds_produce_equal_runs_in_any_process() -> None:
    def traced(hash_seed: str) -> str:
        command = [sys.executable, "-m", "penstock.testing.schedules", "--replay", "12"]
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    assert traced("1") == traced("2")
    assert draw_schedule(12) != draw_schedule(13)


def test_a_crashed_driver_is_replaced_by_one_that_resumes() -> None:
    clusters = [ran(seed, faults=[Fault("driver", event=150)]) for seed in range(10)]
    assert [(cluster.drivers, cluster.counts["resumed"]) for cluster in clusters] == [(2, 1)] * 10


def test_a_worker_that_dies_is_followed_by_a_new_epoch() -> None:
    clusters = [ran(seed, faults=[Fault("crash", event=120)]) for seed in range(10)]
    assert sum(cluster.counts["recoveries"] for cluster in clusters) >= 5  # one that has no tasks is not missed


@pytest.mark.slow
def test_a_damaged_checkpoint_is_passed_over_for_the_one_before() -> None:
    clusters = [ran(seed, faults=[Fault("damage", label="CheckpointCompleted", countdown=8)]) for seed in range(40)]
    assert sum(cluster.damaged for cluster in clusters) >= 10


def test_a_failure_names_what_is_missing_and_what_is_too_much() -> None:
    found, expected = {"a": [("a", 1), ("a", 1)], "b": [("b", 1)]}, {"a": [("a", 1), ("a", 2)], "b": [("b", 1)]}
    assert difference(found, expected) == "group 'a': missing [('a', 2)], too many [('a', 1)]; 2 of 2 rows"
    assert difference({"a": [2, 1]}, {"a": [1, 2]}) == "group 'a': order [2, 1]; 2 of 2 rows"  # type: ignore[list-item]


@pytest.mark.slow
def test_a_failed_schedule_is_reported_with_its_seed_and_ends_in_an_error() -> None:
    command = [sys.executable, "-m", "penstock.testing.schedules", "--schedules", "10", "--seed", "1", "--bug"]
    failed = subprocess.run([*command, "ended-sources"], capture_output=True, text=True, check=False)
    assert failed.returncode == 1
    assert "again: python -m penstock.testing.schedules --replay 1 --bug ended-sources" in failed.stdout
    assert failed.stdout.splitlines()[-1].endswith("failures 10")


def test_a_replay_prints_all_events() -> None:
    lines: list[str] = []
    with inject_bug("publish-first"):
        cluster = FaultyCluster(draw_schedule(1), lines.append)
        with pytest.raises(Violation, match="is published without a manifest"):
            cluster.run()
    assert any("Checkpoint(epoch=1, number=1)" in line for line in lines)
    assert lines[-1].endswith("publish 1 done")


def test_what_must_come_out_follows_from_how_far_the_sources_have_come() -> None:
    application = known_application("count", 10)
    some, all_of_them = {"numbers[0]": 3, "numbers[1]": 0}, application.sources
    assert sum(map(len, application.expected(some, False).values())) == 3
    assert sum(map(len, application.expected(all_of_them, True).values())) == 20
    assert run_schedule(1, Totals()) == ""
