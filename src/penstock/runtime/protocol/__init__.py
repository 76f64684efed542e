"""The protocol between workers and the controller: MessagePack arrays with a leading tag, never anything executable.

*Frames* travel between workers and carry tuples, markers and credits of *channels*: a channel connects one task to
another over one stream. Tuples and markers on a channel are numbered from 0 in each epoch, so that a receiver detects
at once whether any was lost or reordered. Only the marker of a move has no number: it carries that of the next item.
Every frame carries its epoch; frames of another epoch are dropped. *Worker messages* go to the controller, *commands*
from it, and a *handshake* opens every connection.
"""

import msgspec


class Wire(msgspec.Struct, array_like=True, gc=False):
    """A message or frame, or a part of one: a MessagePack array."""


encode = msgspec.msgpack.Encoder().encode
