"""How the tuples of a stream travel: MessagePack, decoded to the type that the stream declares.

Where no type is declared, MessagePack's own types arrive: tuples as lists, structs as dicts. So that it does not matter
where a task runs, tuples of such a stream are encoded and decoded within a process too; declared ones are handed over.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from penstock.model.decoding import Undecodable, decode_msgpack, msgpack_decoder
from penstock.model.errors import InvalidInput
from penstock.runtime.logic import shown

ARRAY_OF_ONE = b"\x91"  # how such a one begins


class Codec:
    """Encodes and decodes batches of one stream."""

    def __init__(self, stream: str, kind: Any) -> None:
        self.stream = stream
        self.typed = kind is not Any
        self._encode = msgspec.msgpack.Encoder().encode
        try:
            self._decode: Callable[[bytes], list[Any]] = msgpack_decoder(list[kind])
        except TypeError as error:
            problem = f"expected a type that MessagePack can carry, got {kind!r}: {error}"
            raise InvalidInput(f"{stream}.gives", problem) from None

    def encode(self, values: list[Any]) -> bytes:
        """Encode a batch; raise `InvalidInput` for a value that cannot travel."""
        try:
            return self._encode(values)
        except (TypeError, OverflowError, ValueError) as error:
            remedy = "emit numbers (64 bits), texts, bytes, lists, dicts or structs"
            culprit = next(value for value in values if _fails(self._encode, value))
            raise InvalidInput(self.stream, f"tuple {shown(culprit)} cannot be sent, {error}; {remedy}") from None

    def decode(self, values: bytes) -> list[Any]:
        """Decode a batch; raise `InvalidInput` for a value that is not of the declared type."""
        try:
            return self._decode(values)
        except Undecodable as error:
            parts = [bytes(part) for part in decode_msgpack(values, list[msgspec.Raw])]
            culprit = next((part for part in parts if _fails(self._decode, ARRAY_OF_ONE + part)), values)
            value = shown(decode_msgpack(culprit))
            raise InvalidInput(f"{self.stream}.gives", f"tuple {value} is not of the declared type: {error}") from None

    def hand_over(self, values: list[Any]) -> list[Any]:
        """Return a batch as the other end of the stream gets it in the same process."""
        return values if self.typed else self.decode(self.encode(values))


def _fails(function: Callable[[Any], Any], value: Any) -> bool:
    try:
        function(value)
    except (TypeError, OverflowError, ValueError):
        return True
    return False
