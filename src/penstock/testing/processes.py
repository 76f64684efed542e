"""The processes of a simulated cluster: shells around the real worker and the real controller, without any I/O.

They do what the real shells do: carry frames, commands and tellings over connections, beat, give jobs to the disk, and
end when they must. Time, messages, pauses and deaths come from the cluster that they belong to.
"""

import math
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.runtime import messages as wire
from penstock.runtime.controller import RESTING, Controller
from penstock.runtime.machine import Worker
from penstock.runtime.storage import Job
from penstock.runtime.terms import Site
from penstock.testing.disk import Torn
from penstock.testing.network import Line

if TYPE_CHECKING:
    from penstock.testing.faults import FaultyCluster

BEAT_S = 0.1
TICK_S = 0.1
TURN_S = 0.001  # within which a process gets round to what has come


class Process:
    """A process: it lives, may stand still for a while, and has a disk that takes its time.

    `held` is what has come while it stood still, to be done in order when it goes on.
    """

    def __init__(self, cluster: "FaultyCluster", name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.alive = True
        self.paused = False
        self.held: list[tuple[Callable[[Any], None], Any]] = []
        self.jobs: deque[Job] = deque()

    def store(self, jobs: list[Job]) -> None:
        """Have jobs done, after those before."""
        begin = not self.jobs
        self.jobs.extend(jobs)
        if begin:
            self._begin_job()

    def _begin_job(self) -> None:
        if self.jobs:
            cluster = self.cluster
            cluster.reached("begin " + self.jobs[0].about.split(" ")[0], self)
            if self.alive:
                cluster.after(cluster.disk_delay(), self.end_job, self.jobs[0])

    def end_job(self, job: Job) -> None:
        """Do a job, and tell what came of it."""
        cluster = self.cluster
        if not self.alive or not self.jobs or self.jobs[0] is not job:
            return
        if self.paused:
            self.held.append((self.end_job, job))
            return
        result, problem = job.run(cluster.disk)
        cluster.done(self, job, problem)
        if not self.alive:
            return  # what it did is on disk, and nobody is told
        self.jobs.popleft()
        self.conclude(job, result, problem)
        self._begin_job()

    def conclude(self, job: Job, result: Any, problem: str) -> None:
        """Tell what came of a job."""
        raise NotImplementedError

    def tear(self) -> None:
        """Leave the job that was under way as the death of its process leaves it: undone, torn, or done."""
        disk, rng = self.cluster.disk, self.cluster.rng
        if self.jobs and rng.random() < 0.8:
            disk.torn_after, disk.torn_share = rng.randrange(4), rng.random()
            try:
                self.jobs[0].run(disk)
            except Torn:
                pass
            finally:
                disk.torn_after = -1
        self.jobs.clear()


class WorkerProcess(Process):
    """A worker in its shell.

    `up` and `down` are its connection to the driver, `beats` and `pulses` that of its heart, `called` the lines to other
    workers by their numbers; those that were lost in this epoch are in `lost`.
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
        self.peers: tuple[wire.Peer, ...] = ()
        self.stalled_until = -math.inf
        self.stops_in_turn = 0.0  # for how long it stands still after its next turn, before that is carried out
        self.turn_at = math.inf
        self.lease_s = 0.0
        self.half_open = False  # the driver does not know yet that its connection is cut
        self.heart_has_ended = False  # as the driver knows
        driver = cluster.driver
        self.driver = driver
        self.up = Line(self, driver, self._tell_driver, cluster.slowness())
        self.down = Line(driver, self, self.command, cluster.slowness())
        self.beats = Line(self, driver, self._beat_driver, cluster.slowness())
        self.pulses = Line(driver, self, self._pulse, cluster.slowness())
        cluster.send(self.up, wire.Register(site.name, "simulated", port, port))

    def clock(self) -> float:
        """Return the time that this process believes it is."""
        return self.offset + self.cluster.now * self.rate

    def _real(self, local: float) -> float:
        """Return when its clock shows a time."""
        return (local - self.offset) / self.rate

    def _tell_driver(self, telling: wire.Telling) -> None:
        self.driver.hear(self, telling)

    def _beat_driver(self, beat: wire.Beat) -> None:
        self.driver.hear_beat(self, beat)

    # Turns

    def wake(self, at: float) -> None:
        """Have a turn at a time, or earlier."""
        if at < self.turn_at:
            self.turn_at = at
            self.cluster.at(at, self.turn, at)

    def wake_soon(self) -> None:
        """Have a turn after the moment that it takes to get round to it."""
        cluster = self.cluster
        if self.turn_at > cluster.now + TURN_S:
            self.wake(cluster.now + cluster.rng.random() * TURN_S)

    def turn(self, due: float) -> None:
        """Turn once, and carry away what the worker leaves."""
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
        worker, cluster = self.worker, self.cluster
        if worker.out:
            out, worker.out = worker.out, {}
            for number, frames in out.items():
                line = self._line(number)
                if line is not None:
                    for frame in frames:
                        cluster.send(line, frame)
        if worker.told:
            told, worker.told = worker.told, []
            for telling in told:
                cluster.send(self.up, telling)
        if worker.storing:
            jobs, worker.storing = worker.storing, []
            self.store(jobs)

    def conclude(self, job: Job, result: Any, problem: str) -> None:
        """Tell the worker what came of a job."""
        job.then(result, problem, self.clock())
        self.wake_soon()

    # Other workers

    def _line(self, number: int) -> Line | None:
        """Return the line to another worker, and make it where there is none."""
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
        """Learn that the line to another worker is broken, or that there is nobody to call."""
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
        """Learn that the line from another worker is broken."""
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
            self.worker.told.append(wire.Lost(self.worker.epoch, number, "it was cut"))
            self.wake_soon()

    def frame(self, frame: bytes) -> None:
        """Take a frame from another worker."""
        self.worker.frame(frame)
        self.wake_soon()

    # The driver

    def command(self, command: wire.Command) -> None:
        """Take a command."""
        self.cluster.reached(type(command).__name__, self)
        if not self.alive:
            return
        if isinstance(command, wire.Assign):
            self._begin(command)
        elif isinstance(command, wire.Peers):
            self._meet(command.peers)
        self.worker.command(command)
        self.wake_soon()

    def _begin(self, assign: wire.Assign) -> None:
        self.lost.clear()
        self._meet(assign.peers)
        if not self.lease_s:
            self.lease_s = assign.lease_s
            self.worker.lease = self.clock() + assign.lease_s
            self.cluster.after(0.0, self.beat, None)

    def _meet(self, peers: tuple[wire.Peer, ...]) -> None:
        """Hang up on those who are not among the peers any more."""
        before, self.peers = self.peers, peers
        self.lost = {n for n in self.lost if n < len(before) and before[n] == peers[n]}
        for number, line in list(self.called.items()):
            receiver = line.receiver
            assert isinstance(receiver, WorkerProcess)
            if number >= len(peers) or peers[number].port != receiver.port:
                del self.called[number]

    def beat(self, _: object) -> None:
        """Give a sign of life."""
        if not self.alive:
            return
        if self.paused:
            self.held.append((self.beat, None))
            return
        self.cluster.send(self.beats, wire.Beat(self.clock(), self.worker.turns, 0.0, 0.0))
        self.cluster.after(BEAT_S / self.rate, self.beat, None)

    def cut_heart(self) -> None:
        """Cut the heart's connection; it makes another after a while."""
        cluster = self.cluster
        self.beats.cut()
        self.pulses.cut()
        self.beats = Line(self, self.driver, self._beat_driver, cluster.slowness())
        self.pulses = Line(self.driver, self, self._pulse, cluster.slowness())
        self.beats.clear_at = cluster.now + BEAT_S

    def _pulse(self, pulse: wire.Pulse) -> None:
        self.worker.command(pulse)

    def lose_driver(self, _: object) -> None:
        """Learn that the driver is not there any more: the end."""
        if not self.alive:
            return
        if self.paused:
            self.held.append((self.lose_driver, None))
            return
        self.end()

    def end(self) -> None:
        """End in good order: what was sent arrives."""
        self.worker.command(wire.Stop())
        self.cluster.ended(self)


class DriverProcess(Process):
    """A controller in its shell. `workers` has the process of each worker that is connected."""

    def __init__(self, cluster: "FaultyCluster", controller: Controller) -> None:
        super().__init__(cluster, f"driver {cluster.drivers}")
        self.controller = controller
        self.workers: dict[int, WorkerProcess] = {}
        self.tick_at = math.inf

    def hear(self, process: WorkerProcess, telling: wire.Telling) -> None:
        """Take what a worker tells."""
        controller, now = self.controller, self.cluster.now
        self.cluster.reached(type(telling).__name__, process)
        if not self.alive:
            return
        if isinstance(telling, wire.Register):
            number = controller.register(telling, now)
            if number is None:
                self.cluster.send(process.down, wire.Stop())
            else:
                process.number = number
                self.workers[number] = process
        elif self.workers.get(process.number) is process:
            controller.told(process.number, telling, now)
        self.serve()

    def hear_beat(self, process: WorkerProcess, beat: wire.Beat) -> None:
        """Take a sign of life, and answer it while its worker counts."""
        if self.workers.get(process.number) is process:
            self.controller.told(process.number, beat, self.cluster.now)
            self.cluster.send(process.pulses, wire.Pulse(beat.at))

    def lose(self, process: WorkerProcess) -> None:
        """Learn that the connection to a worker broke."""
        if not self.alive:
            return
        if self.paused:
            self.held.append((self.lose, process))
            return
        if self.workers.get(process.number) is process:
            del self.workers[process.number]
            self.controller.lost(process.number, "it was cut", self.cluster.now)
            if process.heart_has_ended:
                self.controller.gone(process.number, self.cluster.now)
            self.serve()

    def lose_heart(self, process: WorkerProcess) -> None:
        """Learn that a worker's heart has hung up: where the other connection is lost, too, its process has ended."""
        if not self.alive:
            return
        if self.paused:
            self.held.append((self.lose_heart, process))
            return
        process.heart_has_ended = True
        number = process.number
        if number < 0 or number in self.workers or self.controller.members[number].port != process.port:
            return
        self.controller.gone(number, self.cluster.now)
        self.serve()

    def conclude(self, job: Job, result: Any, problem: str) -> None:
        """Tell the controller what came of a job."""
        job.then(result, problem, self.cluster.now)
        self.serve()

    def tick(self, due: float) -> None:
        """Do what is due."""
        if not self.alive or due != self.tick_at:
            return
        if self.paused:
            self.held.append((self.tick, due))
            return
        self.tick_at = math.inf
        self.cluster.count("tick")
        self.serve()

    def serve(self) -> None:
        """Let the controller go on, and carry away what it leaves."""
        controller, cluster = self.controller, self.cluster
        controller.tick(cluster.now)
        while controller.hung_up:
            number = controller.hung_up.pop()
            process = self.workers.pop(number, None)
            if process is not None:
                cluster.hang_up(process)
        out, controller.out = controller.out, []
        if any(isinstance(command, wire.Abort) for _, command in out):
            cluster.aborted()
        for number, command in out:
            process = self.workers.get(number)
            if process is not None:
                cluster.send(process.down, _copied(command))
        if controller.storing:
            jobs, controller.storing = controller.storing, []
            self.store(jobs)
        if controller.phase in RESTING:
            cluster.rested(self)
            return
        due = min(max(controller.wakeup(), cluster.now + 1e-6), cluster.now + TICK_S)
        if due < self.tick_at:
            self.tick_at = due
            cluster.at(due, self.tick, due)


def _copied(command: wire.Command) -> wire.Command:
    """Return a command as the network would hand it over, where it holds what the controller goes on to change."""
    if isinstance(command, wire.Assign | wire.Peers):
        return wire.decode_command(wire.encode(command))
    return command
