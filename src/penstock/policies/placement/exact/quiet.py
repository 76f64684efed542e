"""Keep standard output clean while HiGHS runs.

HiGHS 1.12, in scipy 1.17, prints a debugging line whenever it repairs a rounded solution, whatever its options. That
line must not appear in a command's output. So the process's standard output is redirected to a file while HiGHS runs,
and everything but that line is written afterwards.
"""

import ctypes
import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager

LINE = b"HighsMipSolverData::transformNewIntegerFeasibleSolution tmpSolver.run();"
STDOUT = 1

_one_at_a_time = threading.Lock()


@contextmanager
def without_developers_line() -> Iterator[None]:
    """Hold back standard output, then write it without HiGHS's line; one thread at a time."""
    with _one_at_a_time, tempfile.TemporaryFile() as held:
        try:
            real = os.dup(STDOUT)
        except OSError:  # closed, as in a service without a terminal
            yield
            return
        os.dup2(held.fileno(), STDOUT)
        try:
            yield
        finally:
            ctypes.CDLL(None).fflush(None)  # HiGHS prints through C's buffer
            os.dup2(real, STDOUT)
            os.close(real)
            held.seek(0)
            for line in held:
                if line.rstrip() != LINE:
                    os.write(STDOUT, line)
