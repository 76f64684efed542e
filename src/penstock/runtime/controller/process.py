"""The controller's shell: its sockets, clock and files, in one thread of the driver and one for storage."""

import contextlib
import errno
import selectors
import socket
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import TypeVar

from penstock.model.decoding import Undecodable
from penstock.model.errors import InvalidInput
from penstock.runtime.controller.state_machine import Controller
from penstock.runtime.handle import LogLine
from penstock.runtime.protocol import controller_messages, encode, worker_messages
from penstock.runtime.protocol.transport import CLOSED, Connection, ConnectionLost, PendingConnections, Watch, listen
from penstock.runtime.storage.disk import Writer
from penstock.runtime.storage.telemetry_writer import Recorder

CLOSING_S = 5.0  # for workers to close their connections after `Stop`
TICK_S = 0.1
WARNING_S = 10.0  # between warnings about rejected connections
T = TypeVar("T")
LINES = 10_000  # buffered for a listener; further ones are dropped


class LogListener(threading.Thread):
    """Passes log lines to one listener, which may be slow or use the run, without blocking anything else.

    If it is slower than the log for long, lines are dropped, and a further line reports how many. A listener that
    raises is not called again; the run continues.
    """

    def __init__(self, listener: Callable[[LogLine], None], failed: Callable[["LogListener", Exception], None]) -> None:
        super().__init__(name="penstock log", daemon=True)
        self._listener = listener
        self._failed = failed
        self._lines: deque[LogLine] = deque()
        self._dropped = 0
        self._closed = False
        self._changed = threading.Condition()
        self.start()

    def put(self, line: LogLine) -> None:
        """Add a line; returns at once."""
        with self._changed:
            if self._closed:
                return
            if len(self._lines) >= LINES:
                self._dropped += 1
                return
            self._report_dropped()
            self._lines.append(line)
            self._changed.notify()

    def close(self) -> None:
        """Accept no further lines."""
        with self._changed:
            self._report_dropped()
            self._closed = True
            self._changed.notify()

    def run(self) -> None:
        """Call the listener for every line."""
        while (line := self._next()) is not None:
            try:
                self._listener(line)
            except Exception as error:
                self._failed(self, error)
                return

    def _next(self) -> LogLine | None:
        with self._changed:
            while not self._lines and not self._closed:
                self._changed.wait()
            return self._lines.popleft() if self._lines else None

    def _report_dropped(self) -> None:
        if self._dropped:
            text = f"{self._dropped} lines of log were dropped, more than {LINES} waited for the listener"
            self._lines.append(LogLine(time.time(), "warning", "", None, "controller", text))
            self._dropped = 0


def listen_for_workers(host: str, port: int = 0) -> socket.socket:
    """Listen on an address; port 0: any free port."""
    try:
        return listen(host, port)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            problem = f"port {port} on {host} is in use"
        elif error.errno == errno.EACCES:
            problem = f"port {port} on {host} needs privileges that this user lacks"
        else:
            problem = f"{host!r} is not an address of this machine, {(error.strerror or str(error)).lower()}"
        raise InvalidInput("listen", f"{problem}; choose another") from None


