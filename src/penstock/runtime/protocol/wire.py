"""The encoding of all messages and frames."""

import msgspec


class Wire(msgspec.Struct, array_like=True, gc=False):
    """A message or frame, or a part of one: a MessagePack array."""


encode = msgspec.msgpack.Encoder().encode
