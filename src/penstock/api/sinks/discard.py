"""A sink that keeps nothing but a number."""

from collections.abc import Sequence
from typing import Any

from penstock.api.contracts import Sink


class Discard(Sink[Any]):
    """Counts tuples and drops them: for measuring what comes before it. `count` is how many came to this task."""

    exactly_once = True  # the count is all that it does, and goes back with everything else

    def __init__(self) -> None:
        self.count = 0

    def write(self, values: Sequence[Any]) -> None:
        """Count a batch."""
        self.count += len(values)

    def snapshot(self) -> int:
        """Return the count."""
        return self.count

    def restore(self, state: int) -> None:
        """Go on counting from a count."""
        self.count = state
