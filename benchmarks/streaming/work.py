"""The work of every system, and how it is timed: the same sentences, clock and arithmetic for all.

Word count, ten words per sentence. Sentences are due at a fixed rate whether or not the system keeps up (open loop), so
a system that blocks its source does not shorten its own latencies. A sentence's latency is the time from when it is due
to the arrival of the last of its words' counts at the sink. The clock is `time.monotonic`, which on Linux is one clock
for all processes, and the one of Java's `nanoTime`.

The maximum rate is measured with an unpaced source: it offers sentences as fast as the system accepts them, and the
tuples that reach the sink are counted, after a warm-up, until the last arrival. What only piles up inside does not
count.

This module needs only numpy, because it also runs in other systems' environments.
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
"""Number of different sentences; sentence n is the n-th modulo this, so creating them has a small, constant cost."""
WARM_UP_S = 5.0
"""Not counted: connections, first batches, compilation."""
SYLLABLES = ("ba", "de", "fi", "go", "hu", "ka", "le", "mi", "no", "pu", "ra", "se", "ti", "vo", "zu")


class Sentence(NamedTuple):
    """A sentence with the fields that time it."""

    number: int
    due: float  # s, on `time.monotonic`
    text: str


@dataclass(frozen=True)
class Measured:
    """Result of one run of one system."""

    rate_reached: float  # sentences per second
    p50_ms: float | None  # none if the source was not paced
    p99_ms: float | None
    count: int  # sentences that the figures are based on
    words_counted: int  # sum of the latest counts in the sink, including the warm-up


class NotAvailable(Exception):
    """A system that cannot run here, or rejects the work; the message is its own reason."""


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
    """Sentences that one source offers, and when; several sources divide the sentences evenly.

    It starts at the first `take`. Without a rate every sentence is due immediately.
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
        """Return whether nothing more will be due."""
        if self.total is None:
            return self.start >= 0 and now > self.start + self.length
        return self.taken >= self.total

    def next_due(self, now: float) -> float:
        """Return when to call `take` again."""
        return now if self.total is None or self.start < 0 else self._due(self.taken)

    @property
    def _own_rate(self) -> float:
        return (self.rate or 0.0) / self.sources

    def _due(self, own_number: int) -> float:
        return self.start + own_number / self._own_rate


def sentences_due(rate: float, seconds: float) -> int:
    """Return the number of sentences of a paced run, including the warm-up."""
    return round(rate * (WARM_UP_S + seconds))


class Recorder:
    """What a sink recorded. One per sink; they are saved locally and combined afterwards."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}  # latest count of each word
        self.numbers = array("q")  # of the sentence, one per word
        self.dues = array("d")
        self.arrivals = array("d")
        self.times = array("d")  # of each arrival of several words if the source is not paced
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
        """Write the records, for another process to read."""
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
    """Records of all sinks of a run, as arrays."""

    numbers: np.ndarray  # [words] of the sentence
    dues: np.ndarray  # [words] s
    arrivals: np.ndarray  # [words] s
    times: np.ndarray  # [arrivals] s
    words: np.ndarray  # [arrivals]
    counted: int


def load(paths: Iterable[Path]) -> Seen:
    """Read the records saved by the sinks of a run."""
    parts = [dict(np.load(path)) for path in paths]
    columns = {name: np.concatenate([part[name] for part in parts]) for name in Seen._fields if name != "counted"}
    return Seen(**columns, counted=int(sum(part["counted"] for part in parts)))


def paced(seen: Seen, rate: float, seconds: float) -> Measured:
    """Return the latencies of the sentences after the warm-up; every word sent must have been counted."""
    offered = sentences_due(rate, seconds)
    if seen.counted != offered * WORDS or len(seen.numbers) != offered * WORDS:
        raise RuntimeError(f"{offered * WORDS} words were sent, {len(seen.numbers)} seen, {seen.counted} counted")
    last, due = np.zeros(offered), np.zeros(offered)
    np.maximum.at(last, seen.numbers, seen.arrivals)
    due[seen.numbers] = seen.dues
    return paced_sentences(due, last, seen.counted)


def paced_sentences(due: np.ndarray, last: np.ndarray, counted: int) -> Measured:
    """Return the same from each sentence's due time and last arrival.

    The rate reached is the slope of sentences over arrivals: below the offered rate if latencies keep growing.
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
    first = int(np.argmax(kept))  # its words arrived before the window, which starts with it
    number = int(words[first + 1 :].sum()) // WORDS
    return Measured(number / float(times[-1] - times[first]), None, None, number, counted)


def now() -> float:
    """Return the time in seconds, on the clock that times all systems."""
    return monotonic()
