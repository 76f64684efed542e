"""The slotted simulator: POTUS's queueing equations and Hone's link, every source tuple followed to its response time.

`simulate` is what others call; `state` has the tables of a simulation, `steps` the equations.
"""

from penstock.sim.slotted.outcome import Outcome, Series
from penstock.sim.slotted.simulation import Arrivals, Keys, simulate

__all__ = ["Arrivals", "Keys", "Outcome", "Series", "simulate"]
