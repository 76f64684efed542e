"""TATA live, on emulated machines with 1, 2 and 4 cores: the paper's applications, and the estimators of throughput.

`settings` defines machines and applications, `runs` measures what a placement carries.
Figures: `applications` (live), the five applications under each policy; `estimator`, estimates compared with runs.
"""

from penstock.experiments.figure import Figure
from penstock.papers.tata.live.applications import LIVE
from penstock.papers.tata.live.estimator import ESTIMATOR

FIGURES: tuple[Figure, ...] = (LIVE, ESTIMATOR)
