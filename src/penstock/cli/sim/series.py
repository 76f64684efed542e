"""Counts of tuples, slot by slot, that a user names: a trace file, or an arrival process."""

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

USUAL_SLOTS = 10_000  # of a process, which has no end
MOST_SLOTS = 10_000_000
USUAL_TUPLES = 4  # a slot, where a trace tells of tuples one by one; POTUS's tasks process 3 to 5


class Series(NamedTuple):
    """What came in each slot."""

    name: str
    counts: Counts
    slot: float  # its length in seconds
    interval: float = 0.0  # seconds that a recording's counts are of; 0: tuples were recorded one by one, or drawn

    @property
    def interpolated(self) -> bool:
        """Whether slots are shorter than what was recorded, within which tuples are taken to come evenly."""
        return self.slot < self.interval * (1 - 1e-9)


def find_series(text: str, slot: float | None, slots: int | None, seed: int) -> Series:
    """Return the counts that a file or a process such as `poisson:rate=8` gives, of as many slots as asked for.

    A recording gives no more than it has. Without `slot` its slots are as long as its own intervals, or bring a few
    tuples where it tells of tuples one by one; another process has the slot of its description.
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
    """Return the process that a text describes, its slot given there or apart from it."""
    told = re.search(r"[:,]slot=", text)
    if slot is None:
        process = arrivals(text)
        return process if told or not isinstance(process, Replay) else _in_own_slots(process, None)
    if told:
        raise InvalidInput("slot", f"expected one length, got {slot:g} and another in {text}; leave one out")
    return arrivals(f"{text}{',' if ':' in text else ':'}slot={slot!r}")


def _in_own_slots(process: Replay, slot: float | None) -> Replay:
    """Return a recording in slots of a length; None: of its own intervals, or of a few tuples each."""
    return msgspec.structs.replace(process, slot=slot or usual_slot(process.trace) / process.speed)


def _number(process: ArrivalProcess, slots: int | None) -> int:
    """Return how many slots to take: no more than a recording has."""
    number = float(USUAL_SLOTS if slots is None else slots)
    if isinstance(process, Replay):
        there = (process.trace.seconds / process.speed / process.slot) * (1 + 1e-9)  # a whole number but for rounding
        number = there if slots is None else min(there, number)
    if number > MOST_SLOTS:
        problem = f"expected at most {MOST_SLOTS:,} slots, got {number:,.0f}; ask for longer ones or fewer --slots"
        raise InvalidInput("slot", problem)
    if number < 2:
        raise InvalidInput("slot", f"expected two slots or more, got {int(number)} of {process.slot:g} s; shorten them")
    return int(number)


def usual_slot(trace: Trace) -> float:
    """Return a trace's own interval, or where it has none, 1, 2 or 5 times a power of ten that brings a few tuples."""
    if not trace.recorded:
        return float(np.median(np.diff(trace.times)))
    wanted = math.log10(USUAL_TUPLES / trace.rate)
    round_ones = [math.floor(wanted) + math.log10(digit) for digit in (1, 2, 5, 10)]
    return float(f"{10 ** min(round_ones, key=lambda one: abs(one - wanted)):.0e}")
