import re
from collections import Counter
from pathlib import Path

import pytest

from penstock.api.sinks.discard import Discard
from penstock.workloads.dataflows import dataflow
from penstock.workloads.running.counts import latest_counts
from penstock.workloads.running.text import Sentences
from penstock.workloads.running.word_count import split
from tests.shared_data import SHARED, needs_shared
from tests.workloads.running.executor import Executor


@pytest.mark.parametrize(
    ("sentence", "words"),
    [
        ("Alice was beginning", ["alice", "was", "beginning"]),
        ("`and what is the use,' thought", ["and", "what", "is", "the", "use", "thought"]),
        ("rabbit-hole 42 x2 under_score", ["rabbit", "hole", "x", "under", "score"]),
        ("Ärger über Öl", ["ärger", "über", "öl"]),
        ("", []),
        ("  123 -- ", []),
    ],
)
def test_words_are_runs_of_letters_in_lower_case(sentence: str, words: list[str]) -> None:
    assert split(sentence) == words


@pytest.mark.parametrize("spec", ["word-count", "word-count:sources=1,splitters=1,counters=1,databases=1"])
def test_counts_of_generated_words_are_the_truth(spec: str, tmp_path: Path) -> None:
    make = Sentences(7)
    truth = Counter(found for number in range(500) for found in make(number).lower().rstrip(".").split())
    Executor(dataflow(spec, rate=1000, count=500, seed=7), tmp_path).run()
    assert latest_counts(tmp_path / "output/counts") == truth


def test_counts_of_two_sources_are_added_up(tmp_path: Path) -> None:
    ran = Executor(dataflow("word-count-two-sources:second_sources=2", rate=1000, count=301), tmp_path).run()
    sentences = ran.sent["queue-source->split"] + ran.sent["file-source->split"]
    assert len(sentences) == 301
    assert len(set(ran.sent["queue-source->split"]) & set(ran.sent["file-source->split"])) <= 1
    truth = Counter(found for sentence in sentences for found in sentence.lower().rstrip(".").split())
    assert latest_counts(tmp_path / "output/counts") == truth


def test_only_the_second_source_reads_the_file(tmp_path: Path) -> None:
    book = tmp_path / "book.txt"
    book.write_text("one two\ntwo three\n")
    flow = dataflow("word-count-two-sources", input=book)
    assert {name: type(flow.parts[name].logic()).__name__ for name in ("queue-source", "file-source")} == {
        "queue-source": "Generated",
        "file-source": "Lines",
    }


def test_a_file_is_read_once_by_all_tasks_together(tmp_path: Path) -> None:
    book = tmp_path / "book.txt"
    book.write_text("".join(f"word and number {'abcdefghij'[n % 10]}\n" for n in range(100)))
    Executor(dataflow("word-count", rate=1000, input=book), tmp_path).run()
    letters = Counter(dict.fromkeys("abcdefghij", 10))
    assert latest_counts(tmp_path / "output/counts") == {"word": 100, "and": 100, "number": 100} | letters


@needs_shared
def test_counts_of_a_real_book_are_the_truth(tmp_path: Path) -> None:
    book = SHARED / "text" / "alice29.txt"
    truth = Counter(re.sub(r"[^a-z]", " ", book.read_text(encoding="ascii", errors="replace").lower()).split())
    Executor(dataflow("word-count", rate=1e6, input=book), tmp_path).run()
    assert latest_counts(tmp_path / "output/counts") == truth


def test_without_output_counts_are_only_counted(tmp_path: Path) -> None:
    ran = Executor(dataflow("word-count", rate=1000, count=20, output=False), tmp_path).run()
    databases = ran.logic["database"]
    assert sum(d.count for d in databases if isinstance(d, Discard)) == len(ran.sent["split->count"]) > 0
    assert not list(tmp_path.iterdir())
