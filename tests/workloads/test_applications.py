from itertools import pairwise

import numpy as np
import pytest

from penstock.model.errors import InvalidInput, UnknownName
from penstock.model.taskgraph import expand_tasks
from penstock.model.topology import Grouping, Kind
from penstock.workloads.applications import APPLICATIONS, application, face_detection
from penstock.workloads.clusters import cluster

SIZES = {
    "word-count": [6, 8, 8, 8],
    "word-count-large": [10, 30, 30, 30],
    "word-count-two-sources": [6, 6, 8, 8, 8],
    "log-processing": [3, 6, 6, 6, 6, 6],
    "log-processing-large": [10, 20, 20, 20, 15, 15],
    "continuous-queries": [5, 13, 13],
    "continuous-queries-small": [2, 9, 9],
    "continuous-queries-medium": [5, 25, 20],
    "continuous-queries-large": [10, 45, 45],
}


@pytest.mark.parametrize("name", APPLICATIONS)
def test_every_name_creates_an_application_of_that_name(name: str) -> None:
    found = application(name)
    assert found.name == name
    assert found == application(name)
    assert found.sources


@pytest.mark.parametrize("name", SIZES)
def test_has_the_dissertations_numbers_of_tasks(name: str) -> None:
    assert [c.parallelism for c in application(name).components] == SIZES[name]


@pytest.mark.parametrize("name", SIZES)
def test_three_at_once_fit_the_dissertations_cluster(name: str) -> None:
    memory = float(expand_tasks(application(name)).memory_mb.sum())
    assert 3 * memory <= sum(machine.memory_mb for machine in cluster("li-10").machines)


def test_words_are_grouped_by_key_and_lines_are_not() -> None:
    groupings = {s.label: s.grouping for s in application("word-count").streams}
    assert groupings == {
        "source->split": Grouping.SHUFFLE,
        "split->count": Grouping.FIELDS,
        "count->database": Grouping.SHUFFLE,
    }


def test_a_log_line_is_both_indexed_and_counted() -> None:
    found = application("log-processing")
    tasks = expand_tasks(found)
    assert np.add.reduceat(tasks.gain, tasks.first[:-1]) == pytest.approx(np.ones(len(found.components)))


def test_only_a_stated_load_is_known() -> None:
    loads = {name: application(name).offered_tps for name in SIZES}
    assert loads.pop("continuous-queries-large") == pytest.approx(6650)
    assert set(loads.values()) == {None}


def test_each_communication_operator_doubles_its_tuples() -> None:
    sizes = [s.tuple_bytes for s in application("synthetic-communication:operators=4").streams]
    assert [b / a for a, b in pairwise(sizes)] == [2.0] * 4


@pytest.mark.parametrize(
    ("name", "reported_tps"),
    [("throughput-test", 9_000), ("top-speed-windowing", 217_000), ("synthetic-communication", 33_000)],
)
def test_a_busy_tata_cluster_reaches_the_reported_throughput(name: str, reported_tps: float) -> None:
    tasks = expand_tasks(application(name))
    busy = sum(min(machine.cores, machine.slots) * machine.speed for machine in cluster("tata-3").machines)
    assert busy / float(tasks.cpu @ tasks.gain) == pytest.approx(reported_tps)


def test_tuples_of_the_throughput_test_have_ten_kilobytes() -> None:
    assert {s.tuple_bytes for s in application("throughput-test").streams} == {10_000.0}


def test_face_detection_is_table_two() -> None:
    found = face_detection()
    assert [c.cpu for c in found.components] == [0, 9.88, 12.8, 4.826, 5.658, 0]
    assert [s.tuple_bytes for s in found.streams] == [3.1e6, 182e3, 145e3, 188e3, 11e3]
    assert [c.kind for c in found.components] == [Kind.SOURCE, *[Kind.OPERATOR] * 4, Kind.SINK]
    assert all(c.pinned is None for c in found.components)


def test_face_detection_takes_pins() -> None:
    found = application("face-detection:camera=field1,consumer=cloud")
    assert (found["camera"].pinned, found["consumer"].pinned) == ("field1", "cloud")


def test_settings_change_the_size() -> None:
    assert application("word-count:splitters=4,counters=2").task_count == 6 + 4 + 2 + 8


def test_an_unknown_name_is_rejected_with_the_choices() -> None:
    with pytest.raises(UnknownName, match=r"application: unknown name 'wordcount'; did you mean word-count"):
        application("wordcount")


def test_rejects_a_size_of_zero() -> None:
    with pytest.raises(InvalidInput, match=r"application\.word-count\.splitters: expected a whole number ≥ 1, got '0'"):
        application("word-count:splitters=0")
