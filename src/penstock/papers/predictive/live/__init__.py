"""Predictive scheduling live: what the twin and a trained autopilot are worth on applications that run.

Everything runs on embedded Spark, on emulated machines. `settings` is what runs, `visits` a run in which one placement
follows another, `passes` one that policies steer in turn, `tables` what the pipeline says of them, `training` how
latency models are had. Figures: `fidelity`, the calibrated twin beside a run; `piloted`, latency before and after an
autopilot was on.
"""

from penstock.experiments.figure import Figure
from penstock.papers import predictive
from penstock.papers.predictive.live.fidelity import FIDELITY
from penstock.papers.predictive.live.piloted import AUTOPILOT

FIGURES: tuple[Figure, ...] = (FIDELITY, AUTOPILOT)
PREDICTIVE: tuple[Figure, ...] = (*predictive.FIGURES, *FIGURES)
"""All of the chapter's: on the twin, then live."""
