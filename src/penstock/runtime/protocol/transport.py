"""Connections between workers and controller: raw TCP, frames with a length and a number, both ends authenticated.

A connection opens with a handshake of three messages, in which each end proves that it knows the run's secret without
sending it. The first message already carries a token of the secret, which distinguishes peers from strangers at once.
On request (`protects`), every frame after the handshake carries a checksum keyed by the secret and both ends' nonces;
it covers the frame's number, so a frame that is changed, repeated, dropped or reordered breaks the connection.

No call blocks, except for a worker's first connection to the controller: unsent bytes are buffered, and received bytes
are cut into frames. A missing number or a broken connection is a failure of the epoch; connections are not reopened
within it.
"""

import contextlib
import errno
import hashlib
import hmac
import os
import secrets
import selectors
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Iterable

import msgspec

from penstock.model.decoding import Undecodable, msgpack_decoder
from penstock.runtime.protocol import Wire, encode

HEADER = struct.Struct("<II")  # length of the frame, its number on this connection
LARGEST = 256 * 1024 * 1024  # bytes of a frame
LARGEST_GREETING = 4096  # bytes of a frame of the handshake
READ = 256 * 1024
PIECE = 1024 * 1024  # bytes passed to the socket at once
SELECTABLE = 1024  # file descriptors that `select` can wait for
TAG = 16  # bytes of a frame's keyed checksum
MAX_PENDING = 64  # incoming connections whose handshake is not complete
HANDSHAKE_S = 20.0  # time limit for it; a worker on a busy host may be slow
KEEPALIVE_S = 30  # of silence, after which the system checks whether the other end is alive
UNACKNOWLEDGED_S = 120  # for which the other end may read nothing: longer than an operator should take for a tuple
UNPROVED = "it does not know the run's secret"
CLOSED = "it closed the connection"  # a process does so by ending; a network in between cannot
DROPPED = (CLOSED, os.strerror(errno.ECONNRESET), os.strerror(errno.EPIPE))  # of a connection among too many pending
RETRY_S = 0.2  # between attempts to connect in that case
PROTOCOL = 4


class Hello(Wire, tag=10):
    """The first message on a connection: the identity of the caller, and its challenge for the other end."""

    protocol: int
    run: str
    worker: int
    incarnation: int
    nonce: bytes
    heartbeat: bool = False  # the connection carries heartbeats only
    protects: bool = False  # every frame after the handshake carries a keyed checksum
    token: bytes = b""  # shows that the caller knows the secret; it can be replayed, so it only sets a priority


class Welcome(Wire, tag=11):
    """The answer: proof of the secret, and a challenge in turn."""

    proof: bytes
    nonce: bytes


class CallerProof(Wire, tag=12):
    """The caller's proof, which opens the connection."""

    proof: bytes


Greeting = Hello | Welcome | CallerProof

decode_greeting: Callable[[bytes], Greeting] = msgpack_decoder(Greeting)


class ConnectionLost(Exception):
    """The connection broke, or the other end could not authenticate."""


