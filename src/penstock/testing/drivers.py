"""A simulated driver process: a shell around the real controller, without any I/O."""

import math
from typing import TYPE_CHECKING, Any

from penstock.runtime.controller.state_machine import Controller
from penstock.runtime.protocol import controller_messages, worker_messages
from penstock.runtime.protocol.wire import encode
from penstock.runtime.storage.disk import Job
from penstock.testing.processes import Process
from penstock.testing.workers import WorkerProcess

if TYPE_CHECKING:
    from penstock.testing.faults import FaultyCluster

TICK_S = 0.1


class DriverProcess(Process):
    """A controller in its shell. `workers` has the process of each connected worker."""

    def __init__(self, cluster: "FaultyCluster", controller: Controller) -> None:
        super().__init__(cluster, f"driver {cluster.drivers}")
        self.controller = controller
        self.workers: dict[int, WorkerProcess] = {}
        self.tick_at = math.inf

    def hear(self, process: WorkerProcess, message: worker_messages.WorkerMessage) -> None:
        """Handle a worker's message."""
        controller, now = self.controller, self.cluster.now
        self.cluster.reached(type(message).__name__, process)
        if not self.alive:
            return
        if isinstance(message, worker_messages.Register):
            number = controller.register(message, now)
            if number is None:
                self.cluster.send(process.down, controller_messages.Stop())
            else:
                process.number = number
                self.workers[number] = process
        elif self.workers.get(process.number) is process:
            self.cluster.promises.told(process, message)
            controller.receive(process.number, message, now)
        self.serve()

    def hear_beat(self, process: WorkerProcess, beat: worker_messages.Heartbeat) -> None:
        """Handle a heartbeat, and renew the lease of a worker that is a member."""
        if self.workers.get(process.number) is process:
            self.controller.receive(process.number, beat, self.cluster.now)
            self.cluster.send(process.pulses, controller_messages.RenewLease(beat.at))

    def lose(self, process: WorkerProcess) -> None:
        """Handle a broken connection to a worker."""
        if not self.alive:
            return
        if self.paused:
            self.held.append((self.lose, process))
            return
        if self.workers.get(process.number) is process:
            del self.workers[process.number]
            self.controller.lose(process.number, "it was cut", self.cluster.now)
            if process.heart_has_ended:
                self.controller.end_process(process.number, self.cluster.now)
            self.serve()

    def lose_heart(self, process: WorkerProcess) -> None:
        """Handle the end of a heartbeat connection: if the other connection is lost as well, the process has ended."""
        if not self.alive:
            return
        if self.paused:
            self.held.append((self.lose_heart, process))
            return
        process.heart_has_ended = True
        number = process.number
        if number < 0 or number in self.workers or self.controller.members[number].port != process.port:
            return
        self.controller.end_process(number, self.cluster.now)
        self.serve()

    def conclude(self, job: Job, result: Any, problem: str) -> None:
        """Report the result of a job to the controller."""
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
        """Run the controller, and send the messages in its outbox."""
        controller, cluster = self.controller, self.cluster
        controller.tick(cluster.now)
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
                cluster.send(process.down, _copied(command))
        if jobs := controller.outbox.take_jobs():
            self.store(jobs)
        if controller.ended:
            cluster.rested(self)
            return
        due = min(max(controller.wakeup(), cluster.now + 1e-6), cluster.now + TICK_S)
        if due < self.tick_at:
            self.tick_at = due
            cluster.at(due, self.tick, due)


def _copied(command: controller_messages.Command) -> controller_messages.Command:
    """Return a command as the network would deliver it, if it contains objects that the controller modifies later."""
    if isinstance(command, controller_messages.Assign | controller_messages.Peers):
        copied: controller_messages.Command = controller_messages.decode_command(encode(command))
        return copied
    return command
