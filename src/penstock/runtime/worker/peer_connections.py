"""The other workers as one of them has them: connections to them, and from them.

A connection is made when there is something to send, and stays from epoch to epoch, since every frame carries its own.
One that breaks, is refused or is not answered is told of once, by whichever end sees it, and not made again before the
next epoch: what was on its way is lost with it.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from penstock.runtime.protocol import controller_messages, worker_messages
from penstock.runtime.protocol.transport import DROPPED, Connection, ConnectionLost, Watch, begin_call, hello

ANSWER_S = 5.0  # for another worker to answer a call
TRIES = 5  # calls of a worker that drops them


@dataclass
class _Call:
    connection: Connection
    peer: controller_messages.Peer
    since: float | None  # None: it was answered
    tries: int = 1


class Neighbours:
    """Connections of one worker. What broke is left in `told`."""

    def __init__(self, run: str, secret: bytes, watch: Watch, protects: bool = False) -> None:
        self.told: list[worker_messages.PeerLost] = []
        self._run = run
        self._secret = secret
        self._watch = watch
        self._protects = protects
        self._epoch = 0
        self._me = self._incarnation = -1
        self._peers: tuple[controller_messages.Peer, ...] = ()
        self._calls: dict[int, _Call] = {}  # to which frames are sent
        self._callers: set[Connection] = set()  # from which they come
        self._lost: set[int] = set()  # in this epoch
        self._unanswered = False

    def begin(self, assign: controller_messages.Assign) -> None:
        """Begin an epoch: what broke in the one before may be tried again."""
        self._epoch, self._me, self._incarnation = assign.epoch, assign.worker, assign.incarnation
        self._lost.clear()
        self.meet(assign.peers)

    def meet(self, peers: Sequence[controller_messages.Peer]) -> None:
        """Learn who the others are, and hang up on those who are not among them any more.

        One that was lost and has been replaced can be called again: nothing was ever sent to the new one.
        """
        before, self._peers = self._peers, tuple(peers)
        self._lost = {n for n in self._lost if n < len(before) and before[n : n + 1] == self._peers[n : n + 1]}
        for number, call in list(self._calls.items()):
            if number >= len(self._peers) or call.peer != self._peers[number]:
                self._forget(call.connection)
        for caller in list(self._callers):
            if self._is_replaced(caller):
                self._forget(caller)

    def send(self, number: int, frames: Iterable[bytes]) -> None:
        """Send frames to another worker; they are lost where the connection to it is."""
        if number in self._lost:
            return
        try:
            connection = self._calls[number].connection if number in self._calls else self._call(number)
        except OSError as error:
            self._tell(number, error.strerror or str(error))
            return
        try:
            connection.write(frames)
            self._watch.update(connection)
        except ConnectionLost as lost:
            self.lose(connection, str(lost))

    def unsent(self) -> int:
        """Return how many bytes wait for the socket to the worker that most wait for."""
        return max((call.connection.unsent for call in self._calls.values()), default=0)

    def admit(self, caller: Connection) -> None:
        """Take in who has called; nothing is known of it yet."""
        self._callers.add(caller)

    def opened(self, connection: Connection) -> None:
        """Take note that both ends have proved who they are; raise `ConnectionLost` where it is nobody any more."""
        for call in self._calls.values():
            if call.connection is connection:
                call.since = None
        if connection not in self._callers:
            return
        if self._is_replaced(connection):
            raise ConnectionLost("it was replaced by another")
        for other in [other for other in self._callers if other is not connection and _same(other, connection)]:
            self._forget(other)  # it calls again because that connection broke

    def lose(self, connection: Connection, reason: str) -> None:
        """Let go of a connection that broke, and tell of it where one of the others was at its end."""
        numbers = [number for number, call in self._calls.items() if call.connection is connection]
        if numbers and reason in DROPPED and self._call_again(numbers[0]):
            return
        caller = connection.caller if connection in self._callers and connection.opened else None
        if caller is not None and not self._is_replaced(connection):
            numbers.append(caller.worker)
        self._forget(connection)
        for number in numbers:
            self._tell(number, reason)

    def give_up(self, now: float) -> None:
        """Let go of calls that nobody answers."""
        if not self._unanswered:
            return
        late = [call for call in self._calls.values() if call.since is not None and now - call.since > ANSWER_S]
        for call in late:
            self.lose(call.connection, f"it has not answered for {ANSWER_S:g} s")
        self._unanswered = any(call.since is not None for call in self._calls.values())

    def close(self) -> None:
        """Hang up on all."""
        for connection in [*(call.connection for call in self._calls.values()), *self._callers]:
            connection.close()

    def _call(self, number: int) -> Connection:
        peer = self._peers[number]
        greeting = hello(self._run, self._me, self._incarnation)
        connection = begin_call(peer.host, peer.port, self._secret, greeting, self._protects)
        self._calls[number] = _Call(connection, peer, time.monotonic())
        self._unanswered = True
        self._watch.add(connection)
        return connection

    def _call_again(self, number: int) -> bool:
        """Call a worker again that has dropped a call before it was open: it may have had too many strangers."""
        call = self._calls[number]
        if call.since is None or call.tries >= TRIES:
            return False
        frames = call.connection.take_waiting()
        self._forget(call.connection)
        try:
            connection = self._call(number)
        except OSError as error:
            self._tell(number, error.strerror or str(error))
            return True
        self._calls[number] = _Call(connection, call.peer, call.since, call.tries + 1)
        self.send(number, frames)
        return True

    def _is_replaced(self, connection: Connection) -> bool:
        """Whether a caller has a successor; one that is not known yet is a successor itself."""
        caller = connection.caller
        if caller is None or not connection.opened or not 0 <= caller.worker < len(self._peers):
            return False
        return caller.incarnation < self._peers[caller.worker].incarnation

    def _forget(self, connection: Connection) -> None:
        self._watch.remove(connection)
        connection.close()
        self._callers.discard(connection)
        for number in [number for number, call in self._calls.items() if call.connection is connection]:
            del self._calls[number]

    def _tell(self, number: int, reason: str) -> None:
        if number not in self._lost:
            self._lost.add(number)
            self.told.append(worker_messages.PeerLost(self._epoch, number, reason))


def _same(one: Connection, other: Connection) -> bool:
    """Whether two callers are the same worker process."""
    if one.caller is None or other.caller is None or not one.opened:
        return False
    return (one.caller.worker, one.caller.incarnation) == (other.caller.worker, other.caller.incarnation)
