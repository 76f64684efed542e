"""Keys: their extraction from a tuple, and the task that owns them.

A hash that is the same in every process and every run maps a key to one of a fixed number of key groups, and each group
belongs to a task. When the number of tasks changes, state can be divided by group.
"""

from collections.abc import Callable, Hashable
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from numbers import Integral, Real
from operator import attrgetter, itemgetter
from typing import Any, is_typeddict
from zlib import crc32

import numpy as np
from msgspec import Struct
from msgspec.msgpack import encode

from penstock.model.errors import InvalidInput, UnknownName, choices

KEY_GROUPS = 4096

Key = str | int | Callable[[Any], Hashable]
"""A field of a struct, dataclass or dict, a position in a tuple, or a function of the value."""


class Named:
    """A key with a name for the topology; without `key`, the whole tuple is the key."""

    def __init__(self, name: str, key: Key | None = None) -> None:
        self.__name__ = name
        self.key = key

    def __call__(self, value: Any) -> Hashable:
        """Return the value's key."""
        taken: Hashable = value if self.key is None else _part(self.key)(value)
        return taken


def key_group(key: Hashable) -> int:
    """Return the group of a key: equal keys have the same group, whatever their types.

    Keys are texts, bytes, numbers, dates, enumerations, None, and tuples, frozensets and frozen structs of them.
    """
    return _hash(key) % KEY_GROUPS


def second_group(key: Hashable) -> int:
    """Return another, practically independent group of a key: the alternative of a partial-key grouping."""
    return (_hash(key) * 2654435761 >> 15) % KEY_GROUPS  # Knuth's multiplier, 2^32 over the golden ratio


def _hash(key: Hashable) -> int:
    try:
        return crc32(encode(key if type(key) is str else _canonical(key)))
    except (TypeError, ValueError) as error:
        problem = f"expected text, bytes, a number, a date, or a tuple or frozen struct of them, got {key!r}"
        raise InvalidInput("key", problem) from error


def owner(group: int, tasks: int) -> int:
    """Return the task that owns a key group: tasks own ranges of about equal length, at least one group each."""
    return group * tasks // KEY_GROUPS


def extractor(keys: tuple[Key, ...], kind: Any = Any) -> Callable[[Any], Hashable] | None:
    """Return the function that extracts the key from a value of a type; None if the whole value is the key."""
    if not keys or (len(keys) == 1 and isinstance(keys[0], Named) and keys[0].key is None):
        return None
    if len(keys) == 1:
        return _part(keys[0], kind)
    parts = [_part(key, kind) for key in keys]
    return lambda value: tuple([part(value) for part in parts])


def key_name(key: Key) -> str:
    """Return the name of a key in the topology."""
    if isinstance(key, str | int):
        return str(key)
    name = getattr(key, "__name__", "key")
    return "key" if name == "<lambda>" else str(name)


def check_keys(path: str, keys: tuple[Key, ...]) -> None:
    """Raise `InvalidInput` for an invalid key."""
    for position, key in enumerate(keys):
        if isinstance(key, bool) or not (isinstance(key, str | int) or callable(key)):
            problem = f"expected a field's name, a position in a tuple or a function, got {key!r}"
            raise InvalidInput(f"{path}[{position}]", problem)


def field_names(value: Any) -> tuple[str, ...] | None:
    """Return the names of the fields of a tuple or of its type; None if it has no named fields."""
    if isinstance(value, dict):
        return tuple(map(str, value))
    if is_typeddict(value):
        return tuple(value.__annotations__)
    if is_dataclass(value):
        return tuple(part.name for part in fields(value))
    named = getattr(value, "__struct_fields__", None) or getattr(value, "_fields", None)
    return named if isinstance(named, tuple) else None


def _field(name: str) -> Callable[[Any], Hashable]:
    """Return the function that extracts a field by name: an entry of a dict, an attribute of other tuples."""
    attribute = attrgetter(name)

    def take(value: Any) -> Hashable:
        try:
            return value[name] if isinstance(value, dict) else attribute(value)  # type: ignore[no-any-return]
        except (KeyError, AttributeError) as error:
            return _nested(value, name, error)

    return take


def _nested(value: Any, name: str, error: Exception) -> Hashable:
    """Extract a nested field, `user.id`, from dicts and other tuples that contain each other."""
    first, dot, rest = name.partition(".")
    held = value.get(first, error) if isinstance(value, dict) else getattr(value, first, error)
    if dot and held is not error:
        return _field(rest)(held)
    names = field_names(value)
    has = f"it has {choices(names)}" if names else f"a {type(value).__name__} has no named fields"
    raise UnknownName("key", f"the tuple has no field {name!r}; {has}") from error


def _part(key: Key, kind: Any = Any) -> Callable[[Any], Hashable]:
    if isinstance(key, str):
        known = isinstance(kind, type) and not is_typeddict(kind) and key in (field_names(kind) or ())
        return attrgetter(key) if known else _field(key)  # the first is faster
    if isinstance(key, int):
        return itemgetter(key)
    if isinstance(key, Named) and key.key is not None:
        return _part(key.key, kind)
    return key


def _canonical(key: Any) -> Any:
    """Convert keys that are equal in Python to the same encodable form; the first lines are fast paths."""
    kind = type(key)
    if kind is str or kind is bytes or (kind is int and -(2**63) <= key < 2**64):
        return key
    if kind is tuple:
        return [_canonical(part) for part in key]
    if isinstance(key, np.generic):
        key = key.item()
    if isinstance(key, str):
        return str.__str__(key)
    if isinstance(key, bytes):
        return bytes(key)
    if isinstance(key, Real | Decimal):
        return _number(key)
    if isinstance(key, frozenset):
        return sorted(encode(_canonical(part)) for part in key)
    if isinstance(key, Enum):
        return _canonical(key.value)
    if isinstance(key, datetime) and key.tzinfo is not None:
        return key.astimezone(UTC)
    parts = _parts(key)
    return key if parts is None else [_canonical(part) for part in parts]


def _number(key: Any) -> Any:
    """Return a number as an equal int or float if there is one, else as text."""
    if not isinstance(key, Integral) and (key != key or key in (float("inf"), float("-inf"))):
        return float(key)
    exact = Fraction(int(key)) if isinstance(key, Integral) else Fraction(key)
    if exact.denominator == 1:
        whole = int(exact.numerator)
        return whole if -(2**63) <= whole < 2**64 else hex(whole)
    if isinstance(key, float):
        return float(key)
    return float(exact) if _fits_float(exact) else str(exact)


def _fits_float(exact: Fraction) -> bool:
    try:
        return Fraction(float(exact)) == exact
    except OverflowError:
        return False


def _parts(key: Any) -> list[Any] | None:
    """Return the parts of a composite key that determine equality."""
    if isinstance(key, tuple):
        return list(key)
    if isinstance(key, Struct):
        return [getattr(key, name) for name in key.__struct_fields__]
    if is_dataclass(key):
        return [getattr(key, part.name) for part in fields(key) if part.compare]
    return None
