"""The memory that this process uses, and the cores and memory of its host.

Workers report the former. The latter describes the machine of an embedded run, whose cores count as speed 1.
"""

import os
import resource

_MB = 2**20


def resident_mb() -> float:
    """Return the resident memory of this process; its maximum so far if the current value is unknown."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / _MB
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def host_capacity() -> tuple[float, float]:
    """Return the number of cores of this host, and its memory in MB."""
    return float(os.cpu_count() or 1), os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / _MB
