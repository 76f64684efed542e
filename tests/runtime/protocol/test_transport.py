"""Connections over loopback: frames survive any splitting, and whoever does not know the secret is rejected."""

import ast
import inspect
import os
import resource
import select
import selectors
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from threading import Thread

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.runtime import protocol
from penstock.runtime.protocol import controller_messages, encode, frames, transport, worker_messages
from penstock.runtime.protocol.transport import (
    HANDSHAKE_S,
    HEADER,
    LARGEST,
    LARGEST_GREETING,
    MAX_PENDING,
    PROTOCOL,
    SELECTABLE,
    CallerProof,
    Connection,
    ConnectionLost,
    Hello,
    PendingConnections,
    Watch,
    Welcome,
    call_until_open,
    connect,
    decode_greeting,
    hello,
    listen,
)

SECRET = b"s" * 32
PATIENCE = 20.0  # s, for what should take none


@contextmanager
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Give the two ends of a TCP connection."""
    with (
        listen("127.0.0.1") as listener,
        socket.create_connection(listener.getsockname()[:2]) as one,
    ):
        select.select([listener], [], [], PATIENCE)
        other, _ = listener.accept()
        with other:
            yield one, other


@contextmanager
def greeting() -> Iterator[tuple[Connection, Connection]]:
    """Give the two ends of a connection that has just been made; nothing was read yet."""
    with sockets() as (one, other):
        yield Connection(one, SECRET, hello("run", 3, 7)), Connection(other, SECRET)


@contextmanager
def opened() -> Iterator[tuple[Connection, Connection]]:
    with greeting() as (caller, other):
        caller.flush()
        exchange(caller, other)
        yield caller, other


def exchange(*ends: Connection, until: int | None = None) -> list[list[bytes]]:
    """Let both ends read and write until both are open, or the second has a number of frames."""
    got: list[list[bytes]] = [[] for _ in ends]
    while True:
        writing = [end for end in ends if end.wants_to_write]
        readable, writable, _ = select.select(ends, writing, [], PATIENCE)
        assert readable or writable, "nothing came"
        for end in writable:
            end.flush()
        for number, end in enumerate(ends):
            if end in readable:
                got[number] += end.read()
        if all(end.opened for end in ends) if until is None else len(got[1]) >= until:
            return got


def frame(content: bytes, number: int) -> bytes:
    return HEADER.pack(len(content), number) + content


def signed(hello: Hello) -> bytes:
    """Return a hello of somebody who knows the secret, or has overheard it, encoded."""
    with sockets() as (one, _):
        return encode(msgspec.structs.replace(hello, token=Connection(one, SECRET)._token(hello)))


def read(end: Connection) -> list[bytes]:
    """Read once something has come."""
    select.select([end], [], [], PATIENCE)
    return end.read()


def read_on(end: Connection, got: list[bytes]) -> None:
    """Read until the connection breaks."""
    while True:
        got += read(end)


def write_on(end: Connection) -> None:
    """Write until the connection breaks, or too much was written."""
    for _ in range(1000):
        end.write([bytes(100_000)])


def test_both_ends_open_and_the_accepting_end_learns_the_caller() -> None:
    with opened() as (caller, other):
        assert caller.opened
        assert other.opened
        assert other.caller is not None
        assert (other.caller.run, other.caller.worker, other.caller.incarnation) == ("run", 3, 7)


def test_frames_of_any_size_written_before_the_handshake_follow_it_in_order() -> None:
    frames = [b"first", b"x" * (LARGEST_GREETING + 1), b"", b"y" * 3_000_000]
    with greeting() as (caller, other):
        caller.write(frames)
        answered = [b"z" * (2 * LARGEST_GREETING)]
        other.write(answered)
        assert exchange(caller, other, until=4) == [answered, frames]


@settings(max_examples=40)
@given(
    st.lists(st.one_of(st.binary(max_size=40), st.integers(4_000, 400_000).map(bytes)), max_size=12),
    st.lists(st.integers(1, 70_000), max_size=40),
)
def test_frames_survive_any_splitting(frames: list[bytes], cuts: list[int]) -> None:
    sent = b"".join(frame(content, number) for number, content in enumerate(frames, 2))  # after Hello and Proof
    with sockets() as (one, two):
        other = Connection(two, SECRET)
        one.sendall(frame(signed(hello("run", 0, 0)), 0))
        read(other)
        one.settimeout(PATIENCE)
        welcome = decode_greeting(one.recv(4096)[HEADER.size :])
        assert isinstance(welcome, Welcome)
        prover = Connection(one.dup(), SECRET)
        sent = frame(encode(CallerProof(prover._prove(b"call", welcome.nonce))), 1) + sent
        prover.close()
        got: list[bytes] = []
        one.setblocking(True)
        for cut in [*cuts, len(sent)]:
            piece, sent = sent[:cut], sent[cut:]
            while piece:
                some, piece = piece[:50_000], piece[50_000:]
                one.sendall(some)
                got += read(other)
        one.shutdown(socket.SHUT_WR)
        with pytest.raises(ConnectionLost, match="it closed the connection"):
            read_on(other, got)
        assert got == frames


def test_what_a_slow_reader_does_not_take_is_buffered_and_counted() -> None:
    big = bytes(20_000_000)
    with opened() as (caller, other):
        caller.write([big])
        assert caller.wants_to_write
        assert 0 < caller.unsent < len(big)
        assert exchange(caller, other, until=1)[1] == [big]
        assert caller.unsent == 0


def test_the_accepting_end_rejects_a_caller_without_the_secret() -> None:
    with sockets() as (one, two):
        other = Connection(two, SECRET)
        one.sendall(frame(signed(hello("run", 0, 0)), 0) + frame(encode(CallerProof(b"guess")), 1))
        with pytest.raises(ConnectionLost, match="it does not know the run's secret"):
            read(other)
        assert not other.opened


def test_the_connecting_end_rejects_an_answer_without_the_secret_and_proves_nothing_to_it() -> None:
    with sockets() as (one, two):
        caller = Connection(one, SECRET, hello("run", 3, 7))
        caller.flush()
        two.sendall(frame(encode(Welcome(b"guess", b"n" * 16)), 0))
        with pytest.raises(ConnectionLost, match="it does not know the run's secret"):
            read(caller)
        assert not caller.opened
        assert not caller.wants_to_write


def test_a_proof_that_was_overheard_opens_nothing_a_second_time() -> None:
    with opened() as (_, other):
        overheard = other._prove(b"call", other._nonce)
    with sockets() as (one, two):
        again = Connection(two, SECRET)
        one.sendall(frame(signed(hello("run", 0, 0)), 0) + frame(encode(CallerProof(overheard)), 1))
        with pytest.raises(ConnectionLost, match="secret"):
            read(again)


def test_the_answer_to_a_call_is_no_proof_of_a_caller() -> None:
    """An end that is sent its own answer back must not take it for a proof."""
    with sockets() as (one, two):
        other = Connection(two, SECRET)
        one.sendall(frame(signed(hello("run", 0, 0)), 0))
        read(other)
        one.settimeout(PATIENCE)
        welcome = decode_greeting(one.recv(4096)[HEADER.size :])
        assert isinstance(welcome, Welcome)
        one.sendall(frame(encode(CallerProof(welcome.proof)), 1))
        with pytest.raises(ConnectionLost, match="secret"):
            read(other)


def test_another_protocol_is_rejected_with_both_numbers() -> None:
    with sockets() as (one, two):
        other = Connection(two, SECRET)
        ahead = msgspec.structs.replace(hello("run", 0, 0), protocol=PROTOCOL + 1)
        one.sendall(frame(encode(ahead), 0))
        with pytest.raises(ConnectionLost, match=f"it speaks protocol {PROTOCOL + 1}, this end {PROTOCOL}"):
            read(other)


@pytest.mark.parametrize("garbage", [b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 64, b"\xff" * 64, frame(b"\x80\x04K*.", 0)])
def test_garbage_in_place_of_a_handshake_ends_the_connection(garbage: bytes) -> None:
    with sockets() as (one, two):
        other = Connection(two, SECRET)
        one.sendall(garbage)
        with pytest.raises(ConnectionLost):
            read(other)
        assert not other.opened


def test_a_frame_before_the_proof_is_rejected() -> None:
    with sockets() as (one, two):
        other = Connection(two, SECRET)
        one.sendall(frame(signed(hello("run", 0, 0)), 0) + frame(encode(controller_messages.Stop()), 1))
        with pytest.raises(ConnectionLost, match="it does not speak the protocol"):
            read(other)


def test_rejects_a_large_frame_during_the_handshake_before_reading_it() -> None:
    with sockets() as (one, two):
        other = Connection(two, SECRET)
        one.sendall(HEADER.pack(LARGEST_GREETING + 1, 0))
        with pytest.raises(ConnectionLost, match="it sent a frame of 4097 bytes"):
            read(other)


def test_rejects_an_oversized_frame_before_reading_it() -> None:
    with opened() as (caller, other):
        caller.socket.send(HEADER.pack(LARGEST + 1, 2))
        with pytest.raises(ConnectionLost, match=f"it sent a frame of {LARGEST + 1} bytes"):
            read(other)


@pytest.mark.parametrize("number", [1, 3, 2**32 - 1])
def test_a_gap_or_a_repetition_in_the_numbers_ends_the_connection(number: int) -> None:
    with opened() as (caller, other):
        caller.socket.send(frame(b"x", number))
        with pytest.raises(ConnectionLost, match=f"frame 2 is missing, frame {number} came"):
            read(other)


@contextmanager
def protected() -> Iterator[tuple[Connection, Connection]]:
    with sockets() as (one, other):
        ends = Connection(one, SECRET, hello("run", 3, 7), protects=True), Connection(other, SECRET, protects=True)
        ends[0].flush()
        exchange(*ends)
        yield ends


def test_protected_frames_arrive_as_they_were_in_both_directions() -> None:
    frames = [b"first", b"", b"y" * 3_000_000]
    with protected() as (caller, other):
        caller.write(frames)
        assert exchange(caller, other, until=3)[1] == frames
        other.write(frames)
        assert exchange(other, caller, until=3)[1] == frames


def captured(end: Connection, *frames: bytes) -> bytes:
    """Return what an end would send, without sending it."""
    for content in frames:
        end._put(content)
    sent, end._unsent = bytes(end._unsent), bytearray()
    return sent


@pytest.mark.parametrize("attack", ["changed", "cut", "repeated", "swapped", "reflected", "unprotected", "of another"])
def test_a_protected_frame_that_was_tampered_with_ends_the_connection(attack: str) -> None:
    with protected() as (caller, other), protected() as (another, _):
        one, two = captured(caller, b"pay 10"), captured(caller, b"pay 20")
        body = one[HEADER.size :]
        expected = HEADER.unpack(one[: HEADER.size])[1]
        sent = {
            "changed": one.replace(b"pay 10", b"pay 90"),
            "cut": HEADER.pack(3, expected) + body[:3],
            "repeated": one + HEADER.pack(len(body), expected + 1) + body,  # with a number that is expected
            "swapped": HEADER.pack(len(body), expected) + two[HEADER.size :],
            "reflected": captured(other, b"pay 10"),
            "unprotected": HEADER.pack(6, expected) + b"pay 10",
            "of another": captured(another, b"pay 10"),
        }[attack]
        if attack == "reflected":
            sent = HEADER.pack(len(sent) - HEADER.size, expected) + sent[HEADER.size :]
        caller.socket.setblocking(True)
        caller.socket.sendall(sent)
        with pytest.raises(ConnectionLost, match=r"frame \d+ was changed in transit"):
            read_on(other, [])


def test_ends_that_do_not_agree_on_protection_do_not_connect() -> None:
    with sockets() as (one, two):
        caller, other = Connection(one, SECRET, hello("run", 3, 7), protects=True), Connection(two, SECRET)
        caller.flush()
        with pytest.raises(ConnectionLost, match="one end protects frames"):
            read(other)


def test_a_hello_whose_fields_were_changed_is_rejected() -> None:
    with sockets() as (one, two):
        other = Connection(two, SECRET)
        genuine = msgspec.msgpack.decode(signed(hello("run", 0, 0)), type=Hello)
        one.sendall(frame(encode(msgspec.structs.replace(genuine, worker=1)), 0))
        with pytest.raises(ConnectionLost, match="it does not know the run's secret"):
            read(other)


def test_numbers_wrap_around_after_the_largest() -> None:
    with opened() as (caller, other):
        caller._sent = other._expected = 2**32 - 1
        caller.write([b"last", b"first"])
        assert exchange(caller, other, until=2)[1] == [b"last", b"first"]


def test_reader_and_writer_detect_a_closed_connection() -> None:
    with opened() as (caller, other):
        other.close()
        with pytest.raises(ConnectionLost):
            write_on(caller)
        with pytest.raises(ConnectionLost):
            read(caller)


def test_nothing_from_the_network_is_unpickled_or_evaluated() -> None:
    for module in (protocol, transport, frames, worker_messages, controller_messages):
        tree = ast.parse(inspect.getsource(module))
        imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        called = {
            node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }
        assert not imported & {"pickle", "marshal", "shelve", "cloudpickle", "yaml"}
        assert not called & {"eval", "exec", "__import__"}


def test_a_port_in_use_is_an_error_of_its_own() -> None:
    with listen("127.0.0.1") as first, pytest.raises(OSError, match="in use"):
        listen("127.0.0.1", first.getsockname()[1])


def test_room_to_write_is_waited_for_only_while_something_waits_for_it() -> None:
    with opened() as (caller, other), closing(Watch()) as watch:
        watch.add(caller)
        assert watch.wait(0.0) == []
        while not caller.wants_to_write:
            caller.write([b"x" * 100_000])
        watch.update(caller)
        while caller.wants_to_write:
            other.read()
            for ready, events in watch.wait(0.01):
                assert (ready, events) == (caller, selectors.EVENT_WRITE)
                caller.flush()
        watch.update(caller)
        assert watch.wait(0.0) == []


@pytest.mark.skipif(resource.getrlimit(resource.RLIMIT_NOFILE)[0] < SELECTABLE + 100, reason="too few files allowed")
def test_large_and_small_file_descriptors_are_waited_for_together() -> None:
    with sockets() as (one, other), ExitStack() as stack, closing(Watch()) as watch:
        watch.add(one)
        while (number := os.dup(0)) < SELECTABLE:
            stack.callback(os.close, number)
        stack.callback(os.close, number)
        large = stack.enter_context(one.dup())
        assert large.fileno() >= SELECTABLE
        watch.add(large)
        assert watch.wait(0.0) == []
        other.send(b"!")
        assert {ready for ready, _ in watch.wait(PATIENCE)} == {one, large}


def read_all(watch: Watch, listener: socket.socket) -> None:
    """Let connections that something has come on read it, but accept nobody."""
    for ready, _ in watch.wait(0.05):
        if isinstance(ready, Connection):
            ready.read()
        else:
            assert ready is listener


def test_the_oldest_pending_connection_is_dropped_for_one_more_and_none_stays_for_long() -> None:
    with listen("127.0.0.1") as listener, ExitStack() as stack, closing(Watch()) as watch:
        pending, accepted = PendingConnections(listener, SECRET, watch), list[Connection]()

        def hang_up() -> None:
            for each in accepted:
                each.close()

        stack.callback(hang_up)
        for _ in range(MAX_PENDING + 2):
            stack.enter_context(socket.create_connection(listener.getsockname()[:2]))
        while len(accepted) < MAX_PENDING + 2:
            assert watch.wait(PATIENCE) == [(listener, selectors.EVENT_READ)]
            accepted += pending.accept(now=10.0 + len(accepted) / 1000)
        assert pending.expired(10.5) == accepted[:2], "whoever calls is accepted, however many were there before"
        assert pending.expired(10.5) == []
        accepted[2].opened = True
        late = pending.expired(11.0 + HANDSHAKE_S)
        assert late == accepted[3:]
        assert pending.expired(11.0 + HANDSHAKE_S) == []


def test_a_peer_is_accepted_though_silent_connections_keep_coming() -> None:
    with listen("127.0.0.1") as listener, ExitStack() as stack, closing(Watch()) as watch:
        pending, (host, port) = PendingConnections(listener, SECRET, watch), listener.getsockname()
        dropped: list[Connection] = []

        def crowd() -> None:
            """Let as many strangers call as may stay, and drop whom they push out."""
            for _ in range(MAX_PENDING):
                stack.enter_context(socket.create_connection((host, port)))
            accepted = list[Connection]()
            while len(accepted) < MAX_PENDING:
                watch.wait(PATIENCE)
                accepted += pending.accept(1.0)
            for each in accepted:
                stack.callback(each.close)
            late = pending.expired(1.0)
            for each in late:
                watch.remove(each)
                each.close()
            dropped.extend(late)

        crowd()
        peer = stack.enter_context(closing(connect(host, port, SECRET, hello("run", 0, 0))))
        peer.flush()
        watch.wait(PATIENCE)
        (mine,) = pending.accept(1.0)
        stack.callback(mine.close)
        read_all(watch, listener)  # its hello
        for _ in range(3):
            crowd()
        exchange(peer, mine)
        assert mine.opened
        assert mine not in dropped
        assert len(dropped) == 3 * MAX_PENDING + 1


def test_a_peer_that_was_dropped_during_the_handshake_connects_again() -> None:
    with listen("127.0.0.1") as listener:
        host, port = listener.getsockname()
        made: list[Connection] = []
        caller = Thread(
            target=lambda: made.append(call_until_open(host, port, SECRET, lambda: hello("run", 0, 0))),
            daemon=True,
        )
        caller.start()
        select.select([listener], [], [], PATIENCE)
        listener.accept()[0].close()  # pushed out
        select.select([listener], [], [], PATIENCE)
        with closing(Connection(listener.accept()[0], SECRET)) as other:
            while not other.opened:
                read(other)
            caller.join(PATIENCE)
            with closing(made[0]):
                assert made[0].opened


def test_a_connection_that_cannot_be_accepted_is_none() -> None:
    with listen("127.0.0.1") as listener, closing(Watch()) as watch:
        assert PendingConnections(listener, SECRET, watch).accept(0.0) == []
