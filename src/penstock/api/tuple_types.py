"""The types of tuples: derived from an author's annotations, and checked for whether such tuples can be sent.

Nothing has to be declared: a type that cannot be derived is `Any`. A tuple of type `Any` arrives at another process as
MessagePack decodes it, a plain tuple as a list, a struct as a dict; with a type it arrives as it was sent.
"""

import inspect
from collections.abc import Callable
from functools import partial, reduce
from operator import or_
from types import UnionType
from typing import Any, ForwardRef, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec.inspect import CustomType, type_info

from penstock.api.keys import Key, Named, field_names
from penstock.model.errors import InvalidInput, UnknownName, nearest

_PLAIN = (None, Any, int, float, str, bytes, bool, list, dict, tuple, type(None))  # undeclared, these are decoded alike


def emitted_type(logic: Any, base: type, place: int) -> Any:
    """Return the type that a source or operator emits, or None: its attribute `emits`, or its base's type argument.

    `logic` is an object, its class, or a function that creates it.
    """
    declared = getattr(logic, "emits", None)
    if declared is not None and not isinstance(declared, property):  # a class returns the property itself
        return concrete_type(declared)
    return argument_type(logic, base, place)


def argument_type(logic: Any, base: type, place: int) -> Any:
    """Return a type argument for the base of a source or operator, or None; `logic` is as for `emitted_type`."""
    made = logic if isinstance(logic, type) else type(logic)
    if not issubclass(made, base):
        made = returned_type(logic)
        made = get_origin(made) or made
    return concrete_type(_argument(made, base, place)) if isinstance(made, type) and issubclass(made, base) else None


def returned_type(function: Callable[..., Any]) -> Any:
    """Return the annotated result type of a function, or None; a class returns its instances."""
    while isinstance(function, partial):
        function = function.func
    if isinstance(function, type):
        return function
    annotated = function if inspect.isroutine(function) else type(function).__call__
    try:
        return concrete_type(get_type_hints(annotated).get("return"))
    except (TypeError, NameError, AttributeError):  # a built-in, or a name that only type checkers know
        return None


def element_type(kind: Any) -> Any:
    """Return the element type of an iterable type, or None: `Iterator[str] | None` contains `str`."""
    if get_origin(kind) in (Union, UnionType):
        held = [element_type(part) for part in get_args(kind) if part is not type(None)]
        return None if None in held or not held else reduce(or_, held)
    if kind is str:
        return str
    arguments = get_args(kind)
    if get_origin(kind) is tuple and not (len(arguments) == 2 and arguments[1] is Ellipsis):
        return reduce(or_, arguments) if arguments else None
    return arguments[0] if arguments else None


def of_pair(kind: Any) -> Any:
    """Return the type of the second element of a pair, or None: the value behind the name of an output or a task."""
    arguments = get_args(kind)
    return arguments[1] if get_origin(kind) is tuple and len(arguments) == 2 and arguments[1] is not Ellipsis else None


def first_of_pair(kind: Any) -> Any:
    """Return the type of the first element of a pair, or None: the state before the output."""
    return get_args(kind)[0] if of_pair(kind) is not None else None


def initial_type(initial: Any) -> Any:
    """Return the type of states by that of the initial one; None if it is unknown, or one of MessagePack's own."""
    kind = initial if isinstance(initial, type) else returned_type(initial) if callable(initial) else type(initial)
    return None if kind in _PLAIN else kind


def key_type(keys: tuple[Key, ...], kind: Any) -> Any:
    """Return the type of the keys that `extractor` returns for tuples of a type; `Any` if it is unknown."""
    if not keys:
        return kind
    parts = [_part_type(key, kind) for key in keys]
    if len(parts) == 1:
        return parts[0]
    return Any if Any in parts else tuple[tuple(parts)]  # type: ignore[misc]


