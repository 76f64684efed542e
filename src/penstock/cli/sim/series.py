"""Counts of tuples per slot, from a trace file or an arrival process."""

import math
import re
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from penstock.api.sources.pace import ArrivalProcess
from penstock.cli.inputs import is_file
from penstock.model.errors import InvalidInput, UnknownName, choices
from penstock.policies.forecast.api import Counts
from penstock.workloads.arrivals import ARRIVALS, Replay, arrivals
from penstock.workloads.traces import Trace

USUAL_SLOTS = 10_000  # of a process, which is unbounded
MOST_SLOTS = 10_000_000
USUAL_TUPLES = 4  # per slot, if a trace records single tuples; POTUS's tasks process 3 to 5


class Series(NamedTuple):
    """The arrivals of each slot."""

    name: str
    counts: Counts
    slot: float  # its length in seconds
    interval: float = 0.0  # of a recording's counts, in seconds; 0: single tuples, or random arrivals

    @property
    def interpolated(self) -> bool:
        """Whether slots are shorter than the recorded intervals, in which arrivals are assumed to be even."""
        return self.slot < self.interval * (1 - 1e-9)


def find_series(text: str, slot: float | None, slots: int | None, seed: int) -> Series:
    """Return the counts of a file or a process such as `poisson:rate=8`, for a number of slots.

    A recording may have fewer. Without `slot`, its slots are its own intervals or, if it records single tuples, long
    enough for a few tuples; another process has the slot of its description.
    """
    if slot is not None and not 0 < slot < math.inf:
        raise InvalidInput("slot", f"expected a number of seconds > 0, got {slot:g}")
    name = text.partition(":")[0]
    process: ArrivalProcess
    if (name in ARRIVALS or Path(name).is_file()) and not Path(text).exists():
        process, title = _process(text, slot), text
    elif Path(text).exists() or ("=" not in text and (is_file(text) or Path(text).suffix)):
        whole = Replay(path=text)
        process, title = _in_own_slots(whole, slot), Path(text).name
    else:
        problem = f"no file and no arrival process is named {text!r}; the processes are {choices(ARRIVALS)}"
        raise UnknownName("trace", problem)
    counts = process.counts(_number(process, slots), np.random.default_rng(seed))
    interval = 0.0
    if isinstance(process, Replay) and not process.trace.recorded:
        interval = usual_slot(process.trace) / process.speed
    return Series(title, counts, process.slot, interval)


def _process(text: str, slot: float | None) -> ArrivalProcess:
    """Return the process of a text, with the slot of the text or a separate one."""
    has_slot = re.search(r"[:,]slot=", text)
    if slot is None:
        process = arrivals(text)
        return process if has_slot or not isinstance(process, Replay) else _in_own_slots(process, None)
    if has_slot:
        raise InvalidInput("slot", f"expected one length, got {slot:g} and another in {text}; leave one out")
    return arrivals(f"{text}{',' if ':' in text else ':'}slot={slot!r}")


def _in_own_slots(process: Replay, slot: float | None) -> Replay:
    """Return a recording with a slot length; None: its own intervals, or long enough for a few tuples."""
    return msgspec.structs.replace(process, slot=slot or usual_slot(process.trace) / process.speed)


def _number(process: ArrivalProcess, slots: int | None) -> int:
    """Return the number of slots: at most that of the recording."""
    number = float(USUAL_SLOTS if slots is None else slots)
    if isinstance(process, Replay):
        there = (process.trace.seconds / process.speed / process.slot) * (
            1 + 1e-9
        )  # a whole number except for rounding
        number = there if slots is None else min(there, number)
    if number > MOST_SLOTS:
        problem = f"expected at most {MOST_SLOTS:,} slots, got {number:,.0f}; ask for longer ones or fewer --slots"
        raise InvalidInput("slot", problem)
    if number < 2:
        raise InvalidInput("slot", f"expected two slots or more, got {int(number)} of {process.slot:g} s; shorten them")
    return int(number)


def usual_slot(trace: Trace) -> float:
    """Return a trace's interval or, if it has none, 1, 2 or 5 times a power of ten with a few tuples."""
    if not trace.recorded:
        return float(np.median(np.diff(trace.times)))
    wanted = math.log10(USUAL_TUPLES / trace.rate)
    round_ones = [math.floor(wanted) + math.log10(digit) for digit in (1, 2, 5, 10)]
    return float(f"{10 ** min(round_ones, key=lambda one: abs(one - wanted)):.0e}")
