"""Hone's simulated figures (§4.4), independent checks of them, and its theorem against exact optima.

One file per figure: `backlogs` 6, `fairness` 7, `delays` 8, then figures that the paper does not have: `skews`,
`signals`, `competition`. They share `links`, the sending rules and the simulation of a link, and `tables`, sums over
seeds.
"""

from penstock.experiments.figure import Figure
from penstock.papers.hone.backlogs import FIGURE_6A, FIGURE_6B
from penstock.papers.hone.competition import COMPETITION
from penstock.papers.hone.delays import FIGURE_8
from penstock.papers.hone.fairness import FIGURE_7
from penstock.papers.hone.signals import SIGNALS
from penstock.papers.hone.skews import SKEWS

FIGURES: tuple[Figure, ...] = (FIGURE_6A, FIGURE_6B, FIGURE_7, FIGURE_8, SKEWS, SIGNALS, COMPETITION)
