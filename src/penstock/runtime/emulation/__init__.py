"""Emulated machines: virtual processors and links, computed without I/O or clocks.

A worker that emulates a machine charges each tuple's declared work to a virtual processor and each frame to virtual
links; they return the time at which it would be complete, for which the worker waits. Times are arguments, in seconds
of a clock that all machines share.
"""

from penstock.runtime.emulation.cpu import ServiceTimes, VirtualCpu
from penstock.runtime.emulation.fidelity import Fidelity
from penstock.runtime.emulation.network import Path, VirtualLink, VirtualNetwork
from penstock.runtime.emulation.shared import SharedCpu, SharedLink, scale_links, scale_machines

__all__ = [
    "Fidelity",
    "Path",
    "ServiceTimes",
    "SharedCpu",
    "SharedLink",
    "VirtualCpu",
    "VirtualLink",
    "VirtualNetwork",
    "scale_links",
    "scale_machines",
]
