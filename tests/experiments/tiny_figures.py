"""Figures of a paper that nobody wrote: squares, and the seeds that they were drawn by."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure as Picture

from penstock.experiments.figure import Case, Claim, Figure, Row
from penstock.model.errors import InvalidInput


def square(case: Case) -> Sequence[Row]:
    """Return two rows: the square, and its negative; numpy's numbers are as good as Python's."""
    x = int(case["x"])
    return [{"sign": "+", "y": np.float64(x * x)}, {"sign": "-", "y": -x * x}]


def refuse(case: Case) -> Sequence[Row]:
    """Raise a user's error."""
    raise InvalidInput("x", f"expected another number, got {case['x']}")


def cases(quick: bool) -> list[Case]:
    return [{"x": x, "seed": 0} for x in (range(2) if quick else range(4))]


def draw(rows: pd.DataFrame, picture: Picture) -> None:
    picture.subplots().plot(rows["x"], rows["y"], "o")


def claims(rows: pd.DataFrame) -> list[Claim]:
    most = float(rows["y"].max())
    return [Claim("squares reach 9", "9", f"{most:g}", "equal", most == 9.0, "" if most == 9.0 else "too few")]


def no_claims(rows: pd.DataFrame) -> list[Claim]:
    return []


FIGURES = (
    Figure("1a", "squares", cases, square, draw, claims),
    Figure("1b", "squares again", cases, square, draw, no_claims),
    Figure("own", "errors", cases, refuse, draw, no_claims),
)
