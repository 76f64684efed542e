"""The works that can be reproduced, and where their figures are; a work is imported when it is needed."""

import re
from collections.abc import Sequence
from importlib import import_module
from typing import cast

from penstock.experiments.figure import Figure
from penstock.model.errors import UnknownName, nearest

WORKS = {
    "potus": "penstock.papers.potus:FIGURES",
    "hone": "penstock.papers.hone.live:HONE",
    "predictive": "penstock.papers.predictive.live:PREDICTIVE",
    "sparcle": "penstock.papers.sparcle.live:SPARCLE",
}


def figures_of(work: str) -> tuple[Figure, ...]:
    """Import the figures of a work."""
    if work not in WORKS:
        raise UnknownName("work", f"none is named {work!r}; {nearest(work, WORKS)}")
    module, _, attribute = WORKS[work].partition(":")
    return cast(tuple[Figure, ...], getattr(import_module(module), attribute))


def chosen(figures: Sequence[Figure], numbers: Sequence[str]) -> tuple[Figure, ...]:
    """Return the figures with some numbers, all if none is given; 5 includes 5a, 5b and so on."""
    picked: list[Figure] = []
    for number in numbers:
        found = [figure for figure in figures if number in (figure.number, re.sub(r"(?<=\d)[a-z]$", "", figure.number))]
        if not found:
            known = ", ".join(figure.number for figure in figures)
            raise UnknownName("figure", f"none is numbered {number!r}; there are {known}")
        picked += [figure for figure in found if figure not in picked]
    return tuple(picked) if numbers else tuple(figures)
