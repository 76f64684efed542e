"""A worker process: sockets, clock, log and files around the worker's state machine. One thread moves all tuples.

It runs inside a long-lived Spark task: it connects to the controller, registers, receives its tasks, and runs turns
until the controller stops it, the connection to the controller breaks, or its lease ends. It survives all epochs,
including those in which it failed.
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
from penstock.model.errors import PenstockError, with_type
from penstock.runtime.protocol import controller_messages, encode, worker_messages
from penstock.runtime.protocol.transport import (
    Connection,
    ConnectionLost,
    PendingConnections,
    Watch,
    call_until_open,
    hello,
    listen,
)
from penstock.runtime.storage.disk import Writer
from penstock.runtime.storage.telemetry_writer import Recorder
from penstock.runtime.worker.heartbeat import ControllerAddress, HeartbeatThread
from penstock.runtime.worker.log_capture import LogCapture
from penstock.runtime.worker.peer_connections import PeerConnections
from penstock.runtime.worker.reporting import ProcessUsage, resident_mb
from penstock.runtime.worker.state_machine import Worker

MAX_WAIT_S = 0.5
LAST_MESSAGES_S = 5.0  # time limit for sending the last messages after the end


class WorkerSettings(msgspec.Struct, frozen=True):
    """What a worker process needs to connect to the controller."""

    run: str
    worker: str
    host: str  # of the controller
    port: int
    secret: str
    listen: str  # the address to listen on; empty: that of the connection to the controller
    protects: bool = False  # frames carry keyed checksums
    umask: int = 0o077  # of all files written


def run_worker(flow: Dataflow, argument: str) -> None:
    """Run a worker: the function that a Spark task calls. Returns when the worker has ended, whatever the reason."""
    settings = decode_json(argument, WorkerSettings)
    secret, greeting = bytes.fromhex(settings.secret), partial(hello, settings.run, -1, 0)
    try:
        control = call_until_open(settings.host, settings.port, secret, greeting, settings.protects)
    except (OSError, ConnectionLost):
        return  # the controller is down, and with it the run
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
        self._pending = PendingConnections(self._listener, self._secret, self._watch, settings.protects)
        self._peers = PeerConnections(settings.run, self._secret, self._watch, settings.protects)
        self._log = LogCapture(self._running)
        self._recorder: Recorder | None = None
        self._waker, self._woken = socket.socketpair()
        self._writer = Writer(self._wake)
        self._disconnected = ""  # why the connection to the controller is lost
        self._heartbeat: HeartbeatThread | None = None
        self.worker: Worker | None = None

    def serve(self) -> None:
        """Run turns until the end."""
        for sock in (self._waker, self._woken):
            sock.setblocking(False)
        self._watch.add(self._woken)
        self._watch.add(self._control)
        try:
            with self._log.capture():
                self._register()
                if self.worker is not None:
                    try:
                        self._loop(self.worker)
                    finally:  # closes open tasks, and leaves shared machines: the process may be used again
                        self.worker.command(controller_messages.Stop())
                    if not self._disconnected:
                        self._carry(self.worker)  # its last report, before telemetry takes its time
                    self._close_telemetry(self.worker)
                    self._log.flush()
                    self._send_last_messages(self.worker)
        except ConnectionLost:
            pass  # the controller is down, and with it the run
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
                process=ProcessUsage(time.process_time, resident_mb),
                wake=self._wake,
                unsent=self._peers.unsent,
            )
        except Exception as error:  # possibly of an author's factory
            text = str(error) if isinstance(error, PenstockError) else with_type(error)
            failure = worker_messages.Failure(0, "", -1, "", text, traceback.format_exc())
            self._control.write([encode(failure)])
            deadline = time.monotonic() + LAST_MESSAGES_S
            while not self._control.opened and time.monotonic() < deadline:
                self._watch.wait(0.1)
                self._control.read()

    def _loop(self, worker: Worker) -> None:
        busy = False
        while worker.phase != "stopped" and not self._disconnected:
            wait = 0.0 if busy else min(max(worker.wakeup() - time.monotonic(), 0.0), MAX_WAIT_S)
            commanded, called = 0, False
            for ready, events in self._watch.wait(wait):
                if ready is self._control:
                    commanded = events
                elif ready is self._listener:
                    called = True
                else:
                    self._serve(worker, ready, events)
            if commanded:  # last, so that a connection which broke in an epoch is not reported in the next
                self._serve(worker, self._control, commanded)
            if called:  # last: connections that have just authenticated must not be dropped for new ones
                for connection in self._pending.accept(time.monotonic()):
                    self._peers.accept(connection)
            for connection in self._pending.expired(time.monotonic()):
                self._peers.lose(connection, "")
            self._peers.drop_unanswered(time.monotonic())
            self._writer.conclude()
            busy = worker.turn()
            self._carry(worker)

    def _serve(self, worker: Worker, ready: object, events: int) -> None:
        """Read or write a ready connection."""
        if ready is self._woken:
            with contextlib.suppress(BlockingIOError):
                self._woken.recv(4096)
            worker.poll_sources()
        elif isinstance(ready, Connection) and ready.fileno() >= 0:  # the loss of another connection may have closed it
            try:
                if events & selectors.EVENT_WRITE:
                    ready.flush()
                    self._watch.update(ready)
                if events & selectors.EVENT_READ:
                    self._read(worker, ready)
            except ConnectionLost as lost:
                self._lose(ready, str(lost))
            except Exception as error:  # a defect that shows on one connection must not end the loop that serves all
                if ready is self._control or ready.fileno() < 0:
                    raise
                self._log.warn(traceback.format_exc())
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
                self._peers.opened(connection)
            for frame in frames:
                worker.frame(frame)
        except Undecodable as error:
            raise ConnectionLost(f"it does not speak the protocol, {error}") from None
        if connection.wants_to_write or was_open != connection.opened:
            self._watch.update(connection)

    def _command(self, worker: Worker, command: controller_messages.Command) -> None:
        if isinstance(command, controller_messages.Assign):
            self._start_epoch(worker, command)
        elif isinstance(command, controller_messages.Peers):
            self._peers.update_peers(command.peers)
        worker.command(command)

    def _start_epoch(self, worker: Worker, assign: controller_messages.Assign) -> None:
        """Set the other workers; in the first epoch, start telemetry and heartbeats."""
        self._peers.start_epoch(assign)
        if self._recorder is not None:
            self._recorder.add(worker.take_records())  # of the previous epoch
        elif assign.folders.telemetry:
            name = f"{assign.peers[assign.worker].name}-{assign.incarnation}"
            self._recorder = Recorder(assign.folders.telemetry, name)
        if self._heartbeat is None:
            # Starts before the controller learns that this worker is ready, so that the controller's lease ends later.
            worker.start_lease(time.monotonic() + assign.config.recovery.lease_s)
            worker.running_task.publish(assign.folders.run, self._settings.worker, assign.incarnation)
            settings = self._settings
            controller = ControllerAddress(
                settings.host,
                settings.port,
                self._secret,
                settings.run,
                assign.worker,
                assign.incarnation,
                settings.protects,
            )
            self._heartbeat = HeartbeatThread(worker, controller, assign.config.recovery.lease_s)
            self._heartbeat.start()

    def _carry(self, worker: Worker) -> None:
        """Send and write the contents of the worker's outbox."""
        outbox = worker.outbox
        for number, frames in outbox.take_frames().items():
            self._peers.send(number, frames)
        if jobs := outbox.take_jobs():
            self._writer.add(jobs)
        messages = [*outbox.take_messages(), *self._peers.take_lost(), *self._log.take()]
        if messages:
            try:
                self._control.write([encode(message) for message in messages])
                self._watch.update(self._control)
            except ConnectionLost as lost:
                self._lose(self._control, str(lost))
        if self._recorder is not None:
            if records := worker.take_records():
                self._recorder.add(records)
            self._report_telemetry(self._recorder)

    def _report_telemetry(self, recorder: Recorder) -> None:
        if recorder.problem:
            self._log.warn(recorder.problem)
            recorder.problem = ""

    def _close_telemetry(self, worker: Worker) -> None:
        """Write the remaining telemetry, while a failure can still be reported to the controller."""
        if self._recorder is not None:
            self._recorder.add(worker.take_records())
            self._recorder.close()
            self._report_telemetry(self._recorder)

    def _lose(self, connection: Connection, reason: str) -> None:
        if connection is self._control:
            self._disconnected = reason or "the connection is closed"
            self._watch.remove(connection)
            connection.close()
        else:
            self._peers.lose(connection, reason)

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError, OSError):
            self._waker.send(b"!")

    def _send_last_messages(self, worker: Worker) -> None:
        """Send the last reports to the controller."""
        if self._disconnected:
            return
        self._carry(worker)
        deadline = time.monotonic() + LAST_MESSAGES_S
        while not self._disconnected and self._control.wants_to_write and time.monotonic() < deadline:
            self._control.flush()
            time.sleep(0.001)

    def _running(self) -> tuple[str, int]:
        """Return the component and the task whose code runs."""
        task = self.worker.running_task.task if self.worker is not None else None
        return (task.component.name, task.context.task) if task is not None else ("", -1)

    def _close(self) -> None:
        if self._heartbeat is not None:
            self._heartbeat.close()
        if self._recorder is not None:
            self._recorder.close()
        self._control.close()
        self._peers.close()
        for sock in (self._listener, self._waker, self._woken):
            sock.close()
        self._writer.close()
        self._watch.close()
