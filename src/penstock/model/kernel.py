"""The compiler for hot loops: numba, behind a decorator that keeps a function's type.

Kernels take arrays and `NamedTuple`s of arrays, loop with bounds known beforehand, and are cached on disk, so that a
process compiles nothing that an earlier one has compiled. `interpreted(kernel)` is the same function in plain Python.
(The cache knows a kernel by its own file: after editing one that kernels in other files call, `make clean`.)
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar, cast

import numba
from numba.core.event import Event, Listener, TimingListener, install_listener, register

_LOG = logging.getLogger(__name__)
P = ParamSpec("P")
R = TypeVar("R")

_COUNTING: dict[str, Any] = {"cache": True, "error_model": "numpy", "_nrt": True}
_LEAN: dict[str, Any] = {**_COUNTING, "_nrt": False, "forceinline": True}  # _nrt: whether references are counted
_PART: dict[str, Any] = {**_COUNTING, "_nrt": False, "inline": "always"}
_STAGE: dict[str, Any] = {**_COUNTING, "_nrt": False, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function on its first call; floating point behaves as in Python, divisions by zero as in numpy."""
    return cast(Callable[P, R], numba.njit(**_COUNTING)(function))


def lean(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function that makes no arrays into each kernel that calls it.

    Between kernels, references are counted to every array handed over, and tuples of arrays are copied, which takes
    longer than a short function does. A lean one counts none, as its caller holds them all, and hands nothing over.
    For kernels only: called from Python it would never let go of a random generator.
    """
    return cast(Callable[P, R], numba.njit(**_LEAN)(function))


def stage(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function that makes no arrays for kernels to call, without a way in from Python.

    What a tuple of a hundred arrays takes to compile is the counting of references to them and the way in, not the
    work that is done with them: a long kernel leaves that to a few of these. Calling one from Python is fatal.
    """
    return cast(Callable[P, R], numba.njit(**_STAGE)(function))


def part(function: Callable[P, R]) -> Callable[P, R]:
    """Make a function part of every kernel that calls it, as if it were written out there.

    It is compiled with them only, where others are compiled once for themselves and again with all that call them, and
    those with all that call them. For short functions: writing out long ones takes longer than compiling them.
    """
    return cast(Callable[P, R], numba.njit(**_PART)(function))


class _Announcer(Listener):
    """Tells that there is something to compile, when the first of it is: that may take a minute."""

    told = False

    def on_start(self, event: Event) -> None:
        """Tell it, once."""
        if not self.told:
            self.told = True
            _LOG.info("compiling inner loops for this machine, once after installation; it may take a minute …")

    def on_end(self, event: Event) -> None:
        """Say nothing: what it was compiled for comes next."""


register("numba:compile", _Announcer())  # type: ignore[no-untyped-call]


class Preparation(TimingListener):
    """How long kernels have taken to be compiled, or loaded from disk."""

    @property
    def seconds(self) -> float:
        """The time so far."""
        return float(self.duration) if self.done else 0.0


@contextmanager
def preparing() -> Iterator[Preparation]:
    """Measure the time that kernels used within take to be ready, which is not the time they take to run."""
    spent = Preparation()  # type: ignore[no-untyped-call]
    with install_listener("numba:compiler_lock", spent):  # held while compiling and while loading
        yield spent


def interpreted(compiled: Callable[P, R]) -> Callable[P, R]:
    """Return the Python function behind a kernel."""
    return cast(Callable[P, R], cast(Any, compiled).py_func)
