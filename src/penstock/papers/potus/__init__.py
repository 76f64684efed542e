"""POTUS's figures, and some of our own on what the paper leaves open; one file per figure or pair of figures.

`lookahead` 4, `backlogs` 5a and 5b, `costs` 5c and 5d, `predictions` 6a and 6b, `phantoms` 6c, `settings`, `theorems`
(with the counterexample), `beyond`. They share the simulation in `runs`; `summaries` has their statistics and plots.
"""

from penstock.experiments.figure import Figure
from penstock.papers.potus import backlogs, beyond, costs, lookahead, phantoms, predictions, settings, theorems

FIGURES: tuple[Figure, ...] = (
    *lookahead.FIGURES,
    *backlogs.FIGURES,
    *costs.FIGURES,
    *predictions.FIGURES,
    *phantoms.FIGURES,
    *settings.FIGURES,
    *theorems.FIGURES,
    *beyond.FIGURES,
)
