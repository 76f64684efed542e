"""Counts: what every task has processed so far, and how fast that was in the last minutes.

Tasks of a component do not all get as much: keys may be skewed. What each gets is the same wherever it is, so that
counts go on while tasks move. The last ten minutes are looked at, as Li does for the weights of eqs. (2.2) and (2.3).
"""

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from penstock.estimate.latency_loads import RECENT_S
from penstock.model.status import Status


class _Count(NamedTuple):
    at: float  # on the plant's clock
    processed: dict[str, float]  # by task, since it began


class Counts:
    """What tasks had processed at each of the last readings."""

    def __init__(self) -> None:
        self._taken: deque[_Count] = deque()

    def take(self, at: float, processed: Mapping[str, float]) -> dict[str, float]:
        """Note what tasks have processed so far; return tuples a second of each, over up to the last ten minutes.

        None where there is nothing to compare with yet. Time in which the plant stood still counts, for all of them.
        """
        if self._taken and not self._goes_on(processed):
            self._taken.clear()
        self._taken.append(_Count(at, dict(processed)))
        while self._taken[0].at < at - RECENT_S and len(self._taken) > 2:
            self._taken.popleft()
        first = self._taken[0]
        seconds = at - first.at
        if seconds <= 0:
            return {}
        return {task: _rounded((count - first.processed[task]) / seconds) for task, count in processed.items()}

    def _goes_on(self, processed: Mapping[str, float]) -> bool:
        """Whether these are counts of the same tasks, none of them begun anew."""
        last = self._taken[-1].processed
        return last.keys() == processed.keys() and all(processed[task] >= count for task, count in last.items())


def processed_by(status: Status) -> dict[str, float]:
    """Return what each task of a run has processed so far, by name; nothing where its status does not tell."""
    return {f"{one.name}[{task}]": count for one in status.components for task, count in enumerate(one.processed)}


def _rounded(rate: float) -> float:
    """Return a rate as precise as it can matter: every reading goes to the ledger, with all of them."""
    return float(f"{rate:.4g}")
