import os
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
from scipy import stats

from penstock.workloads.running.text import BLOCK, VOCABULARY, Sentences, vocabulary, word, zipf_shares
from penstock.workloads.running.word_count import split
from penstock.workloads.storm_applications import WORDS_A_SENTENCE


def test_every_rank_has_a_unique_word() -> None:
    words = vocabulary()
    assert len(set(words)) == VOCABULARY
    assert all(found.isascii() and found.isalpha() and found.islower() for found in words)


def test_frequent_words_are_short() -> None:
    lengths = [len(found) for found in vocabulary()]
    assert lengths == sorted(lengths)
    assert (word(0), word(74), word(75), word(75 + 75**2)) == ("te", "wu", "tete", "tetete")


def test_a_sentence_depends_only_on_its_number() -> None:
    numbers = [0, 5, BLOCK - 1, BLOCK, 17 * BLOCK + 3, 10**12]
    forwards = [Sentences(3)(number) for number in numbers]
    backwards = Sentences(3)
    assert [backwards(number) for number in reversed(numbers)] == forwards[::-1]


def test_sentences_are_the_same_in_every_process() -> None:
    program = "from penstock.workloads.running.text import Sentences; print(Sentences(3)(7))"
    environment = {**os.environ, "PYTHONHASHSEED": "5"}
    ran = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout == Sentences(3)(7) + "\n"


def test_other_seeds_give_other_sentences() -> None:
    assert len({Sentences(seed)(0) for seed in range(20)}) == 20


def test_sentences_differ_from_each_other() -> None:
    make = Sentences()
    assert len({make(number) for number in range(3 * BLOCK)}) > 2.9 * BLOCK


@pytest.fixture(scope="module")
def sentences() -> list[list[str]]:
    make = Sentences(1)
    return [split(make(number)) for number in range(20_000)]


def test_the_length_of_sentences_equals_the_models_selectivity(sentences: list[list[str]]) -> None:
    lengths = [len(sentence) for sentence in sentences]
    error = np.sqrt((WORDS_A_SENTENCE - 1) / len(lengths))  # standard error of the mean of 1 + Poisson
    assert abs(np.mean(lengths) - WORDS_A_SENTENCE) < 5 * error
    assert min(lengths) >= 1


def test_words_follow_zipfs_law(sentences: list[list[str]]) -> None:
    counts = Counter(found for sentence in sentences for found in sentence)
    total = counts.total()
    frequent = 200
    observed = [counts[found] for found in vocabulary()[:frequent]]
    expected = zipf_shares()[:frequent] * total
    rest = total - sum(observed)
    p = stats.chisquare([*observed, rest], [*expected, total - expected.sum()]).pvalue
    assert p > 1e-6


def test_shares_are_those_of_zipfs_law() -> None:
    shares = zipf_shares()
    assert shares.sum() == pytest.approx(1.0)
    assert shares[0] / shares[9] == pytest.approx(10.0)
    assert shares[0] / shares[-1] == pytest.approx(VOCABULARY)