def _part_type(key: Key, kind: Any) -> Any:
    """Return the type of one key of tuples of a type."""
    if isinstance(key, Named):
        return kind if key.key is None else _part_type(key.key, kind)
    found: Any = None
    if isinstance(key, int):
        places = get_args(kind) if get_origin(kind) is tuple and Ellipsis not in get_args(kind) else ()
        found = places[key] if -len(places) <= key < len(places) else None
    elif isinstance(key, str):
        name, _, rest = key.partition(".")
        found = _field_type(name, kind)
        found = found if not rest or found is None else _part_type(rest, found)
    else:
        found = returned_type(key)
    return Any if found is None else found


def _field_type(name: str, kind: Any) -> Any:
    try:
        return concrete_type(get_type_hints(kind).get(name))
    except (TypeError, NameError, AttributeError):  # not a class, or a name that only type checkers know
        return None


def concrete_type(kind: Any) -> Any:
    """Return a type, or None for one that is a type variable or a name in quotes."""
    if kind is object:
        return Any
    if isinstance(kind, TypeVar | ForwardRef | str):
        return None
    open_parts = [part for part in get_args(kind) if part not in (None, Ellipsis) and concrete_type(part) is None]
    return None if open_parts else kind


def check_encodable(path: str, kind: Any) -> None:
    """Raise `InvalidInput` for a type whose tuples cannot be encoded and decoded between processes."""
    try:
        info = type_info(kind)
    except TypeError as error:
        raise InvalidInput(path, f"expected a type that can be encoded, got {kind!r}: {error}") from None
    if (strange := _strange(info, set())) is not None:
        problem = f"objects of {strange!r} cannot be encoded; make it a msgspec.Struct, a dataclass or a named tuple"
        raise InvalidInput(path, problem)


def check_key(path: str, key: Key, kind: Any) -> None:
    """Raise `UnknownName` for a field or position that tuples of this type lack, as far as the type shows."""
    key = key.key if isinstance(key, Named) and key.key is not None else key
    places = get_args(kind) if get_origin(kind) is tuple and Ellipsis not in get_args(kind) else None
    if isinstance(key, int) and places and not -len(places) <= key < len(places):
        raise UnknownName(path, f"tuples of {len(places)} values have no position {key}; positions start at 0")
    if not isinstance(key, str) or hasattr(kind, key.partition(".")[0]):
        return
    names = field_names(kind)
    if names is not None and key.partition(".")[0] not in names:
        raise UnknownName(path, f"{kind.__name__} has no field {key!r}; {nearest(key, names)}")
    if kind in (str, bytes, int, float, bool) or places:
        problem = f"tuples of type {getattr(kind, '__name__', kind)} have no field {key!r}"
        raise UnknownName(path, f"{problem}; use a position such as 0, or no key for the whole tuple")


def _argument(made: type, base: type, place: int) -> Any:
    """Return a class's type argument for `base`, also through intermediate classes."""
    for parent in made.__dict__.get("__orig_bases__", made.__bases__):
        origin, arguments = get_origin(parent) or parent, get_args(parent)
        if not isinstance(origin, type) or not issubclass(origin, base):
            continue
        if origin is base:
            return arguments[place] if len(arguments) > place else None
        found = _argument(origin, base, place)
        if isinstance(found, TypeVar):
            parameters = getattr(origin, "__parameters__", ())
            return dict(zip(parameters, arguments, strict=False)).get(found)
        return found
    return None


def _strange(info: Any, seen: set[int]) -> Any:
    """Return the first class within a type that msgspec does not support."""
    if isinstance(info, CustomType):
        return info.cls
    if isinstance(info, tuple):
        found = (_strange(part, seen) for part in info)
    elif isinstance(info, msgspec.inspect.Type | msgspec.inspect.Field) and id(info) not in seen:
        seen.add(id(info))
        found = (_strange(getattr(info, name), seen) for name in info.__struct_fields__ if name != "cls")
    else:
        return None
    return next((cls for cls in found if cls is not None), None)
