"""Sentences of artificial words whose frequencies follow Zipf's law.

A sentence depends only on its number and the seed, so a source can continue at any number.
"""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from penstock.workloads.storm_applications import WORDS_A_SENTENCE

Floats = NDArray[np.float64]

ONSETS = ("t", "n", "s", "r", "l", "d", "m", "k", "p", "b", "f", "g", "v", "h", "w")
VOWELS = ("e", "a", "o", "i", "u")
SYLLABLES = tuple(onset + vowel for vowel in VOWELS for onset in ONSETS)

VOCABULARY = 10_000  # words, about the number in a novel
EXPONENT = 1.0  # of Zipf's law: the word of rank r has a probability proportional to 1 / r^EXPONENT
BLOCK = 1024  # sentences drawn together


def word(rank: int) -> str:
    """Return the unique word of a rank, starting at 0; frequent words are short."""
    syllables = []
    rank += 1
    while rank > 0:  # numbers with digits 1 to 75, without zero, are unique
        rank, digit = divmod(rank - 1, len(SYLLABLES))
        syllables.append(SYLLABLES[digit])
    return "".join(reversed(syllables))


@cache
def vocabulary() -> tuple[str, ...]:
    """Return the most frequent words, in order of rank."""
    return tuple(word(rank) for rank in range(VOCABULARY))


@cache
def zipf_shares() -> Floats:
    """Return the share of each rank in all words. [VOCABULARY]"""
    weights = 1.0 / np.arange(1, VOCABULARY + 1, dtype=np.float64) ** EXPONENT
    shares: Floats = weights / weights.sum()
    return shares


class Sentences:
    """Generates the sentence of a number: 1 + Poisson words, distributed by Zipf's law.

    words: mean number of words; default: that of DSPBench's splitter.
    """

    def __init__(self, seed: int = 0, words: float = WORDS_A_SENTENCE) -> None:
        self.seed = seed
        self.words = words
        self._drawn = -1  # the block in the two lists
        self._ranks: list[int] = []
        self._edges: list[int] = []  # the starts of sentences in them, and the end of the last

    def __call__(self, number: int) -> str:
        """Return the sentence."""
        block, row = divmod(number, BLOCK)
        if block != self._drawn:
            self._draw(block)
        known, edges = vocabulary(), self._edges
        words = [known[rank] for rank in self._ranks[edges[row] : edges[row + 1]]]
        return " ".join(words).capitalize() + "."

    def _draw(self, block: int) -> None:
        rng = np.random.default_rng([self.seed, block])
        ends = np.cumsum(1 + rng.poisson(self.words - 1.0, BLOCK))
        ranks = np.searchsorted(_zipf_edges(), rng.random(ends[-1]), side="right")
        self._ranks, self._edges, self._drawn = ranks.tolist(), [0, *ends.tolist()], block


@cache
def _zipf_edges() -> Floats:
    """Return the cumulative shares of all ranks but the last, between 0 and 1. [VOCABULARY - 1]"""
    edges: Floats = np.cumsum(zipf_shares())[:-1]
    return edges
