"""Puts the trees of sampled tuples together from what workers tell, and knows when one is complete.

It never replays: a tree that does not finish in time is counted and forgotten.
"""

import math
from typing import NamedTuple

TIMEOUT_S = 30.0


class Done(NamedTuple):
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
        self.task = -1  # not known until its source has told
        self.due = 0.0
        self.finished = -math.inf


class Acker:
    """The trees that are not complete yet."""

    def __init__(self, timeout: float = TIMEOUT_S) -> None:
        self.timed_out = 0
        self._timeout = timeout
        self._trees: dict[int, _Tree] = {}  # in the order in which they were heard of

    def __len__(self) -> int:
        return len(self._trees)

    def root(self, root: int, task: int, due: float, now: float) -> Done | None:
        """Learn of a tree from its source."""
        tree = self._tree(root, now)
        tree.task, tree.due = task, due
        return self._complete(root, tree)

    def ack(self, root: int, ids: int, finished: float, now: float) -> Done | None:
        """Learn of tuples of a tree that were processed or made."""
        tree = self._tree(root, now)
        tree.ids ^= ids
        tree.finished = max(tree.finished, finished)
        return self._complete(root, tree)

    def expire(self, now: float) -> None:
        """Forget trees that have taken too long."""
        while self._trees:
            root, tree = next(iter(self._trees.items()))
            if now - tree.since < self._timeout:
                return
            del self._trees[root]
            self.timed_out += tree.task >= 0  # else it is the rest of one that was counted before

    def _tree(self, root: int, now: float) -> _Tree:
        tree = self._trees.get(root)
        if tree is None:
            tree = self._trees[root] = _Tree(now)
        return tree

    def _complete(self, root: int, tree: _Tree) -> Done | None:
        if tree.ids or tree.task < 0 or tree.finished == -math.inf:
            return None
        del self._trees[root]
        return Done(root, tree.task, tree.due, tree.finished)
