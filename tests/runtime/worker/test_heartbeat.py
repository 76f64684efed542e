"""Heartbeats over real sockets: their answers renew the lease of a worker."""

import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from time import monotonic

import pytest

from penstock.runtime.protocol import controller_messages, encode, worker_messages
from penstock.runtime.protocol.transport import Connection, Watch
from penstock.runtime.worker import heartbeat as module
from penstock.runtime.worker.heartbeat import ControllerAddress, HeartbeatThread

SECRET = b"s" * 32
PATIENCE = 20.0


class Alive:
    """What heartbeats are sent for."""

    turns = 7
    lease = 0.0

    def renew_lease(self, until: float) -> None:
        self.lease = until


@contextmanager
def beating(listener: socket.socket, worker: Alive) -> Iterator[None]:
    host, port = listener.getsockname()
    heartbeat = HeartbeatThread(worker, ControllerAddress(host, port, SECRET, "r", 3, 5), lease_s=2.0)
    heartbeat.start()
    try:
        yield
    finally:
        heartbeat.close(PATIENCE)
        assert not heartbeat.is_alive()


def beats(connection: Connection) -> Iterator[worker_messages.Heartbeat]:
    """Yield the heartbeats."""
    with closing(Watch()) as watch:
        watch.add(connection)
        deadline = monotonic() + PATIENCE
        while monotonic() < deadline:
            watch.wait(0.1)
            for frame in connection.read():
                message = worker_messages.decode_worker_message(frame)
                assert isinstance(message, worker_messages.Heartbeat)
                yield message
            watch.update(connection)


def test_the_lease_counts_from_when_the_answered_heartbeat_was_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HEARTBEAT_S", 0.02)
    worker = Alive()
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        beating(listener, worker),
        closing(Connection(listener.accept()[0], SECRET)) as answering,
    ):
        heard = beats(answering)
        first = next(heard)
        assert (first.progress, worker.lease) == (7, 0.0)
        assert answering.caller is not None
        called = answering.caller
        assert (called.worker, called.incarnation, called.heartbeat) == (3, 5, True)
        answering.write([encode(controller_messages.RenewLease(first.at))])
        while worker.lease == 0.0:
            next(heard)
        assert worker.lease == first.at + 2.0


def test_reconnects_when_its_connection_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HEARTBEAT_S", 0.02)
    with socket.create_server(("127.0.0.1", 0)) as listener, beating(listener, Alive()):
        nonces = set()
        for _ in range(3):
            with closing(Connection(listener.accept()[0], SECRET)) as answering:
                next(beats(answering))
                assert answering.caller is not None
                nonces.add(answering.caller.nonce)
        assert len(nonces) == 3


def test_ends_without_a_controller_when_it_is_closed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()
    heartbeat = HeartbeatThread(Alive(), ControllerAddress(host, port, SECRET, "r", 0, 1), 2.0)
    heartbeat.start()
    heartbeat.close(PATIENCE)
    assert not heartbeat.is_alive()
