"""The controller's shell: its sockets and its clock, in a thread of the driver."""

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

import msgspec

from penstock.model.errors import InvalidInput
from penstock.runtime import messages as wire
from penstock.runtime.controller import RESTING, Controller
from penstock.runtime.handle import LogLine
from penstock.runtime.recording import Recorder
from penstock.runtime.transport import PROOF_S, Connection, ConnectionLost, Strangers, Watch, listen

LAST_WORDS_S = 5.0  # for workers to hang up once they have been told to stop
TICK_S = 0.1
LINES = 10_000  # of log that wait for a listener; more are dropped
T = TypeVar("T")


def listen_for_workers(host: str, port: int = 0) -> socket.socket:
    """Listen on an address; refuse one that cannot be had. Port 0 takes a free one."""
    try:
        return listen(host, port)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            problem = f"port {port} on {host} is taken"
        elif error.errno == errno.EACCES:
            problem = f"port {port} on {host} is not yours to take"
        else:
            problem = f"{host!r} is not an address of this machine, {(error.strerror or str(error)).lower()}"
        raise InvalidInput("listen", f"{problem}; choose another") from None


class Driver:
    """Runs a controller until its application has ended and its workers have hung up."""

    def __init__(self, controller: Controller, secret: bytes, listener: socket.socket) -> None:
        self.controller = controller
        self.ended = threading.Event()
        self._listener = listener
        self.address: tuple[str, int] = listener.getsockname()[:2]
        self._watch = Watch()
        self._strangers = Strangers(listener, secret, self._watch)
        self._workers: dict[int, Connection] = {}
        self._names: dict[Connection, int] = {}
        self._hearts: dict[Connection, int] = {}
        self._callers: set[Connection] = set()  # of whom it is not known yet what they are
        self._requests: SimpleQueue[tuple[Callable[[float], object], Future[object]]] = SimpleQueue()
        self._waker, self._woken = socket.socketpair()
        self._woken.setblocking(False)
        self._feeds: list[_Feed] = []
        self._silent = False  # the log has ended
        terms = controller.terms
        self._recorder = Recorder(terms.telemetry, "controller") if terms.telemetry else None
        self._thread = threading.Thread(target=self._run, name="penstock controller", daemon=True)

    def start(self) -> None:
        """Begin to listen."""
        self._watch.add(self._woken)
        self._thread.start()

    def ask(self, step: Callable[[float], T]) -> T:
        """Have the controller's thread call a function with the time, and return what it returns."""
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
        """Call a function for every log line, in a thread of its own."""
        if not self._silent:
            self._feeds.append(_Feed(listener, self._stop_feed))

    def warn(self, text: str) -> None:
        """Add a line to the log; from any thread, and after the end too, until `end_log`."""
        self._log(LogLine(time.time(), "warning", "", None, "controller", text))

    def end_log(self, within_s: float = LAST_WORDS_S) -> None:
        """Let listeners hear what is left, and nothing after it."""
        deadline = time.monotonic() + within_s
        self._silent = True
        for feed in list(self._feeds):
            feed.close()
        for feed in list(self._feeds):
            feed.join(max(deadline - time.monotonic(), 0.0))

    def is_listener(self) -> bool:
        """Whether it is a listener that calls this: the end of the log waits for it."""
        return threading.current_thread() in self._feeds

    def _log(self, line: LogLine) -> None:
        for feed in list(self._feeds):
            feed.put(line)

    def _stop_feed(self, feed: "_Feed", error: Exception) -> None:
        self._feeds.remove(feed)
        self.warn(f"a listener to the log is called no more, it raised {type(error).__name__}: {error}")

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            self._waker.send(b"!")

    def _run(self) -> None:
        try:
            self._loop()
        except Exception as error:  # a defect: whoever waits for the run has to hear of it
            self.controller.fail(f"controller: {type(error).__name__}: {error}", time.monotonic())
            self.controller.traceback = traceback.format_exc()
        finally:
            self._close()

    def _loop(self) -> None:
        deadline = None
        while True:
            now = time.monotonic()
            if self.controller.phase in RESTING:
                deadline = deadline or now + LAST_WORDS_S
                if not self._workers or now > deadline:
                    return
            wait = min(max(self.controller.wakeup() - now, 0.0), TICK_S)
            for ready, events in self._watch.wait(wait):
                self._ready(ready, events)
            self._turn_away()
            self._serve_requests()
            self.controller.tick(time.monotonic())
            self._carry()

    def _ready(self, ready: object, events: int) -> None:
        if ready is self._listener:
            if (caller := self._strangers.accept(time.monotonic())) is not None:
                self._callers.add(caller)
        elif ready is self._woken:
            with contextlib.suppress(BlockingIOError):
                self._woken.recv(4096)
        elif isinstance(ready, Connection):
            try:
                if events & selectors.EVENT_WRITE:
                    ready.flush()
                if events & selectors.EVENT_READ:
                    self._read(ready)
                self._watch.update(ready)
            except ConnectionLost as lost:
                self._lose(ready, str(lost))

    def _turn_away(self) -> None:
        late = self._strangers.late(time.monotonic())
        for caller in late:
            self._lose(caller, "")
        if late:
            self.warn(
                f"{len(late)} callers were turned away, they did not prove in {PROOF_S:g} s that they belong here"
            )

    def _read(self, connection: Connection) -> None:
        frames = connection.read()
        caller = connection.caller if connection.opened and connection in self._callers else None
        if caller is not None and caller.heart:
            self._callers.discard(connection)
            self._hearts[connection] = caller.worker
        for frame in frames:
            try:
                message = wire.decode_telling(frame)
            except msgspec.DecodeError as error:
                raise ConnectionLost(f"it does not speak the protocol, {error}") from None
            now = time.monotonic()
            if isinstance(message, wire.Register):
                self._register(connection, message, now)
            elif connection in self._names:
                self.controller.told(self._names[connection], message, now)
            elif connection in self._hearts and isinstance(message, wire.Beat):
                self.controller.told(self._hearts[connection], message, now)

    def _register(self, connection: Connection, message: wire.Register, now: float) -> None:
        number = self.controller.register(message, now)
        if number is None:
            connection.write([wire.encode(wire.Stop())])
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
        """Send commands, hand on log lines, keep records."""
        out, self.controller.out = self.controller.out, []
        for number, command in out:
            connection = self._workers.get(number)
            if connection is None:
                continue
            try:
                connection.write([wire.encode(command)])
                self._watch.update(connection)
            except ConnectionLost as lost:
                self._lose(connection, str(lost))
        if self._recorder is not None:
            self._recorder.add(self.controller.take_records())
            if self._recorder.problem:
                self.warn(self._recorder.problem)
                self._recorder.problem = ""
        lines, self.controller.lines = self.controller.lines, []
        for line in lines:
            self._log(line)

    def _lose(self, connection: Connection, reason: str) -> None:
        self._watch.remove(connection)
        connection.close()
        self._callers.discard(connection)
        self._hearts.pop(connection, None)
        number = self._names.pop(connection, None)
        if number is not None:
            del self._workers[number]
            self.controller.lost(number, reason, time.monotonic())

    def _close(self) -> None:
        """Write and say what is left; whatever becomes of that, who waits for the end is told of it."""
        with contextlib.ExitStack() as last:
            last.callback(self._serve_requests)
            last.callback(self.ended.set)
            last.callback(self._let_go)
            try:
                if self._recorder is not None:
                    self._recorder.add(self.controller.take_records())
                    self._recorder.close()
                self._carry()
            except Exception:  # a defect, for the run's log
                self.controller.traceback += traceback.format_exc()

    def _let_go(self) -> None:
        for connection in [*self._workers.values(), *self._callers, *self._hearts]:
            connection.close()
        for sock in (self._listener, self._waker, self._woken):
            sock.close()
        self._watch.close()


class _Feed(threading.Thread):
    """Hands log lines to one listener, which may be slow, or ask something of the run, without holding anybody up.

    Where it is slower than the log for long, lines are dropped, and another says how many. One that raises is called no
    more: its own affair, and no reason to end the run.
    """

    def __init__(self, listener: Callable[[LogLine], None], failed: Callable[["_Feed", Exception], None]) -> None:
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
            self._tell_dropped()
            self._lines.append(line)
            self._changed.notify()

    def close(self) -> None:
        """Take no more lines."""
        with self._changed:
            self._tell_dropped()
            self._closed = True
            self._changed.notify()

    def run(self) -> None:
        """Call the listener until there is nothing more."""
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

    def _tell_dropped(self) -> None:
        if self._dropped:
            text = f"{self._dropped} lines of log were dropped, more than {LINES} waited for who listens"
            self._lines.append(LogLine(time.time(), "warning", "", None, "controller", text))
            self._dropped = 0
