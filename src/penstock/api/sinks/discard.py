"""A sink that only counts."""

from collections.abc import Sequence
from typing import Any

from penstock.api.contracts import Sink


class Discard(Sink[Any]):
    """Counts tuples and drops them, for measuring what precedes it. `count` is the number of tuples of this task."""

    exactly_once = True  # its only effect is the count, which is rolled back with everything else

    def __init__(self) -> None:
        self.count = 0

    def write(self, values: Sequence[Any]) -> None:
        """Count a batch."""
        self.count += len(values)

    def snapshot(self) -> int:
        """Return the count."""
        return self.count

    def restore(self, state: int) -> None:
        """Continue counting."""
        self.count = state

    def rescale(self, states: Sequence[int], tasks: int) -> Sequence[int]:
        """Let the first task continue with the sum."""
        return [sum(states), *[0] * (tasks - 1)]
