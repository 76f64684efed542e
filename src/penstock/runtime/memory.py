"""The memory that this process uses: what a real worker tells of its machine."""

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
