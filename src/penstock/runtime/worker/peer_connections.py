"""The connections of a worker to and from the other workers.

A connection is opened for the first frame to send. It stays open across epochs, because every frame carries its own
epoch. A connection that breaks, is refused or is not answered is reported once, by the end that notices it, and is not
reopened before the next epoch: the frames in flight are lost with it.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from penstock.runtime.protocol import controller_messages, worker_messages
from penstock.runtime.protocol.transport import DROPPED, Connection, ConnectionLost, Watch, begin_call, hello

ANSWER_S = 5.0  # time limit for another worker to accept a connection
ATTEMPTS = 5  # to connect to a worker that drops unauthenticated connections


@dataclass
class _Outgoing:
    connection: Connection
    peer: controller_messages.Peer
    since: float | None  # when it was opened; None: the handshake is complete
    attempts: int = 1


class PeerConnections:
    """The connections of one worker; `take_lost` returns those that broke."""

    def __init__(self, run: str, secret: bytes, watch: Watch, protects: bool = False) -> None:
        self._run = run
        self._secret = secret
        self._watch = watch
        self._protects = protects
        self._epoch = 0
        self._me = self._incarnation = -1
        self._peers: tuple[controller_messages.Peer, ...] = ()
        self._outgoing: dict[int, _Outgoing] = {}
        self._incoming: set[Connection] = set()
        self._lost: set[int] = set()  # in this epoch
        self._messages: list[worker_messages.PeerLost] = []
        self._handshaking = False  # whether an outgoing connection may be in its handshake

    def start_epoch(self, assign: controller_messages.Assign) -> None:
        """Start an epoch: connections that broke in the previous one may be opened again."""
        self._epoch, self._me, self._incarnation = assign.epoch, assign.worker, assign.incarnation
        self._lost.clear()
        self.update_peers(assign.peers)

    def update_peers(self, peers: Sequence[controller_messages.Peer]) -> None:
        """Set the addresses of the other workers, and close the connections to those that are no longer among them.

        A worker that was lost and has been replaced can be connected to again: nothing was ever sent to the new one.
        """
        before, self._peers = self._peers, tuple(peers)
        self._lost = {n for n in self._lost if n < len(before) and before[n : n + 1] == self._peers[n : n + 1]}
        for number, outgoing in list(self._outgoing.items()):
            if number >= len(self._peers) or outgoing.peer != self._peers[number]:
                self._drop(outgoing.connection)
        for connection in list(self._incoming):
            if self._is_replaced(connection):
                self._drop(connection)

    def send(self, number: int, frames: Iterable[bytes]) -> None:
        """Send frames to another worker; they are lost if the connection to it is."""
        if number in self._lost:
            return
        try:
            connection = self._outgoing[number].connection if number in self._outgoing else self._connect(number)
        except OSError as error:
            self._report(number, error.strerror or str(error))
            return
        try:
            connection.write(frames)
            self._watch.update(connection)
        except ConnectionLost as lost:
            self.lose(connection, str(lost))

    def unsent(self) -> int:
        """Return the number of bytes that wait for the socket with the longest queue."""
        return max((outgoing.connection.unsent for outgoing in self._outgoing.values()), default=0)

    def take_lost(self) -> list[worker_messages.PeerLost]:
        """Return the connections that broke since the last call."""
        messages, self._messages = self._messages, []
        return messages

    def accept(self, connection: Connection) -> None:
        """Add an incoming connection that is not authenticated yet."""
        self._incoming.add(connection)

    def opened(self, connection: Connection) -> None:
        """Note that both ends are authenticated; raise `ConnectionLost` if the caller has been replaced."""
        for outgoing in self._outgoing.values():
            if outgoing.connection is connection:
                outgoing.since = None
        if connection not in self._incoming:
            return
        if self._is_replaced(connection):
            raise ConnectionLost("it was replaced by another")
        for other in [other for other in self._incoming if other is not connection and _same(other, connection)]:
            self._drop(other)  # the caller reconnects because that connection broke

    def lose(self, connection: Connection, reason: str) -> None:
        """Drop a broken connection, and report it if its other end is a worker."""
        numbers = [number for number, outgoing in self._outgoing.items() if outgoing.connection is connection]
        if numbers and reason in DROPPED and self._reconnect(numbers[0]):
            return
        caller = connection.caller if connection in self._incoming and connection.opened else None
        if caller is not None and not self._is_replaced(connection):
            numbers.append(caller.worker)
        self._drop(connection)
        for number in numbers:
            self._report(number, reason)

    def drop_unanswered(self, now: float) -> None:
        """Drop the outgoing connections whose handshake takes too long."""
        if not self._handshaking:
            return
        waiting = [(one.connection, one.since) for one in self._outgoing.values() if one.since is not None]
        for connection, since in waiting:
            if now - since > ANSWER_S:
                self.lose(connection, f"it has not answered for {ANSWER_S:g} s")
        self._handshaking = any(one.since is not None for one in self._outgoing.values())

    def close(self) -> None:
        """Close all connections."""
        for connection in [*(outgoing.connection for outgoing in self._outgoing.values()), *self._incoming]:
            connection.close()

    def _connect(self, number: int) -> Connection:
        peer = self._peers[number]
        greeting = hello(self._run, self._me, self._incarnation)
        connection = begin_call(peer.host, peer.port, self._secret, greeting, self._protects)
        self._outgoing[number] = _Outgoing(connection, peer, time.monotonic())
        self._handshaking = True
        self._watch.add(connection)
        return connection

    def _reconnect(self, number: int) -> bool:
        """Reconnect to a worker that dropped the connection during the handshake: it may have had too many pending."""
        outgoing = self._outgoing[number]
        if outgoing.since is None or outgoing.attempts >= ATTEMPTS:
            return False
        frames = outgoing.connection.take_waiting()
        self._drop(outgoing.connection)
        try:
            connection = self._connect(number)
        except OSError as error:
            self._report(number, error.strerror or str(error))
            return True
        self._outgoing[number] = _Outgoing(connection, outgoing.peer, outgoing.since, outgoing.attempts + 1)
        self.send(number, frames)
        return True

    def _is_replaced(self, connection: Connection) -> bool:
        """Return whether a caller has a successor; an unknown caller is itself a successor."""
        caller = connection.caller
        if caller is None or not connection.opened or not 0 <= caller.worker < len(self._peers):
            return False
        return caller.incarnation < self._peers[caller.worker].incarnation

    def _drop(self, connection: Connection) -> None:
        self._watch.remove(connection)
        connection.close()
        self._incoming.discard(connection)
        for number in [number for number, outgoing in self._outgoing.items() if outgoing.connection is connection]:
            del self._outgoing[number]

    def _report(self, number: int, reason: str) -> None:
        if number not in self._lost:
            self._lost.add(number)
            self._messages.append(worker_messages.PeerLost(self._epoch, number, reason))


def _same(one: Connection, other: Connection) -> bool:
    """Return whether two callers are the same worker process."""
    if one.caller is None or other.caller is None or not one.opened:
        return False
    return (one.caller.worker, one.caller.incarnation) == (other.caller.worker, other.caller.incarnation)
