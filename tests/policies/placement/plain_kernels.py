"""Kernels without the compiler, for the tests that compare both and for what kernels alone may call."""

from collections.abc import Callable
from types import FunctionType
from typing import Any

from penstock.model.kernel import interpreted


def throughout(function: Callable[..., Any], known: dict[Any, FunctionType]) -> FunctionType:
    """The same function with every kernel that it calls, and those that they call, in plain Python."""
    if function not in known:
        plain = interpreted(function) if hasattr(function, "py_func") else function
        assert isinstance(plain, FunctionType)
        names = dict(plain.__globals__)
        known[function] = FunctionType(plain.__code__, names)
        for name in plain.__code__.co_names:
            if hasattr(names.get(name), "py_func"):
                names[name] = throughout(names[name], known)
    return known[function]
