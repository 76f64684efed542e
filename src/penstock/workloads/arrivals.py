"""Arrival processes: the number of tuples that arrive in each of a number of equal time slots.

A process is a frozen record with one method, `counts`. `rate` is its mean in tuples per second and `slot` the length of
a slot in seconds, so the mean of its counts is `rate · slot`. All randomness comes from the generator argument.
"""

from functools import cached_property
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from penstock.api.sources.pace import ArrivalProcess
from penstock.model.entity import Entity, NonNegative, Positive, Probability, Share
from penstock.model.errors import UnknownName, nearest
from penstock.model.spec import build
from penstock.model.taskgraph import Floats
from penstock.workloads.choice import Choice, choose
from penstock.workloads.traces import Trace, read_trace, whole_tuples

Counts = NDArray[np.int64]


class Constant(Entity, frozen=True):
    """Evenly spaced, up to rounding to whole tuples."""

    even: ClassVar[bool] = True  # also within a slot; the tuples of other processes arrive at random times in it
    rate: Positive
    slot: Positive = 1.0

    def counts(self, slots: int, rng: np.random.Generator) -> Counts:
        """Return `rate · slot` for every slot, with rounding errors carried over; `rng` is not used."""
        return whole_tuples(self.rate * _edges(slots, self.slot))


class Poisson(Entity, frozen=True):
    """Independent arrivals."""

    rate: Positive
    slot: Positive = 1.0

    def counts(self, slots: int, rng: np.random.Generator) -> Counts:
        """Draw a Poisson number for every slot."""
        return _drawn(np.full(slots, self.rate * self.slot), rng)


class OnOff(Entity, frozen=True):
    """Poisson bursts separated by pauses without tuples; the lengths of both are exponential.

    on: the fraction of the time in bursts; the rate in a burst is `rate / on`.
    burst: the mean length of a burst, in seconds.
    """

    rate: Positive
    slot: Positive = 1.0
    on: Share = 0.25
    burst: Positive = 10.0

    def counts(self, slots: int, rng: np.random.Generator) -> Counts:
        """Draw bursts, then a Poisson number for each slot in proportion to the time in bursts."""
        in_bursts = np.diff(self._on_before(_edges(slots, self.slot), rng))
        return _drawn(self.rate / self.on * in_bursts, rng)

    def _on_before(self, edges: Floats, rng: np.random.Generator) -> Floats:
        """Return the time in bursts before each edge."""
        if self.on == 1.0:
            return edges
        pause = self.burst * (1.0 - self.on) / self.on
        on = bool(rng.random() < self.on)  # exponential times are memoryless: the start is like any other moment
        times, in_bursts = [0.0], [0.0]
        while times[-1] < edges[-1]:
            lasts = float(rng.exponential(self.burst if on else pause))
            times.append(times[-1] + lasts)
            in_bursts.append(in_bursts[-1] + (lasts if on else 0.0))
            on = not on
        return np.interp(edges, times, in_bursts)


class SelfSimilar(Entity, frozen=True):
    """Bursts at every time scale, as in measured network traffic (Leland et al. 1994).

    The rate is a log-normal function of fractional Gaussian noise: its mean is exact, it is never negative, and it has
    the noise's long-range dependence. Given the rate, counts are Poisson.

    hurst: above 0.5 (independent slots) and below 1; Bellcore's Ethernet has 0.8 to 0.9.
    cv: standard deviation of the rate relative to its mean.
    """

    rate: Positive
    slot: Positive = 1.0
    hurst: Annotated[float, Meta(gt=0.5, lt=1)] = 0.8
    cv: Positive = 0.5

    def counts(self, slots: int, rng: np.random.Generator) -> Counts:
        """Draw the rate of every slot, then a Poisson number."""
        variance = np.log1p(self.cv**2)
        noise = fractional_noise(slots, self.hurst, rng)
        rates = self.rate * self.slot * np.exp(np.sqrt(variance) * noise - variance / 2)
        return _drawn(rates, rng)


class Diurnal(Entity, frozen=True):
    """Poisson arrivals whose rate is a sine function of the time of day.

    amplitude: maximum deviation of the rate from its mean, relative to the mean.
    period: in seconds; phase: the position in the period at the start, as a fraction of it.
    """

    rate: Positive
    slot: Positive = 1.0
    amplitude: Probability = 0.5
    period: Positive = 86_400.0
    phase: Probability = 0.0

    def counts(self, slots: int, rng: np.random.Generator) -> Counts:
        """Draw a Poisson number for every slot with its mean rate."""
        turn = 2 * np.pi / self.period
        edges = _edges(slots, self.slot)
        swing = -np.cos(turn * edges + 2 * np.pi * self.phase) / turn  # the integral of the sine
        return _drawn(self.rate * (self.slot + self.amplitude * np.diff(swing)), rng)


