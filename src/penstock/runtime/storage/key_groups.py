"""Records of key groups: the form of keyed state in checkpoints and moves.

A record has a key group's number, flags, and MessagePack: the entries of keys, then the keys that were removed. FULL:
it replaces all earlier records of its group; otherwise it changes them. CHANGED: it differs from the last checkpoint.
An entry is a key with its state, the seconds to its timer, and those since its last tuple.
"""

import struct
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, NamedTuple

import msgspec
import numpy as np

from penstock.model.decoding import Undecodable, msgpack_decoder
from penstock.model.errors import FileProblem, InvalidInput, shown

FULL = 1
CHANGED = 2
Entry = tuple[Hashable, Any, float | None, float | None]

_HEAD = struct.Struct(">HBI")
_PLAIN = {int, float, str, bytes, bool}
_USE = "use numbers, texts, bytes, lists, dicts or structs"


class Record(NamedTuple):
    """A record, not decoded yet."""

    group: int
    flags: int
    data: memoryview


def pack_record(group: int, flags: int, data: bytes) -> list[bytes | memoryview]:
    """Return the pieces of a record."""
    return [_HEAD.pack(group, flags, len(data)), data]


def unpack_records(data: bytes | memoryview, path: str = "the state") -> Iterator[Record]:
    """Return the records in a state; raise `FileProblem` if it is none."""
    view, place = memoryview(data), 0
    while place < len(view):
        if place + _HEAD.size > len(view):
            raise FileProblem(f"{path}: not the state of key groups, {len(view) - place} bytes are left over")
        group, flags, size = _HEAD.unpack_from(view, place)
        place += _HEAD.size
        if place + size > len(view):
            raise FileProblem(f"{path}: not the state of key groups, key group {group} is truncated")
        yield Record(group, flags, view[place : place + size])
        place += size


class StateCodec:
    """Encodes and decodes the entries of one component; what is written can be read again."""

    def __init__(self, component: str, key: Any = Any, state: Any = Any) -> None:
        self._component = component
        self._state = state
        self._encode = msgspec.msgpack.Encoder(enc_hook=_plain).encode
        self._loose_keys, self._loose_states = key is Any, state is Any
        self._sure: set[tuple[type, type]] = set()  # plain types of keys and states that can be decoded
        try:
            self._decode = _decoder(key, state)
        except TypeError:  # a type of keys that msgspec does not support, such as some unions
            self._decode, self._loose_keys = _decoder(Any, state), True

    def encode(self, entries: list[Entry], removed: list[Hashable]) -> bytes:
        """Encode entries; raise `InvalidInput` for a key or state that cannot be encoded and decoded.

        They are decoded to see that, unless they are plain values of types that were decoded before.
        """
        kinds = {(type(entry[0]), type(entry[1])) for entry in entries}
        try:
            data = self._encode((entries, removed))
            if kinds <= self._sure and not removed:
                return data
            read, gone = self._read(data)
        except KeyboardInterrupt:
            raise
        except BaseException:
            for entry in entries:
                self.check(*entry[:2])
            for key in removed:
                self.check(key, None)
            raise
        if (self._loose_states and read != entries) or _keys(read) != _keys(entries) or gone != removed:
            for entry in entries:
                self.check(*entry[:2])
        self._sure |= {both for both in kinds if both[0] in _PLAIN and both[1] in _PLAIN}
        return data

    def check(self, key: Hashable, state: Any) -> None:
        """Raise `InvalidInput` if a key or its state cannot be encoded and decoded."""
        about, kind = f"the state of key {shown(key, 60)}", type(state).__name__
        try:
            data = self._encode(([(key, state, None, None)], []))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # an author's types run code on encoding
            raise InvalidInput(self._component, f"{about} cannot be encoded, {_line(error)}; {_USE}") from error
        try:
            ((found, read, _, _),), _ = self._read(data)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            expected = "" if self._loose_states else f" as {getattr(self._state, '__name__', self._state)}"
            problem = f"{about} cannot be decoded{expected}, {_line(error)}; declare its type with state="
            raise InvalidInput(self._component, problem) from error
        if found != key:
            problem = f"key {shown(key, 60)} is decoded as {shown(found, 60)}; declare the type of the input's tuples"
            raise InvalidInput(self._component, problem)
        if self._loose_states and state is not None and not _alike(state, read):
            problem = f"{about} is a {kind} and is decoded as {shown(read, 60)}"
            raise InvalidInput(self._component, f"{problem}; declare its type with state= or an annotation")

    def decode(self, record: Record) -> tuple[list[Entry], list[Hashable]]:
        """Decode a record; raise `InvalidInput` if its states are of another type."""
        try:
            return self._read(record.data)
        except Undecodable as error:
            kind = getattr(self._state, "__name__", self._state)
            problem = f"the states of key group {record.group} are not of type {kind}, {error}"
            raise InvalidInput(self._component, f"{problem}; use the types with which they were saved") from error

    def _read(self, data: bytes | memoryview) -> tuple[list[Entry], list[Hashable]]:
        entries, removed = self._decode(data)
        if self._loose_keys:
            entries = [(_hashable(key), *rest) for key, *rest in entries]
            removed = list(map(_hashable, removed))
        return entries, removed


def read_states(parts: Iterable[bytes], path: str) -> dict[Hashable, Any]:
    """Return the states of all keys, without their types, from the parts of a keyed state, oldest first."""
    groups: dict[int, dict[Hashable, Any]] = {}
    codec = StateCodec(path)
    for data in parts:
        for record in unpack_records(data, path):
            states = groups.setdefault(record.group, {})
            if record.flags & FULL:
                states.clear()
            entries, removed = codec.decode(record)
            for key in removed:
                states.pop(key, None)
            states.update((key, state) for key, state, _, _ in entries)
    return {key: state for _, states in sorted(groups.items()) for key, state in states.items()}


def _decoder(key: Any, state: Any) -> Callable[[bytes | memoryview], Any]:
    entry = tuple[key, state, float | None, float | None]
    return msgpack_decoder(tuple[list[entry], list[key]])


def _keys(entries: list[Entry]) -> list[Hashable]:
    return [entry[0] for entry in entries]


def _hashable(key: Any) -> Any:
    """Return an undeclared key: MessagePack decodes its tuples as lists."""
    return tuple(map(_hashable, key)) if type(key) is list else key


def _plain(value: Any) -> Any:
    """Return a number of NumPy as Python's."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"objects of type {type(value).__name__} are not supported")


def _alike(state: Any, read: Any) -> bool:
    """Return whether a decoded state is what was encoded, with the same types."""
    if type(state) is not type(read):
        return False
    if type(state) is list:
        return len(state) == len(read) and all(map(_alike, state, read))
    if type(state) is dict:
        return state.keys() == read.keys() and all(_alike(value, read[key]) for key, value in state.items())
    return bool(state == read or state != state)  # a number may be NaN


def _line(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
