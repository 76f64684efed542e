"""What a worker notes of sampled tuples: their trees, their hops, and records of both.

Trees follow Storm's acker: every tuple of a tree has 63 random bits, a task tells the exclusive or of the tuple it took
and those it made, and the tree is complete when all that was told cancels out. Only sampled roots are followed.
"""

import math
import random
from typing import Any

from penstock.model.telemetry import Record, RecordKind
from penstock.runtime.protocol.frames import Mark
from penstock.runtime.protocol.worker_messages import Ack, Root
from penstock.runtime.worker.input import Delivery
from penstock.runtime.worker.lane import Sampled
from penstock.runtime.worker.task import SPENT, Task

ADAPT_S = 0.25  # over which a source's rate is taken, at least


class Sampler:
    """Picks the tuples of one source task that are followed: about so many a second, evenly spread over its tuples."""

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self._stride = 0  # 0: the source's rate is not known yet
        self._next = 0  # number of the next tuple that is picked
        self._next_at = -math.inf  # when, while the rate is not known
        self._since: tuple[float, int] | None = None

    def pick(self, first: int, count: int, now: float) -> list[int]:
        """Return which of `count` tuples, the first of number `first`, are followed."""
        if self._per_second < 0:
            return list(range(count))
        if self._per_second == 0:
            return []
        self._adapt(first, now)
        if not self._stride:
            return self._pick_by_time(now)
        picked = list(range(max(self._next - first, 0), count, self._stride))
        if picked:
            self._next = first + picked[-1] + self._stride
        return picked

    def _pick_by_time(self, now: float) -> list[int]:
        if now < self._next_at:
            return []
        self._next_at = now + 1.0 / self._per_second
        return [0]

    def _adapt(self, first: int, now: float) -> None:
        """Follow the source's rate: every so many tuples that the wanted number a second comes out."""
        if self._since is None:
            self._since = (now, first)
            return
        then, number = self._since
        if now - then >= ADAPT_S:
            self._stride = max(1, round((first - number) / (now - then) / self._per_second))
            self._next = min(self._next, first + self._stride)
            self._since = (now, first)


class Tracker:
    """Everything that one worker has noted since it was last asked."""

    def __init__(
        self, run: str, worker: str, incarnation: int, *, seed: int, epoch: int, keep: bool, emulated: bool
    ) -> None:
        self.keep = keep  # whether records are written
        self.records: list[Record] = []
        # A worker that lives through a failure keeps its incarnation: its ids must not come again in the next epoch.
        self._ids = random.Random(f"{seed}/{run}/{worker}/{incarnation}/{epoch}")  # noqa: S311  not for secrets
        self._always: dict[str, Any] = {
            "run": run,
            "worker": worker,
            "incarnation": incarnation,
            "epoch": epoch,
            "emulated": emulated,
        }
        self._acks: dict[int, tuple[int, float]] = {}
        self._roots: list[Root] = []

    def made(self, root: int) -> int:
        """Return an id for a tuple of a tree that was made, 63 random bits, and note it."""
        new = self._ids.getrandbits(63)
        self.ack(root, new, 0.0)
        return new

    def root(self, task: Task, due: float, emitted: float) -> int:
        """Begin a tree."""
        root = self._ids.getrandbits(63)
        self._roots.append(Root(root, task.number, due, emitted))
        self.record(RecordKind.ROOT, emitted, root=root, id=root, task=task.name, due=due, emitted=emitted)
        return root

    def ack(self, root: int, ids: int, finished: float) -> None:
        """Note tuples of a tree that were processed or made; `finished` is 0 for those that were only made."""
        noted = self._acks.get(root)
        self._acks[root] = (ids, finished) if noted is None else (noted[0] ^ ids, max(noted[1], finished))

    def hop(
        self,
        task: Task,
        delivery: Delivery,
        mark: Mark,
        started: float,
        finished: float,
        names: tuple[str, str, str, int],
    ) -> None:
        """Record one tuple's way over a stream and through a task.

        names: the stream, the source task, its worker and that worker's incarnation.
        """
        if len(task.spent) < SPENT:
            task.spent.append(finished - delivery.arrived)
        stream, source, worker, incarnation = names
        self.record(
            RecordKind.HOP,
            finished,
            root=mark.root,
            id=mark.id,
            parent=mark.parent,
            stream=stream,
            source=source,
            task=task.name,
            source_worker=worker,
            source_incarnation=incarnation,
            emitted=mark.emitted,
            sent=delivery.sent,
            arrived=delivery.arrived,
            started=started,
            finished=finished,
            bytes=delivery.size // max(1, len(delivery.values)),
        )

    def record(self, kind: RecordKind, at: float, **fields: Any) -> None:
        """Keep a record for the shell, which takes them after every turn and limits how many wait to be written."""
        if not self.keep:
            return
        self.records.append(Record(kind=str(kind), at=at, **self._always, **fields))

    def take(self) -> tuple[tuple[Root, ...], tuple[Ack, ...]]:
        """Return what was noted of trees since the last call."""
        roots, acks = tuple(self._roots), tuple(Ack(root, ids, at) for root, (ids, at) in self._acks.items())
        self._roots, self._acks = [], {}
        return roots, acks

    def take_records(self) -> list[Record]:
        """Return the records since the last call."""
        records, self.records = self.records, []
        return records


def children(places: range, root: int, parent: int, emitted: float) -> list[Sampled]:
    """Return the marks of all tuples that follow from a sampled one, by their places in what was made."""
    return [Sampled(place, root, parent, emitted) for place in places]
