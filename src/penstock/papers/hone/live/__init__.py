"""Live experiments: tuple policies switched during runs on emulated machines, on embedded Spark.

`episodes` defines arrivals, `settings` applications and machines, `trial` runs policies in turn, `measures` evaluates
telemetry, `ratios` compares choices. Figures: `grid`, all choices at several loads, and the default that follows;
`signals`, the duration of a signal; `testbed`, Hone's figures 10 to 14.
"""

from penstock.experiments.figure import Figure
from penstock.papers.hone.live.grid import LIVE
from penstock.papers.hone.live.signals import LIVE_TAU
from penstock.papers.hone.live.testbed import FIGURE_10, FIGURE_11, FIGURE_12, FIGURE_13, FIGURE_14

FIGURES: tuple[Figure, ...] = (FIGURE_10, FIGURE_11, FIGURE_12, FIGURE_13, FIGURE_14, LIVE, LIVE_TAU)
