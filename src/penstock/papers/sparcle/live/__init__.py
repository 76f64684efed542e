"""SPARCLE live: applications admitted to a book run, compete, flood and lose a machine, on embedded Spark.

`operated` runs a book and measures rates at the sinks, `stories` has the scenarios with their applications and
machines, `live` the figure and its claims.
"""

from penstock.experiments.figure import Figure
from penstock.papers import sparcle
from penstock.papers.sparcle.live.live import LIVE

SPARCLE: tuple[Figure, ...] = (*sparcle.FIGURES, LIVE)
"""All figures of the paper: simulated, then live."""
