"""Predictive scheduling live: accuracy of the twin and benefit of a trained autopilot on running applications.

Everything runs on embedded Spark, on emulated machines. `settings` defines applications, `visits` runs one placement
after another, `passes` runs policies in turn, `tables` reads the pipeline's tables of them. Figures: `fidelity`, the
calibrated twin compared with a run; `piloted`, latency before and after an autopilot's changes, with models trained on
the twin. `claims` has those of autopilots.
"""

from penstock.experiments.figure import Figure
from penstock.papers.predictive.live.fidelity import FIDELITY
from penstock.papers.predictive.live.piloted import AUTOPILOT

FIGURES: tuple[Figure, ...] = (FIDELITY, AUTOPILOT)
