"""Encodes and decodes the tuples of a stream: MessagePack, decoded to the type that the stream declares.

If no type is declared, MessagePack's own types arrive: tuples as lists, structs as dicts. Results must not depend on
the location of a task, so tuples of such a stream are encoded and decoded even within a process; those of a declared
type are passed by reference. An author's types run code on encoding and decoding (a property, `__post_init__`), so
either may raise any exception.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from penstock.model.decoding import decode_msgpack, msgpack_decoder
from penstock.model.errors import InvalidInput, shown, with_type
from penstock.runtime.protocol.transport import LARGEST

ARRAY_OF_ONE = b"\x91"  # the header of an array with one element
LARGEST_TUPLES = LARGEST - 2**20  # bytes of a frame's tuples; the remainder is for its header and marks


class _TooLarge(Exception):
    """A tuple that is too large for a frame."""


class UnreadableTuple:
    """Replaces a tuple that is not of the declared type in its batch, until it is processed."""

    def __init__(self, raw: bytes, error: BaseException) -> None:
        self.raw = raw
        self.error = error

    @property
    def value(self) -> Any:
        """The tuple in MessagePack's own types."""
        return decode_msgpack(self.raw)


class Codec:
    """Encodes and decodes batches of one stream."""

    def __init__(self, stream: str, kind: Any) -> None:
        self.stream = stream
        self.typed = kind is not Any
        self._encode = msgspec.msgpack.Encoder(enc_hook=_unchanged).encode
        try:
            self._decode: Callable[[bytes], list[Any]] = msgpack_decoder(list[kind])
        except TypeError as error:
            problem = f"expected a type that MessagePack can carry, got {kind!r}: {error}"
            raise InvalidInput(f"{stream}.emits", problem) from None

    def encode(self, values: list[Any]) -> bytes:
        """Encode a batch; raise `InvalidInput` for a value that cannot be sent.

        If only their sum is too large, the caller splits the batch.
        """
        try:
            encoded = self._encode(values)
            if len(encoded) > LARGEST_TUPLES:
                for value in values:
                    self._encode_one(value)
            return encoded
        except KeyboardInterrupt:
            raise
        except BaseException:
            for value in values:
                if (problem := self.unsendable(value)) is not None:
                    raise problem from problem.__cause__
            raise

    def unsendable(self, value: Any) -> InvalidInput | None:
        """Return why a value cannot be sent; None if it can."""
        error = _raised(self._encode_one, value)
        if error is None:
            return None
        if isinstance(error, _TooLarge):
            return InvalidInput(
                self.stream, f"tuple {shown(value)} cannot be sent, {error}; send parts of it, or a path"
            )
        remedy = "emit numbers (64 bits), texts, bytes, lists, dicts or structs"
        problem = InvalidInput(self.stream, f"tuple {shown(value)} cannot be sent, {_line(error)}; {remedy}")
        problem.__cause__ = error  # the traceback is that of the author's code
        return problem

    def _encode_one(self, value: Any) -> None:
        size = len(self._encode(value))
        if size > LARGEST_TUPLES:
            raise _TooLarge(f"it takes {size / 1e6:,.1f} MB, at most {LARGEST_TUPLES / 1e6:,.1f} MB can be sent")

    def decode(self, values: bytes, *, strict: bool = True) -> list[Any]:
        """Decode a batch; a value of another type than declared raises `InvalidInput`, or becomes `UnreadableTuple`."""
        try:
            return self._decode(values)
        except KeyboardInterrupt:
            raise
        except BaseException:  # noqa: S110  the tuple that raised is found below; damaged bytes raise there
            pass
        found = self._decode_each(values)
        bad = next((value for value in found if isinstance(value, UnreadableTuple)), None)
        if strict and bad is not None:
            raise bad.error
        return found

    def _decode_each(self, values: bytes) -> list[Any]:
        found: list[Any] = []
        for part in decode_msgpack(values, list[msgspec.Raw]):
            raw = bytes(part)
            error = _raised(self._decode, ARRAY_OF_ONE + raw)
            if error is None:
                found += self._decode(ARRAY_OF_ONE + raw)
                continue
            value = shown(decode_msgpack(raw))
            problem = f"tuple {value} is not of the declared type: {_line(error)}"
            found.append(UnreadableTuple(raw, InvalidInput(f"{self.stream}.emits", problem)))
            found[-1].error.__cause__ = error
        return found

    def hand_over(self, values: list[Any]) -> list[Any]:
        """Return a batch in the form that a receiving task in the same process gets."""
        return values if self.typed else self.decode(self.encode(values))


def _unchanged(value: Any) -> Any:
    """Encode an undecodable tuple unchanged, from its original bytes."""
    if isinstance(value, UnreadableTuple):
        return msgspec.Raw(value.raw)
    raise TypeError(f"Encoding objects of type {type(value).__name__} is unsupported")


def _raised(function: Callable[[Any], Any], value: Any) -> BaseException | None:
    try:
        function(value)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return error
    return None


def _line(error: BaseException) -> str:
    """Return the text of an exception, with its type if it is not msgspec's."""
    known = isinstance(error, msgspec.MsgspecError | TypeError | ValueError | OverflowError)
    return str(error) if known else with_type(error)