class Connection:
    """One end of a connection.

    The connecting end is constructed with its `hello`; the accepting end receives it, in `caller`. Written frames wait
    until `opened`. Both ends must agree on whether frames are protected: `protects`.
    """

    def __init__(self, sock: socket.socket, secret: bytes, hello: Hello | None = None, protects: bool = False) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _detect_cuts(sock)
        self.socket = sock
        self.caller = hello
        self.opened = False
        self._calls = hello is not None
        self._secret = secret
        self._protects = protects
        self._keys: tuple[bytes, bytes] | None = None  # of frames that are sent and received; None: not protected
        self._nonce = hello.nonce if hello is not None else secrets.token_bytes(16)
        self._received = bytearray()
        self._expected = 0
        self._sent = 0
        self._waiting: deque[bytes] = deque()  # until the connection is open
        self._unsent = bytearray()
        if hello is not None:
            hello = msgspec.structs.replace(hello, protects=protects)
            self._put(encode(msgspec.structs.replace(hello, token=self._token(hello))))

    def fileno(self) -> int:
        """Return the file descriptor, for a selector."""
        return self.socket.fileno()

    @property
    def wants_to_write(self) -> bool:
        """Whether bytes wait for the socket."""
        return bool(self._unsent)

    @property
    def unsent(self) -> int:
        """Bytes that wait for the socket."""
        return len(self._unsent)

    def read(self) -> list[bytes]:
        """Return the received frames; raise `ConnectionLost` if no more can arrive."""
        try:
            got = self.socket.recv(READ)
        except (BlockingIOError, InterruptedError):
            return []
        except OSError as error:
            raise ConnectionLost(error.strerror or str(error)) from None
        if not got:
            raise ConnectionLost(CLOSED)
        self._received += got
        while not self.opened:
            greeting = self._cut(most=1)
            if not greeting:
                return []
            self._greet(greeting[0])
        return self._cut()

    def write(self, frames: Iterable[bytes]) -> None:
        """Send frames, as far as the socket accepts them now."""
        if self.opened:
            for frame in frames:
                self._put(frame)
            self.flush()
        else:
            self._waiting.extend(frames)
            self.flush()

    def flush(self) -> None:
        """Send the bytes that wait for the socket."""
        while self._unsent:
            try:
                sent = self.socket.send(memoryview(self._unsent)[:PIECE])
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if not self.opened and error.errno in (errno.ENOTCONN, errno.EINPROGRESS):
                    return
                raise ConnectionLost(error.strerror or str(error)) from None
            del self._unsent[:sent]

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()

    def take_waiting(self) -> list[bytes]:
        """Return the frames that wait for the connection to open, for another connection to send."""
        waiting, self._waiting = self._waiting, deque()
        return list(waiting)

    def _put(self, frame: bytes) -> None:
        keys = self._keys
        self._unsent += HEADER.pack(len(frame) + (TAG if keys else 0), self._sent & 0xFFFFFFFF)
        self._unsent += frame
        if keys is not None:
            self._unsent += _tag(keys[0], self._sent, frame)
        self._sent += 1

    def _cut(self, most: int | None = None) -> list[bytes]:
        """Cut complete frames off the received bytes; those of the handshake singly, as later frames may be larger."""
        frames: list[bytes] = []
        start, buffer = 0, self._received
        key = None if self._keys is None else self._keys[1]
        largest = LARGEST + (TAG if key else 0) if self.opened else LARGEST_GREETING
        view = memoryview(buffer)
        try:
            while len(buffer) - start >= HEADER.size and len(frames) != most:
                length, number = HEADER.unpack_from(buffer, start)
                if length > largest:
                    raise ConnectionLost(f"it sent a frame of {length} bytes")
                if len(buffer) - start - HEADER.size < length:
                    break
                if number != self._expected & 0xFFFFFFFF:
                    raise ConnectionLost(f"frame {self._expected} is missing, frame {number} came")
                start += HEADER.size
                whole = bytes(view[start : start + length])
                frames.append(whole if key is None else _checked(key, self._expected, whole))
                self._expected += 1
                start += length
        finally:
            view.release()
        if start:
            del buffer[:start]
        return frames

    def _greet(self, frame: bytes) -> None:
        """Process the next message of the handshake."""
        try:
            message = decode_greeting(frame)
        except Undecodable:
            raise ConnectionLost("it does not speak the protocol") from None
        match message:
            case Hello() if not self._calls and self.caller is None:
                if message.protocol != PROTOCOL:
                    raise ConnectionLost(f"it speaks protocol {message.protocol}, this end {PROTOCOL}")
                if not hmac.compare_digest(message.token, self._token(message)):
                    raise ConnectionLost(UNPROVED)
                if message.protects != self._protects:
                    raise ConnectionLost("one end protects frames and the other does not")
                self.caller = message
                self._put(encode(Welcome(self._prove(b"answer", message.nonce), self._nonce)))
            case Welcome() if self._calls:
                self._check(message.proof, b"answer", self._nonce)
                self._put(encode(CallerProof(self._prove(b"call", message.nonce))))
                self._open(self._nonce, message.nonce)
            case CallerProof() if not self._calls and self.caller is not None:
                self._check(message.proof, b"call", self._nonce)
                self._open(self.caller.nonce, self._nonce)
            case _:
                raise ConnectionLost("it does not follow the handshake")
        self.flush()

    def _open(self, calling: bytes, answering: bytes) -> None:
        """Complete the handshake; the arguments are the nonces of both ends."""
        self.opened = True
        if self._protects:
            nonces = hashlib.sha256(calling).digest() + hashlib.sha256(answering).digest()
            ends = (self._prove(b"frames of the caller", nonces), self._prove(b"frames of the answerer", nonces))
            self._keys = ends if self._calls else (ends[1], ends[0])
        for frame in self.take_waiting():
            self._put(frame)

    def _token(self, hello: Hello) -> bytes:
        return self._prove(b"hello", encode(msgspec.structs.replace(hello, token=b"")))

    def _prove(self, role: bytes, nonce: bytes) -> bytes:
        return hmac.digest(self._secret, role + nonce, "sha256")

    def _check(self, proof: bytes, role: bytes, nonce: bytes) -> None:
        if not hmac.compare_digest(proof, self._prove(role, nonce)):
            raise ConnectionLost(UNPROVED)


