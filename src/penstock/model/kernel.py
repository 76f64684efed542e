"""The compiler for hot loops: numba, behind a decorator that keeps a function's type.

Kernels take arrays and `NamedTuple`s of arrays, loop with bounds known beforehand, and are cached on disk, so that a
process compiles nothing that an earlier one has compiled. `interpreted(kernel)` is the same function in plain Python.
(The cache knows a kernel by its own file: after editing one that kernels in other files call, `make clean`.)
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar, cast

import numba
from numba.core.event import install_timer

P = ParamSpec("P")
R = TypeVar("R")


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function on its first call; floating point behaves as in Python, divisions by zero as in numpy."""
    return cast(Callable[P, R], numba.njit(cache=True, error_model="numpy")(function))


class Compiled:
    """How long kernels took to compile, or to be loaded from disk."""

    seconds = 0.0


@contextmanager
def compiling() -> Iterator[Compiled]:
    """Measure the time that compiling takes within."""
    taken = Compiled()

    def note(seconds: float) -> None:
        taken.seconds += seconds

    with install_timer("numba:compile", note):
        yield taken


def interpreted(compiled: Callable[P, R]) -> Callable[P, R]:
    """Return the Python function behind a kernel."""
    return cast(Callable[P, R], cast(Any, compiled).py_func)
