"""The simulated processes of a cluster: shells around the real worker and the real controller, without any I/O.

They do what the real shells do: they transfer frames and messages over connections, send heartbeats, pass jobs to the
disk, and end when they must. Time, messages, suspensions and crashes come from outside.
"""

import math
from functools import partial
from typing import Any, Protocol

from penstock.runtime.controller.run_spec import Site
from penstock.runtime.controller.state_machine import Controller
from penstock.runtime.layout import Layout
from penstock.runtime.protocol import controller_messages, encode, worker_messages
from penstock.runtime.storage.disk import StorageJob
from penstock.runtime.worker.state_machine import Worker
from penstock.testing.simulation import JobObserver, SimulatedLine, SimulatedProcess, Simulation, unless_paused

BEAT_S = 0.1
TURN_S = 0.001  # within which a process handles its messages
TICK_S = 0.1


class _ClusterHooks(JobObserver, Protocol):
    """What processes have their cluster do."""

    def find_worker(self, port: int) -> "WorkerProcess | None": ...
    def turned(self, process: "WorkerProcess") -> None: ...
    def ended(self, process: "WorkerProcess") -> None: ...
    def heard(self, process: "WorkerProcess", message: worker_messages.WorkerMessage) -> None: ...
    def hang_up(self, process: "WorkerProcess") -> None: ...
    def aborted(self) -> None: ...
    def rested(self, driver: "DriverProcess") -> None: ...


