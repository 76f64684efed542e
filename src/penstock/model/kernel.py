"""The compiler for hot loops: numba, behind a decorator that keeps a function's type.

Kernels take arrays and `NamedTuple`s of arrays, have loops with known bounds, and are cached on disk, so that each is
compiled once per installation. `interpreted(kernel)` is the same function in plain Python. (The cache checks only the
kernel's own file: after editing a kernel that kernels in other files call, run
`make clean-kernels`.)

Compiling a long kernel takes seconds, and plain Python milliseconds for a single small placement. So inside
`interpreting()`, a kernel that is not in the cache is compiled only after it has been interpreted for half a second.
"""

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, wraps
from time import thread_time
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any, ParamSpec, TypeVar, cast

import numba
import numpy as np
from numba.core import config
from numba.core.caching import IndexDataCacheFile
from numba.core.event import Event, Listener, TimingListener, install_listener, register

_LOG = logging.getLogger(__name__)
P = ParamSpec("P")
R = TypeVar("R")

INTERPRETED_S = float(os.environ.get("PENSTOCK_INTERPRETED_S") or 0.5)  # per kernel, before it is compiled
SMALL = 10_000  # numbers in the arguments; a call with more of them could be interpreted for minutes

_interpreting = ContextVar("interpreting", default=False)

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
    if config.DISABLE_JIT:  # type: ignore[attr-defined]
        return _uncompiled(function)
    compiled = numba.njit(**_COUNTING)(function)
    compiled._compile_for_args = _Gradual(compiled)
    return cast(Callable[P, R], compiled)


def _uncompiled(function: Callable[P, R]) -> Callable[P, R]:
    """Return a kernel that is always interpreted, for a process in which NUMBA_DISABLE_JIT is set."""

    @cache
    def plain() -> Callable[P, R]:  # made by the first call, when the kernels that it calls are defined
        return interpreted(call)

    @wraps(function)
    def call(*args: P.args, **named: P.kwargs) -> R:
        with np.errstate(all="ignore"):
            return cast(R, _as_compiled(plain()(*args, **named)))

    call.py_func = function  # type: ignore[attr-defined]
    return call


@contextmanager
def interpreting(allowed: bool = True) -> Iterator[None]:
    """Interpret new kernels inside the block for a while, or not, if they will be called thousands of times."""
    token = _interpreting.set(allowed)
    try:
        yield
    finally:
        _interpreting.reset(token)


class _Gradual:
    """Chooses whether a kernel that is called with new types of arguments is compiled or interpreted."""

    def __init__(self, compiled: Any) -> None:
        self._kernel = compiled
        self._compile = compiled._compile_for_args
        self._seconds = 0.0
        self._cached: bool | None = None
        self._plain: Callable[..., Any] | None = None

    def __call__(self, *args: Any, **named: Any) -> Callable[..., Any]:
        """Return what Numba's dispatcher calls instead of a compiled function."""
        if self._seconds < INTERPRETED_S and _interpreting.get() and not self._in_cache(args) and _size(args) <= SMALL:
            return self._interpret
        return cast(Callable[..., Any], self._compile(*args, **named))

    def _in_cache(self, args: tuple[Any, ...]) -> bool:
        if self._cached is None:
            cache, codegen = self._kernel._cache, self._kernel.targetctx.codegen()
            key = cache._index_key(tuple(self._kernel.typeof_pyval(each) for each in args), codegen)
            self._cached = key in cache._cache_file._load_index()
        return self._cached

    def _interpret(self, *args: Any) -> Any:
        if self._plain is None:
            self._plain = interpreted(self._kernel)
        started = thread_time()
        try:
            with np.errstate(all="ignore"):
                return _as_compiled(self._plain(*args))
        finally:
            self._seconds += thread_time() - started


def _as_compiled(value: Any) -> Any:
    """Return a result with Python's numbers in place of numpy's, as compiled code returns them."""
    if isinstance(value, tuple):
        items = map(_as_compiled, value)
        return value._make(items) if hasattr(value, "_make") else tuple(items)
    return value.item() if isinstance(value, np.generic) else value


def _size(value: Any) -> int:
    """Return the number of numbers in a value; random generators and the like count as none."""
    if isinstance(value, tuple):
        return sum(map(_size, value))
    return value.size if isinstance(value, np.ndarray) else 1


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

    logged = False

    def on_start(self, event: Event) -> None:
        """Log the message, once."""
        if not self.logged:
            self.logged = True
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
    """Return the Python function behind a kernel, in which the kernels that it calls are Python functions too."""
    return cast(Callable[P, R], _plain(compiled, {}))


def _plain(value: Any, known: dict[int, Any]) -> Any:
    if isinstance(value, ModuleType) and value.__name__.startswith("penstock."):
        return SimpleNamespace(**{name: _plain(held, known) for name, held in vars(value).items()})
    if not hasattr(value, "py_func"):
        return value
    if id(value) not in known:
        function: FunctionType = value.py_func
        scope: dict[str, Any] = {}
        known[id(value)] = FunctionType(function.__code__, scope, function.__name__, function.__defaults__)
        for name, held in function.__globals__.items():
            scope[name] = _plain(held, known)
    return known[id(value)]
