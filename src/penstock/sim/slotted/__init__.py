"""The slotted simulator: POTUS's queueing equations and Hone's link, with the response time of every source tuple.

`simulate` is the entry point; `state` has the tables of a simulation, `steps` the equations.
"""

from penstock.sim.slotted.result import SlotSeries, SlottedResult
from penstock.sim.slotted.simulation import Arrivals, Keys, simulate

__all__ = ["Arrivals", "Keys", "SlotSeries", "SlottedResult", "simulate"]
