"""One direction of a connection: messages arrive in order, each after a delay, until it is cut.

Messages of different connections have no order. A loss affects all messages from some point on, as in TCP, and the
sender notices it sooner or later.
"""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.testing.processes import Process


class Line:
    """One direction of a connection.

    `clear_at` is the arrival of the last message in transit; `slowness` is a factor on delays. Nothing arrives on a
    `broken` line; the owner decides how the ends react.
    """

    __slots__ = ("broken", "clear_at", "flight", "lossy", "receiver", "sender", "slowness", "take")

    def __init__(self, sender: "Process", receiver: "Process", take: Callable[[Any], None], slowness: float) -> None:
        self.sender = sender
        self.receiver = receiver
        self.take = take  # called in the receiver, message by message
        self.slowness = slowness
        self.clear_at = 0.0
        self.broken = False
        self.lossy = False  # broken with a loss, of which the sender must be notified
        self.flight: deque[Any] = deque()

    def cut(self) -> None:
        """Discard messages in transit, and all later ones."""
        self.broken = True
        self.lossy = bool(self.flight)
        self.flight.clear()