class WorkerProcess(SimulatedProcess):
    """A worker in its shell.

    `up` and `down` are its connection to the driver, `beats` and `pulses` that of its heartbeats, `called` the lines to
    other workers by their numbers; those lost in this epoch are in `lost`.
    """

    def __init__(
        self,
        simulation: Simulation,
        cluster: _ClusterHooks,
        driver: "DriverProcess",
        layout: Layout,
        site: Site,
        port: int,
    ) -> None:
        super().__init__(simulation, cluster, f"{site.name}:{port}")
        self._cluster = cluster
        self.site = site
        self.port = port
        self.offset = simulation.rng.uniform(0.0, 1000.0)  # of its clock
        self.rate = 1.0 + simulation.rng.uniform(-1e-4, 1e-4)
        self.worker = Worker(layout.flow, "simulated", self.clock, layout=layout)
        self.number = -1
        self.called: dict[int, SimulatedLine] = {}
        self.callers: dict[int, SimulatedLine] = {}  # by the sender's port
        self.lost: set[int] = set()
        self.peers: tuple[controller_messages.Peer, ...] = ()
        self.stalled_until = -math.inf
        self.stops_in_turn = 0.0  # length of the suspension after its next turn, before the results are sent
        self.turn_at = math.inf
        self.lease_s = 0.0
        self.half_open = False  # the driver has not yet noticed that its connection is cut
        self.heart_has_ended = False  # as known to the driver
        self.driver = driver
        self.up = SimulatedLine(self, driver, partial(driver.receive, self), simulation.slowness())
        self.down = SimulatedLine(driver, self, self.command, simulation.slowness())
        self.beats = SimulatedLine(self, driver, partial(self.driver.receive_beat, self), simulation.slowness())
        self.pulses = SimulatedLine(driver, self, self.worker.command, simulation.slowness())
        simulation.send(self.up, worker_messages.Register(site.name, "simulated", port, port))

    def clock(self) -> float:
        """Return the time on this process's clock."""
        return self.offset + self.simulation.now * self.rate

    # Turns

    def wake(self, at: float) -> None:
        """Take a turn at a time, or earlier."""
        if at < self.turn_at:
            self.turn_at = at
            self.simulation.at(at, self.turn, at)

    def wake_soon(self) -> None:
        """Take a turn after a short random delay."""
        simulation = self.simulation
        if self.turn_at > simulation.now + TURN_S:
            self.wake(simulation.now + simulation.rng.random() * TURN_S)

    def turn(self, due: float) -> None:
        """Take a turn, and send the messages in the worker's outbox."""
        if not self.alive or due != self.turn_at:
            return
        now = self.simulation.now
        if self.paused:
            self.held.append((self.turn, due))
            return
        self.turn_at = math.inf
        if now < self.stalled_until:
            self.wake(self.stalled_until)
            return
        worker = self.worker
        busy = worker.turn()
        self._cluster.turned(self)
        if self.stops_in_turn:
            self.pause(self.stops_in_turn)
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
                real = (due - self.offset) / self.rate  # the time at which its clock shows `due`
                self.wake(max(real, self.simulation.now) + 1e-6)

    def _carry(self) -> None:
        outbox, simulation = self.worker.outbox, self.simulation
        for number, frames in outbox.take_frames().items():
            line = self._line(number)
            if line is not None:
                for frame in frames:
                    simulation.send(line, frame)
        for message in outbox.take_messages():
            simulation.send(self.up, message)
        if jobs := outbox.take_jobs():
            self.store(jobs)

    def conclude(self, job: StorageJob, result: Any, problem: str) -> None:
        """Pass the result of a job to the worker."""
        job.then(result, problem, self.clock())
        self.wake_soon()

    # Other workers

    def _line(self, number: int) -> SimulatedLine | None:
        """Return the line to another worker; make it if there is none."""
        if number in self.lost:
            return None
        line = self.called.get(number)
        if line is None:
            line = self._call(number)
        return line

    def _call(self, number: int) -> SimulatedLine | None:
        peer = self._cluster.find_worker(self.peers[number].port)
        if peer is None or not peer.alive:
            self.simulation.after(self.simulation.delay(), self.lose_peer, (number, None))
            return None
        line = SimulatedLine(self, peer, peer.frame, self.simulation.slowness())
        self.called[number] = line
        old = peer.callers.get(self.port)
        peer.callers[self.port] = line
        if old is not None and not old.broken:
            old.cut()
        return line

    def notice_loss(self, line: SimulatedLine) -> None:
        """Lose the driver or the worker at the other end of a line; heartbeats have no effect."""
        delay = 5 * self.simulation.delay()
        if line is self.up:
            self.simulation.after(delay, self.lose_driver, None)
        for number, called in self.called.items():
            if called is line:
                self.simulation.after(delay, self.lose_peer, (number, line))

    @unless_paused
    def lose_peer(self, which: tuple[int, SimulatedLine | None]) -> None:
        """Detect that the line to another worker is broken, or that the worker has failed."""
        number, line = which
        if self.called.get(number) is line:
            self.called.pop(number, None)
            self._tell_lost(number)

    @unless_paused
    def lose_caller(self, line: SimulatedLine) -> None:
        """Detect that the line from another worker is broken."""
        sender = line.sender
        assert isinstance(sender, WorkerProcess)
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
        self._cluster.reached(type(command).__name__, self)
        if not self.alive:
            return
        if isinstance(command, controller_messages.Assign):
            self._begin(command)
        elif isinstance(command, controller_messages.Peers):
            self._update_peers(command.peers)
        self.worker.command(command)
        self.wake_soon()

    def _begin(self, assign: controller_messages.Assign) -> None:
        self.lost.clear()
        self._update_peers(assign.peers)
        if not self.lease_s:
            self.lease_s = assign.config.recovery.lease_s
            self.worker.start_lease(self.clock() + assign.config.recovery.lease_s)
            self.simulation.after(0.0, self.beat, None)

    def _update_peers(self, peers: tuple[controller_messages.Peer, ...]) -> None:
        """Close the lines to workers that are no longer peers."""
        before, self.peers = self.peers, peers
        self.lost = {n for n in self.lost if n < len(before) and before[n] == peers[n]}
        for number, line in list(self.called.items()):
            receiver = line.receiver
            assert isinstance(receiver, WorkerProcess)
            if number >= len(peers) or peers[number].port != receiver.port:
                del self.called[number]

    @unless_paused
    def beat(self, _: object) -> None:
        """Send a heartbeat."""
        self.simulation.send(self.beats, worker_messages.Heartbeat(self.clock(), self.worker.turns, 0.0, 0.0))
        self.simulation.after(BEAT_S / self.rate, self.beat, None)

    def cut_heart(self) -> None:
        """Cut the heartbeat connection; the worker opens another after a while."""
        simulation = self.simulation
        self.beats.cut()
        self.pulses.cut()
        self.beats = SimulatedLine(self, self.driver, partial(self.driver.receive_beat, self), simulation.slowness())
        self.pulses = SimulatedLine(self.driver, self, self.worker.command, simulation.slowness())
        self.beats.clear_at = simulation.now + BEAT_S

    @unless_paused
    def lose_driver(self, _: object) -> None:
        """Detect that the driver has failed, and end."""
        self.end()

    def end(self) -> None:
        """End in an orderly way: sent messages arrive."""
        self.worker.command(controller_messages.Stop())
        self._cluster.ended(self)


