"""Predictive scheduling live: accuracy of the twin and benefit of a trained autopilot on running applications.

Everything runs on embedded Spark, on emulated machines. `settings` defines applications, `visits` runs one placement
after another, `passes` runs policies in turn, `tables` reads the pipeline's tables of them, `training` trains latency
models. Figures: `fidelity`, the calibrated twin compared with a run; `piloted`, latency before and after an autopilot's
changes.
"""

from penstock.experiments.figure import Figure
from penstock.papers import predictive
from penstock.papers.predictive.live.fidelity import FIDELITY
from penstock.papers.predictive.live.piloted import AUTOPILOT

FIGURES: tuple[Figure, ...] = (FIDELITY, AUTOPILOT)
PREDICTIVE: tuple[Figure, ...] = (*predictive.FIGURES, *FIGURES)
"""All figures of the chapter: on the twin, then live."""