class StepChange(Entity, frozen=True):
    """Poisson arrivals whose rate changes once; the default is Li's test, an increase by half after 20 minutes.

    rate: before the change; factor: by which it is multiplied; at: time of the change, in seconds.
    """

    rate: Positive
    slot: Positive = 1.0
    factor: NonNegative = 1.5
    at: NonNegative = 1200.0

    def counts(self, slots: int, rng: np.random.Generator) -> Counts:
        """Draw a Poisson number for every slot with its mean rate."""
        edges = _edges(slots, self.slot)
        means = np.diff(self.rate * (edges + (self.factor - 1.0) * np.maximum(edges - self.at, 0.0)))
        return _drawn(means, rng)


class Replay(Entity, frozen=True, dict=True):
    """A recorded trace, repeated from its beginning if it is too short.

    path: a file that `traces` can read; it is read when counts are first requested.
    rate: the mean over the whole trace, to which all counts are scaled; default: as recorded.
    speed: factor by which it is accelerated; 300 plays five minutes per second.
    line_seconds: the length of the interval of a line in a file of counts.
    """

    path: str
    rate: Positive | None = None
    slot: Positive = 1.0
    speed: Positive = 1.0
    line_seconds: Positive = 1.0

    @cached_property
    def trace(self) -> Trace:
        """The trace as recorded."""
        return read_trace(self.path, self.line_seconds)

    def counts(self, slots: int, rng: np.random.Generator) -> Counts:
        """Return the recorded tuples of every slot, with rounding errors carried over; `rng` is not used."""
        factor = 1.0 if self.rate is None else self.rate / (self.trace.rate * self.speed)
        return whole_tuples(factor * self.trace.before(_edges(slots, self.slot * self.speed)))


def fractional_noise(size: int, hurst: float, rng: np.random.Generator) -> Floats:
    """Draw fractional Gaussian noise of mean 0 and variance 1 by circulant embedding (Davies and Harte 1987): exact."""
    if size == 0:
        return np.empty(0)
    lag = np.arange(size + 1, dtype=np.float64)
    power = 2 * hurst
    covariance = 0.5 * (np.abs(lag - 1) ** power - 2 * lag**power + (lag + 1) ** power)
    spectrum = np.fft.fft(np.concatenate([covariance, covariance[-2:0:-1]])).real
    weight = np.sqrt(np.maximum(spectrum, 0.0) / len(spectrum))
    drawn = rng.standard_normal(len(spectrum)) + 1j * rng.standard_normal(len(spectrum))
    return np.fft.fft(weight * drawn).real[:size]


def _edges(slots: int, length: float) -> Floats:
    """Return the starts of all slots and the end of the last. [slots + 1]"""
    return np.arange(slots + 1, dtype=np.float64) * length


def _drawn(means: Floats, rng: np.random.Generator) -> Counts:
    """Draw a Poisson number for every mean; rounding may have made a zero mean slightly negative."""
    drawn: Counts = rng.poisson(np.maximum(means, 0.0))
    return drawn


ARRIVALS: dict[str, Choice[ArrivalProcess]] = {
    "constant": Choice(Constant, "evenly spaced tuples"),
    "poisson": Choice(Poisson, "independent arrivals"),
    "on-off": Choice(OnOff, "Poisson bursts with pauses"),
    "self-similar": Choice(SelfSimilar, "bursts at every time scale"),
    "diurnal": Choice(Diurnal, "a rate that follows the time of day"),
    "step": Choice(StepChange, "a rate that changes once"),
    "replay": Choice(Replay, "a recorded trace"),
}


def arrivals(spec: str) -> ArrivalProcess:
    """Return the arrival process that a text specifies: `poisson:rate=100`, `replay:path=trace.csv,rate=8`.

    A trace may be specified by its path alone, with optional parameters: `trace.csv`, `trace.csv:rate=8`.
    """
    name, _, settings = spec.partition(":")
    if name not in ARRIVALS and Path(name).is_file():
        return build("arrivals.replay", Replay, settings, {"path": name})
    if name not in ARRIVALS and (Path(name).suffix or "/" in name):
        raise UnknownName("arrivals", f"no file and no process is named {name!r}; {nearest(name, ARRIVALS)}")
    return choose("arrivals", ARRIVALS, spec)
