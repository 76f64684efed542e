"""A worker's heart: signs of life from a side thread, and the answers for as long as which it may go on.

So an operator that computes for long is not taken for dead, and a worker that the controller does not hear, or that
does not hear the controller, stops by itself before anybody takes its place.
"""

import contextlib
import resource
import socket
import threading
import time
from typing import NamedTuple, Protocol

from penstock.model.decoding import Undecodable
from penstock.runtime.protocol import controller_messages, worker_messages
from penstock.runtime.protocol.transport import Connection, ConnectionLost, Watch, call, hello
from penstock.runtime.protocol.wire import encode

BEAT_S = 0.5


class Living(Protocol):
    """What beats: a worker."""

    turns: int
    lease: float


class Place(NamedTuple):
    """Where the controller listens, and who calls."""

    host: str
    port: int
    secret: bytes
    run: str
    worker: int
    incarnation: int
    protects: bool = False


class Heart(threading.Thread):
    """Beats for one worker from its first epoch to its end, on a connection of its own, made again when it breaks."""

    def __init__(self, worker: Living, place: Place, lease_s: float) -> None:
        super().__init__(name="penstock heart", daemon=True)
        self._worker = worker
        self._place = place
        self._lease_s = lease_s
        self._ended = threading.Event()
        self._connection: Connection | None = None

    def run(self) -> None:
        """Beat until it is closed."""
        while not self._ended.is_set():
            with contextlib.suppress(OSError, ConnectionLost, Undecodable):
                place = self._place
                greeting = hello(place.run, place.worker, place.incarnation, heart=True)
                self._connection = call(place.host, place.port, place.secret, greeting, BEAT_S, place.protects)
                with contextlib.closing(self._connection), contextlib.closing(Watch()) as watch:
                    watch.add(self._connection)
                    self._beat(self._connection, watch)
            self._ended.wait(BEAT_S)

    def close(self, within_s: float = 2.0) -> None:
        """Hang up, and wait a while for the thread."""
        self._ended.set()
        if self._connection is not None:
            with contextlib.suppress(OSError):
                self._connection.socket.shutdown(socket.SHUT_RDWR)
        self.join(within_s)

    def _beat(self, connection: Connection, watch: Watch) -> None:
        due = time.monotonic()
        while not self._ended.is_set():
            now = time.monotonic()
            if now >= due:
                due = now + BEAT_S
                memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
                beat = worker_messages.Heartbeat(now, self._worker.turns, time.process_time(), memory)
                connection.write([encode(beat)])
                watch.update(connection)
            for _ in watch.wait(max(0.0, due - time.monotonic())):
                for frame in connection.read():
                    self._feel(controller_messages.decode_command(frame))
                connection.flush()
                watch.update(connection)

    def _feel(self, command: controller_messages.Command) -> None:
        if isinstance(command, controller_messages.RenewLease):
            self._worker.lease = max(self._worker.lease, command.at + self._lease_s)
