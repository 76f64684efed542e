"""Counts of what every task has processed, and its rate over the last minutes.

Tasks of a component do not all process the same number, because keys may be skewed. A task's share does not depend on
its slot, so counts continue across moves. The last ten minutes count, as in Li's weights of eqs. (2.2) and (2.3).
"""

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from penstock.estimate.latency_loads import RECENT_S
from penstock.model.status import Status


class _Count(NamedTuple):
    at: float  # on the target's clock
    processed: dict[str, float]  # by task, since its start


class TaskCounts:
    """What tasks had processed at each of the last readings."""

    def __init__(self) -> None:
        self._taken: deque[_Count] = deque()

    def take(self, at: float, processed: Mapping[str, float]) -> dict[str, float]:
        """Record what tasks have processed; return tuples per second of each, over up to the last ten minutes.

        Returns nothing if there is no earlier count. Time in which the target stood still counts for all tasks.
        """
        if self._taken and not self._is_continued(processed):
            self._taken.clear()
        self._taken.append(_Count(at, dict(processed)))
        while self._taken[0].at < at - RECENT_S and len(self._taken) > 2:
            self._taken.popleft()
        first = self._taken[0]
        seconds = at - first.at
        if seconds <= 0:
            return {}
        return {task: _rounded((count - first.processed[task]) / seconds) for task, count in processed.items()}

    def _is_continued(self, processed: Mapping[str, float]) -> bool:
        """Whether these are counts of the same tasks, none of them reset."""
        last = self._taken[-1].processed
        return last.keys() == processed.keys() and all(processed[task] >= count for task, count in last.items())


def processed_by(status: Status) -> dict[str, float]:
    """Return what each task of a run has processed, by name; empty if its status does not contain that."""
    return {f"{one.name}[{task}]": count for one in status.components for task, count in enumerate(one.processed)}


def _rounded(rate: float) -> float:
    """Round a rate to a useful precision, because the ledger has all rates of every reading."""
    return float(f"{rate:.4g}")