class Driver:
    """Runs a controller until its application has ended and its workers have closed their connections."""

    def __init__(self, controller: Controller, secret: bytes, listener: socket.socket, protects: bool = False) -> None:
        self.controller = controller
        self.ended = threading.Event()
        self._listener = listener
        self.address: tuple[str, int] = listener.getsockname()[:2]
        self._watch = Watch()
        self._pending = PendingConnections(listener, secret, self._watch, protects)
        self._workers: dict[int, Connection] = {}
        self._names: dict[Connection, int] = {}
        self._heartbeats: dict[Connection, tuple[int, int]] = {}  # worker and incarnation
        self._silenced: dict[int, int] = {}  # worker -> the incarnation whose heartbeat connection was closed
        self.dropped: dict[int, int] = {}  # worker -> the incarnation that was dropped, because it was silent
        self._callers: set[Connection] = set()  # that have not introduced themselves yet
        self._rejected, self._next_warning = 0, 0.0  # connections that the log does not mention yet
        self._requests: SimpleQueue[tuple[Callable[[float], object], Future[object]]] = SimpleQueue()
        self._waker, self._woken = socket.socketpair()
        self._woken.setblocking(False)
        self._writer = Writer(self._wake, strict=True)
        self._feeds: list[LogListener] = []
        self._log_ended = False
        folder, umask = controller.spec.folders.telemetry, controller.spec.config.execution.umask
        self._recorder = Recorder(folder, "controller", umask=umask) if folder else None
        self._thread = threading.Thread(target=self._run, name="penstock controller", daemon=True)

    def start(self) -> None:
        """Start to serve workers."""
        self._watch.add(self._woken)
        self._thread.start()

    def ask(self, step: Callable[[float], T]) -> T:
        """Call a function with the time, in the controller's thread, and return its result."""
        if threading.current_thread() is self._thread or self.ended.is_set():
            return step(time.monotonic())
        future: Future[object] = Future()
        self._requests.put((step, future))
        self._wake()
        while True:
            try:
                return future.result(0.5)  # type: ignore[return-value]
            except TimeoutError:
                if self.ended.is_set() and not future.done():
                    return step(time.monotonic())

    def on_log(self, listener: Callable[[LogLine], None]) -> None:
        """Call a function for every log line, in its own thread."""
        if not self._log_ended:
            self._feeds.append(LogListener(listener, self._stop_feed))

    def warn(self, text: str) -> None:
        """Log a warning; from any thread, until `end_log`."""
        self.say(text, "warning")

    def say(self, text: str, level: str = "info", speaker: str = "controller") -> None:
        """Log a line, as `warn` does."""
        self._log(LogLine(time.time(), level, "", None, speaker, text))

    def end_log(self, within_s: float = CLOSING_S) -> None:
        """Pass the remaining lines to the listeners, and none after them."""
        deadline = time.monotonic() + within_s
        self._log_ended = True
        for feed in list(self._feeds):
            feed.close()
        for feed in list(self._feeds):
            feed.join(max(deadline - time.monotonic(), 0.0))

    def is_listener(self) -> bool:
        """Return whether a listener calls this: the end of the log waits for it."""
        return threading.current_thread() in self._feeds

    def _log(self, line: LogLine) -> None:
        for feed in list(self._feeds):
            feed.put(line)

    def _stop_feed(self, feed: LogListener, error: Exception) -> None:
        self._feeds.remove(feed)
        self.warn(f"a log listener raised {type(error).__name__}: {error}; it is not called again")

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            self._waker.send(b"!")

    def _run(self) -> None:
        try:
            self._loop()
        except Exception as error:  # a defect: those who wait for the run must learn of it
            self.controller.fail(f"controller: {type(error).__name__}: {error}", time.monotonic())
            self.controller.traceback = traceback.format_exc()
        finally:
            self._close()

    def _loop(self) -> None:
        deadline = None
        while True:
            now = time.monotonic()
            if self.controller.ended:
                deadline = deadline or now + CLOSING_S
                if (not self._workers and self._writer.idle) or now > deadline:
                    return
            wait = min(max(self.controller.wakeup() - now, 0.0), TICK_S)
            called = False
            for ready, events in self._watch.wait(wait):
                if ready is self._listener:
                    called = True
                else:
                    self._ready(ready, events)
            if called:  # last: a connection that is authenticated must not be dropped for a new one
                self._callers.update(self._pending.accept(time.monotonic()))
            self._reject_expired()
            self._serve_requests()
            self._writer.conclude()
            self.controller.tick(time.monotonic())
            self._carry()

    def _ready(self, ready: object, events: int) -> None:
        if ready is self._woken:
            with contextlib.suppress(BlockingIOError):
                self._woken.recv(4096)
        elif isinstance(ready, Connection) and ready.fileno() >= 0:  # an earlier event may have closed it
            try:
                if events & selectors.EVENT_WRITE:
                    ready.flush()
                if events & selectors.EVENT_READ:
                    self._read(ready)
                self._watch.update(ready)
            except ConnectionLost as lost:
                self._lose(ready, str(lost))
            except Exception as error:  # a defect that shows on one connection must not end the loop for all
                self.say(traceback.format_exc(), "error")
                if ready.fileno() >= 0:
                    self._lose(ready, f"{type(error).__name__}: {error}")

    def _reject_expired(self) -> None:
        now = time.monotonic()
        for caller in self._pending.expired(now):
            self._lose(caller, "")
            self._rejected += 1
        if self._rejected and now >= self._next_warning:
            self.warn(f"connections dropped that could not authenticate: {self._rejected}")
            self._rejected, self._next_warning = 0, now + WARNING_S

    def _read(self, connection: Connection) -> None:
        frames = connection.read()
        caller = connection.caller if connection.opened and connection in self._callers else None
        if caller is not None and caller.heartbeat:
            if not 0 <= caller.worker < len(self.controller.members):
                raise ConnectionLost("this run has no worker of that number")
            self._callers.discard(connection)
            self._heartbeats[connection] = (caller.worker, caller.incarnation)
            self._silenced.pop(caller.worker, None)
        for frame in frames:
            try:
                message = worker_messages.decode_worker_message(frame)
            except Undecodable as error:
                raise ConnectionLost(f"protocol violation, {error}") from None
            now = time.monotonic()
            if isinstance(message, worker_messages.Register):
                self._register(connection, message, now)
            elif connection in self._names:
                self.controller.receive(self._names[connection], message, now)
            elif connection in self._heartbeats and isinstance(message, worker_messages.Heartbeat):
                self._beat(connection, message, now)

    def _beat(self, connection: Connection, message: worker_messages.Heartbeat, now: float) -> None:
        """Answer a heartbeat, unless its worker was dropped: its lease must expire."""
        number, incarnation = self._heartbeats[connection]
        if number in self._workers and self._incarnation(number) == incarnation:
            self.controller.receive(number, message, now)
            connection.write([encode(controller_messages.RenewLease(message.at))])

    def _incarnation(self, number: int) -> int:
        return self.controller.members[number].incarnation

    def _register(self, connection: Connection, message: worker_messages.Register, now: float) -> None:
        number = self.controller.register(message, now)
        if number is None:
            connection.write([encode(controller_messages.Stop())])
            return
        self._callers.discard(connection)
        self._workers[number], self._names[connection] = connection, number

    def _serve_requests(self) -> None:
        with contextlib.suppress(Empty):
            while True:
                step, future = self._requests.get_nowait()
                try:
                    future.set_result(step(time.monotonic()))
                except Exception as error:
                    future.set_exception(error)

    def _carry(self) -> None:
        """Carry out what the controller has left in its outbox."""
        outbox = self.controller.outbox
        for number, command in outbox.take_commands():
            connection = self._workers.get(number)
            if connection is None:
                continue
            try:
                connection.write([encode(command)])
                self._watch.update(connection)
            except ConnectionLost as lost:
                self._lose(connection, str(lost))
        self._close_dropped()
        if jobs := outbox.take_jobs():
            self._writer.add(jobs)
        if self._recorder is not None:
            self._recorder.add(self.controller.take_records())
            if self._recorder.problem:
                self.warn(self._recorder.problem)
                self._recorder.problem = ""
        for line in outbox.take_lines():
            self._log(line)

    def _close_dropped(self) -> None:
        """Close the connections of workers that the controller has dropped; they may still act."""
        for number in self.controller.outbox.take_closing():
            incarnation = self.dropped[number] = self._incarnation(number)
            connection = self._workers.pop(number, None)
            if connection is not None:
                del self._names[connection]
                self._drop(connection)
            for heartbeat in [each for each, of in self._heartbeats.items() if of == (number, incarnation)]:
                del self._heartbeats[heartbeat]
                self._drop(heartbeat)

    def _lose(self, connection: Connection, reason: str) -> None:
        """Close a connection that broke; if a worker has closed its heartbeat connection too, its process has ended.

        A cut connection does not mean that the process has ended: it may act until its lease expires.
        """
        self._drop(connection)
        self._callers.discard(connection)
        now = time.monotonic()
        if (number := self._names.pop(connection, None)) is not None:
            del self._workers[number]
            self.controller.lose(number, reason, now)
            if self._silenced.get(number) == self._incarnation(number):
                self.controller.end_process(number, now)
        elif (heartbeat := self._heartbeats.pop(connection, None)) is not None and reason == CLOSED:
            number, incarnation = heartbeat
            self._silenced[number] = incarnation
            if number not in self._workers and self._incarnation(number) == incarnation:
                self.controller.end_process(number, now)

    def _drop(self, connection: Connection) -> None:
        self._watch.remove(connection)
        connection.close()

    def _close(self) -> None:
        """Write and log what is left; even if that fails, those who wait for the end are released."""
        with contextlib.ExitStack() as last:
            last.callback(self._serve_requests)
            last.callback(self.ended.set)
            last.callback(self._close_sockets)
            last.callback(self._writer.close)
            try:
                if self._recorder is not None:
                    self._recorder.add(self.controller.take_records())
                    self._recorder.close()
                self._carry()
            except Exception:  # a defect, for the run's log
                self.controller.traceback += traceback.format_exc()

    def _close_sockets(self) -> None:
        for connection in [*self._workers.values(), *self._callers, *self._heartbeats]:
            connection.close()
        for sock in (self._listener, self._waker, self._woken):
            sock.close()
        self._watch.close()
