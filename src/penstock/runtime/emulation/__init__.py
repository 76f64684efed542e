"""Emulated machines: what a described machine and network would do, worked out without I/O or clocks.

A worker that emulates charges each tuple's declared work to a virtual processor and each frame to virtual links; they
answer with the time at which it would have been done there, and the worker's timers wait for that. Time is passed in,
in seconds on any clock that all machines share.
"""

from penstock.runtime.emulation.cpu import VirtualCpu
from penstock.runtime.emulation.fidelity import Truth
from penstock.runtime.emulation.links import VirtualLink
from penstock.runtime.emulation.network import VirtualNetwork, Way
from penstock.runtime.emulation.service import ServiceTimes
from penstock.runtime.emulation.shared import SharedCpu, SharedLink, scale_links, scale_machines

__all__ = [
    "ServiceTimes",
    "SharedCpu",
    "SharedLink",
    "Truth",
    "VirtualCpu",
    "VirtualLink",
    "VirtualNetwork",
    "Way",
    "scale_links",
    "scale_machines",
]
