"""Traces sampled tuples: their trees, their hops, and telemetry records of both.

Trees follow Storm's acker: every tuple of a tree has 63 random bits. Tasks report the exclusive or of the tuples that
they processed and emitted, and the tree is complete when the reports cancel out. Only sampled roots are traced.
"""

import math
import random
from collections.abc import Sequence
from typing import Any, NamedTuple

from penstock.model.telemetry import Record, RecordKind
from penstock.runtime.layout import Layout
from penstock.runtime.protocol.controller_messages import Peer
from penstock.runtime.protocol.frames import Mark
from penstock.runtime.protocol.worker_messages import Ack, Root
from penstock.runtime.worker.input import Delivery
from penstock.runtime.worker.output import SampledTuple
from penstock.runtime.worker.task import Task

ADAPT_S = 0.25  # the minimum interval over which a source's rate is measured


class Sampler:
    """Selects the traced tuples of one source task: about `per_second`, evenly spread over its tuples."""

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self._stride = 0  # 0: the source's rate is unknown
        self._next = 0  # number of the next selected tuple
        self._next_at = -math.inf  # its time, while the rate is unknown
        self._since: tuple[float, int] | None = None

    def pick(self, first: int, count: int, now: float) -> list[int]:
        """Return which of `count` tuples, the first of number `first`, are traced."""
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
        """Set the stride by the source's current rate."""
        if self._since is None:
            self._since = (now, first)
            return
        then, number = self._since
        if now - then >= ADAPT_S:
            self._stride = max(1, round((first - number) / (now - then) / self._per_second))
            self._next = min(self._next, first + self._stride)
            self._since = (now, first)


class Identity(NamedTuple):
    """What identifies a worker in telemetry."""

    run: str
    worker: str
    incarnation: int
    epoch: int
    emulated: bool


class Tracer:
    """Traces the sampled tuples of one worker in one epoch; keeps its notes until they are taken."""

    def __init__(
        self, identity: Identity, layout: Layout, peers: Sequence[Peer], *, sample_tps: float, seed: int, keep: bool
    ) -> None:
        self._layout = layout
        self._peers = peers
        self._sample_tps = sample_tps
        self._keep = keep  # whether records are written
        self._records: list[Record] = []
        # A worker that survives a failure keeps its incarnation: its ids must not repeat in the next epoch.
        run, worker, incarnation, epoch, _ = identity
        self._ids = random.Random(f"{seed}/{run}/{worker}/{incarnation}/{epoch}")  # noqa: S311  not for secrets
        self._identity: dict[str, Any] = identity._asdict()
        self._samplers: dict[int, Sampler] = {}  # by source task
        self._acks: dict[int, tuple[int, float]] = {}
        self._roots: list[Root] = []

    def update_peers(self, peers: Sequence[Peer]) -> None:
        """Set the other workers."""
        self._peers = peers

    def sample(self, task: Task, dues: Sequence[float], emitted: float) -> list[SampledTuple]:
        """Start trees for some of the tuples that a source emits."""
        sampler = self._samplers.get(task.number)
        if sampler is None:
            sampler = self._samplers[task.number] = Sampler(self._sample_tps)
        sampled: list[SampledTuple] = []
        for place in sampler.pick(task.counted, len(dues), emitted):
            root = self._ids.getrandbits(63)
            self._roots.append(Root(root, task.number, dues[place], emitted))
            self.record(RecordKind.ROOT, emitted, root=root, id=root, task=task.name, due=dues[place], emitted=emitted)
            self.ack(root, 0, emitted)
            sampled.append(SampledTuple(place, root, root, emitted))
        return sampled

    def new_id(self, root: int) -> int:
        """Return an id of 63 random bits for a tuple that was emitted, and note that it belongs to a tree."""
        new = self._ids.getrandbits(63)
        self.ack(root, new, 0.0)
        return new

    def ack(self, root: int, ids: int, finished: float) -> None:
        """Note tuples of a tree that were processed or emitted; `finished` is 0 for those that were only emitted."""
        noted = self._acks.get(root)
        self._acks[root] = (ids, finished) if noted is None else (noted[0] ^ ids, max(noted[1], finished))

    def processed(
        self, task: Task, delivery: Delivery, mark: Mark, started: float, finished: float, results: range
    ) -> list[SampledTuple]:
        """Note that a sampled tuple was processed; return the marks of its results.

        results: the positions of its results among the tuples that are emitted together.
        """
        self.ack(mark.root, mark.id, finished)
        task.note_response_time(finished - delivery.arrived)
        if self._keep:
            self._record_hop(task, delivery, mark, started, finished)
        return [SampledTuple(place, mark.root, mark.id, finished) for place in results]

    def _record_hop(self, task: Task, delivery: Delivery, mark: Mark, started: float, finished: float) -> None:
        channel, sender = delivery.channel, self._peers[delivery.sender]
        self.record(
            RecordKind.HOP,
            finished,
            root=mark.root,
            id=mark.id,
            parent=mark.parent,
            stream=self._layout.streams[channel.stream].label,
            source=self._layout.names[channel.source],
            task=task.name,
            source_worker=sender.name,
            source_incarnation=sender.incarnation,
            emitted=mark.emitted,
            sent=delivery.sent,
            arrived=delivery.arrived,
            started=started,
            finished=finished,
            bytes=delivery.size // max(1, len(delivery.values)),
        )

    def record(self, kind: RecordKind, at: float, **fields: Any) -> None:
        """Keep a record for the shell, which takes records after every turn and limits those waiting to be written."""
        if self._keep:
            self._records.append(Record(kind=str(kind), at=at, **self._identity, **fields))

    def take_trees(self) -> tuple[tuple[Root, ...], tuple[Ack, ...]]:
        """Return the notes on trees since the last call."""
        roots, acks = tuple(self._roots), tuple(Ack(root, ids, at) for root, (ids, at) in self._acks.items())
        self._roots, self._acks = [], {}
        return roots, acks

    def take_records(self) -> list[Record]:
        """Return the records since the last call."""
        if not self._records:
            return []
        records, self._records = self._records, []
        return records
