import socket
from collections.abc import Iterator
from threading import Event

import pytest

from penstock.api.contracts import TaskContext
from penstock.api.sources import tcp
from penstock.api.sources.tcp import TcpLines
from penstock.model.errors import InvalidInput
from tests.api.clock import context

PATIENCE = 20.0  # s, for what should take none


class Reading:
    """A source that is read whenever it asks to be."""

    def __init__(self, server: socket.socket, ahead: int = 10_000) -> None:
        self.woken = Event()
        self.source = TcpLines("127.0.0.1", server.getsockname()[1], ahead)
        self.source.open(TaskContext("lines", 0, 1, wake=self.woken.set))
        self.peer, _ = server.accept()

    def until(self, count: int, limit: int = 1000) -> list[str]:
        """Return lines as they come, at least `count` of them unless the source ends."""
        lines: list[str] = []
        while len(lines) < count:
            polled = self.source.poll(0.0, limit)
            if polled is None:
                break
            lines += polled
            if not polled:
                assert self.woken.wait(PATIENCE), "nobody woke the worker"
                self.woken.clear()
        return lines

    def close(self) -> None:
        self.source.close()
        self.peer.close()


def send_all_it_takes(reading: Reading, piece: bytes) -> int:
    """Send a piece again and again until there is no more room, and return how many bytes that were."""
    reading.peer.settimeout(0.2)
    sent = 0
    try:
        while sent < 1 << 28:  # far more than any socket buffer holds
            sent += reading.peer.send(piece[sent % len(piece) :])
    except TimeoutError:
        pass
    assert sent < 1 << 28
    return sent


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(PATIENCE)
        yield listening


def test_emits_lines_as_they_arrive_and_ends_with_the_connection(server: socket.socket) -> None:
    reading = Reading(server)
    assert reading.source.poll(0.0, 10) == []
    reading.peer.sendall(b"eins\nzw")
    assert reading.until(1) == ["eins"]
    reading.peer.sendall("ölf\r\n\nletzte".encode())
    assert reading.until(2) == ["zwölf", ""]
    reading.peer.close()
    assert reading.until(2) == ["letzte"]
    assert reading.source.poll(0.0, 10) is None
    reading.close()


def test_emits_at_most_the_requested_number(server: socket.socket) -> None:
    reading = Reading(server)
    reading.peer.sendall(b"a\n" * 100)
    first = reading.until(1, limit=7)
    assert 1 <= len(first) <= 7
    reading.close()


def test_stops_reading_while_lines_are_not_taken(server: socket.socket) -> None:
    reading = Reading(server, ahead=100)
    sent = send_all_it_takes(reading, b"".join(b"%07d\n" % number for number in range(1 << 16)))
    kept = len(reading.source._lines)
    assert kept < 100 + tcp.RECEIVED // 8 + 1
    expected = sent // 8
    assert reading.until(expected)[:expected] == [f"{number % (1 << 16):07}" for number in range(expected)]
    reading.close()


def test_stops_reading_few_long_lines_too(server: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcp, "AHEAD_BYTES", 1000)
    reading = Reading(server)
    expected = send_all_it_takes(reading, (b"x" * 999 + b"\n") * 100) // 1000
    assert len(reading.source._lines) < 1 + tcp.RECEIVED // 1000 + 1
    assert reading.until(expected)[:expected] == ["x" * 999] * expected
    reading.close()


def test_closes_while_it_waits_for_lines_or_for_room(server: socket.socket) -> None:
    waiting, full = Reading(server), Reading(server, ahead=1)
    full.peer.sendall(b"a\nb\nc\n")
    assert full.woken.wait(PATIENCE)
    for reading in (waiting, full):
        reading.close()
        reading.source._thread.join(PATIENCE)  # which it is left to do where it was still about to read
        assert not reading.source._thread.is_alive()


def test_reports_a_refused_connection(server: socket.socket) -> None:
    port = server.getsockname()[1]
    server.close()
    woken = Event()
    source = TcpLines("127.0.0.1", port)
    source.open(TaskContext("lines", 0, 1, wake=woken.set))
    assert woken.wait(PATIENCE)
    with pytest.raises(
        InvalidInput, match=f"127.0.0.1:{port}: connection refused; start a server that sends lines there"
    ):
        source.poll(0.0, 10)
    source.close()


def test_rejects_a_line_without_end(server: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcp, "LONGEST", 1000)
    reading = Reading(server)
    reading.peer.sendall(b"x" * 2000)
    with pytest.raises(InvalidInput, match="expected lines of at most 1000 bytes"):
        reading.until(1)
    reading.close()


def test_rejects_more_than_one_task() -> None:
    with pytest.raises(InvalidInput, match=r"part\.parallelism: expected 1, because there is one connection, got 2"):
        TcpLines("localhost", 9999).open(context(0, 2))


@pytest.mark.parametrize(
    ("host", "port", "field"), [("", 9999, "host"), ("localhost", 0, "port"), ("localhost", 70000, "port")]
)
def test_rejects_what_is_no_address(host: str, port: int, field: str) -> None:
    with pytest.raises(InvalidInput, match=f"{field}: expected"):
        TcpLines(host, port)


def test_does_not_rewind() -> None:
    assert not TcpLines.rewinds
