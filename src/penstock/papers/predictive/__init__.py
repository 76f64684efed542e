"""Li's chapter 2 on the twin: latencies predicted by regression, tasks placed by predictions; a file a figure or more.

`topologies` 2.7 to 2.10, `executors` 2.11, `training` what the choice of training placements is worth. `settings` is
what runs, `visits` and `windows` what is seen of it, `models` what is learnt from that, `calibrated` the twin by the
same windows, `trial` all of it in order, `limits` the best that could be had, `summaries` how it is summed up.
"""

from penstock.experiments.figure import Figure
from penstock.papers.predictive import executors, topologies, training

FIGURES: tuple[Figure, ...] = (*topologies.FIGURES, *executors.FIGURES, *training.FIGURES)
