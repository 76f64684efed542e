"""A figure of a paper to be reproduced: its cases, a function that runs one, a picture, and the paper's claims.

Cases are plain values, so that they can be sent to Spark's workers as rows; results are flat rows, too. Claims are
checked against these rows only, after all cases have run.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import pandas as pd

from penstock.experiments.pictures import Picture

Value = str | int | float | bool
Case = Mapping[str, Value]
Row = Mapping[str, Value]


class Claim(NamedTuple):
    """A statement of a paper, or of an independent check, and the result here."""

    claim: str
    paper: str  # its own figures; if `claim` starts with `check:`, the expectation of the check
    ours: str  # the result, with its spread
    tolerance: str  # how it is checked
    holds: bool
    why: str = ""  # why it fails, or under which settings it holds
    figure: str = ""  # the figure's number, set when its claims are judged

    @property
    def checked(self) -> bool:
        """Whether it is an independent check, not a claim of the paper."""
        return self.claim.startswith("check:")


class Figure(NamedTuple):
    """One figure of a paper."""

    number: str  # in the paper: 4, 5a
    title: str
    cases: Callable[[bool], Sequence[Case]]  # given whether the run is quick, with fewer cases
    run: Callable[[Case], Sequence[Row]]  # runs one case, on any worker; a top-level function
    draw: Callable[[pd.DataFrame, Picture], None]
    claims: Callable[[pd.DataFrame], Sequence[Claim]]
    live: bool = False  # cases are real runs, one after another in the driver; `run` is a `LiveRun`


class LiveRun(Protocol):
    """Function that runs a case of a live figure."""

    def __call__(self, case: Case, report: Callable[[str], None]) -> Sequence[Row]:
        """Run a case and return its rows; `report` is called with the progress."""
        ...


def judged(claim: str, paper: str, ours: str, tolerance: str, holds: object, why_not: str) -> Claim:
    """Return a claim, with the reason only if it does not hold."""
    return Claim(claim, paper, ours, tolerance, bool(holds), "" if holds else why_not)


def select(rows: pd.DataFrame, **values: Value) -> pd.DataFrame:
    """Return the rows that have these values."""
    kept = np.ones(len(rows), dtype=bool)
    for name, value in values.items():
        kept &= (rows[name] == value).to_numpy()
    return rows[kept]
