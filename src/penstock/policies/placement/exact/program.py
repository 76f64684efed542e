"""A mixed-integer linear program, solved by HiGHS through scipy.

Columns (variables) and rows (constraints) are added one after another, then the program is solved. HiGHS accepts rows
that are violated by 1e-6 and stops at an absolute gap of 1e-6, so callers scale binding rows and the objective to about
`SCALE`: both errors are then 1e-8 of the total.
"""

import ctypes
import os
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from penstock.model.taskgraph import Floats

SCALE = 100.0
MAX_COLUMNS = 200_000  # more cannot be solved in minutes
DEVELOPERS_LINE = b"HighsMipSolverData::transformNewIntegerFeasibleSolution tmpSolver.run();"
STDOUT = 1

_one_at_a_time = threading.Lock()

Columns = NDArray[np.int64]


class TooLarge(Exception):
    """A program of more columns than `MAX_COLUMNS`."""


class SolverStatus(Enum):
    """How a solution ended."""

    OPTIMAL = auto()
    INFEASIBLE = auto()
    STOPPED = auto()


@dataclass(frozen=True, slots=True)
class Solution:
    """Result of HiGHS: the best values (none if it found none), and a lower bound of the cost."""

    outcome: SolverStatus
    values: Floats | None
    bound: float


class Program:
    """Minimise a linear cost of non-negative columns, some of them whole numbers, within rows."""

    def __init__(self) -> None:
        self._upper: list[Floats] = []
        self._whole: list[NDArray[np.bool_]] = []
        self._cost: dict[int, float] = {}
        self._rows: list[int] = []
        self._columns: list[int] = []
        self._factors: list[float] = []
        self._low: list[float] = []
        self._high: list[float] = []
        self.size = 0

    def columns(self, upper: ArrayLike, whole: bool = False) -> Columns:
        """Add a column for every upper bound and return their numbers, in the same shape.

        Raises `TooLarge` if there are too many.
        """
        bounds = np.asarray(upper, dtype=np.float64)
        if self.size + bounds.size > MAX_COLUMNS:
            raise TooLarge
        self._upper.append(bounds.ravel())
        self._whole.append(np.full(bounds.size, whole))
        first, self.size = self.size, self.size + bounds.size
        return np.arange(first, self.size).reshape(bounds.shape)

    def row(self, terms: Sequence[tuple[int, float]], low: float = -np.inf, high: float = np.inf) -> None:
        """Constrain the sum of column × factor to `low` … `high`; a column may occur twice."""
        for column, factor in terms:
            self._rows.append(len(self._low))
            self._columns.append(column)
            self._factors.append(factor)
        self._low.append(low)
        self._high.append(high)

    def cost(self, column: int, factor: float) -> None:
        """Add a term to the objective, which is minimised."""
        self._cost[column] = self._cost.get(column, 0.0) + factor

    def solve(self, seconds: float, nodes: int | None = None) -> Solution:
        """Minimise until the result is proven optimal, or the limit of time or search-tree nodes is reached."""
        if seconds <= 0:
            return Solution(SolverStatus.STOPPED, None, -np.inf)
        options: Any = {"mip_rel_gap": 0.0}
        options |= {} if nodes is None else {"node_limit": nodes}
        options |= {"time_limit": seconds} if np.isfinite(seconds) else {}
        cost = np.zeros(self.size)
        cost[list(self._cost)] = list(self._cost.values())
        where = (np.array(self._rows, dtype=np.int32), np.array(self._columns, dtype=np.int32))
        factors = coo_array((np.array(self._factors), where), shape=(len(self._low), self.size)).tocsr()
        with without_developers_line():
            found = milp(
                cost,
                integrality=np.concatenate(self._whole).astype(np.int32),
                bounds=Bounds(np.zeros(self.size), np.concatenate(self._upper)),
                constraints=LinearConstraint(factors, np.array(self._low), np.array(self._high)),
                options=options,
            )
        outcome = {0: SolverStatus.OPTIMAL, 2: SolverStatus.INFEASIBLE}.get(found.status, SolverStatus.STOPPED)
        bound = -np.inf if found.mip_dual_bound is None else float(found.mip_dual_bound)
        return Solution(outcome, found.x, bound)


@contextmanager
def without_developers_line() -> Iterator[None]:
    """Hold back standard output while HiGHS runs, then write it without HiGHS's line; one thread at a time.

    HiGHS 1.12, in scipy 1.17, prints a line for its developers whenever it repairs a rounded solution, whatever its
    options. That line must not appear in a command's output.
    """
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
                if line.rstrip() != DEVELOPERS_LINE:
                    os.write(STDOUT, line)
