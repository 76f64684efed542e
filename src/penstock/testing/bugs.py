"""Bugs that break the protocol, at least one for each of its rules with externally visible effects.

Each replaces a small piece of the runtime by one without the rule. Schedules must find every one of them; otherwise the
rule is not tested.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from penstock.runtime.controller.checkpoint import CheckpointCoordinator
from penstock.runtime.controller.operations import Operations
from penstock.runtime.controller.state_machine import Controller
from penstock.runtime.protocol import encode, worker_messages
from penstock.runtime.protocol.codec import Codec
from penstock.runtime.protocol.frames import BARRIER, MarkerBody, decode_frame
from penstock.runtime.storage.checkpoints import CheckpointManifest
from penstock.runtime.worker.checkpoint import Checkpointer
from penstock.runtime.worker.input import Delivery, Inbox, InChannel
from penstock.runtime.worker.keyed_state import KeyedState
from penstock.runtime.worker.output import Lane, OutQueue
from penstock.runtime.worker.routing import Exchange
from penstock.runtime.worker.state_machine import Worker
from penstock.runtime.worker.task import Task
from penstock.runtime.worker.task_factory import TaskFactory
from penstock.startup import rescaling

Replacement = tuple[object, str, Any]  # of a class or a module
Entries = dict[int, tuple[worker_messages.TaskEntry, str]]  # saved states of tasks, with their files


def _nothing(*_: object) -> None:
    """Do nothing."""


def _stale_frames() -> Replacement:
    """Accept frames of any epoch."""
    frame = Worker.frame

    def taken(self: Worker, data: bytes) -> None:
        found = decode_frame(data)
        found.epoch = self.epoch
        frame(self, encode(found))

    return Worker, "frame", taken


def _no_lease() -> Replacement:
    """Continue however long the controller is silent."""
    turn = Worker.turn

    def on(self: Worker) -> bool:
        self.lease = float("inf")
        return turn(self)

    return Worker, "turn", on


class _Shared(Lane):
    """A lane that shares its credits with all lanes to the same worker."""

    __slots__ = ("pool",)
    pool: list[int]

    @property
    def credits(self) -> int:
        return self.pool[0]

    @credits.setter  # noqa: A003  as in a lane
    def credits(self, value: int) -> None:
        if hasattr(self, "pool"):
            self.pool[0] = value


def _credits_by_worker() -> Replacement:
    """Share credits among all lanes from one worker to another."""
    open_task = TaskFactory.open

    def opened(self: TaskFactory, number: int, slot: str, *, ended: bool) -> Task:
        task = open_task(self, number, slot, ended=ended)
        pools = self.__dict__.setdefault("pools", {})
        assert isinstance(self.sender, Exchange)
        hosts = self.sender.directory.hosts
        for queue in task.queues:
            for place, lane in enumerate(queue.lanes):
                shared = _Shared(lane.target, lane.window)
                shared.pool = pools.setdefault(hosts[lane.target], [lane.window])
                queue.lanes[place] = shared
        return task

    return TaskFactory, "open", opened


def _barriers_by(send: Callable[[OutQueue, MarkerBody], None]) -> Replacement:
    """Send barriers with another function, and all other markers as usual."""
    put_marker = OutQueue.put_marker

    def put(self: OutQueue, marker: MarkerBody) -> None:
        (send if marker.kind == BARRIER else put_marker)(self, marker)

    return OutQueue, "put_marker", put


def _barriers_overtake() -> Replacement:
    """Send a barrier past the tuples that wait for credit."""

    def send(queue: OutQueue, marker: MarkerBody) -> None:
        for lane in queue.lanes:
            queue._sender.send_marker(queue, lane, marker)

    return _barriers_by(send)


def _unbound_stay() -> Replacement:
    """Send a barrier on every lane while some tuples are not bound to a lane."""

    def send(queue: OutQueue, marker: MarkerBody) -> None:
        for lane in queue.lanes:
            lane.append_marker(marker)
        queue.pump()

    return _barriers_by(send)


def _policies_hold_barriers() -> Replacement:
    """Hold a barrier until a sending policy has released everything before it."""
    pump_lane = OutQueue._pump_lane

    def pump(self: OutQueue, lane: Lane) -> None:
        while lane.waiting and isinstance(lane.waiting[0], MarkerBody):
            self._send_head(lane, 0)
        unseen, lane.markers = lane.markers, 0
        pump_lane(self, lane)
        lane.markers += unseen

    return OutQueue, "_pump_lane", pump


def _two_at_once() -> Replacement:
    """Start a checkpoint during other operations, and let others start meanwhile."""

    def request(self: Operations, now: float) -> None:
        self._changes.begin_checkpoint(now)

    return Operations, "request_checkpoint", request


def _any_order() -> Replacement:
    """Accept tuples for a task that has moved before the earlier ones forwarded by its old worker."""
    enqueue = Inbox._enqueue

    def accept(self: Inbox, channel: InChannel, _: int, item: Delivery | MarkerBody) -> Sequence[MarkerBody]:
        return enqueue(self, channel, item)

    return Inbox, "accept", accept


def _lost_connections() -> Replacement:
    """Continue when a connection between two workers broke."""
    return Controller, "_take_peer_lost", _nothing


def _publish_first() -> Replacement:
    """Treat a checkpoint as complete, and publish it, before its manifest is on disk."""
    write = CheckpointCoordinator._write_manifest

    def early(self: CheckpointCoordinator, entries: Entries, now: float) -> None:
        write(self, entries, now)
        job = self._outbox.jobs.pop()
        job.then(None, "", now)
        job.then = lambda *_: None
        self._outbox.store(job)

    return CheckpointCoordinator, "_write_manifest", early


def _unpublished() -> Replacement:
    """Restore a checkpoint without finishing its publication."""
    return CheckpointCoordinator, "restart", lambda _: _nothing


def _ended_sources() -> Replacement:
    """Let sources that have ended ignore barriers."""
    save = Checkpointer.save

    def saved(self: Checkpointer, task: Task) -> None:
        if not (task.is_source and task.ended):
            save(self, task)

    return Checkpointer, "save", saved


def _as_they_are() -> Replacement:
    """Pass tuples within a process unchanged, even if another process would get them decoded differently."""

    def hand_over(_: Codec, values: list[Any]) -> list[Any]:
        return values

    return Codec, "hand_over", hand_over


def _groups_lost() -> Replacement:
    """Omit the key groups that have not changed since the last checkpoint."""
    return KeyedState, "earlier", lambda _: ()


def _parts_removed() -> Replacement:
    """Remove old checkpoints with the files that have parts of later states."""

    def unused(_: CheckpointManifest) -> set[tuple[int, str]]:
        return set()

    return CheckpointManifest, "files_used", property(unused)


def _groups_left_behind() -> Replacement:
    """Give the key groups of a task to the new task of the same number."""

    def parts(tasks: Sequence[Any], after: int) -> list[tuple[Any, ...]]:
        return [tasks[task].saved.earlier if task < len(tasks) else () for task in range(after)]

    return rescaling, "_parts_of_owners", parts


BUGS: dict[str, tuple[int, Callable[[], Replacement]]] = {  # the rule that each breaks
    "stale-frames": (1, _stale_frames),
    "no-lease": (2, _no_lease),
    "credits-by-worker": (3, _credits_by_worker),
    "barriers-overtake": (4, _barriers_overtake),
    "unbound-stay": (5, _unbound_stay),
    "policies-hold-barriers": (5, _policies_hold_barriers),
    "two-at-once": (6, _two_at_once),
    "any-order": (7, _any_order),
    "lost-connections": (8, _lost_connections),
    "publish-first": (11, _publish_first),
    "unpublished": (12, _unpublished),
    "ended-sources": (13, _ended_sources),
    "as-they-are": (16, _as_they_are),
    "groups-lost": (19, _groups_lost),
    "parts-removed": (19, _parts_removed),
    "groups-left-behind": (20, _groups_left_behind),
}


@contextmanager
def inject_bug(name: str) -> Iterator[None]:
    """Inject a bug into the runtime for the duration of the block; an empty name injects none."""
    if not name:
        yield
        return
    owner, attribute, replacement = BUGS[name][1]()
    before = getattr(owner, attribute)
    setattr(owner, attribute, replacement)
    try:
        yield
    finally:
        setattr(owner, attribute, before)
