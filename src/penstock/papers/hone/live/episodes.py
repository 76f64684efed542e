"""Episodes: the same arrivals and sentences for every choice of policies, repeated within one run.

A run that switches policies compares them in different intervals, and arrivals in one may be harder than in another:
this noise exceeds most differences between policies. So arrivals are drawn for one *episode*, which is played once for
each choice of a round, in random order; the next round has new arrivals. An episode starts with a settling time and
ends with a pause, in which queues run empty and policies are switched. It has exactly the number of tuples of its load:
Poisson arrivals, or those of bursts, conditioned on their number.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from penstock.workloads.arrivals import OnOff
from penstock.workloads.running.text import vocabulary, zipf_shares

Longs = NDArray[np.int64]

SLOT_S = 1e-3  # resolution of arrivals
STEADY, BURSTY = "steady", "bursty"
ON, BURST_S = 0.5, 0.25  # bursts take half of the time, at twice the rate
MANY = 20.0  # times the number of tuples needed are drawn from bursts, to select from


@dataclass(frozen=True)
class Lengths:
    """The parts of an episode, in seconds."""

    settle: float  # tuples arrive but do not count
    counted: float
    tail: float  # tuples arrive but do not count, so that earlier ones are under load until they complete
    pause: float  # no arrivals

    @property
    def busy(self) -> float:
        """Duration of arrivals."""
        return self.settle + self.counted + self.tail

    @property
    def period(self) -> float:
        """Time from the start of one episode to that of the next."""
        return self.busy + self.pause


@dataclass(frozen=True)
class Episodes:
    """An arrival process: a warm-up episode, then `rounds` of one episode for each of `choices`, then nothing.

    kind: steady (Poisson) or bursty (on-off). load_tps: tuples per second during arrivals.
    tasks: of the source; an episode's tuples are a multiple of it, so that each task emits the same in all of a round.
    """

    even: ClassVar[bool] = True  # a slot's tuples arrive at its start
    slot: ClassVar[float] = SLOT_S

    kind: str
    load_tps: float
    choices: int
    rounds: int
    tasks: int
    lengths: Lengths
    seed: int = 0

    @property
    def rate(self) -> float:
        """Mean tuples per second, including pauses."""
        return self.load_tps * self.lengths.busy / self.lengths.period

    @property
    def size(self) -> int:
        """Number of tuples in an episode."""
        return max(1, round(self.load_tps * self.lengths.busy / self.tasks)) * self.tasks

    @property
    def number(self) -> int:
        """Number of episodes, including the first."""
        return 1 + self.choices * self.rounds

    def round_of(self, episode: int) -> int:
        """Return the round of an episode; the first has the arrivals of round 0."""
        return max(0, episode - 1) // self.choices

    def begin(self, episode: int) -> float:
        """Return the start of an episode, in seconds since the first."""
        return episode * self.lengths.period

    def times(self, round_: int) -> Longs:
        """Return the slots since an episode's start in which its tuples arrive. [size]"""
        rng = np.random.default_rng([self.seed, round_])
        slots = round(self.lengths.busy / SLOT_S)
        if self.kind == STEADY:
            return np.sort(rng.integers(0, slots, self.size))
        process = OnOff(rate=MANY * self.load_tps, slot=SLOT_S, on=ON, burst=BURST_S)
        drawn = np.repeat(np.arange(slots), process.counts(slots, rng))
        if not len(drawn):  # a pause of the full length
            drawn = np.arange(slots)
        return np.sort(rng.choice(drawn, self.size, replace=len(drawn) < self.size))

    @cached_property
    def whole(self) -> NDArray[np.uint16]:
        """The tuples of every slot up to the end; cached, because computing them in a worker would delay others."""
        found = np.zeros(round(self.begin(self.number) / SLOT_S), dtype=np.uint16)
        for episode in range(self.number):
            np.add.at(found, round(self.begin(episode) / SLOT_S) + self.times(self.round_of(episode)), 1)
        return found

    def counts(self, slots: int, rng: np.random.Generator) -> Longs:
        """Return the tuples of the first `slots` slots; `rng` is not used: episodes have a seed of their own."""
        found = np.zeros(slots, dtype=np.int64)
        known = self.whole[:slots]
        found[: len(known)] = known
        return found


class EpisodeSentences:
    """Creates the sentences of episodes, with a maximum number of words."""

    def __init__(self, episodes: Episodes, most: int) -> None:
        self.episodes = episodes
        self.most = most
        self._round = -1
        self._sentences: list[str] = []

    def __call__(self, number: int) -> str:
        """Return the sentence of a number, the same in all episodes of a round."""
        episode, place = divmod(number, self.episodes.size)
        if (round_ := self.episodes.round_of(episode)) != self._round:
            self._sentences = sentences(self.episodes.size, self.most, (self.episodes.seed, round_, 1))
            self._round = round_
        return self._sentences[place]


def sentences(count: int, most: int, seed: Sequence[int]) -> list[str]:
    """Draw sentences of 1 to `most` words, uniform in length, words by Zipf's law."""
    rng = np.random.default_rng(seed)
    ends = accumulate(rng.integers(1, most + 1, count).tolist(), initial=0)
    shares, known = zipf_shares(), vocabulary()
    words = [known[rank] for rank in rng.choice(len(shares), count * most, p=shares).tolist()]
    return [" ".join(words[begin:end]) for begin, end in pairwise(ends)]
