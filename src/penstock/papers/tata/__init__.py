"""TATA: task placement with an estimator of throughput and delay, on the authors' data set and on emulated machines.

`validation` places the data set's validation graphs; `policies` says which policies there are. `live` has the figures
that run on emulated machines.
"""

from penstock.experiments.figure import Figure
from penstock.papers.tata.validation import VALIDATION

FIGURES: tuple[Figure, ...] = (VALIDATION,)
