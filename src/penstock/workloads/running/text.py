"""Sentences made of made-up words, as often as the words of real text are: by Zipf's law.

A sentence depends on its number and the seed alone, so that a source can go on anywhere.
"""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from penstock.workloads.storm_applications import WORDS_A_SENTENCE

Floats = NDArray[np.float64]

ONSETS = ("t", "n", "s", "r", "l", "d", "m", "k", "p", "b", "f", "g", "v", "h", "w")
VOWELS = ("e", "a", "o", "i", "u")
SYLLABLES = tuple(onset + vowel for vowel in VOWELS for onset in ONSETS)

VOCABULARY = 10_000  # words; a novel has about as many
EXPONENT = 1.0  # of Zipf's law: the word of rank r comes with a probability proportional to 1 / r^EXPONENT
BLOCK = 1024  # sentences that are drawn at once


def word(rank: int) -> str:
    """Return the word of a rank from 0, different for each; frequent words are short."""
    syllables = []
    rank += 1
    while rank > 0:  # numbers of digits 1 to 75, without a zero, are unique
        rank, digit = divmod(rank - 1, len(SYLLABLES))
        syllables.append(SYLLABLES[digit])
    return "".join(reversed(syllables))


@cache
def vocabulary(size: int = VOCABULARY) -> tuple[str, ...]:
    """Return the words of the first ranks, most frequent first."""
    return tuple(word(rank) for rank in range(size))


@cache
def zipf_shares(size: int = VOCABULARY, exponent: float = EXPONENT) -> Floats:
    """Return how large a share of all words each rank has. [size]"""
    weights = 1.0 / np.arange(1, size + 1, dtype=np.float64) ** exponent
    shares: Floats = weights / weights.sum()
    return shares


class Sentences:
    """Makes the sentence of a number: 1 + Poisson words, drawn by Zipf's law.

    words: mean number of words; as many as DSPBench's splitter emitted a sentence.
    """

    def __init__(self, seed: int = 0, words: float = WORDS_A_SENTENCE) -> None:
        self.seed = seed
        self.words = words
        self._drawn = -1  # the block that the two lists hold
        self._ranks: list[int] = []
        self._edges: list[int] = []  # where in them sentences begin, and the last one ends

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
    """Return where, between 0 and 1, the share of each rank but the last ends. [size - 1]"""
    edges: Floats = np.cumsum(zipf_shares())[:-1]
    return edges
