"""The compiler for hot loops: numba, behind a decorator that keeps a function's type.

Kernels take arrays and `NamedTuple`s of arrays, loop with bounds known beforehand, and are cached on disk, so that a
process compiles nothing that an earlier one has compiled. `interpreted(kernel)` is the same function in plain Python.
"""

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import numba

P = ParamSpec("P")
R = TypeVar("R")


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function on its first call; floating point behaves as in Python, divisions by zero as in numpy."""
    return cast(Callable[P, R], numba.njit(cache=True, error_model="numpy")(function))


def interpreted(compiled: Callable[P, R]) -> Callable[P, R]:
    """Return the Python function behind a kernel."""
    return cast(Callable[P, R], cast(Any, compiled).py_func)
