"""Connections between workers: opened when needed, reported when they break, not reopened within an epoch."""

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from time import monotonic

import pytest

from penstock.runtime.controller.run_spec import run_folders
from penstock.runtime.protocol import controller_messages
from penstock.runtime.protocol.transport import Connection, ConnectionLost, PendingConnections, Watch, listen
from penstock.runtime.worker import peer_connections as module
from penstock.runtime.worker.peer_connections import PeerConnections

SECRET = b"s" * 32
PATIENCE = 20.0


class End:
    """A worker's connections, and a loop for them."""

    def __init__(self) -> None:
        self.watch = Watch()
        self.listener = listen("127.0.0.1")
        self.pending = PendingConnections(self.listener, SECRET, self.watch)
        self.peers = PeerConnections("run", SECRET, self.watch)
        self.frames: list[bytes] = []
        self.callers: list[Connection] = []

    def turn(self) -> None:
        for ready, _ in self.watch.wait(0.01):
            if ready is self.listener:
                for caller in self.pending.accept(monotonic()):
                    self.callers.append(caller)
                    self.peers.accept(caller)
            elif isinstance(ready, Connection) and ready.fileno() >= 0:
                try:
                    ready.flush()
                    was_open = ready.opened
                    frames = ready.read()
                    if ready.opened and not was_open:
                        self.peers.opened(ready)
                    self.frames += frames
                    self.watch.update(ready)
                except ConnectionLost as lost:
                    self.peers.lose(ready, str(lost))
        self.peers.drop_unanswered(monotonic())

    def lost(self) -> list[tuple[int, int]]:
        """Return the epoch and the worker of the connections that broke since the last call."""
        return [(lost.epoch, lost.peer) for lost in self.peers.take_lost()]

    def close(self) -> None:
        self.peers.close()
        self.listener.close()
        self.watch.close()


@contextmanager
def pair() -> Iterator[tuple[End, End]]:
    with ExitStack() as stack:
        one, other = End(), End()
        stack.callback(one.close)
        stack.callback(other.close)
        begin(1, one, other)
        yield one, other


def begin(epoch: int, *ends: End, incarnations: tuple[int, ...] = (1, 2)) -> None:
    """Begin an epoch at all ends that are given, in order."""
    ports = [end.listener.getsockname()[1] for end in ends]
    peers = tuple(
        controller_messages.Peer(f"w{n}", "127.0.0.1", port, incarnation)
        for n, (port, incarnation) in enumerate(zip(ports, incarnations, strict=True))
    )
    for number, end in enumerate(ends):
        end.peers.start_epoch(assign(epoch, number, incarnations[number], peers))


def assign(
    epoch: int, worker: int, incarnation: int, peers: tuple[controller_messages.Peer, ...]
) -> controller_messages.Assign:
    return controller_messages.Assign(
        epoch=epoch, worker=worker, incarnation=incarnation, peers=peers, slots={}, placement=(), folders=run_folders()
    )


def until(true: Callable[[], object], *ends: End) -> None:
    deadline = monotonic() + PATIENCE
    while not true():
        assert monotonic() < deadline
        for end in ends:
            end.turn()


def test_a_connection_is_opened_with_the_first_frame_and_reused_in_the_next_epoch() -> None:
    with pair() as (one, other):
        for _ in range(5):
            one.turn()
            other.turn()
        assert other.callers == []
        one.peers.send(1, [b"a", b"b"])
        until(lambda: len(other.frames) == 2, one, other)
        begin(2, one, other)
        one.peers.send(1, [b"c"])
        until(lambda: other.frames == [b"a", b"b", b"c"], one, other)
        assert len(other.callers) == 1
        assert one.lost() == other.lost() == []


def test_both_ends_report_a_broken_connection_and_reopen_it_in_the_next_epoch() -> None:
    with pair() as (one, other):
        one.peers.send(1, [b"a"])
        until(lambda: other.frames, one, other)
        other.callers[0].socket.shutdown(socket.SHUT_RDWR)
        until(lambda: one.peers._messages and other.peers._messages, one, other)
        assert (one.lost(), other.lost()) == ([(1, 1)], [(1, 0)])
        one.peers.send(1, [b"lost"])
        for _ in range(5):
            one.turn()
            other.turn()
        assert (one.lost(), len(other.callers)) == ([], 1)
        begin(2, one, other)
        one.peers.send(1, [b"b"])
        until(lambda: other.frames == [b"a", b"b"], one, other)
        assert one.lost() == other.lost() == []


def test_a_connection_dropped_during_the_handshake_is_retried_with_what_it_had_to_send() -> None:
    with pair() as (one, other):
        one.peers.send(1, [b"a", b"b"])
        until(lambda: one.watch.wait(0.0) or True, one)
        dropped = 0
        while dropped < 2:
            other.listener.settimeout(PATIENCE)
            other.listener.accept()[0].close()
            other.listener.setblocking(False)
            dropped += 1
            before = one.peers._outgoing[1].attempts
            until(lambda: one.peers._outgoing[1].attempts > before, one)  # noqa: B023
        one.peers.send(1, [b"c"])
        until(lambda: len(other.frames) == 3, one, other)
        assert other.frames == [b"a", b"b", b"c"]
        assert one.lost() == other.lost() == []


def test_reports_a_refused_connection_once() -> None:
    with pair() as (one, other):
        other.watch.remove(other.listener)
        other.listener.close()
        one.peers.send(1, [b"a"])
        until(lambda: one.peers._messages, one)
        one.peers.send(1, [b"b"])
        one.turn()
        assert one.lost() == [(1, 1)]


def test_an_unanswered_connection_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANSWER_S", 0.05)
    with pair() as (one, _):
        one.peers.send(1, [b"a"])
        until(lambda: one.peers._messages, one)
        assert one.lost() == [(1, 1)]


def test_connections_to_a_replaced_worker_are_closed_without_a_report() -> None:
    with pair() as (one, other):
        one.peers.send(1, [b"a"])
        other.peers.send(0, [b"b"])
        until(lambda: other.frames and one.frames, one, other)
        begin(2, one, other, incarnations=(1, 3))
        for _ in range(5):
            one.turn()
        assert one.lost() == []
        assert one.callers[0].fileno() == -1
        one.peers.send(1, [b"c"])
        until(lambda: other.frames == [b"a", b"c"], one, other)


def test_frames_of_a_replaced_worker_are_ignored() -> None:
    with pair() as (one, other):
        begin(2, one, other, incarnations=(1, 2))
        peers = tuple(controller_messages.Peer(f"w{n}", "127.0.0.1", 1, 5) for n in range(2))
        other.peers.update_peers(peers)
        one.peers.send(1, [b"a"])
        until(lambda: one.peers._messages, one, other)
        assert (other.frames, other.lost()) == ([], [])


def test_a_second_connection_replaces_one_whose_end_was_not_noticed() -> None:
    with pair() as (one, other):
        one.peers.send(1, [b"a"])
        until(lambda: other.frames, one, other)
        before = one.peers._outgoing.pop(1).connection  # as if only this end had seen it break
        one.watch.remove(before)
        one.peers.send(1, [b"b"])
        until(lambda: len(other.frames) == 2, one, other)
        before.close()
        other.turn()
        assert len(other.peers._incoming) == 1
        assert other.lost() == []
