"""Operators made of plain functions, and factories for the objects of tasks."""

import copy
import inspect
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar

from penstock.api.contracts import Operator, Sink, Source
from penstock.api.keyed import KeyedOperator
from penstock.model.errors import InvalidInput

Logic = Source[Any] | Operator[Any, Any] | Sink[Any]
Made = TypeVar("Made")

_REMEDY = {
    "Source": "derive it from Source, or use Generated(function)",
    "Operator": "for a function of a tuple use map, flat_map or filter",
    "KeyedOperator": "for a function of a key's state and a tuple use stateful_map",
    "Sink": "derive it from Sink",
}


class MapOperator(Operator[Any, Any]):
    """One tuple for each tuple: the result of a function."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def process(self, value: Any) -> Iterable[Any]:
        """Return the function's result."""
        return (self.function(value),)


class FlatMapOperator(Operator[Any, Any]):
    """Any number of tuples for each tuple, by a function that returns them or a generator that yields them."""

    def __init__(self, function: Callable[[Any], Iterable[Any] | None]) -> None:
        self.process = function  # type: ignore[assignment, method-assign]  # saves a call a tuple


class FilterOperator(Operator[Any, Any]):
    """The tuples for which a function returns true."""

    def __init__(self, predicate: Callable[[Any], bool]) -> None:
        self.predicate = predicate

    def process(self, value: Any) -> Iterable[Any] | None:
        """Return the tuple, or nothing."""
        return (value,) if self.predicate(value) else None


def maker(name: str, given: Any, kind: type[Made]) -> Callable[[], Made]:
    """Return a function that creates the object of one task: it copies an object, or calls a class or function."""
    if isinstance(given, kind):
        return partial(_copied, name, given)
    refuse_uncallable(name, given, f"a {kind.__name__} or a function that creates one")
    if isinstance(given, type) and not issubclass(given, kind):
        problem = f"expected a subclass of {kind.__name__} or a function that creates one, got class {given.__name__!r}"
        raise InvalidInput(name, f"{problem}; {_REMEDY[kind.__name__]}")
    try:
        inspect.signature(given).bind()
    except TypeError as error:
        problem = f"cannot be called without arguments, {error}; pass an object, or a function such as lambda: …"
        problem += (
            f"; {_REMEDY[kind.__name__]}" if inspect.isroutine(given) and kind in (Operator, KeyedOperator) else ""
        )
        raise InvalidInput(name, f"{getattr(given, '__name__', given)} {problem}") from None
    except ValueError:  # a built-in without a signature
        pass
    if isinstance(given, type):
        return given
    return partial(_made, name, given, kind)


def refuse_uncallable(name: str, given: Any, expected: str = "a function") -> None:
    """Raise `InvalidInput` for a value that cannot be called."""
    if not callable(given):
        raise InvalidInput(name, f"expected {expected}, got {given!r}")


def _copied(name: str, given: Made) -> Made:
    try:
        return copy.deepcopy(given)
    except TypeError as error:
        kind = type(given).__name__
        problem = f"{kind} cannot be copied for each task, {error}; pass a function such as lambda: {kind}(…)"
        raise InvalidInput(name, problem) from None


def _made(name: str, maker: Callable[[], Any], kind: type[Made]) -> Made:
    made = maker()
    if not isinstance(made, kind):
        raise InvalidInput(name, f"expected its factory to return a {kind.__name__}, got {made!r}")
    return made
