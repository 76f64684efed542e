"""How the tuples of a stream travel: MessagePack, decoded to the type that the stream declares.

Where no type is declared, MessagePack's own types arrive: tuples as lists, structs as dicts. So that it does not matter
where a task runs, tuples of such a stream are encoded and decoded within a process too; declared ones are handed over.
An author's types take part in both (a property, `__post_init__`), so that either may raise anything.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from penstock.model.decoding import decode_msgpack, msgpack_decoder
from penstock.model.errors import InvalidInput
from penstock.runtime.protocol.transport import LARGEST
from penstock.runtime.worker.logic import shown

ARRAY_OF_ONE = b"\x91"  # how such a one begins
LARGEST_TUPLES = LARGEST - 2**20  # bytes of a frame's tuples: beside them are its head and marks


class _TooLarge(Exception):
    """A tuple that no frame has room for."""


class Unreadable:
    """A tuple that has come but is not of the declared type: it takes the tuple's place until its turn has come."""

    def __init__(self, raw: bytes, error: BaseException) -> None:
        self.raw = raw
        self.error = error

    @property
    def value(self) -> Any:
        """The tuple as MessagePack has it."""
        return decode_msgpack(self.raw)


class Codec:
    """Encodes and decodes batches of one stream."""

    def __init__(self, stream: str, kind: Any) -> None:
        self.stream = stream
        self.typed = kind is not Any
        self._encode = msgspec.msgpack.Encoder(enc_hook=_as_it_came).encode
        try:
            self._decode: Callable[[bytes], list[Any]] = msgpack_decoder(list[kind])
        except TypeError as error:
            problem = f"expected a type that MessagePack can carry, got {kind!r}: {error}"
            raise InvalidInput(f"{stream}.gives", problem) from None

    def encode(self, values: list[Any]) -> bytes:
        """Encode a batch; raise `InvalidInput` for a value that cannot travel.

        Values that are too large only together are for the caller to send apart.
        """
        try:
            encoded = self._encode(values)
            if len(encoded) > LARGEST_TUPLES:
                self._refuse_large(values)
            return encoded
        except KeyboardInterrupt:
            raise
        except BaseException:
            for value in values:
                if (problem := self.unsendable(value)) is not None:
                    raise problem from problem.__cause__
            raise

    def unsendable(self, value: Any) -> InvalidInput | None:
        """Say why a value cannot travel; None where it can."""
        error = _raised(self._encode_one, value)
        if error is None:
            return None
        if isinstance(error, _TooLarge):
            return InvalidInput(
                self.stream, f"tuple {shown(value)} cannot be sent, {error}; send parts of it, or a path"
            )
        remedy = "emit numbers (64 bits), texts, bytes, lists, dicts or structs"
        problem = InvalidInput(self.stream, f"tuple {shown(value)} cannot be sent, {_line(error)}; {remedy}")
        problem.__cause__ = error  # its traceback is the author's
        return problem

    def _encode_one(self, value: Any) -> None:
        size = len(self._encode(value))
        if size > LARGEST_TUPLES:
            raise _TooLarge(f"it takes {size / 1e6:,.1f} MB, at most {LARGEST_TUPLES / 1e6:,.1f} MB can be sent")

    def _refuse_large(self, values: list[Any]) -> None:
        for value in values:
            self._encode_one(value)

    def decode(self, values: bytes) -> list[Any]:
        """Decode a batch; raise `InvalidInput` for a value that is not of the declared type."""
        return self.decoded(values, strict=True)

    def decoded(self, values: bytes, strict: bool = False) -> list[Any]:
        """Decode a batch; unless it is to be strict, a value that is not of the declared type becomes `Unreadable`."""
        try:
            return self._decode(values)
        except KeyboardInterrupt:
            raise
        except BaseException:  # noqa: S110  which tuple it was on is found next; what was damaged on its way raises there
            pass
        found = self._decode_each(values)
        if strict and (bad := next((value for value in found if isinstance(value, Unreadable)), None)) is not None:
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
            found.append(Unreadable(raw, InvalidInput(f"{self.stream}.gives", problem)))
            found[-1].error.__cause__ = error
        return found

    def hand_over(self, values: list[Any]) -> list[Any]:
        """Return a batch as the other end of the stream gets it in the same process."""
        return values if self.typed else self.decode(self.encode(values))


def _as_it_came(value: Any) -> Any:
    """Let a tuple that could not be read go on as it came."""
    if isinstance(value, Unreadable):
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
    """Say what was raised: msgspec's own words, or the type of an author's exception, too."""
    known = isinstance(error, msgspec.MsgspecError | TypeError | ValueError | OverflowError)
    return str(error) if known else f"{type(error).__name__}: {error}"
