"""A worker process: sockets, clock, log and files around the worker's logic. One thread moves all tuples.

It runs inside a long-lived Spark task: it calls the controller, registers, is told its tasks, and turns until it is
told to stop, the controller has gone, or it has not heard the controller for longer than it may go on without. It lives
through as many epochs as there are, one that it could not go on in included.
"""

import contextlib
import os
import selectors
import socket
import time
import traceback
from functools import partial

import msgspec

from penstock.api.dataflow import Dataflow
from penstock.model.decoding import Undecodable, decode_json
from penstock.model.errors import PenstockError
from penstock.runtime.protocol import controller_messages, worker_messages
from penstock.runtime.protocol.transport import (
    Connection,
    ConnectionLost,
    Strangers,
    Watch,
    call_until_open,
    hello,
    listen,
)
from penstock.runtime.protocol.wire import encode
from penstock.runtime.storage.telemetry_writer import Recorder
from penstock.runtime.storage.writer import Writer
from penstock.runtime.worker.heartbeat import Heart, Place
from penstock.runtime.worker.log_capture import Speech
from penstock.runtime.worker.memory import resident_mb
from penstock.runtime.worker.peer_connections import Neighbours
from penstock.runtime.worker.running_task import leave
from penstock.runtime.worker.state_machine import Worker

LONGEST_WAIT_S = 0.5
LAST_WORDS_S = 5.0  # to say them, once it has ended


class WorkerSettings(msgspec.Struct, frozen=True):
    """What a worker process must know before it can call the controller."""

    run: str
    worker: str
    host: str  # of the controller
    port: int
    secret: str
    listen: str  # the address to listen on; empty: the one that reaches the controller
    protects: bool = False  # frames carry keyed checksums
    umask: int = 0o077  # of all files that it makes


def main(flow: Dataflow, argument: str) -> None:
    """Be a worker: the function that a Spark task calls. Returns when the worker has ended, whatever the reason."""
    settings = decode_json(argument, WorkerSettings)
    secret, greeting = bytes.fromhex(settings.secret), partial(hello, settings.run, -1, 0)
    try:
        control = call_until_open(settings.host, settings.port, secret, greeting, settings.protects)
    except (OSError, ConnectionLost):
        return  # the controller has gone, and with it the run
    before = os.umask(settings.umask)
    try:
        Shell(flow, settings, control).serve()
    finally:
        os.umask(before)  # Spark may use the process again


