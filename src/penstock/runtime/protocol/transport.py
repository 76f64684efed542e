"""Connections between workers and controller: raw TCP, frames with a length and a number, both ends authenticated.

A connection opens with three messages in which each end proves that it knows the run's secret without telling it.
The first message carries a token of the secret already, so that a stranger is told from a peer at once. On request
(`protects`), every frame after the greeting carries a checksum keyed by the secret and both ends' nonces; it covers the
frame's number, so that a frame that is changed, repeated, left out or moved breaks the connection.

Nothing here ever waits, but for the first call of a worker: what cannot be sent is kept, and what has come is cut into
frames. A number that is missing, or a connection that breaks, is a failure of the epoch; there is no reconnecting
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

from penstock.model.decoding import Undecodable
from penstock.runtime.protocol.handshake import PROTOCOL, Hello, Proof, Welcome, decode_greeting
from penstock.runtime.protocol.wire import encode

HEADER = struct.Struct("<II")  # length of the frame, its number on this connection
LARGEST = 256 * 1024 * 1024  # bytes of a frame
LARGEST_GREETING = 4096  # bytes of a frame from whom nothing is known yet
READ = 256 * 1024
PIECE = 1024 * 1024  # bytes handed to the socket at once
SELECTABLE = 1024  # file numbers that `select` can wait for
TAG = 16  # bytes of a frame's keyed checksum
STRANGERS = 64  # callers at once that have not proved yet that they know the secret
PROOF_S = 20.0  # that they have for it: a worker that a busy host holds up is no stranger
SILENT_S = 30  # after which the system asks whether the other end is there
UNHEARD_S = 120  # for which the other end may take nothing: longer than an operator should need for a tuple
UNPROVED = "it does not know the run's secret"
CLOSED = "it closed the connection"  # as a process does by ending; nothing on the way between two looks like it
DROPPED = (CLOSED, os.strerror(errno.ECONNRESET), os.strerror(errno.EPIPE))  # of a caller that was taken for a stranger
RETRY_S = 0.2  # between calls of one that was


class ConnectionLost(Exception):
    """The other end has gone, or is not who it should be."""


class Connection:
    """One end of a connection.

    The end that calls is given its `hello`; the end that answers learns the caller's, in `caller`. Until `opened`,
    frames that are written wait. Both ends must agree on whether frames are protected: `protects`.
    """

    def __init__(self, sock: socket.socket, secret: bytes, hello: Hello | None = None, protects: bool = False) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _notice_cuts(sock)
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
            told = msgspec.structs.replace(hello, protects=protects)
            self._put(encode(msgspec.structs.replace(told, token=self._token(told))))

    def fileno(self) -> int:
        """Return the socket's number, for a selector."""
        return self.socket.fileno()

    @property
    def wants_to_write(self) -> bool:
        """Whether something waits for the socket."""
        return bool(self._unsent)

    @property
    def unsent(self) -> int:
        """Bytes that wait for the socket."""
        return len(self._unsent)

    def read(self) -> list[bytes]:
        """Return the frames that have come; raise `ConnectionLost` where no more can."""
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
        """Send frames, or as much of them as the socket takes now."""
        if self.opened:
            for frame in frames:
                self._put(frame)
            self.flush()
        else:
            self._waiting.extend(frames)
            self.flush()

    def flush(self) -> None:
        """Send what waits for the socket."""
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
        """Let go of the socket."""
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
        """Take whole frames off what was received; greetings one by one, since what follows may be larger."""
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
        """Take the next message of the greeting."""
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
                self._put(encode(Proof(self._prove(b"call", message.nonce))))
                self._open(self._nonce, message.nonce)
            case Proof() if not self._calls and self.caller is not None:
                self._check(message.proof, b"call", self._nonce)
                self._open(self.caller.nonce, self._nonce)
            case _:
                raise ConnectionLost("it does not keep to the greeting")
        self.flush()

    def _open(self, calling: bytes, answering: bytes) -> None:
        """Begin to carry frames; the arguments are the nonces of both ends."""
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
    """Return a frame without its checksum; raise `ConnectionLost` when it does not fit."""
    frame = whole[:-TAG]
    if not hmac.compare_digest(whole[-TAG:], _tag(key, number, frame)):
        raise ConnectionLost(f"frame {number} was changed on its way")
    return frame


