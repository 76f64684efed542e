"""What all that is said has in common: how it is written."""

import msgspec


class Wire(msgspec.Struct, array_like=True, gc=False):
    """Anything on the wire."""


encode = msgspec.msgpack.Encoder().encode
