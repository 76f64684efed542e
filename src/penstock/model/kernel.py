"""The compiler for hot loops: numba, behind a decorator that keeps a function's type.

Kernels take arrays and `NamedTuple`s of arrays, have loops with known bounds, and are cached on disk, so that each is
compiled once per installation. `interpreted(kernel)` is the same function in plain Python. (The cache checks only the
kernel's own file: after editing a kernel that kernels in other files call, run
`make clean-kernels`.)
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar, cast

import numba
from numba.core.caching import IndexDataCacheFile
from numba.core.event import Event, Listener, TimingListener, install_listener, register

_LOG = logging.getLogger(__name__)
P = ParamSpec("P")
R = TypeVar("R")

_COUNTING: dict[str, Any] = {"cache": True, "error_model": "numpy", "_nrt": True}
_LEAN: dict[str, Any] = {**_COUNTING, "_nrt": False, "forceinline": True}  # _nrt: whether references are counted
_PART: dict[str, Any] = {**_COUNTING, "_nrt": False, "inline": "always"}
_STAGE: dict[str, Any] = {**_COUNTING, "_nrt": False, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}


def _ignore_other_versions(load: Callable[[Any], dict[Any, Any]]) -> Callable[[Any], dict[Any, Any]]:
    """Treat a cache index that refers to classes of another version of Penstock as empty."""

    def load_known(index: Any) -> dict[Any, Any]:
        try:
            return load(index)
        except (AttributeError, ImportError):
            return {}

    return load_known


IndexDataCacheFile._load_index = _ignore_other_versions(IndexDataCacheFile._load_index)  # type: ignore[method-assign]


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function on its first call; arithmetic follows Python, except that division by zero follows numpy."""
    return cast(Callable[P, R], numba.njit(**_COUNTING)(function))


def lean(function: Callable[P, R]) -> Callable[P, R]:
    """Inline a compiled function that creates no arrays into each kernel that calls it.

    A call between kernels counts references to every array argument and copies tuples of arrays, which takes longer
    than a short function itself. A lean function counts no references, as its caller holds them all, and returns no
    arrays. For kernels only: when called from Python it would never release a random generator.
    """
    return cast(Callable[P, R], numba.njit(**_LEAN)(function))


def stage(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function that creates no arrays for kernels to call; it cannot be called from Python.

    For a tuple of a hundred arrays, most of the compile time is spent on reference counting and on the Python entry
    point. A long kernel avoids both by delegating to a few stages. Calling one from Python crashes the process.
    """
    return cast(Callable[P, R], numba.njit(**_STAGE)(function))


def part(function: Callable[P, R]) -> Callable[P, R]:
    """Inline the source of a function into every kernel that calls it.

    It is compiled only as part of its callers, while other functions are compiled once separately and again in each
    caller. For short functions: inlining long ones takes longer than compiling them.
    """
    return cast(Callable[P, R], numba.njit(**_PART)(function))


class _Announcer(Listener):
    """Logs once, before the first compilation, that compiling may take a minute."""

    told = False

    def on_start(self, event: Event) -> None:
        """Log the message, once."""
        if not self.told:
            self.told = True
            _LOG.info("compiling inner loops for this machine, once after installation; it may take a minute …")

    def on_end(self, event: Event) -> None:
        """Do nothing; the base class requires it."""


register("numba:compile", _Announcer())  # type: ignore[no-untyped-call]


class Preparation(TimingListener):
    """Measures the time spent on compiling kernels or loading them from disk."""

    @property
    def seconds(self) -> float:
        """The time so far, in seconds."""
        return float(self.duration) if self.done else 0.0


@contextmanager
def preparing() -> Iterator[Preparation]:
    """Measure the time that kernels used inside the block take to compile or load, excluding their run time."""
    spent = Preparation()  # type: ignore[no-untyped-call]
    with install_listener("numba:compiler_lock", spent):  # held while compiling and while loading
        yield spent


def interpreted(compiled: Callable[P, R]) -> Callable[P, R]:
    """Return the Python function behind a kernel."""
    return cast(Callable[P, R], cast(Any, compiled).py_func)
