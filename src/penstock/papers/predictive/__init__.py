"""Li's chapter 2 on the twin: latencies predicted by regression, tasks placed by predictions; one file per figure.

`topologies` 2.7 to 2.10, `executors` 2.11, `training` the effect of the training placements. `settings` defines
applications and machines, `visits` and `windows` the data, `models` the regressions, `calibrated` the twin calibrated
with the same windows, `trial` all steps in order, `limits` the best placement found, `summaries` the statistics.
"""

from penstock.experiments.figure import Figure
from penstock.papers.predictive import executors, topologies, training

FIGURES: tuple[Figure, ...] = (*topologies.FIGURES, *executors.FIGURES, *training.FIGURES)
