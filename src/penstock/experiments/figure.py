"""What it takes to reproduce a figure of a paper: cases to run, how to run one, a picture, and what was claimed.

A reproduction is a table of figures. Cases are plain values, so that they travel to Spark's workers as rows; results
are flat rows again. Claims are judged on the rows alone, after all cases have run.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

import pandas as pd

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

Value = str | int | float | bool
Case = Mapping[str, Value]
Row = Mapping[str, Value]


class Claim(NamedTuple):
    """One sentence of a paper, or of an independent check, beside what came out here."""

    figure: str
    claim: str
    paper: str  # what it says, in its own figures; of a claim that begins with `check:`, what the check says
    ours: str  # what came out, with its spread
    tolerance: str  # how it was judged
    holds: bool
    why: str = ""  # why not, or under which settings

    @property
    def checked(self) -> bool:
        """Whether it is of an independent check of the paper, and not of the paper."""
        return self.claim.startswith("check:")


class Figure(NamedTuple):
    """One figure of a paper."""

    number: str  # as the paper has it: 4, 5a
    title: str
    cases: Callable[[bool], Sequence[Case]]  # all of them; of a quick run: fewer
    run: Callable[[Case], Sequence[Row]]  # one of them, anywhere; a top-level function
    draw: Callable[[pd.DataFrame, "Picture"], None]
    claims: Callable[[pd.DataFrame], Sequence[Claim]]
    live: bool = False  # its cases are real runs: one after another in the driver; `run` then is a `LiveRun`


class LiveRun(Protocol):
    """How a case of a live figure is run."""

    def __call__(self, case: Case, tell: Callable[[str], None]) -> Sequence[Row]:
        """Run a case and return its rows, saying meanwhile what is being done."""
        ...