def _tag(key: bytes, number: int, frame: bytes) -> bytes:
    """Return the keyed checksum of a frame and its number."""
    return hmac.digest(key, number.to_bytes(8, "little") + frame, "sha256")[:TAG]


def _checked(key: bytes, number: int, whole: bytes) -> bytes:
    """Return a frame without its checksum; raise `ConnectionLost` if the checksum is wrong."""
    frame = whole[:-TAG]
    if not hmac.compare_digest(whole[-TAG:], _tag(key, number, frame)):
        raise ConnectionLost(f"frame {number} was changed in transit")
    return frame


class Watch:
    """Waits for the sockets of a process, and for room to write only while there are bytes to write.

    `select` can wait for less than a millisecond, unlike epoll, but not for large file descriptors. As soon as there is
    one, the default selector of the system replaces it.
    """

    def __init__(self) -> None:
        self._selector: selectors.BaseSelector = selectors.SelectSelector()

    def add(self, ready: socket.socket | Connection) -> None:
        """Wait for data to read from now on."""
        if ready.fileno() >= SELECTABLE and isinstance(self._selector, selectors.SelectSelector):
            before, self._selector = self._selector, selectors.DefaultSelector()
            for key in before.get_map().values():
                self._selector.register(key.fileobj, key.events)
            before.close()
        self._selector.register(ready, selectors.EVENT_READ)
        self.update(ready)

    def update(self, ready: socket.socket | Connection) -> None:
        """Wait for room to write, too, if and only if there are bytes to write."""
        writes = isinstance(ready, Connection) and ready.wants_to_write
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if writes else 0)
        if self._selector.get_key(ready).events != events:
            self._selector.modify(ready, events)

    def remove(self, ready: socket.socket | Connection) -> None:
        """Stop waiting for a socket; call this before closing it."""
        self._selector.unregister(ready)

    def wait(self, seconds: float) -> list[tuple[object, int]]:
        """Return the ready sockets, with their events of `selectors`, within the given seconds."""
        return [(key.fileobj, events) for key, events in self._selector.select(seconds)]

    def close(self) -> None:
        """Stop waiting for all sockets, which stay open."""
        self._selector.close()


