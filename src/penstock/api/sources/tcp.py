"""A source of lines from a TCP connection.

A separate thread reads the socket, so that `poll` never blocks. If lines are not taken, it stops reading, and TCP slows
the sender down.
"""

import socket
from collections import deque
from contextlib import suppress
from threading import Event, Thread

from penstock.api.contracts import Source, TaskContext
from penstock.model.errors import InvalidInput

LONGEST = 1 << 20  # bytes of a line
PATIENCE = 10.0  # s for connecting
RECEIVED = 1 << 16  # bytes per read from the socket
AHEAD_BYTES = 1 << 24  # maximum bytes read ahead, independent of the number of lines


class TcpLines(Source[str]):
    """The lines that a server sends: `TcpLines("localhost", 9999)` with `nc -lk 9999`.

    It connects as a client, and ends when the server closes the connection. It cannot rewind: it does not move, and
    lines read but not yet processed are lost when its worker fails. There is one connection, so its parallelism must be
    1. Text is UTF-8, with � for invalid bytes.

    ahead: maximum number of lines read ahead, fewer if they are long; beyond it the sender is slowed down.
    """

    def __init__(self, host: str, port: int, ahead: int = 10_000) -> None:
        if not isinstance(host, str) or not host:
            raise InvalidInput("host", f"expected the name or address of a host, got {host!r}")
        if isinstance(port, bool) or not isinstance(port, int) or not 0 < port < 65536:
            raise InvalidInput("port", f"expected a whole number from 1 to 65535, got {port!r}")
        if isinstance(ahead, bool) or not isinstance(ahead, int) or ahead < 1:
            raise InvalidInput("ahead", f"expected a whole number ≥ 1, got {ahead!r}")
        self.host = host
        self.port = port
        self.ahead = ahead

    def open(self, context: TaskContext) -> None:
        """Start to connect and read; `poll` reports a connection error."""
        if context.tasks != 1:
            problem = f"expected 1, because there is one connection, got {context.tasks}"
            raise InvalidInput(
                f"{context.component}.parallelism", f"{problem}; shuffle the lines to more tasks after it"
            )
        self._context = context
        self._lines: deque[bytes] = deque()
        self._added = 0  # bytes, by the reading thread
        self._taken = 0  # bytes, by the polling thread
        self._room = Event()  # set whenever lines are taken
        self._closed = Event()
        self._ended = False  # no more lines will be added to `_lines`
        self._problem: InvalidInput | None = None
        self._socket: socket.socket | None = None
        self._thread = Thread(target=self._run, name=f"{context.name} reader", daemon=True)
        self._thread.start()

    def poll(self, now: float, limit: int) -> list[str] | None:
        """Return the lines received."""
        ended = self._ended  # before taking lines, or the last could be missed
        lines = [self._lines.popleft() for _ in range(min(limit, len(self._lines)))]
        if lines:
            self._taken += sum(map(len, lines))
            self._room.set()
            return [line.decode("utf-8", "replace").removesuffix("\r") for line in lines]
        if ended and self._problem is not None:
            raise self._problem
        return None if ended else []

    def next_due(self, now: float) -> float:
        """Return when to look again; new lines wake it earlier."""
        return now + 0.1

    def close(self) -> None:
        """Close the connection."""
        self._closed.set()
        self._room.set()
        if self._socket is None:  # the thread is still connecting, and ends afterwards
            return
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # ends a blocking read
        self._thread.join()

    def _run(self) -> None:
        where = f"{self.host}:{self.port}"
        try:
            with socket.create_connection((self.host, self.port), timeout=PATIENCE) as connection:
                connection.settimeout(None)
                self._socket = connection
                self._read(connection)
        except OSError as error:
            self._problem = InvalidInput(
                where, f"{(error.strerror or str(error)).lower()}; start a server that sends lines there"
            )
        except InvalidInput as problem:
            self._problem = problem
        self._ended = True
        self._context.wake()

    def _read(self, connection: socket.socket) -> None:
        rest = b""
        while not self._closed.is_set() and (received := connection.recv(RECEIVED)):
            *lines, rest = (rest + received).split(b"\n")
            if len(rest) > LONGEST:
                problem = f"expected lines of at most {LONGEST} bytes, got a longer one; end lines with a line feed"
                raise InvalidInput(f"{self.host}:{self.port}", problem)
            if lines:
                self._add(lines)
        if rest:
            self._add([rest])

    def _add(self, lines: list[bytes]) -> None:
        self._added += sum(map(len, lines))
        self._lines.extend(lines)
        self._context.wake()
        while self._full() and not self._closed.is_set():
            self._room.wait()
            self._room.clear()

    def _full(self) -> bool:
        return len(self._lines) >= self.ahead or self._added - self._taken >= AHEAD_BYTES
