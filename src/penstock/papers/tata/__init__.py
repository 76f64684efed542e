"""TATA: task placement with an estimator of throughput and delay, on the authors' data set and on emulated machines.

`validation` places the data set's validation graphs, `size` compares policies by time and number of tasks, `unlike` on
instances unlike the training; `policies` says which policies there are. `live` has the figures that run on emulated
machines.
"""

from penstock.experiments.figure import Figure
from penstock.papers.tata.size import SIZE
from penstock.papers.tata.unlike import UNLIKE
from penstock.papers.tata.validation import VALIDATION

FIGURES: tuple[Figure, ...] = (VALIDATION, SIZE, UNLIKE)