class DriverProcess(SimulatedProcess):
    """A controller in its shell. `workers` has the process of each connected worker."""

    def __init__(self, simulation: Simulation, cluster: _ClusterHooks, number: int, controller: Controller) -> None:
        super().__init__(simulation, cluster, f"driver {number}")
        self._cluster = cluster
        self.controller = controller
        self.workers: dict[int, WorkerProcess] = {}
        self.tick_at = math.inf

    def receive(self, process: WorkerProcess, message: worker_messages.WorkerMessage) -> None:
        """Handle a worker's message."""
        controller, now = self.controller, self.simulation.now
        self._cluster.reached(type(message).__name__, process)
        if not self.alive:
            return
        if isinstance(message, worker_messages.Register):
            number = controller.register(message, now)
            if number is None:
                self.simulation.send(process.down, controller_messages.Stop())
            else:
                process.number = number
                self.workers[number] = process
        elif self.workers.get(process.number) is process:
            self._cluster.heard(process, message)
            controller.receive(process.number, message, now)
        self.serve()

    def receive_beat(self, process: WorkerProcess, beat: worker_messages.Heartbeat) -> None:
        """Handle a heartbeat, and renew the lease of a worker that is a member."""
        if self.workers.get(process.number) is process:
            self.controller.receive(process.number, beat, self.simulation.now)
            self.simulation.send(process.pulses, controller_messages.RenewLease(beat.at))

    @unless_paused
    def lose(self, process: WorkerProcess) -> None:
        """Handle a broken connection to a worker."""
        if self.workers.get(process.number) is process:
            del self.workers[process.number]
            self.controller.lose(process.number, "it was cut", self.simulation.now)
            if process.heart_has_ended:
                self.controller.end_process(process.number, self.simulation.now)
            self.serve()

    @unless_paused
    def lose_heart(self, process: WorkerProcess) -> None:
        """Handle the end of a heartbeat connection: if the other connection is lost as well, the process has ended."""
        process.heart_has_ended = True
        number = process.number
        if number < 0 or number in self.workers or self.controller.members[number].port != process.port:
            return
        self.controller.end_process(number, self.simulation.now)
        self.serve()

    def conclude(self, job: StorageJob, result: Any, problem: str) -> None:
        """Report the result of a job to the controller."""
        job.then(result, problem, self.simulation.now)
        self.serve()

    def notice_loss(self, line: SimulatedLine) -> None:
        """Lose the worker at the other end of a line for commands."""
        receiver = line.receiver
        assert isinstance(receiver, WorkerProcess)
        delay = 5 * self.simulation.delay()
        if line is receiver.down:
            self.simulation.after(delay, self.lose, receiver)

    def tick(self, due: float) -> None:
        """Do what is due."""
        if not self.alive or due != self.tick_at:
            return
        if self.paused:
            self.held.append((self.tick, due))
            return
        self.tick_at = math.inf
        self.simulation.count("tick")
        self.serve()

    def serve(self) -> None:
        """Run the controller, and send the messages in its outbox."""
        controller, cluster, simulation = self.controller, self._cluster, self.simulation
        controller.tick(simulation.now)
        for number in reversed(controller.outbox.take_closing()):
            process = self.workers.pop(number, None)
            if process is not None:
                cluster.hang_up(process)
        commands = controller.outbox.take_commands()
        if any(isinstance(command, controller_messages.AbortCheckpoint) for _, command in commands):
            cluster.aborted()
        for number, command in commands:
            process = self.workers.get(number)
            if process is not None:
                simulation.send(process.down, _copied(command))
        if jobs := controller.outbox.take_jobs():
            self.store(jobs)
        if controller.ended:
            cluster.rested(self)
            return
        due = min(max(controller.wakeup(), simulation.now + 1e-6), simulation.now + TICK_S)
        if due < self.tick_at:
            self.tick_at = due
            simulation.at(due, self.tick, due)


def _copied(command: controller_messages.Command) -> controller_messages.Command:
    """Return a command as the network would deliver it, if it contains objects that the controller modifies later."""
    if isinstance(command, controller_messages.Assign | controller_messages.Peers):
        copied: controller_messages.Command = controller_messages.decode_command(encode(command))
        return copied
    return command
