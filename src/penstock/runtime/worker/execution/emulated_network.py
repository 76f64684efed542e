"""Carries frames over the virtual links of an emulated cluster.

Every link belongs to a machine, whose worker accounts for it. A frame visits the owners of its links one after another,
and waits at each until its transmission there is complete.
"""

import heapq
import math
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import NamedTuple

from penstock.model.cluster import Cluster
from penstock.runtime.emulation import SharedLink, VirtualLink, VirtualNetwork
from penstock.runtime.emulation.shared_memory import SharedValues
from penstock.runtime.layout import Layout
from penstock.runtime.protocol.controller_messages import Route
from penstock.runtime.protocol.frames import Data, Envelope, Marker, MovingTask
from penstock.runtime.worker.execution.interface import Handlers
from penstock.runtime.worker.routing import TaskDirectory

MARKER_BYTES = 32  # of a marker on a link


class Emulation(NamedTuple):
    """The machine that a worker emulates."""

    cluster: Cluster
    machine: str
    role: str  # identifies the worker in shared memory: a later worker of the same role takes its place
    share: str  # folder of the shared memory if several runs share the machines; empty: not shared
    seed: int


class EventQueue:
    """The events of an emulated machine in the order of their times; `time` is that of the event being handled."""

    def __init__(self, time: float) -> None:
        self.time = time
        self._events: list[tuple[float, int, Callable[[float], None]]] = []  # heap
        self._order = count()

    def set_time(self, time: float) -> None:
        """Set the time of an event that is handled outside of the queue."""
        self.time = time

    @property
    def next(self) -> float:
        """The time of the next event."""
        return self._events[0][0] if self._events else math.inf

    def at(self, when: float, step: Callable[[float], None]) -> None:
        """Call a function at a time."""
        heapq.heappush(self._events, (when, next(self._order), step))

    def handle_next(self) -> None:
        """Handle the next event."""
        self.time, _, step = heapq.heappop(self._events)
        step(self.time)


class EmulatedNetwork:
    """The links of one machine, and the paths to all others."""

    def __init__(self, emulation: Emulation, layout: Layout, directory: TaskDirectory, events: EventQueue) -> None:
        self._emulation = emulation
        self._layout = layout
        self._directory = directory
        self._events = events
        self._handlers: Handlers
        self._shared: list[SharedValues] = []
        make = self._shared_link if emulation.share else None
        self._network = VirtualNetwork(emulation.cluster, emulation.machine, {}, make)

    def _shared_link(self, label: str, bandwidth_mbps: float | None, latency_ms: float) -> VirtualLink:
        """Create a link that several runs share."""
        link = SharedLink(Path(self._emulation.share), label, self._emulation.role, bandwidth_mbps, latency_ms)
        self._shared.append(link.shared)
        return link

    def connect(self, handlers: Handlers) -> None:
        """Set the callbacks."""
        self._handlers = handlers

    def close(self) -> None:
        """Leave shared links to the other runs."""
        for shared in self._shared:
            shared.close()

    def reroute(self, routes: tuple[Route, ...]) -> None:
        """Send over the links of another plan from now on."""
        self._network.reroute({(stream, source, target): links for stream, source, target, links in routes})

    def send_budget(self, seconds: float) -> tuple[float, float]:
        """Return how many more bytes the virtual card accepts, and when it will have sent half of its queue."""
        return self._network.leeway(self._events.time, seconds)

    def carry(self, frame: Envelope, source_slot: str, target_slot: str, worker: int) -> None:
        """Send a frame over the virtual links to a task's slot."""
        stream = "" if isinstance(frame, MovingTask) else self._layout.streams[frame.stream].label
        path = self._network.path(stream, source_slot, target_slot)
        self._cross(frame, path.links, self._events.time, worker, path.latency)

    def receive(self, frame: Envelope, size: int) -> None:
        """Hold a frame until its arrival time."""
        self._events.at(frame.at, lambda when: self._arrive(frame, when))

    def _cross(self, frame: Envelope, links: tuple[int, ...], at: float, worker: int, latency: float = 0.0) -> None:
        """Cross the links of this machine; then post the frame to the next owner, or hold it until it arrives here.

        A fixed latency is added after the sender's own links, so that these are charged in order of time.
        """
        me = self._directory.me
        at, rest = self._network.cross(links, _size(frame), at)
        frame.at, frame.links = at + latency, rest
        host = self._directory.worker_named(self._network.owner(rest[0])) if rest else worker
        if rest and not self._directory.peers[host].port:  # the owner is not running: cross its links from here
            host = me
        if host == me:
            self._events.at(frame.at, lambda when: self._arrive(frame, when))
        else:
            self._handlers.post(host, frame)

    def _arrive(self, frame: Envelope, at: float) -> None:
        task = frame.task if isinstance(frame, MovingTask) else frame.target
        if frame.links:
            self._cross(frame, frame.links, at, self._directory.hosts[task])
        else:
            self._handlers.deliver(frame, _size(frame), at)


def _size(frame: Envelope) -> int:
    if isinstance(frame, Data):
        return len(frame.values)
    if isinstance(frame, Marker):
        return MARKER_BYTES
    return len(frame.logic) + sum(len(w.values) for q in frame.outputs for lane in q.lanes for w in lane.waiting)
