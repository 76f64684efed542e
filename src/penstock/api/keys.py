"""Keys: how they are taken from a tuple, and which task owns them.

A key belongs to one of a fixed number of key groups by a hash that is the same in every process and every run, and each
group to a task. State can be cut along groups when the number of tasks changes.
"""

from collections.abc import Callable, Hashable
from operator import attrgetter, itemgetter
from typing import Any
from zlib import crc32

from msgspec.msgpack import encode

KEY_GROUPS = 4096

Key = str | int | Callable[[Any], Hashable]
"""A field of a struct, a place in a tuple, or a function of the value."""


def key_group(key: Hashable) -> int:
    """Return the group of a key: equal keys are in the same group, whatever their types."""
    return crc32(encode(_canonical(key))) % KEY_GROUPS


def owner(group: int, tasks: int) -> int:
    """Return the task that owns a key group: tasks own ranges of about equal length."""
    return group * tasks // KEY_GROUPS


def _canonical(key: Any) -> Any:
    """Give numbers that Python calls equal one form."""
    if isinstance(key, bool):
        return int(key)
    if isinstance(key, float) and key.is_integer() and abs(key) < 2**53:
        return int(key)
    if isinstance(key, tuple):
        return [_canonical(part) for part in key]
    if isinstance(key, frozenset):
        return sorted(encode(_canonical(part)) for part in key)
    return key


def extractor(keys: tuple[Key, ...]) -> Callable[[Any], Hashable] | None:
    """Return the function that takes the key from a value; None where the whole value is the key."""
    parts = [_part(key) for key in keys]
    if not parts:
        return None
    if len(parts) == 1:
        return parts[0]
    return lambda value: tuple(part(value) for part in parts)


def key_name(key: Key) -> str:
    """Return what a key is called in the topology."""
    return key if isinstance(key, str) else str(key) if isinstance(key, int) else getattr(key, "__name__", "key")


def _part(key: Key) -> Callable[[Any], Hashable]:
    if isinstance(key, str):
        return attrgetter(key)
    return itemgetter(key) if isinstance(key, int) else key
