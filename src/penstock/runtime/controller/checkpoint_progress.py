"""The progress of a checkpoint: which tasks are saved, and which of the others it waits for."""

from collections.abc import Collection, Iterable
from typing import Protocol

from penstock.model.status import SavingStatus
from penstock.model.topology import Grouping
from penstock.runtime.layout import Layout

BLOCKED = 0.5  # minimum share of its time in which a task that is not the cause lacks credit


class TaskLoads(Protocol):
    """The measurements of tasks over the last seconds."""

    def blocked(self, task: int, now: float) -> float:
        """Return the share of the time in which a task lacked credit."""

    def queue(self, task: int) -> int:
        """Return the number of tuples that wait for a task."""


class CheckpointProgress:
    """The tasks of one checkpoint."""

    def __init__(self, layout: Layout, loads: TaskLoads, number: int, began: float) -> None:
        self.number = number
        self.began = began
        self._layout = layout
        self._loads = loads
        self._unsaved = set(range(len(layout.components)))

    def take(self, saved: Iterable[int]) -> None:
        """Take tasks that are saved."""
        self._unsaved.difference_update(saved)

    def status(self, now: float) -> SavingStatus:
        """Return the progress, for people."""
        names, awaited = self._layout.names, self._awaited(now)
        return SavingStatus(
            number=self.number,
            age_s=max(0.0, now - self.began),
            awaited=[names[task] for task in awaited],
            others=[names[task] for task in sorted(self._unsaved.difference(awaited))],
        )

    def _awaited(self, now: float) -> list[int]:
        """Return the tasks that hold up all others.

        They are the first unsaved ones: the barriers have passed all tasks before them. One that lacks credit is itself
        held up by the task behind it with the longest queue.
        """
        found = {task for task in self._unsaved if not self._is_behind(task)}
        while blocked := {task for task in found if self._loads.blocked(task, now) >= BLOCKED}:
            behind = self._busiest(self._targets(blocked))
            if not behind:
                break
            found = (found - blocked) | behind
        return sorted(found)

    def _is_behind(self, task: int) -> bool:
        """Return whether a task that sends to this one is unsaved."""
        layout = self._layout
        for stream in layout.inputs(task):
            sources: Collection[int] = layout.tasks(stream.source)
            if stream.outlet.grouping is Grouping.FORWARD:
                sources = [layout.first[stream.source] + layout.numbers[task]]
            if not self._unsaved.isdisjoint(sources):
                return True
        return False

    def _targets(self, tasks: Collection[int]) -> set[int]:
        """Return the tasks to which some tasks send."""
        layout, found = self._layout, set[int]()
        for stream in layout.streams:
            sources = [task for task in layout.tasks(stream.source) if task in tasks]
            if stream.outlet.grouping is Grouping.FORWARD:
                found.update(layout.first[stream.target] + layout.numbers[source] for source in sources)
            elif sources:
                found.update(layout.tasks(stream.target))
        return found

    def _busiest(self, tasks: Collection[int]) -> set[int]:
        """Return the tasks whose queues are at least half as long as the longest; none if all are empty."""
        queues = {task: self._loads.queue(task) for task in tasks}
        longest = max(queues.values(), default=0)
        return {task for task, queue in queues.items() if longest and 2 * queue >= longest}
