"""The controller's shell: its sockets and its clock, in a thread of the driver."""

import contextlib
import selectors
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import TypeVar

from penstock.runtime import messages as wire
from penstock.runtime.controller import RESTING, Controller
from penstock.runtime.handle import LogLine
from penstock.runtime.recording import Recorder
from penstock.runtime.transport import Connection, ConnectionLost, listen

LAST_WORDS_S = 5.0  # for workers to hang up once they have been told to stop
TICK_S = 0.1
T = TypeVar("T")


class Driver:
    """Runs a controller until its application has ended and its workers have hung up."""

    def __init__(self, controller: Controller, secret: bytes, host: str = "127.0.0.1", port: int = 0) -> None:
        self.controller = controller
        self.ended = threading.Event()
        self._secret = secret
        self._listener = listen(host, port)
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
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
            sock, _ = self._listener.accept()
            stranger = Connection(sock, self._secret)
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
        if connection.opened and connection in self._strangers and connection.caller is not None:
            if connection.caller.heart:
                self._strangers.discard(connection)
                self._hearts[connection] = connection.caller.worker
        for frame in frames:
            message = wire.decode_telling(frame)
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
        lines, self.controller.lines = self.controller.lines, []
        for line in lines:
            for listener in self._listeners:
                listener(line)
        if self._recorder is not None:
            self._recorder.add(self.controller.take_records())

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
        self._carry()
        if self._recorder is not None:
            self._recorder.close()
        for connection in [*self._workers.values(), *self._strangers, *self._hearts]:
            connection.close()
        for sock in (self._listener, self._waker, self._woken):
            sock.close()
        self._selector.close()
        self.ended.set()
        self._serve_requests()
