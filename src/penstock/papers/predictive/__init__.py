"""Li's chapter 2 on the twin: latencies predicted by regression, tasks placed by predictions; one file per figure.

`topologies` 2.7 to 2.10 and the effect of the training placements, `executors` 2.11. `settings` defines applications
and machines, `visits` and `windows` the data, `models` the regressions, `calibrated` the twin calibrated with the same
windows, `trial` all steps in order and the best placement found, `summaries` the statistics. `live` has the figures
that run on emulated machines.
"""

from penstock.experiments.figure import Figure
from penstock.papers.predictive import executors, topologies

FIGURES: tuple[Figure, ...] = (*topologies.FIGURES, *executors.FIGURES, topologies.TRAINING)
