"""The base of everything a user describes: a frozen record that is validated however it was created.

Field types carry their limits (`Count`, `Positive`, `Probability`). msgspec checks them when a file is decoded;
`Entity.__post_init__` checks the same limits when Python code creates the object. `to_invalid_input` translates
msgspec's message into ours: the path of the field, the expected value, the actual value.
"""

import math
import re
from enum import Enum
from functools import cache
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec
import numpy as np
from msgspec import Meta, Struct

from penstock.model.errors import InvalidInput, UnknownName, join_path, nearest

type_hints = cache(get_type_hints)

UNSEEN = r"\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff"  # control characters
Name = Annotated[str, Meta(min_length=1, max_length=200, pattern=rf"^(?!\.\.?\Z)[^\s/\[\]{UNSEEN}]+\Z")]
Count = Annotated[int, Meta(ge=1, le=100_000)]
SeedNumber = Annotated[int, Meta(ge=0)]
Positive = Annotated[float, Meta(gt=0, le=1e15)]
NonNegative = Annotated[float, Meta(ge=0, le=1e15)]
Probability = Annotated[float, Meta(ge=0, le=1)]
Share = Annotated[float, Meta(gt=0, le=1)]
MIN_PRIORITY, MAX_PRIORITY = 1e-6, 1e9  # further apart, fair rates exceed floating-point precision
Priority = Annotated[float, Meta(ge=MIN_PRIORITY, le=MAX_PRIORITY)]


class Entity(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A frozen, keyword-only record with valid fields; an invalid one cannot be created."""

    def __post_init__(self) -> None:
        for name, kind in type_hints(type(self), include_extras=True).items():
            if name in self.__struct_fields__:
                self._check_field(name, kind)
        self._check()

    def _check_field(self, name: str, kind: Any) -> None:
        given = getattr(self, name)
        value = given.item() if isinstance(given, np.generic) else given
        refuse_endless(name, value)
        try:
            converted = msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            raise to_invalid_input(error, value, kind).below(name) from None
        if type(converted) is not type(given):  # 2 becomes 2.0 in a field of floats, a list becomes a tuple
            msgspec.structs.force_setattr(self, name, converted)

    def _check(self) -> None:
        """Raise `InvalidInput` if fields that are valid individually contradict each other."""


def refuse_endless(path: str, value: object) -> None:
    """Raise `InvalidInput` for a number, or a number in a table, that is infinite or not a number."""
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidInput(path, f"expected a finite number, got {value}")
    if isinstance(value, dict):
        for key, item in value.items():
            refuse_endless(join_path(path, str(key)), item)


_AT = re.compile(r"^(?P<message>.*?)(?: - at (?P<key>`key` in )?`(?P<path>[^`]*)`)?$", re.DOTALL)
_LIMIT = re.compile(r"Expected `(?P<type>\w+)` (?P<limit>[<>]=?) (?P<bound>.+)")
_TYPE = re.compile(r"Expected `(?P<type>[^`]+)`(?:, got `(?P<got>\w+)`)?$")
_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
}


def to_invalid_input(error: msgspec.ValidationError, raw: Any, kind: Any = None) -> InvalidInput:
    """Translate msgspec's `error` about `raw` into an `InvalidInput` for the user.

    `kind` is the type that `raw` should have; it provides the choices for a wrong field or enumeration member.
    """
    found = _AT.match(str(error))
    assert found is not None, "the pattern matches every text"
    message, where = found["message"], (found["path"] or "$")[1:].lstrip(".")
    if isinstance(error.__cause__, InvalidInput):  # one of our own checks, raised while decoding
        return error.__cause__.below(where)
    path, value, owner = _locate(raw, where, kind)
    if found["key"]:  # msgspec reports that a key of a table is wrong, not which one
        names, inner = value, get_args(owner)[0] if get_args(owner) else str
        value = next((name for name in names if _refused(name, inner)), None)
        path, owner = join_path(path, str(value)), _bare(inner)
    if unknown := re.match(r"Object contains unknown field `(.*)`", message):
        known = getattr(owner, "__struct_fields__", ())
        return UnknownName(
            join_path(path, unknown[1]), "unknown field" + (f"; {nearest(unknown[1], known)}" if known else "")
        )
    if missing := re.match(r"Object missing required field `(.*)`", message):
        return InvalidInput(join_path(path, missing[1]), "missing; this field is required")
    return InvalidInput(path, f"expected {_expectation(message, owner)}, got {_shown(value)}")


def _expectation(message: str, kind: Any) -> str:
    if isinstance(kind, type) and issubclass(kind, Enum):
        return "one of " + ", ".join(str(member.value) for member in kind)
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(map(str, get_args(kind)))
    if limit := _LIMIT.match(message):
        sign = limit["limit"].replace(">=", "≥").replace("<=", "≤")
        return f"{_WORDS.get(limit['type'], limit['type'])} {sign} {limit['bound'].removesuffix('.0')}"
    if "matching regex" in message or "of length" in message:
        return "a name without white space, control characters, '/' or brackets, not . or .., of 1 to 200 characters"
    if wrong := _TYPE.match(message):
        parts = [_WORDS.get(part.strip(), part.strip()) for part in wrong["type"].split("|") if "null" not in part]
        return " or ".join(parts)
    return message.removeprefix("Expected ")


def _shown(value: Any) -> str:
    text = "nothing" if value is None else "a table" if isinstance(value, dict) else repr(value)
    return text if len(text) <= 80 else text[:77] + "…"


def _locate(raw: Any, where: str, kind: Any) -> tuple[str, Any, Any]:
    """Follow msgspec's path through the raw data; return our form of the path, the value and the expected type."""
    path, value = "", raw
    for step in re.findall(r"\[\.\.\.\]|\[\d+\]|[^.\[\]]+", where):
        kind = _bare(kind)
        if step == "[...]":  # msgspec does not name the key; the first key with an invalid value is the one
            inner = get_args(kind)[1] if get_origin(kind) is dict else Any
            step = next((key for key, item in value.items() if _refused(item, inner)), "…")
            path, value, kind = join_path(path, str(step)), value.get(step), inner
        elif step.startswith("["):
            path, value = path + step, value[int(step[1:-1])] if isinstance(value, list | tuple) else None
            arguments = get_args(kind)
            kind = arguments[0] if arguments else None
        else:
            path, value = join_path(path, step), value.get(step) if isinstance(value, dict) else None
            kind = type_hints(kind, include_extras=True).get(step) if isinstance(kind, type) else None
    return path, value, _bare(kind)


def _bare(kind: Any) -> Any:
    """Strip `Annotated` and `| None` from a type."""
    if get_origin(kind) is Annotated:
        return _bare(get_args(kind)[0])
    rest = [part for part in get_args(kind) if part is not type(None)]
    return _bare(rest[0]) if type(None) in get_args(kind) and len(rest) == 1 else kind


def _refused(value: Any, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return True
    return False
