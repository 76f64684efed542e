"""The work that every system is given, and how its answer is timed: the same sentences, clock and arithmetic for all.

Word count, ten words a sentence. Sentences are due at a fixed rate whether or not the system keeps up (open loop), so
that a system which holds its source back does not shorten its own latencies. A sentence's latency is from its due time
to the arrival of the last of its words' counts at the sink. The clock is `time.monotonic`, which on Linux is one clock
for all processes, and the one behind Java's `nanoTime`.

The maximum rate is found by not pacing the source at all: it offers sentences as fast as the system asks for them, and
what reaches the sink is counted, after a warm-up, until the last arrival. What merely piles up inside is not counted.

This module needs only numpy, since it also runs in other systems' environments.
"""

from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from time import monotonic
from typing import NamedTuple

import numpy as np

WORDS = 10
VOCABULARY = 2_000
POOL = 8_192
"""Different sentences; sentence n is the n-th modulo this, so that drawing them costs the same, little, everywhere."""
WARM_UP_S = 5.0
"""Not counted: connections, first batches, compilation."""
SYLLABLES = ("ba", "de", "fi", "go", "hu", "ka", "le", "mi", "no", "pu", "ra", "se", "ti", "vo", "zu")


class Sentence(NamedTuple):
    """A sentence with what is needed to time it."""

    number: int
    due: float  # s, on `time.monotonic`
    text: str


@dataclass(frozen=True)
class Measured:
    """What one run of one system gave."""

    rate_reached: float  # sentences a second
    p50_ms: float | None  # none where the source was not paced
    p99_ms: float | None
    count: int  # sentences that the figures are of
    words_counted: int  # sum of the counts that the sink saw last, warm-up included


class NotAvailable(Exception):
    """A system that cannot run here, or refuses the work; the message is its own reason."""


@cache
def texts() -> list[str]:
    """Return the pool of sentences: words drawn with Zipf's law, exponent 1, from a made-up vocabulary."""
    rng = np.random.default_rng(0)
    words = np.array([word(number) for number in range(VOCABULARY)])
    shares = 1 / np.arange(1, VOCABULARY + 1)
    drawn = rng.choice(words, size=(POOL, WORDS), p=shares / shares.sum())
    return [" ".join(row) for row in drawn.tolist()]


def word(number: int) -> str:
    """Return a word of the vocabulary; frequent ones are shorter, as in a language."""
    letters = SYLLABLES[number % len(SYLLABLES)]
    while number := number // len(SYLLABLES):
        letters += SYLLABLES[number % len(SYLLABLES)]
    return letters


class Schedule:
    """What one source offers, and when; several sources share the sentences evenly.

    It begins at the first `take`. With no rate every sentence is due when it is asked for.
    """

    def __init__(self, rate: float | None, seconds: float, source: int = 0, sources: int = 1) -> None:
        self.rate = rate
        self.source = source
        self.sources = sources
        self.length = WARM_UP_S + seconds
        self.start = -1.0
        self.taken = 0
        self.total = sentences_due(rate, seconds) // sources if rate else None
        self._texts = texts()

    def take(self, now: float, limit: int) -> list[Sentence]:
        """Return at most `limit` sentences that are due."""
        if self.start < 0:
            self.start = now
        if self.total is None:
            numbers = range(self.taken, self.taken if now > self.start + self.length else self.taken + limit)
        else:
            due = int((now - self.start) * self._own_rate) + 1
            numbers = range(self.taken, min(due, self.taken + limit, self.total))
        self.taken = numbers.stop
        return [self._sentence(number, now) for number in numbers]

    def _sentence(self, own_number: int, now: float) -> Sentence:
        number = own_number * self.sources + self.source
        due = now if self.total is None else self._due(own_number)
        return Sentence(number, due, self._texts[number % POOL])

    def ended(self, now: float) -> bool:
        """Say whether nothing more will be due."""
        if self.total is None:
            return self.start >= 0 and now > self.start + self.length
        return self.taken >= self.total

    def next_due(self, now: float) -> float:
        """Return when to ask again."""
        return now if self.total is None or self.start < 0 else self._due(self.taken)

    @property
    def _own_rate(self) -> float:
        return (self.rate or 0.0) / self.sources

    def _due(self, own_number: int) -> float:
        return self.start + own_number / self._own_rate


