"""The one place where bytes from a file or a connection become values.

msgspec raises more than its own errors: `UnicodeDecodeError` for text that is not UTF-8, `RecursionError` for deep
nesting. All of them become `Undecodable` here, so that callers need to handle one error.
"""

import tomllib
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

_RAISED = (msgspec.MsgspecError, ValueError, TypeError, ArithmeticError, RecursionError, MemoryError)


class Undecodable(ValueError):
    """Bytes that do not hold the expected value; the text is one line, and `__cause__` is the decoder's own error."""


def guard(decode: Callable[[Any], T]) -> Callable[[Any], T]:
    """Return a function that decodes like `decode` and raises only `Undecodable`."""

    def safe(data: Any) -> T:
        try:
            return decode(data)
        except _RAISED as error:
            text = str(error).strip() or type(error).__name__
            raise Undecodable(text.splitlines()[0]) from error

    return safe


def json_decoder(kind: Any = Any) -> Callable[[bytes | str], Any]:
    """Return a function that decodes JSON to a type."""
    return guard(msgspec.json.Decoder(kind).decode)


def json_lines_decoder(kind: Any = Any) -> Callable[[bytes], list[Any]]:
    """Return a function that decodes lines of JSON, each to the same type."""
    return guard(msgspec.json.Decoder(kind).decode_lines)


def msgpack_decoder(kind: Any = Any, strict: bool = True) -> Callable[[bytes | memoryview], Any]:
    """Return a function that decodes MessagePack to a type."""
    return guard(msgspec.msgpack.Decoder(kind, strict=strict).decode)


def decode_json(data: bytes | str, kind: Any = Any) -> Any:
    """Decode JSON to a type, once."""
    return json_decoder(kind)(data)


def decode_msgpack(data: bytes | memoryview, kind: Any = Any, strict: bool = True) -> Any:
    """Decode MessagePack to a type, once."""
    return msgpack_decoder(kind, strict)(data)


decode_toml: Callable[[str], dict[str, Any]] = guard(tomllib.loads)
