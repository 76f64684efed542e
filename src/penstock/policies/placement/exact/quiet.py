"""Standard output kept clean while HiGHS runs.

HiGHS 1.12, as scipy 1.17 has it, prints a line for its developers whenever it mends a rounded solution, whatever its
options say. In the middle of a command's output that line would be a defect of ours. So the process's standard output
goes to a file for as long as HiGHS runs, and all of it but that line is written out afterwards.
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
    """Hold back standard output, and write it without HiGHS's line at the end; one thread at a time."""
    with _one_at_a_time, tempfile.TemporaryFile() as held:
        try:
            real = os.dup(STDOUT)
        except OSError:  # closed, as in a service without a terminal: then nobody reads it
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
