"""One way of a connection: messages arrive in order, each after a while, until it is cut.

Between two connections there is no order. What is lost is lost from some message on to the end, as TCP would have it,
and whoever sends on a connection that has lost something learns of it sooner or later.
"""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.testing.processes import Process


class Line:
    """One way of a connection.

    `clear_at` is when the last message arrives that is on its way; `slowness` how many times longer messages take than
    on others. Nothing arrives any more on one that is `broken`; what happens then at either end is up to its owner.
    """

    __slots__ = ("broken", "clear_at", "flight", "lossy", "receiver", "sender", "slowness", "take")

    def __init__(self, sender: "Process", receiver: "Process", take: Callable[[Any], None], slowness: float) -> None:
        self.sender = sender
        self.receiver = receiver
        self.take = take  # called in the receiver, message by message
        self.slowness = slowness
        self.clear_at = 0.0
        self.broken = False
        self.lossy = False  # broken, and something was lost by it: its sender is bound to hear of that
        self.flight: deque[Any] = deque()

    def cut(self) -> None:
        """Lose what is on its way, and all that comes after."""
        self.broken = True
        self.lossy = bool(self.flight)
        self.flight.clear()