class Watch:
    """Waits for the sockets of a process, and for room to write only while something waits for that.

    `select` can wait for less than a millisecond, which epoll cannot, but not for files of a large number: as soon as
    there is one, what the system does best takes its place.
    """

    def __init__(self) -> None:
        self._selector: selectors.BaseSelector = selectors.SelectSelector()

    def add(self, ready: socket.socket | Connection) -> None:
        """Wait from now on for something to be read there."""
        if ready.fileno() >= SELECTABLE and isinstance(self._selector, selectors.SelectSelector):
            before, self._selector = self._selector, selectors.DefaultSelector()
            for key in before.get_map().values():
                self._selector.register(key.fileobj, key.events)
            before.close()
        self._selector.register(ready, selectors.EVENT_READ)
        self.update(ready)

    def update(self, ready: socket.socket | Connection) -> None:
        """Wait for room to write too, where something waits for it, or no more."""
        writes = isinstance(ready, Connection) and ready.wants_to_write
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if writes else 0)
        if self._selector.get_key(ready).events != events:
            self._selector.modify(ready, events)

    def remove(self, ready: socket.socket | Connection) -> None:
        """Wait no more for it; to be called before it is closed."""
        self._selector.unregister(ready)

    def wait(self, seconds: float) -> list[tuple[object, int]]:
        """Return what is ready, and for which events of `selectors`, at the latest after so many seconds."""
        return [(key.fileobj, events) for key, events in self._selector.select(seconds)]

    def close(self) -> None:
        """Let go of what is waited for, which stays open."""
        self._selector.close()


class PendingConnections:
    """Callers that have not proved yet that they know the secret: a limited number, each for a limited time.

    All who call are accepted. When there are too many, the oldest are dropped: first those that have not introduced
    themselves by a genuine hello, so that silent connections, however many, do not keep out a peer.
    """

    def __init__(self, listener: socket.socket, secret: bytes, watch: Watch, protects: bool = False) -> None:
        self._listener = listener
        self._secret = secret
        self._watch = watch
        self._protects = protects
        self._since: dict[Connection, float] = {}  # in the order in which they called
        watch.add(listener)

    def accept(self, now: float) -> list[Connection]:
        """Accept and watch those who call, as many as may stay; to be called after others were read, `expired` next."""
        accepted: list[Connection] = []
        while len(accepted) < STRANGERS:
            try:
                sock, _ = self._listener.accept()
            except OSError:  # nobody else calls, or this process may open no more files
                break
            try:
                caller = Connection(sock, self._secret, protects=self._protects)
            except OSError:  # it has hung up already
                sock.close()
                continue
            self._watch.add(caller)
            self._since[caller] = now
            accepted.append(caller)
        return accepted

    def expired(self, now: float) -> list[Connection]:
        """Return those to drop, once: whose time is over, or who are too many; forget who has proved it or has gone."""
        if not self._since:
            return []
        strange = {caller: since for caller, since in self._since.items() if _strange(caller)}
        drop = {caller for caller, since in strange.items() if now - since > PROOF_S}
        if (surplus := len(strange) - len(drop) - STRANGERS) > 0:
            left = [caller for caller in strange if caller not in drop]
            drop.update(sorted(left, key=lambda caller: caller.caller is not None)[:surplus])
        self._since = {caller: since for caller, since in strange.items() if caller not in drop}
        return [caller for caller in strange if caller in drop]


def _strange(caller: Connection) -> bool:
    return not caller.opened and caller.fileno() >= 0


def hello(run: str, worker: int, incarnation: int, heart: bool = False) -> Hello:
    """Return the first message of a connection, with a number that was never used."""
    return Hello(PROTOCOL, run, worker, incarnation, secrets.token_bytes(16), heart)


def call(
    host: str, port: int, secret: bytes, greeting: Hello, within_s: float = 10.0, protects: bool = False
) -> Connection:
    """Connect, waiting at most so long for the other end to accept."""
    sock = socket.create_connection((host, port), within_s)
    return Connection(sock, secret, greeting, protects)


def call_until_open(
    host: str, port: int, secret: bytes, make_greeting: Callable[[], Hello], protects: bool = False
) -> Connection:
    """Connect and greet; call again for a while when the other end drops the connection before it is open.

    A crowd of strangers may have pushed it out. Raises `ConnectionLost`, or `OSError` when nobody listens.
    """
    deadline = time.monotonic() + PROOF_S
    while True:
        connection = call(host, port, secret, make_greeting(), protects=protects)
        try:
            with contextlib.closing(Watch()) as watch:
                connection.flush()
                watch.add(connection)
                while not connection.opened:
                    if not watch.wait(max(0.0, deadline - time.monotonic())):
                        raise ConnectionLost(f"it has not answered for {PROOF_S:g} s")
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
    """Begin to connect, and wait for nothing: that nobody answers shows when the connection is read or written."""
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


def _notice_cuts(sock: socket.socket) -> None:
    """Have the system break a connection whose other end was cut off without a word."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", SILENT_S),
        ("TCP_KEEPINTVL", SILENT_S // 3),
        ("TCP_KEEPCNT", 3),
        ("TCP_USER_TIMEOUT", UNHEARD_S * 1000),
    ):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def listen(host: str, port: int = 0) -> socket.socket:
    """Listen on an address; port 0 takes a free one."""
    sock = socket.create_server((host, port), backlog=256)
    sock.setblocking(False)
    return sock
