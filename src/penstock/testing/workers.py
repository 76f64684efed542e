"""A simulated worker process: a shell around the real worker, without any I/O.

It does what the real shell does: it transfers frames and messages over connections, sends heartbeats, passes jobs to
the disk, and ends when it must. Time, messages, suspensions and crashes come from its cluster.
"""

import math
from typing import TYPE_CHECKING, Any

from penstock.runtime.controller.run_spec import Site
from penstock.runtime.protocol import controller_messages, worker_messages
from penstock.runtime.storage.disk import Job
from penstock.runtime.worker.state_machine import Worker
from penstock.testing.network import Line
from penstock.testing.processes import Process

if TYPE_CHECKING:
    from penstock.testing.faults import FaultyCluster

BEAT_S = 0.1
TURN_S = 0.001  # within which a process handles its messages


class WorkerProcess(Process):
    """A worker in its shell.

    `up` and `down` are its connection to the driver, `beats` and `pulses` that of its heartbeats, `called` the lines to
    other workers by their numbers; those lost in this epoch are in `lost`.
    """

    def __init__(self, cluster: "FaultyCluster", site: Site, port: int, offset: float, rate: float) -> None:
        super().__init__(cluster, f"{site.name}:{port}")
        self.site = site
        self.port = port
        self.offset = offset
        self.rate = rate
        self.worker = Worker(cluster.known.layout.flow, "simulated", self.clock, layout=cluster.known.layout)
        self.number = -1
        self.called: dict[int, Line] = {}
        self.callers: dict[int, Line] = {}  # by the sender's port
        self.lost: set[int] = set()
        self.peers: tuple[controller_messages.Peer, ...] = ()
        self.stalled_until = -math.inf
        self.stops_in_turn = 0.0  # length of the suspension after its next turn, before the results are sent
        self.turn_at = math.inf
        self.lease_s = 0.0
        self.half_open = False  # the driver has not yet noticed that its connection is cut
        self.heart_has_ended = False  # as known to the driver
        driver = cluster.driver
        self.driver = driver
        self.up = Line(self, driver, self._tell_driver, cluster.slowness())
        self.down = Line(driver, self, self.command, cluster.slowness())
        self.beats = Line(self, driver, self._beat_driver, cluster.slowness())
        self.pulses = Line(driver, self, self._pulse, cluster.slowness())
        cluster.send(self.up, worker_messages.Register(site.name, "simulated", port, port))

    def clock(self) -> float:
        """Return the time on this process's clock."""
        return self.offset + self.cluster.now * self.rate

    def _real(self, local: float) -> float:
        """Return the real time at which its clock shows `local`."""
        return (local - self.offset) / self.rate

    def _tell_driver(self, message: worker_messages.WorkerMessage) -> None:
        self.driver.hear(self, message)

    def _beat_driver(self, beat: worker_messages.Heartbeat) -> None:
        self.driver.hear_beat(self, beat)

    # Turns

    def wake(self, at: float) -> None:
        """Take a turn at a time, or earlier."""
        if at < self.turn_at:
            self.turn_at = at
            self.cluster.at(at, self.turn, at)

    def wake_soon(self) -> None:
        """Take a turn after a short random delay."""
        cluster = self.cluster
        if self.turn_at > cluster.now + TURN_S:
            self.wake(cluster.now + cluster.rng.random() * TURN_S)

    def turn(self, due: float) -> None:
        """Take a turn, and send the messages in the worker's outbox."""
        if not self.alive or due != self.turn_at:
            return
        now = self.cluster.now
        if self.paused:
            self.held.append((self.turn, due))
            return
        self.turn_at = math.inf
        if now < self.stalled_until:
            self.wake(self.stalled_until)
            return
        worker = self.worker
        busy = worker.turn()
        self.cluster.turned(self)
        if self.stops_in_turn:
            self.cluster.pause(self, self.stops_in_turn)
            self.stops_in_turn = 0.0
            self.held.append((self._after_turn, busy))
            return
        self._after_turn(busy)

    def _after_turn(self, busy: bool) -> None:
        worker = self.worker
        self._carry()
        if worker.phase == "stopped":
            self.end()
            return
        if busy:
            self.wake_soon()
        else:
            due = min(worker.wakeup(), worker.lease)
            if due < math.inf:
                self.wake(max(self._real(due), self.cluster.now) + 1e-6)

    def _carry(self) -> None:
        outbox, cluster = self.worker.outbox, self.cluster
        for number, frames in outbox.take_frames().items():
            line = self._line(number)
            if line is not None:
                for frame in frames:
                    cluster.send(line, frame)
        for message in outbox.take_messages():
            cluster.send(self.up, message)
        if jobs := outbox.take_jobs():
            self.store(jobs)

    def conclude(self, job: Job, result: Any, problem: str) -> None:
        """Pass the result of a job to the worker."""
        job.then(result, problem, self.clock())
        self.wake_soon()

    # Other workers

    def _line(self, number: int) -> Line | None:
        """Return the line to another worker; make it if there is none."""
        if number in self.lost:
            return None
        line = self.called.get(number)
        if line is None:
            line = self._call(number)
        return line

    def _call(self, number: int) -> Line | None:
        cluster = self.cluster
        peer = cluster.by_port.get(self.peers[number].port)
        if peer is None or not peer.alive:
            cluster.after(cluster.delay(), self.lose_peer, (number, None))
            return None
        line = Line(self, peer, peer.frame, cluster.slowness())
        self.called[number] = line
        old = peer.callers.get(self.port)
        peer.callers[self.port] = line
        if old is not None and not old.broken:
            old.cut()
        return line

    def lose_peer(self, which: tuple[int, Line | None]) -> None:
        """Detect that the line to another worker is broken, or that the worker has failed."""
        number, line = which
        if not self.alive:
            return
        if self.paused:
            self.held.append((self.lose_peer, which))
            return
        if self.called.get(number) is line:
            self.called.pop(number, None)
            self._tell_lost(number)

    def lose_caller(self, line: Line) -> None:
        """Detect that the line from another worker is broken."""
        sender = line.sender
        assert isinstance(sender, WorkerProcess)
        if not self.alive:
            return
        if self.paused:
            self.held.append((self.lose_caller, line))
            return
        if self.callers.get(sender.port) is line:
            del self.callers[sender.port]
            if sender.number < len(self.peers) and self.peers[sender.number].port == sender.port:
                self._tell_lost(sender.number)

    def _tell_lost(self, number: int) -> None:
        if number not in self.lost:
            self.lost.add(number)
            self.worker.outbox.report(worker_messages.PeerLost(self.worker.epoch, number, "it was cut"))
            self.wake_soon()

    def frame(self, frame: bytes) -> None:
        """Handle a frame from another worker."""
        self.worker.frame(frame)
        self.wake_soon()

    # The driver

    def command(self, command: controller_messages.Command) -> None:
        """Handle a command."""
        self.cluster.reached(type(command).__name__, self)
        if not self.alive:
            return
        if isinstance(command, controller_messages.Assign):
            self._begin(command)
        elif isinstance(command, controller_messages.Peers):
            self._meet(command.peers)
        self.worker.command(command)
        self.wake_soon()

    def _begin(self, assign: controller_messages.Assign) -> None:
        self.lost.clear()
        self._meet(assign.peers)
        if not self.lease_s:
            self.lease_s = assign.config.recovery.lease_s
            self.worker.start_lease(self.clock() + assign.config.recovery.lease_s)
            self.cluster.after(0.0, self.beat, None)

    def _meet(self, peers: tuple[controller_messages.Peer, ...]) -> None:
        """Close the lines to workers that are no longer peers."""
        before, self.peers = self.peers, peers
        self.lost = {n for n in self.lost if n < len(before) and before[n] == peers[n]}
        for number, line in list(self.called.items()):
            receiver = line.receiver
            assert isinstance(receiver, WorkerProcess)
            if number >= len(peers) or peers[number].port != receiver.port:
                del self.called[number]

    def beat(self, _: object) -> None:
        """Send a heartbeat."""
        if not self.alive:
            return
        if self.paused:
            self.held.append((self.beat, None))
            return
        self.cluster.send(self.beats, worker_messages.Heartbeat(self.clock(), self.worker.turns, 0.0, 0.0))
        self.cluster.after(BEAT_S / self.rate, self.beat, None)

    def cut_heart(self) -> None:
        """Cut the heartbeat connection; the worker opens another after a while."""
        cluster = self.cluster
        self.beats.cut()
        self.pulses.cut()
        self.beats = Line(self, self.driver, self._beat_driver, cluster.slowness())
        self.pulses = Line(self.driver, self, self._pulse, cluster.slowness())
        self.beats.clear_at = cluster.now + BEAT_S

    def _pulse(self, pulse: controller_messages.RenewLease) -> None:
        self.worker.command(pulse)

    def lose_driver(self, _: object) -> None:
        """Detect that the driver has failed, and end."""
        if not self.alive:
            return
        if self.paused:
            self.held.append((self.lose_driver, None))
            return
        self.end()

    def end(self) -> None:
        """End in an orderly way: sent messages arrive."""
        self.worker.command(controller_messages.Stop())
        self.cluster.ended(self)
