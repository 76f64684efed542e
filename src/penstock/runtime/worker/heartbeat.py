"""Heartbeats from a side thread, and the lease that the controller's answers renew.

So an operator that computes for long does not count as failed, and a worker that loses contact with the controller
stops by itself before another takes its place.
"""

import contextlib
import resource
import socket
import threading
import time
from typing import NamedTuple, Protocol

from penstock.model.decoding import Undecodable
from penstock.runtime.protocol import controller_messages, encode, worker_messages
from penstock.runtime.protocol.transport import Connection, ConnectionLost, Watch, connect, hello

HEARTBEAT_S = 0.5


class LeaseHolder(Protocol):
    """What heartbeats are sent for: a worker."""

    turns: int

    def renew_lease(self, until: float) -> None:
        """Extend the lease, unless it lasts longer already."""


class ControllerAddress(NamedTuple):
    """Where the controller listens, and the identity of the worker that calls it."""

    host: str
    port: int
    secret: bytes
    run: str
    worker: int
    incarnation: int
    protects: bool = False


class HeartbeatThread(threading.Thread):
    """Sends heartbeats from a worker's first epoch to its end, on its own connection, which it reopens if it breaks."""

    def __init__(self, worker: LeaseHolder, controller: ControllerAddress, lease_s: float) -> None:
        super().__init__(name="penstock heartbeat", daemon=True)
        self._worker = worker
        self._controller = controller
        self._lease_s = lease_s
        self._stopped = threading.Event()
        self._connection: Connection | None = None

    def run(self) -> None:
        """Send heartbeats until the thread is closed."""
        while not self._stopped.is_set():
            with contextlib.suppress(OSError, ConnectionLost, Undecodable):
                to = self._controller
                greeting = hello(to.run, to.worker, to.incarnation, heartbeat=True)
                self._connection = connect(to.host, to.port, to.secret, greeting, HEARTBEAT_S, to.protects)
                with contextlib.closing(self._connection), contextlib.closing(Watch()) as watch:
                    watch.add(self._connection)
                    self._send_periodically(self._connection, watch)
            self._stopped.wait(HEARTBEAT_S)

    def close(self, within_s: float = 2.0) -> None:
        """Close the connection, and wait up to `within_s` for the thread."""
        self._stopped.set()
        if self._connection is not None:
            with contextlib.suppress(OSError):
                self._connection.socket.shutdown(socket.SHUT_RDWR)
        self.join(within_s)

    def _send_periodically(self, connection: Connection, watch: Watch) -> None:
        due = time.monotonic()
        while not self._stopped.is_set():
            now = time.monotonic()
            if now >= due:
                due = now + HEARTBEAT_S
                memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
                beat = worker_messages.Heartbeat(now, self._worker.turns, time.process_time(), memory)
                connection.write([encode(beat)])
                watch.update(connection)
            for _ in watch.wait(max(0.0, due - time.monotonic())):
                for frame in connection.read():
                    command = controller_messages.decode_command(frame)
                    if isinstance(command, controller_messages.RenewLease):
                        self._worker.renew_lease(command.at + self._lease_s)
                connection.flush()
                watch.update(connection)
