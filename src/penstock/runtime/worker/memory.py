"""What is known of the machine that a process is on: the memory that it uses itself, and what its host has.

Workers tell the first. The second describes the machine of an embedded run, whose cores are taken to be of speed 1.
"""

import os
import resource

_MB = 2**20


def resident_mb() -> float:
    """Return the memory of this process that is resident now; where the system does not tell, the most it ever was."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / _MB
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def host_capacity() -> tuple[float, float]:
    """Return the cores of this host, and its memory in MB."""
    return float(os.cpu_count() or 1), os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / _MB
