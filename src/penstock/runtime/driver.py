"""The controller's shell: its sockets and its clock, in a thread of the driver."""

import contextlib
import errno
import selectors
import socket
import threading
import time
import traceback
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
from penstock.runtime.transport import Connection, ConnectionLost, listen

LAST_WORDS_S = 5.0  # for workers to hang up once they have been told to stop
TICK_S = 0.1
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
        self._secret = secret
        self._listener = listener
        self.address: tuple[str, int] = listener.getsockname()[:2]
        self._selector = selectors.DefaultSelector()
        self._workers: dict[int, Connection] = {}
        self._names: dict[Connection, int] = {}
        self._hearts: dict[Connection, int] = {}
        self._strangers: set[Connection] = set()
        self._requests: SimpleQueue[tuple[Callable[[float], object], Future[object]]] = SimpleQueue()
        self._waker, self._woken = socket.socketpair()
        self._woken.setblocking(False)
        self._listeners: list[Callable[[LogLine], None]] = []
        terms = controller.terms
        self._recorder = Recorder(terms.telemetry, "controller") if terms.telemetry else None
        self._thread = threading.Thread(target=self._run, name="penstock controller", daemon=True)

    def start(self) -> None:
        """Begin to listen."""
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)
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
        """Call a function for every log line."""
        self._listeners.append(listener)

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
            for key, events in self._selector.select(wait):
                self._ready(key.fileobj, events)
            self._serve_requests()
            self.controller.tick(time.monotonic())
            self._carry()

    def _ready(self, ready: object, events: int) -> None:
        if ready is self._listener:
            with contextlib.suppress(OSError):  # who called has hung up already
                stranger = Connection(self._listener.accept()[0], self._secret)
                self._strangers.add(stranger)
                self._selector.register(stranger, selectors.EVENT_READ)
        elif ready is self._woken:
            with contextlib.suppress(BlockingIOError):
                self._woken.recv(4096)
        elif isinstance(ready, Connection):
            try:
                if events & selectors.EVENT_WRITE:
                    ready.flush()
                if events & selectors.EVENT_READ:
                    self._read(ready)
                self._watch(ready)
            except ConnectionLost as lost:
                self._lose(ready, str(lost))

    def _read(self, connection: Connection) -> None:
        frames = connection.read()
        caller = connection.caller if connection.opened and connection in self._strangers else None
        if caller is not None and caller.heart:
            self._strangers.discard(connection)
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
        self._strangers.discard(connection)
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
                self._watch(connection)
            except ConnectionLost as lost:
                self._lose(connection, str(lost))
        if self._recorder is not None:
            self._recorder.add(self.controller.take_records())
            if self._recorder.problem:
                self._warn(self._recorder.problem)
                self._recorder.problem = ""
        lines, self.controller.lines = self.controller.lines, []
        for line in lines:
            for listener in list(self._listeners):
                try:
                    listener(line)
                except Exception as error:  # its own affair, and no reason to end the run
                    self._listeners.remove(listener)
                    self._warn(f"a listener to the log is called no more, it raised {type(error).__name__}: {error}")

    def _warn(self, text: str) -> None:
        self.controller.lines.append(LogLine(time.time(), "warning", "", None, "controller", text))

    def _watch(self, connection: Connection) -> None:
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.wants_to_write else 0)
        if self._selector.get_key(connection).events != events:
            self._selector.modify(connection, events)

    def _lose(self, connection: Connection, reason: str) -> None:
        self._selector.unregister(connection)
        connection.close()
        self._strangers.discard(connection)
        self._hearts.pop(connection, None)
        number = self._names.pop(connection, None)
        if number is not None:
            del self._workers[number]
            self.controller.lost(number, reason, time.monotonic())

    def _close(self) -> None:
        if self._recorder is not None:
            self._recorder.add(self.controller.take_records())
            self._recorder.close()
        self._carry()
        for connection in [*self._workers.values(), *self._strangers, *self._hearts]:
            connection.close()
        for sock in (self._listener, self._waker, self._woken):
            sock.close()
        self._selector.close()
        self.ended.set()
        self._serve_requests()
