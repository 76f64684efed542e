"""How far tuples have come in an epoch: which trees are complete, what sinks have processed, which tasks have ended."""

import math
from typing import NamedTuple

from penstock.runtime.clocks import ClockEstimate
from penstock.runtime.layout import Layout
from penstock.runtime.protocol import worker_messages

TIMEOUT_S = 30.0


class CompletedTree(NamedTuple):
    """A tree that is complete, in the controller's time."""

    root: int
    task: int  # of the source
    due: float
    finished: float


class _Tree:
    __slots__ = ("due", "finished", "ids", "since", "task")

    def __init__(self, since: float) -> None:
        self.since = since
        self.ids = 0
        self.task = -1  # unknown until its source has reported it
        self.due = 0.0
        self.finished = -math.inf


class TupleTrees:
    """The trees of traced tuples that are not complete. They are never replayed: one that times out is counted."""

    def __init__(self, timeout: float = TIMEOUT_S) -> None:
        self.timed_out = 0
        self._timeout = timeout
        self._trees: dict[int, _Tree] = {}  # in the order of their first reports

    def __len__(self) -> int:
        return len(self._trees)

    def root(self, root: int, task: int, due: float, now: float) -> CompletedTree | None:
        """Take a source's report of a tree; return the tree if it is complete."""
        tree = self._tree(root, now)
        tree.task, tree.due = task, due
        return self._complete(root, tree)

    def ack(self, root: int, ids: int, finished: float, now: float) -> CompletedTree | None:
        """Take the exclusive or of tuples of a tree that were processed or emitted; return the tree if complete."""
        tree = self._tree(root, now)
        tree.ids ^= ids
        tree.finished = max(tree.finished, finished)
        return self._complete(root, tree)

    def expire(self, now: float) -> None:
        """Discard trees that have timed out."""
        while self._trees:
            root, tree = next(iter(self._trees.items()))
            if now - tree.since < self._timeout:
                return
            del self._trees[root]
            self.timed_out += tree.task >= 0  # else it is what is left of one that was counted before

    def _tree(self, root: int, now: float) -> _Tree:
        tree = self._trees.get(root)
        if tree is None:
            tree = self._trees[root] = _Tree(now)
        return tree

    def _complete(self, root: int, tree: _Tree) -> CompletedTree | None:
        if tree.ids or tree.task < 0 or tree.finished == -math.inf:
            return None
        del self._trees[root]
        return CompletedTree(root, tree.task, tree.due, tree.finished)


class Progress:
    """The progress of the tuples in flight, in the current epoch."""

    def __init__(self, layout: Layout, *, limited: bool) -> None:
        self.trees = TupleTrees()
        self.ended: set[int] = set()  # tasks
        self.processed: dict[int, int] = {}  # source task -> its tuples that every sink has processed
        self._layout = layout
        self._limited = limited  # there is an in-flight limit, so sinks report progress
        self._reported: dict[tuple[int, int], int] = {}  # sink task, source task -> tuples
        self._emitted_before = 0  # this epoch
        self._counted_before: dict[int, int] = {}  # by each task

    def restart(self, emitted: int, counted: dict[str, int]) -> None:
        """Start a new epoch: sources have emitted a number of tuples, and the tasks have counted these before it."""
        self.ended, self._reported, self.processed = set(), {}, {}
        self.trees = TupleTrees()
        self._emitted_before = emitted
        self._counted_before = {self._layout.by_name[name]: count for name, count in counted.items()}

    def all_ended(self) -> bool:
        """Return whether every task has seen the end of its input."""
        return len(self.ended) == len(self._layout.components)

    def take_report(
        self, report: worker_messages.ActivityReport, clock: ClockEstimate, now: float
    ) -> list[CompletedTree]:
        """Take a worker's report on traced tuples; return the trees that it completes."""
        found = [self.trees.root(r.root, r.task, clock.controller_time(r.due), now) for r in report.roots]
        found += [self.trees.ack(a.root, a.ids, clock.controller_time(a.finished), now) for a in report.acks]
        return [done for done in found if done is not None]

    def take_sink(self, message: worker_messages.SinkProgress) -> bool:
        """Take a sink's progress; return whether all sinks have processed more of the source than before."""
        key = (message.sink, message.source)
        self._reported[key] = max(self._reported.get(key, 0), message.value)
        sinks = self._layout.sinks[message.source]
        least = min(self._reported.get((sink, message.source), 0) for sink in sinks)
        if least <= self.processed.get(message.source, 0):
            return False
        self.processed[message.source] = least
        return True

    def in_flight(self, emitted: int) -> int | None:
        """Return the source tuples that are not processed by every sink; None: there is no limit to them."""
        if not self._limited:
            return None
        processed = sum(value - self._counted_before.get(task, 0) for task, value in self.processed.items())
        return max(0, emitted - self._emitted_before - processed)
