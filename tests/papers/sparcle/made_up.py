"""Rows as figures have them, of made-up rates."""

from collections.abc import Callable, Mapping

import pandas as pd

from penstock.experiments.figure import Claim, Figure
from penstock.papers.sparcle.runs import ASKED

Rates = Callable[[pd.DataFrame], Mapping[str, "pd.Series[float] | float"]]


def rated(figure: Figure, change: Rates, quick: bool = True) -> pd.DataFrame:
    """Return rows of a figure of rates: 1 for every policy by default."""
    rows = pd.DataFrame([dict(one) for one in figure.cases(quick)])
    policies = list(dict.fromkeys(policy for asked in ASKED.values() for policy in asked))
    rows = rows.assign(**dict.fromkeys(policies, 1.0), limit="machine", unhurried=1.0)
    rows = rows.assign(refined_ms=20.0, refined_cpu_ms=20.0)
    return rows.assign(**change(rows))


def holds(claims: list[Claim], words: str) -> bool:
    """Return whether the one claim with these words holds."""
    (found,) = [claim for claim in claims if words in claim.claim]
    return bool(found.holds)
