"""How the tuples of a stream travel: MessagePack, decoded to the type that the stream declares.

Where no type is declared, MessagePack's own types arrive: tuples as lists, structs as dicts. So that it does not matter
where a task runs, tuples of such a stream are encoded and decoded within a process too; declared ones are handed over.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from penstock.model.errors import InvalidInput

EMPTY = b"\x90"  # an array of nothing


class Codec:
    """Encodes and decodes batches of one stream."""

    def __init__(self, stream: str, kind: Any) -> None:
        self.stream = stream
        self.typed = kind is not Any
        self._encode = msgspec.msgpack.Encoder().encode
        try:
            self._decode: Callable[[bytes], list[Any]] = msgspec.msgpack.Decoder(list[kind]).decode
        except TypeError as error:
            problem = f"expected a type that MessagePack can carry, got {kind!r}: {error}"
            raise InvalidInput(f"{stream}.gives", problem) from None

    def encode(self, values: list[Any]) -> bytes:
        """Encode a batch; raise `InvalidInput` for a value that cannot travel."""
        try:
            return self._encode(values)
        except (TypeError, OverflowError, ValueError) as error:
            problem = f"a tuple cannot be sent, {error}; emit numbers (64 bits), texts, bytes, lists, dicts or structs"
            raise InvalidInput(self.stream, problem) from None

    def decode(self, values: bytes) -> list[Any]:
        """Decode a batch; raise `InvalidInput` for a value that is not of the declared type."""
        try:
            return self._decode(values)
        except msgspec.ValidationError as error:
            raise InvalidInput(f"{self.stream}.gives", f"a tuple is not of the declared type: {error}") from None

    def hand_over(self, values: list[Any]) -> list[Any]:
        """Return a batch as the other end of the stream gets it in the same process."""
        return values if self.typed else self.decode(self.encode(values))
