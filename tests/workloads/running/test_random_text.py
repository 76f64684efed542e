from pathlib import Path

from penstock.api.sinks.discard import Discard
from penstock.workloads.dataflows import dataflow
from penstock.workloads.running.random_text import RandomText
from tests.workloads.running.executor import Executor


def test_a_string_depends_only_on_its_number_and_the_seed() -> None:
    make = RandomText(100, seed=3)
    drawn = [make(number) for number in (5, 0, 2**40)]
    assert drawn == [RandomText(100, seed=3)(number) for number in (5, 0, 2**40)]
    assert len({*drawn, RandomText(100, seed=4)(5)}) == 4


def test_strings_have_the_size_asked_for() -> None:
    assert [len(RandomText(size)(7)) for size in (1, 2, 99, 10_000)] == [1, 2, 99, 10_000]


def test_the_throughput_test_passes_ten_kilobytes_unchanged_and_counts_them(tmp_path: Path) -> None:
    ran = Executor(dataflow("throughput-test", rate=1000, count=50, seed=2), tmp_path).run()
    made = [RandomText(10_000, 2)(number) for number in range(50)]
    assert sorted(ran.sent["source->identity"]) == sorted(ran.sent["identity->sink"]) == sorted(made)
    assert sum(sink.count for sink in ran.logic["sink"] if isinstance(sink, Discard)) == 50
    assert not list(tmp_path.iterdir())


def test_every_operator_of_synthetic_communication_doubles_what_it_received(tmp_path: Path) -> None:
    spec = "synthetic-communication:operators=3,first_bytes=10"
    ran = Executor(dataflow(spec, rate=1000, count=20), tmp_path).run()
    sizes = {label: {len(text) for text in texts} for label, texts in ran.sent.items()}
    assert sizes == {
        "source->double-1": {10},
        "double-1->double-2": {20},
        "double-2->double-3": {40},
        "double-3->sink": {80},
    }
    assert sorted(ran.sent["double-3->sink"]) == sorted(text * 8 for text in ran.sent["source->double-1"])


def test_lines_of_a_file_take_the_place_of_random_strings(tmp_path: Path) -> None:
    file = tmp_path / "lines.txt"
    file.write_text("ab\ncd\n")
    ran = Executor(dataflow("synthetic-communication:operators=1", rate=1000, input=file), tmp_path).run()
    assert sorted(ran.sent["double-1->sink"]) == ["abab", "cdcd"]
