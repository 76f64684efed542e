"""A sink that shows tuples to the user who started the run.

It logs to `penstock.output` instead of printing: workers send their log records to the user's terminal, while the
output of a process on another machine is invisible.
"""

import logging
from collections.abc import Sequence
from typing import Any

from penstock.api.contracts import Sink
from penstock.model.errors import InvalidInput

_OUTPUT = logging.getLogger("penstock.output")


class Console(Sink[Any]):
    """Shows each tuple in one line, prefixed with the task's name: `component[task]: value`.

    limit: maximum number of tuples shown per task; default: all.

    Output cannot be withdrawn: after a failure, tuples since the last checkpoint are shown again.
    """

    def __init__(self, limit: int | None = None) -> None:
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 0):
            raise InvalidInput("limit", f"expected a whole number ≥ 0 or None, got {limit!r}")
        self.limit = limit
        self.count = 0

    def write(self, values: Sequence[Any]) -> None:
        """Show a batch, up to the limit."""
        left = len(values) if self.limit is None else max(0, self.limit - self.count)
        for value in values[:left]:
            _OUTPUT.info("%s", value)
        if len(values) > left and self.limit is not None and self.count <= self.limit:
            _OUTPUT.info("… more than %d; the others are not shown", self.limit)
        self.count += len(values)

    def snapshot(self) -> int:
        """Return the number of tuples."""
        return self.count

    def restore(self, state: int) -> None:
        """Continue counting."""
        self.count = state

    def rescale(self, states: Sequence[int], tasks: int) -> Sequence[int]:
        """Let the first task continue with the sum."""
        return [sum(states), *[0] * (tasks - 1)]
