"""Shared by Hone's figures: the sending rules by the paper's names, and one simulation of a link as a row.

A case is one rule on one random sequence of arrivals; equal kinds, queues, rates and seeds give equal arrivals, so
rules are compared on the same tuples, and figures share cases. A tuple that is sent in its arrival slot has a delay of
0; one that still waits at the end counts with its age, because otherwise the delays of an overloaded link would be
those of the few tuples that were sent.
"""

from collections.abc import Iterable, Sequence
from functools import cache
from itertools import product
from typing import NamedTuple

import numpy as np
import pandas as pd

from penstock.experiments.figure import Case, Row, Value
from penstock.model.slotted import SlottedSystem
from penstock.policies.registry import routing_policy, sending_policy
from penstock.sim.slotted import Arrivals, SlottedResult, simulate
from penstock.workloads.arrivals import Counts
from penstock.workloads.hone import draw_arrivals, hone_link, link_arrivals, link_load

SLOTS = 10_000  # §4.4
QUEUES = 10
KINDS = ("poisson", "trace")  # of arrivals
RATES = (500, *range(1000, 5001, 500))  # tuples per second and queue
RATE = 1000  # of every queue, if their number varies
SWEEPS = {"rate": "tuples a second, each of 10 queues", "queues": f"queues of {RATE:,} tuples a second"}
SAMPLED = tuple(range(1000, 9001, 1000))  # slots at which fairness is measured
CHECKED = 900  # a rate that is not in the paper, close to the capacity of the card
SEEDS, QUICK_SEEDS = 10, 3
WAY = 1.0  # slots from the out-queue to a receiver without queue: part of every response time, not of delays


class Rule(NamedTuple):
    """A sending rule: its name in figures, its specification, and its style in plots."""

    name: str
    spec: str
    colour: str
    mark: str  # at every point, because curves may overlap
    line: str = "-"


RRB = "RRB"
LBF = "LBF"
LBF_HELD = "LBF, τ = 10"
LBF_CONSERVING = "LBF, τ = 10, work-conserving"
WC_RR = "WC-RR"
RANDOM = "random"
FIFO = "FIFO"

RULES = (
    Rule(RRB, "round-robin-idle", "#4878a8", "o"),
    Rule(LBF, "longest-backlog-first:tau=1,conserving=false", "#d1603d", "s"),
    Rule(LBF_HELD, "longest-backlog-first:tau=10,conserving=false", "#d1603d", "v", ":"),
    Rule(LBF_CONSERVING, "longest-backlog-first:tau=10", "#d1603d", "^", "--"),
    Rule(WC_RR, "round-robin", "#5b9a68", "D", "-."),
    Rule(RANDOM, "random", "#888888", "P", ":"),
    Rule(FIFO, "fifo", "#8a6bb1", "X", "--"),
)
RULE = {rule.name: rule for rule in RULES}


def link_cases(
    kinds: Sequence[str], queues: Sequence[int], rates: Sequence[int], rules: Iterable[str], quick: bool
) -> list[Case]:
    """Return every rule on every sequence of arrivals."""
    seeds = range(QUICK_SEEDS if quick else SEEDS)
    columns = ("kind", "queues", "rate", "rule", "seed")
    return [dict(zip(columns, values, strict=True)) for values in product(kinds, queues, rates, list(rules), seeds)]


def number_cases(rules: Iterable[str], quick: bool) -> list[Case]:
    """Return Poisson arrivals at one rate in other numbers of queues than the sweep over rates has."""
    numbers = [queues for queues in queue_numbers(quick) if queues != QUEUES]
    return link_cases(("poisson",), numbers, (RATE,), rules, quick)


def rates(quick: bool) -> tuple[int, ...]:
    """Return the rates of a sweep."""
    return (500, CHECKED, 1000, 2000, 5000) if quick else tuple(sorted({*RATES, CHECKED}))


def queue_numbers(quick: bool) -> tuple[int, ...]:
    """Return the numbers of queues of a sweep."""
    return (10, 20, 50, 100) if quick else tuple(range(10, 101, 10))


def swept(rows: pd.DataFrame, sweep: str) -> pd.DataFrame:
    """Return the rows of one sweep: over rates with ten queues, or over numbers of queues at one rate."""
    return rows[rows["queues"] == QUEUES] if sweep == "rate" else rows[rows["rate"] == RATE]


def run_link(case: Case) -> list[Row]:
    """Simulate one case and return its row."""
    queues, seed = int(case["queues"]), int(case["seed"])
    rng = np.random.default_rng([seed, queues, int(case["rate"])])
    counts = draw_arrivals(str(case["kind"]), SLOTS, queues, link_load(queues, float(case["rate"])), rng)
    return [measures(send_over(counts, RULE[str(case["rule"])].spec, seed))]


def send_over(counts: Counts, spec: str, seed: int = 0) -> SlottedResult:
    """Send tuples that arrive by slot and queue [slots, N] over a link, with a rule."""
    return simulate(
        _link(counts.shape[1]),
        Arrivals(link_arrivals(counts)),
        routing_policy("shuffle"),
        sending_policy(spec),
        seed=seed,
    )


def measures(outcome: SlottedResult) -> dict[str, Value]:
    """Return the compared measures: backlogs in tuples, delays in slots."""
    fairness = outcome.series.fairness
    return {
        "largest": outcome.longest,
        "largest_p99": float(np.percentile(outcome.series.longest, 99)),  # over slots, of the longest queue
        "delay": outcome.response - WAY,
        "delay_p99": outcome.response_p99 - WAY,
        # B(t) is the backlog at the end of slot t - 1; NaN if it is empty
        **{f"jain_{slot}": float(fairness[slot - 1]) for slot in SAMPLED},
    }


@cache
def _link(queues: int) -> SlottedSystem:
    return hone_link(queues)
