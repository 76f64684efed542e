"""POTUS's figures, and some of our own on what the paper leaves open; a file a figure or a pair of them.

`lookahead` 4, `backlogs` 5a and 5b, `costs` 5c and 5d, `predictions` 6a and 6b, `phantoms` 6c, `settings`, `theorems`
(with the counterexample), `beyond`. `runs` is the simulation that they share, `summaries` how they sum up and draw.
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