def sentences_due(rate: float, seconds: float) -> int:
    """Return how many sentences a paced run offers in all, warm-up included."""
    return round(rate * (WARM_UP_S + seconds))


class Recorder:
    """What a sink saw. One a sink; they are saved where they are and put together afterwards."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}  # latest count of each word
        self.numbers = array("q")  # of the sentence, one a word
        self.dues = array("d")
        self.arrivals = array("d")
        self.times = array("d")  # of each arrival of several words, where the source is not paced
        self.words = array("q")  # that arrived then

    def see(self, number: int, due: float, now: float) -> None:
        """Record one word of a sentence, in a paced run."""
        self.numbers.append(number)
        self.dues.append(due)
        self.arrivals.append(now)

    def see_many(self, words: int, now: float) -> None:
        """Record that words have arrived, in a run that is not paced."""
        self.times.append(now)
        self.words.append(words)

    def save(self, path: Path) -> None:
        """Write what was seen, for another process to read."""
        np.savez(
            path,
            numbers=np.array(self.numbers),
            dues=np.array(self.dues),
            arrivals=np.array(self.arrivals),
            times=np.array(self.times),
            words=np.array(self.words),
            counted=sum(self.counts.values()),
        )


class Seen(NamedTuple):
    """What all sinks of a run saw, as arrays."""

    numbers: np.ndarray  # [words] of the sentence
    dues: np.ndarray  # [words] s
    arrivals: np.ndarray  # [words] s
    times: np.ndarray  # [arrivals] s
    words: np.ndarray  # [arrivals]
    counted: int


def load(paths: Iterable[Path]) -> Seen:
    """Read what the sinks of a run have saved."""
    parts = [dict(np.load(path)) for path in paths]
    columns = {name: np.concatenate([part[name] for part in parts]) for name in Seen._fields if name != "counted"}
    return Seen(**columns, counted=int(sum(part["counted"] for part in parts)))


def paced(seen: Seen, rate: float, seconds: float) -> Measured:
    """Return the latencies of the sentences after the warm-up; every word that was sent must have been counted."""
    offered = sentences_due(rate, seconds)
    if seen.counted != offered * WORDS or len(seen.numbers) != offered * WORDS:
        raise RuntimeError(f"{offered * WORDS} words were sent, {len(seen.numbers)} seen, {seen.counted} counted")
    last, due = np.zeros(offered), np.zeros(offered)
    np.maximum.at(last, seen.numbers, seen.arrivals)
    due[seen.numbers] = seen.dues
    return paced_sentences(due, last, seen.counted)


def paced_sentences(due: np.ndarray, last: np.ndarray, counted: int) -> Measured:
    """Return the same from each sentence's due time and last arrival.

    The rate reached is the slope of sentences over arrivals: below the rate offered where latencies keep growing.
    """
    kept = due >= due.min() + WARM_UP_S
    p50, p99 = np.percentile((last - due)[kept] * 1e3, (50, 99))
    arrivals = np.sort(last[kept])
    interval = np.polynomial.Polynomial.fit(np.arange(len(arrivals)), arrivals, 1).convert().coef[1]
    return Measured(1 / float(interval), float(p50), float(p99), len(arrivals), counted)


def unpaced(times: np.ndarray, words: np.ndarray, counted: int) -> Measured:
    """Return the rate of arrival after the warm-up, until the last one."""
    order = np.argsort(times, kind="stable")
    times, words = times[order], words[order]
    kept = times > times[0] + WARM_UP_S
    if kept.sum() < 2:
        raise RuntimeError(f"only {int(kept.sum())} arrivals after the warm-up; measure for longer")
    first = int(np.argmax(kept))  # its words came before the window, which begins with it
    number = int(words[first + 1 :].sum()) // WORDS
    return Measured(number / float(times[-1] - times[first]), None, None, number, counted)


def now() -> float:
    """Return the time in seconds, on the clock that all systems are timed by."""
    return monotonic()
