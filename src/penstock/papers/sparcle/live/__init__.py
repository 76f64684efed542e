"""SPARCLE live: applications that were let into a book run, compete, flood and lose a machine, on embedded Spark.

`settings` is what runs, `operated` an operator whose rates are measured at the sinks, `stories` what happens, `live`
the figure and its claims.
"""

from penstock.experiments.figure import Figure
from penstock.papers import sparcle
from penstock.papers.sparcle.live.live import LIVE

SPARCLE: tuple[Figure, ...] = (*sparcle.FIGURES, LIVE)
"""All of the paper's, simulated, then what runs."""
