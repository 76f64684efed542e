"""A worker process: sockets, clock, log and files around the worker's logic. One thread moves all tuples.

It runs inside a long-lived Spark task: it calls the controller, registers, is told its tasks, connects to the other
workers, and turns until it is told to stop or the controller has gone.
"""

import contextlib
import logging
import os
import resource
import selectors
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from io import TextIOBase

import msgspec

from penstock.api.dataflow import Dataflow
from penstock.model.errors import PenstockError
from penstock.runtime import messages as wire
from penstock.runtime.machine import Worker
from penstock.runtime.recording import Recorder
from penstock.runtime.transport import Connection, ConnectionLost, Strangers, Watch, call, hello, listen

BEAT_S = 0.5
LONGEST_WAIT_S = 0.5
LAST_WORDS_S = 5.0  # to say them, once it has ended
LINES = 10_000  # of log that wait to be sent; more are dropped


class WorkerSettings(msgspec.Struct, frozen=True):
    """What a worker process must know before it can call the controller."""

    run: str
    worker: str
    host: str  # of the controller
    port: int
    secret: str
    listen: str  # the address to listen on; empty: the one that reaches the controller


def main(flow: Dataflow, argument: str) -> None:
    """Be a worker: the function that a Spark task calls. Returns when the run has ended, whatever the reason."""
    settings = msgspec.json.decode(argument, type=WorkerSettings)
    try:
        control = call(settings.host, settings.port, bytes.fromhex(settings.secret), hello(settings.run, -1, 0))
    except OSError:
        return  # the controller has gone, and with it the run
    Shell(flow, settings, control).serve()


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
        self._strangers = Strangers(self._listener, self._secret, self._watch)
        self._peers: dict[int, Connection] = {}  # to which frames are sent
        self._callers: set[Connection] = set()  # from which they come
        self._lines: deque[wire.Log] = deque()
        self._dropped = 0  # lines that were too many
        self._printed = _Printed(self)
        self._recorder: Recorder | None = None
        self._waker, self._woken = socket.socketpair()
        self._gone = ""
        self._told_to_stop = False
        self._heart: threading.Thread | None = None
        self._ended = threading.Event()
        self.worker: Worker | None = None

    def serve(self) -> None:
        """Work until the end."""
        for sock in (self._waker, self._woken):
            sock.setblocking(False)
        self._watch.add(self._woken)
        self._watch.add(self._control)
        try:
            with self._logging():
                self._register()
                if self.worker is not None:
                    self._loop(self.worker)
                    self.worker.command(wire.Stop())  # closes what is open where the controller has gone
                    self._end_telemetry(self.worker)
                    self._printed.end()
                    self._say_last_words(self.worker)
        except ConnectionLost:
            pass  # the controller has gone, and with it the run
        finally:
            self._close()

    def _register(self) -> None:
        host, port = self._listener.getsockname()[:2]
        register = wire.Register(self._settings.worker, host, port, os.getpid())
        self._control.write([wire.encode(register)])
        try:
            self.worker = Worker(
                self._flow, self._settings.run, time.monotonic, cpu_seconds=time.process_time, wake=self._wake
            )
        except PenstockError as error:
            failure = wire.Failure(0, "", -1, "", str(error), "")
            self._control.write([wire.encode(failure)])
            deadline = time.monotonic() + LAST_WORDS_S
            while not self._control.opened and time.monotonic() < deadline:
                self._watch.wait(0.1)
                self._control.read()

    def _loop(self, worker: Worker) -> None:
        busy = False
        while worker.phase not in ("stopped", "failed") and not self._gone:
            wait = 0.0 if busy else min(max(worker.wakeup() - time.monotonic(), 0.0), LONGEST_WAIT_S)
            for ready, events in self._watch.wait(wait):
                self._ready(worker, ready, events)
            for caller in self._strangers.late(time.monotonic()):
                self._lose(worker, caller, "")
            busy = worker.turn()
            self._carry(worker)

    def _ready(self, worker: Worker, ready: object, events: int) -> None:
        if ready is self._listener:
            if (caller := self._strangers.accept(time.monotonic())) is not None:
                self._callers.add(caller)
        elif ready is self._woken:
            with contextlib.suppress(BlockingIOError):
                self._woken.recv(4096)
            for task in worker.tasks.values():
                task.next_poll = 0.0
        elif isinstance(ready, Connection):
            try:
                if events & selectors.EVENT_WRITE:
                    ready.flush()
                    self._watch.update(ready)
                if events & selectors.EVENT_READ:
                    self._read(worker, ready)
            except ConnectionLost as lost:
                self._lose(worker, ready, str(lost))

    def _read(self, worker: Worker, connection: Connection) -> None:
        was_open = connection.opened
        frames = connection.read()
        if connection is self._control:
            for frame in frames:
                self._command(worker, wire.decode_command(frame))
            self._watch.update(connection)
            return
        for frame in frames:
            worker.frame(frame)
        if connection.wants_to_write or was_open != connection.opened:
            self._watch.update(connection)

    def _command(self, worker: Worker, command: wire.Command) -> None:
        if isinstance(command, wire.Assign):
            self._begin(worker, command)
        self._told_to_stop = self._told_to_stop or isinstance(command, wire.Stop)
        worker.command(command)

    def _begin(self, worker: Worker, assign: wire.Assign) -> None:
        """Get to know the others, and begin to write telemetry and heartbeats."""
        for number, peer in enumerate(assign.peers):
            if number != assign.worker:
                greeting = hello(self._settings.run, assign.worker, assign.incarnation)
                try:
                    connection = call(peer.host, peer.port, self._secret, greeting)
                except OSError as error:
                    worker.told.append(wire.Lost(assign.epoch, number, f"it does not answer, {error}"))
                    continue
                self._peers[number] = connection
                self._watch.add(connection)
        if assign.telemetry:
            name = f"{assign.peers[assign.worker].name}-{assign.incarnation}"
            self._recorder = Recorder(assign.telemetry, name)
        self._heart = threading.Thread(target=self._beat, args=(assign,), name="penstock heart", daemon=True)
        self._heart.start()

    def _carry(self, worker: Worker) -> None:
        """Send what the worker has left to be sent."""
        if worker.out:
            out, worker.out = worker.out, {}
            for number, frames in out.items():
                if number in self._peers:
                    self._send(worker, self._peers[number], frames)
        if worker.told or self._lines or self._dropped:
            told, worker.told = worker.told, []
            while self._lines:
                told.append(self._lines.popleft())
            if self._dropped:
                text = f"{self._dropped} lines of log were dropped, more than {LINES} came at once"
                told.append(wire.Log(time.time(), "warning", "", -1, text))
                self._dropped = 0
            self._send(worker, self._control, [wire.encode(message) for message in told])
        if self._recorder is not None:
            if worker.tracker.records:
                self._recorder.add(worker.tracker.take_records())
            self._tell_of_telemetry(self._recorder)

    def _tell_of_telemetry(self, recorder: Recorder) -> None:
        if recorder.problem:
            self._lines.append(wire.Log(time.time(), "warning", "", -1, recorder.problem))
            recorder.problem = ""

    def _end_telemetry(self, worker: Worker) -> None:
        """Write what is left of it, as long as the controller can be told that this failed."""
        if self._recorder is not None:
            self._recorder.add(worker.tracker.take_records())
            self._recorder.close()
            self._tell_of_telemetry(self._recorder)

    def _send(self, worker: Worker, connection: Connection, frames: list[bytes]) -> None:
        try:
            connection.write(frames)
            self._watch.update(connection)
        except ConnectionLost as lost:
            self._lose(worker, connection, str(lost))

    def _lose(self, worker: Worker, connection: Connection, reason: str) -> None:
        self._watch.remove(connection)
        connection.close()
        if connection is self._control:
            self._gone = reason
            return
        self._callers.discard(connection)
        for number in [number for number, peer in self._peers.items() if peer is connection]:
            del self._peers[number]
            if worker.phase not in ("stopped", "failed"):
                worker.told.append(wire.Lost(worker.epoch, number, reason))

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError, OSError):
            self._waker.send(b"!")

    def _say_last_words(self, worker: Worker) -> None:
        """Let what was told before the end reach the controller."""
        if self._gone:
            return
        self._carry(worker)
        deadline = time.monotonic() + LAST_WORDS_S
        if worker.phase == "failed":  # the controller answers with Stop; until then the others may need this end
            while time.monotonic() < deadline and not self._gone and not self._told_to_stop:
                for ready, events in self._watch.wait(0.1):
                    self._ready(worker, ready, events)
        while not self._gone and self._control.wants_to_write and time.monotonic() < deadline:
            self._control.flush()
            time.sleep(0.001)

    def _beat(self, assign: wire.Assign) -> None:
        """Send signs of life from a side thread, so that an operator that computes for long is not taken for dead."""
        greeting = hello(self._settings.run, assign.worker, assign.incarnation, heart=True)
        try:
            with contextlib.closing(call(self._settings.host, self._settings.port, self._secret, greeting)) as heart:
                heart.socket.settimeout(5.0)
                while not self._ended.wait(BEAT_S) and self.worker is not None:
                    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
                    beat = wire.Beat(self.worker.turns, time.process_time(), memory)
                    if not heart.opened:
                        heart.read()
                    heart.write([wire.encode(beat)])
        except (OSError, ConnectionLost):
            return  # the loop sees for itself when the controller has gone

    @contextlib.contextmanager
    def _logging(self) -> Iterator[None]:
        """Send what a user's code logs or prints to the controller, with the task it came from."""
        handler = _Forwarder(self)
        root, before = logging.getLogger(), logging.getLogger().level
        root.addHandler(handler)
        root.setLevel(logging.INFO)
        printed = sys.stdout
        sys.stdout = self._printed
        try:
            yield
        finally:
            sys.stdout = printed
            root.removeHandler(handler)
            root.setLevel(before)

    def line(self, level: str, text: str) -> None:
        """Keep a line of log for the controller, unless too many wait."""
        if len(self._lines) >= LINES:
            self._dropped += 1
            return
        task = self.worker.current if self.worker is not None else None
        component, number = (task.component.name, task.context.task) if task is not None else ("", -1)
        self._lines.append(wire.Log(time.time(), level, component, number, text))

    def _close(self) -> None:
        self._ended.set()
        if self._recorder is not None:
            self._recorder.close()
        for connection in [self._control, *self._peers.values(), *self._callers]:
            connection.close()
        for sock in (self._listener, self._waker, self._woken):
            sock.close()
        self._watch.close()
        if self._heart is not None:
            self._heart.join(2.0)


class _Forwarder(logging.Handler):
    def __init__(self, shell: Shell) -> None:
        super().__init__()
        self._shell = shell

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.startswith("py4j"):
            return
        self._shell.line(record.levelname.lower(), self.format(record))


class _Printed(TextIOBase):
    """Standard output that becomes log lines."""

    def __init__(self, shell: Shell) -> None:
        super().__init__()
        self._shell = shell
        self._rest = ""

    def write(self, text: str) -> int:
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self._shell.line("info", line)
        return len(text)

    def end(self) -> None:
        """Say what was printed last, without an end of line."""
        if self._rest:
            self.write("\n")