class Shell:
    """One worker process."""

    def __init__(self, flow: Dataflow, settings: WorkerSettings, control: Connection) -> None:
        self._settings = settings
        self._secret = bytes.fromhex(settings.secret)
        self._flow = flow
        self._control = control
        self._watch = Watch()
        self._host = settings.listen or control.socket.getsockname()[0]
        self._listener = listen(self._host)
        self._strangers = Strangers(self._listener, self._secret, self._watch, settings.protects)
        self._neighbours = Neighbours(settings.run, self._secret, self._watch, settings.protects)
        self._speech = Speech(self._speaker)
        self._recorder: Recorder | None = None
        self._waker, self._woken = socket.socketpair()
        self._writer = Writer(self._wake)
        self._gone = ""
        self._heart: Heart | None = None
        self.worker: Worker | None = None

    def serve(self) -> None:
        """Work until the end."""
        for sock in (self._waker, self._woken):
            sock.setblocking(False)
        self._watch.add(self._woken)
        self._watch.add(self._control)
        try:
            with self._speech.heard():
                self._register()
                if self.worker is not None:
                    try:
                        self._loop(self.worker)
                    finally:  # closes what is open, and leaves what other runs have too: the process may be used again
                        self.worker.command(controller_messages.Stop())
                    if not self._gone:
                        self._carry(self.worker)  # its last report, before telemetry takes its time
                    self._end_telemetry(self.worker)
                    self._speech.end()
                    self._say_last_words(self.worker)
        except ConnectionLost:
            pass  # the controller has gone, and with it the run
        finally:
            self._close()

    def _register(self) -> None:
        host, port = self._listener.getsockname()[:2]
        register = worker_messages.Register(self._settings.worker, host, port, os.getpid())
        self._control.write([encode(register)])
        try:
            self.worker = Worker(
                self._flow,
                self._settings.run,
                time.monotonic,
                cpu_seconds=time.process_time,
                memory_mb=resident_mb,
                wake=self._wake,
                unsent=self._neighbours.unsent,
            )
        except Exception as error:  # of an author's factory, it may be
            text = str(error) if isinstance(error, PenstockError) else f"{type(error).__name__}: {error}"
            failure = worker_messages.Failure(0, "", -1, "", text, traceback.format_exc())
            self._control.write([encode(failure)])
            deadline = time.monotonic() + LAST_WORDS_S
            while not self._control.opened and time.monotonic() < deadline:
                self._watch.wait(0.1)
                self._control.read()

    def _loop(self, worker: Worker) -> None:
        busy = False
        while worker.phase != "stopped" and not self._gone:
            wait = 0.0 if busy else min(max(worker.wakeup() - time.monotonic(), 0.0), LONGEST_WAIT_S)
            commanded, called = 0, False
            for ready, events in self._watch.wait(wait):
                if ready is self._control:
                    commanded = events
                elif ready is self._listener:
                    called = True
                else:
                    self._ready(worker, ready, events)
            if commanded:  # last, so that a connection which broke in an epoch is not blamed on the next
                self._ready(worker, self._control, commanded)
            if called:  # last: who has introduced itself must not be dropped for those who call now
                for caller in self._strangers.accept(time.monotonic()):
                    self._neighbours.admit(caller)
            for caller in self._strangers.late(time.monotonic()):
                self._neighbours.lose(caller, "")
            self._neighbours.give_up(time.monotonic())
            self._writer.conclude()
            busy = worker.turn()
            self._carry(worker)

    def _ready(self, worker: Worker, ready: object, events: int) -> None:
        if ready is self._woken:
            with contextlib.suppress(BlockingIOError):
                self._woken.recv(4096)
            for task in worker.tasks.values():
                task.next_poll = 0.0
        elif isinstance(ready, Connection) and ready.fileno() >= 0:  # another's breaking may have closed it
            try:
                if events & selectors.EVENT_WRITE:
                    ready.flush()
                    self._watch.update(ready)
                if events & selectors.EVENT_READ:
                    self._read(worker, ready)
            except ConnectionLost as lost:
                self._lose(ready, str(lost))
            except Exception as error:  # a defect that one connection shows must not end the loop that serves all
                if ready is self._control or ready.fileno() < 0:
                    raise
                self._speech.warn(traceback.format_exc())
                self._lose(ready, f"{type(error).__name__}: {error}")

    def _read(self, worker: Worker, connection: Connection) -> None:
        was_open = connection.opened
        frames = connection.read()
        try:
            if connection is self._control:
                for frame in frames:
                    self._command(worker, controller_messages.decode_command(frame))
                self._watch.update(connection)
                return
            if connection.opened and not was_open:
                self._neighbours.opened(connection)
            for frame in frames:
                worker.frame(frame)
        except Undecodable as error:
            raise ConnectionLost(f"it does not speak the protocol, {error}") from None
        if connection.wants_to_write or was_open != connection.opened:
            self._watch.update(connection)

    def _command(self, worker: Worker, command: controller_messages.Command) -> None:
        if isinstance(command, controller_messages.Assign):
            self._begin(worker, command)
        elif isinstance(command, controller_messages.Peers):
            self._neighbours.meet(command.peers)
        worker.command(command)

    def _begin(self, worker: Worker, assign: controller_messages.Assign) -> None:
        """Get to know the others; in the first epoch, begin to write telemetry and to beat."""
        self._neighbours.begin(assign)
        if self._recorder is not None:
            self._recorder.add(worker.tracker.take_records())  # the worker begins anew
        elif assign.telemetry:
            name = f"{assign.peers[assign.worker].name}-{assign.incarnation}"
            self._recorder = Recorder(assign.telemetry, name)
        if self._heart is None:
            # Counted from before the controller hears that this worker is ready: so it is never the longer one's.
            worker.lease = time.monotonic() + assign.lease_s
            worker.footprint = leave(assign.folder, self._settings.worker, assign.incarnation)
            settings = self._settings
            place = Place(
                settings.host,
                settings.port,
                self._secret,
                settings.run,
                assign.worker,
                assign.incarnation,
                settings.protects,
            )
            self._heart = Heart(worker, place, assign.lease_s)
            self._heart.start()

    def _carry(self, worker: Worker) -> None:
        """Send what the worker has left to be sent, and have written what it has left to be."""
        if worker.out:
            out, worker.out = worker.out, {}
            for number, frames in out.items():
                self._neighbours.send(number, frames)
        if worker.storing:
            jobs, worker.storing = worker.storing, []
            self._writer.add(jobs)
        if self._neighbours.told:
            worker.told += self._neighbours.told
            self._neighbours.told = []
        lines = self._speech.take()
        if worker.told or lines:
            told, worker.told = worker.told, []
            try:
                self._control.write([encode(message) for message in [*told, *lines]])
                self._watch.update(self._control)
            except ConnectionLost as lost:
                self._lose(self._control, str(lost))
        if self._recorder is not None:
            if worker.tracker.records:
                self._recorder.add(worker.tracker.take_records())
            self._tell_of_telemetry(self._recorder)

    def _tell_of_telemetry(self, recorder: Recorder) -> None:
        if recorder.problem:
            self._speech.warn(recorder.problem)
            recorder.problem = ""

    def _end_telemetry(self, worker: Worker) -> None:
        """Write what is left of it, as long as the controller can be told that this failed."""
        if self._recorder is not None:
            self._recorder.add(worker.tracker.take_records())
            self._recorder.close()
            self._tell_of_telemetry(self._recorder)

    def _lose(self, connection: Connection, reason: str) -> None:
        if connection is self._control:
            self._gone = reason or "it has gone"
            self._watch.remove(connection)
            connection.close()
        else:
            self._neighbours.lose(connection, reason)

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError, OSError):
            self._waker.send(b"!")

    def _say_last_words(self, worker: Worker) -> None:
        """Let what was told before the end reach the controller."""
        if self._gone:
            return
        self._carry(worker)
        deadline = time.monotonic() + LAST_WORDS_S
        while not self._gone and self._control.wants_to_write and time.monotonic() < deadline:
            self._control.flush()
            time.sleep(0.001)

    def _speaker(self) -> tuple[str, int]:
        task = self.worker.current if self.worker is not None else None
        return (task.component.name, task.context.task) if task is not None else ("", -1)

    def _close(self) -> None:
        if self._heart is not None:
            self._heart.close()
        if self._recorder is not None:
            self._recorder.close()
        self._control.close()
        self._neighbours.close()
        for sock in (self._listener, self._waker, self._woken):
            sock.close()
        self._writer.close()
        self._watch.close()
