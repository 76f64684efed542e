"""Kernels as plain Python all the way down, to compare compiled code with."""

from collections.abc import Callable
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any, ParamSpec, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")


def wholly_interpreted(compiled: Callable[P, R]) -> Callable[P, R]:
    """The Python function behind a kernel, in which the kernels that it calls are Python functions too."""
    return cast(Callable[P, R], _plain(compiled, {}))


def _plain(value: Any, known: dict[int, Any]) -> Any:
    if isinstance(value, ModuleType) and value.__name__.startswith("penstock."):
        return SimpleNamespace(**{name: _plain(held, known) for name, held in vars(value).items()})
    if not hasattr(value, "py_func"):
        return value
    if id(value) not in known:
        function: FunctionType = value.py_func
        scope: dict[str, Any] = {}
        known[id(value)] = FunctionType(function.__code__, scope, function.__name__)
        for name, held in function.__globals__.items():
            scope[name] = _plain(held, known)
    return known[id(value)]