class PendingConnections:
    """Incoming connections whose handshake is not complete: a limited number, each for a limited time.

    All are accepted. When there are too many, the oldest are dropped: first those without a genuine hello, so that
    silent connections, however many, do not keep out a peer.
    """

    def __init__(self, listener: socket.socket, secret: bytes, watch: Watch, protects: bool = False) -> None:
        self._listener = listener
        self._secret = secret
        self._watch = watch
        self._protects = protects
        self._since: dict[Connection, float] = {}  # in the order in which they were accepted
        watch.add(listener)

    def accept(self, now: float) -> list[Connection]:
        """Accept and watch connections; call this after reading the others, and before `expired`."""
        accepted: list[Connection] = []
        while len(accepted) < MAX_PENDING:
            try:
                sock, _ = self._listener.accept()
            except OSError:  # no more connections, or this process may open no more files
                break
            try:
                caller = Connection(sock, self._secret, protects=self._protects)
            except OSError:  # it is closed already
                sock.close()
                continue
            self._watch.add(caller)
            self._since[caller] = now
            accepted.append(caller)
        return accepted

    def expired(self, now: float) -> list[Connection]:
        """Return the connections to drop, each once: their time is over, or there are too many."""
        if not self._since:
            return []
        pending = {one: since for one, since in self._since.items() if not one.opened and one.fileno() >= 0}
        drop = {one for one, since in pending.items() if now - since > HANDSHAKE_S}
        if (surplus := len(pending) - len(drop) - MAX_PENDING) > 0:
            left = [one for one in pending if one not in drop]
            drop.update(sorted(left, key=lambda one: one.caller is not None)[:surplus])
        self._since = {one: since for one, since in pending.items() if one not in drop}
        return [one for one in pending if one in drop]


def hello(run: str, worker: int, incarnation: int, heartbeat: bool = False) -> Hello:
    """Return the first message of a connection, with a new nonce."""
    return Hello(PROTOCOL, run, worker, incarnation, secrets.token_bytes(16), heartbeat)


def connect(
    host: str, port: int, secret: bytes, greeting: Hello, within_s: float = 10.0, protects: bool = False
) -> Connection:
    """Connect, waiting at most `within_s` for the other end to accept."""
    sock = socket.create_connection((host, port), within_s)
    return Connection(sock, secret, greeting, protects)


def call_until_open(
    host: str, port: int, secret: bytes, make_greeting: Callable[[], Hello], protects: bool = False
) -> Connection:
    """Connect and complete the handshake; retry for a while if the other end drops the connection before.

    The other end may have had too many pending connections. Raises `ConnectionLost`, or `OSError` if nobody listens.
    """
    deadline = time.monotonic() + HANDSHAKE_S
    while True:
        connection = connect(host, port, secret, make_greeting(), protects=protects)
        try:
            with contextlib.closing(Watch()) as watch:
                connection.flush()
                watch.add(connection)
                while not connection.opened:
                    if not watch.wait(max(0.0, deadline - time.monotonic())):
                        raise ConnectionLost(f"it has not answered for {HANDSHAKE_S:g} s")
                    connection.flush()
                    connection.read()
        except ConnectionLost:
            connection.close()
            if time.monotonic() + RETRY_S > deadline:
                raise
            time.sleep(RETRY_S)
        else:
            return connection


def begin_call(host: str, port: int, secret: bytes, greeting: Hello, protects: bool = False) -> Connection:
    """Start to connect without waiting: a failure is detected on a read or write."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setblocking(False)
        problem = sock.connect_ex(address)
        if problem not in (0, errno.EINPROGRESS):
            raise OSError(problem, os.strerror(problem))
        return Connection(sock, secret, greeting, protects)
    except BaseException:
        sock.close()
        raise


def _detect_cuts(sock: socket.socket) -> None:
    """Let the system break a connection whose other end is unreachable."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", KEEPALIVE_S),
        ("TCP_KEEPINTVL", KEEPALIVE_S // 3),
        ("TCP_KEEPCNT", 3),
        ("TCP_USER_TIMEOUT", UNACKNOWLEDGED_S * 1000),
    ):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def listen(host: str, port: int = 0) -> socket.socket:
    """Listen on an address; port 0 selects a free port."""
    sock = socket.create_server((host, port), backlog=256)
    sock.setblocking(False)
    return sock
