"""The control socket: how other processes of the same user control a running application.

The driver listens on a Unix socket in a folder that only its user may enter. A request is one line of JSON, and so is
its answer; the union `AnyRequest` lists all requests. Each connection has a thread of its own: the status is available
while a move is in progress. An error is sent as its text, and raised by the client.

A client sends a hello first. A driver that works answers it at once, however long the request itself takes. One that
does not answer is suspended or stuck, although its socket still accepts connections.
"""

import os
import shutil
import socket
import tempfile
import traceback
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Lock, Thread, current_thread
from time import monotonic
from typing import Any, Generic, TypeVar, cast, get_args

import msgspec

from penstock.model.decoding import Undecodable, decode_json, json_decoder
from penstock.model.errors import PenstockError
from penstock.model.plan import Plan
from penstock.model.status import PilotStatus, Status
from penstock.model.tuples import TuplePolicies
from penstock.runtime.handle import Handle, LogLine, MovedTask
from penstock.runtime.storage.run_folder import SOCKETS, NoRun, RunInfo, alive, load, mark_ended, write_info

LONGEST_PATH = 99  # characters that every system takes as the name of a socket
LONGEST_LINE = 16 * 1024 * 1024  # bytes of a request: a plan of a hundred thousand tasks
LONGEST_ANSWER = 16 * LONGEST_LINE
CONNECTIONS = 64  # at once; a further one replaces the one that is idle for longest
IDLE_SECONDS = 60.0  # maximum time between two requests of a connection
KEPT_LINES = 1000  # of the log, for `GetLog`
HELLO_SECONDS = 5.0  # within which a driver answers a hello
CLOSE_SECONDS = 5.0  # to wait for answers in progress at the end

A = TypeVar("A")


class Request(msgspec.Struct, Generic[A], frozen=True):
    """A request to a run; `A` is the type of its answer."""


class Acknowledgement(msgspec.Struct, frozen=True):
    """An answer without a value."""


class LogTail(msgspec.Struct, frozen=True):
    """The last lines of the log, and the number of all lines so far, from which a later request continues."""

    lines: list[LogLine]
    number: int


class Greet(Request[Acknowledgement], frozen=True, tag="hello"):
    """Check that the driver works."""


class GetStatus(Request[Status], frozen=True, tag="status"):
    """Return the status."""


class MoveTask(Request[list[MovedTask]], frozen=True, tag="move"):
    """Move one task."""

    task: str
    slot: str


class ApplyPlan(Request[list[MovedTask]], frozen=True, tag="apply"):
    """Move the tasks whose slot differs in a plan."""

    plan: Plan


class SwitchTuplePolicies(Request[TuplePolicies], frozen=True, tag="switch"):
    """Replace the tuple policies."""

    tuples: TuplePolicies


class LimitSources(Request[dict[str, float]], frozen=True, tag="limit"):
    """Limit the rates of sources, in tuples per second: by source, or all together; None: no limit."""

    limits: dict[str, float | None] | float | None


class Steer(Request[PilotStatus], frozen=True, tag="steer"):
    """Set the policy of the autopilot (`off`: none), its mode or its models; None changes nothing."""

    policy: str | None = None
    shadow: bool | None = None
    model: str | None = None  # the file of latency models, which the driver reads


class DrainRun(Request[Acknowledgement], frozen=True, tag="drain"):
    """Stop the sources, process and publish everything in flight, end; answered at the end."""


class StopRun(Request[Acknowledgement], frozen=True, tag="stop"):
    """End at once; the last checkpoint counts."""


class GetLog(Request[LogTail], frozen=True, tag="log"):
    """Return the last lines of the log."""

    after: int = 0  # only lines after this many


AnyRequest = (
    Greet | GetStatus | MoveTask | ApplyPlan | SwitchTuplePolicies | LimitSources | Steer | DrainRun | StopRun | GetLog
)


_decode_request: Callable[[bytes], AnyRequest] = json_decoder(AnyRequest)


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """An answer: a value, or an error in one line."""

    value: msgspec.Raw = msgspec.Raw(b"null")
    error: str = ""


class NotAnswering(PenstockError):
    """A run whose driver exists but did not answer in time."""


class Unanswered(NoRun):
    """A run that ended before it answered."""


def ask(
    info: RunInfo,
    request: Request[A],
    timeout: float | None = 10.0,
    heard: Callable[[], None] = lambda: None,
    hello_s: float = HELLO_SECONDS,
) -> A:
    """Send a request to a running application and return its answer; `timeout` None: wait without limit.

    `heard` is called when the driver has answered the hello, before the request.
    """
    if not info.socket and alive(info.pid):
        raise NoRun(f"run {info.run} is still starting; ask again in a moment")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        greeted = False
        try:
            connection.settimeout(hello_s)
            connection.connect(info.socket)
            with connection.makefile("rb") as answers:
                connection.sendall(_line(Greet()))
                line = answers.readline(LONGEST_ANSWER)
                if line:
                    greeted = True
                    heard()
                    connection.settimeout(timeout)
                    connection.sendall(_line(request))
                    line = answers.readline(LONGEST_ANSWER)
        except (TimeoutError, BlockingIOError):  # or the queue of the socket is full
            raise NotAnswering(_silent(info, timeout) if greeted else _stuck(info, hello_s)) from None
        except PermissionError:
            raise NoRun(f"run {info.run} is another user's; only the user who started it can control it") from None
        except (BrokenPipeError, ConnectionResetError):
            line = b""
        except OSError:  # no such socket, or nobody listens there
            raise NoRun(_died(info)) from None
    if not line.endswith(b"\n"):
        raise Unanswered(_died(info))
    try:
        answer = decode_json(line, Answer)
        if answer.error:
            raise PenstockError(answer.error)
        return cast(A, decode_json(bytes(answer.value), _answer_type(type(request))))
    except Undecodable as error:
        problem = f"its answer is not understood, {error}; use the same version of penstock as the run's"
        raise PenstockError(f"run {info.run}: {problem}") from None


def _answer_type(request: Any) -> Any:
    """Return the argument of `Request`, from which a class of requests is derived."""
    return get_args(request.__orig_bases__[0])[0]


def _line(message: Request[Any] | Answer) -> bytes:
    return msgspec.json.encode(message) + b"\n"


def _silent(info: RunInfo, seconds: float | None) -> str:
    problem = f"no answer within {seconds:g} s from its driver (pid {info.pid}); ask again, or see {info.log_path}"
    return f"run {info.run}: {problem}"


def _stuck(info: RunInfo, seconds: float) -> str:
    problem = f"its driver (pid {info.pid}) does not answer, not even to a hello within {seconds:g} s"
    resume = f", which leaves the run to penstock runs resume {info.called}"
    return f"run {info.run}: {problem}; if it is stopped, kill -CONT {info.pid}; or end it, kill -9 {info.pid}{resume}"


def _died(info: RunInfo) -> str:
    driver = f"its driver (pid {info.pid}) has died"
    return f"run {info.run} is not running: {driver}; resume it with penstock runs resume {info.called}"


class ControlServer:
    """Answers requests to one run, in threads of its own, from its creation until it is closed.

    `run.json` has its address, and when it closes, the end of the run. Any thread may close it, also one of its own.
    """

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._lines: deque[LogLine] = deque(maxlen=KEPT_LINES)
        self._count = 0
        self._closed = False
        self._lock = Lock()  # of the attributes above and below
        self._connections: dict[Thread, socket.socket] = {}  # in the order of when each was last answered
        self._answering: set[Thread] = set()
        self._listener = _listen()
        self.path = Path(self._listener.getsockname())
        info = load(handle.folder)
        self.info = msgspec.structs.replace(info, pid=os.getpid(), socket=str(self.path))
        write_info(self.info)
        handle.on_log(self._add_line)
        self._thread = Thread(target=self._accept, name="penstock control", daemon=True)
        self._thread.start()

    def __enter__(self) -> "ControlServer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Accept no more requests, answer those in progress, and record that the run has ended."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            open_ones = dict(self._connections)
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as waker:
            waker.connect(str(self.path))
        self._thread.join(CLOSE_SECONDS)
        self._listener.close()
        until = monotonic() + CLOSE_SECONDS
        for thread, connection in open_ones.items():
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RD)
            if thread is not current_thread():
                thread.join(max(until - monotonic(), 0.0))
        shutil.rmtree(self.path.parent, ignore_errors=True)
        self.info = mark_ended(self.info)

    def _add_line(self, line: LogLine) -> None:
        with self._lock:
            self._lines.append(line)
            self._count += 1

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                if self._closed:
                    connection.close()
                    return
                thread = Thread(target=self._serve, args=(connection,), name="penstock control", daemon=True)
                full = len(self._connections) >= CONNECTIONS
                idle = next((each for each in self._connections if each not in self._answering), None)
                if full and idle is not None:
                    with suppress(OSError):
                        self._connections.pop(idle).shutdown(socket.SHUT_RDWR)
                if not full or idle is not None:
                    self._connections[thread] = connection
            if full and idle is None:  # all of them wait for answers
                with suppress(OSError), connection:
                    connection.sendall(_line(Answer(error=f"{CONNECTIONS} others are being answered; ask again")))
                continue
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        me = current_thread()
        with suppress(OSError), connection, connection.makefile("rwb") as stream:  # OSError: the client has left
            connection.settimeout(IDLE_SECONDS)
            while line := stream.readline(LONGEST_LINE):
                with self._lock:
                    self._answering.add(me)
                whole = line.endswith(b"\n") or len(line) < LONGEST_LINE
                answer = self._answer(line) if whole else Answer(error=f"request: longer than {LONGEST_LINE} bytes")
                stream.write(_line(answer))
                stream.flush()
                with self._lock:
                    self._answering.discard(me)
                    if self._connections.pop(me, None) is not None:
                        self._connections[me] = connection  # idle for the shortest time
                if not whole:
                    break
        with self._lock:
            self._answering.discard(me)
            self._connections.pop(me, None)

    def _answer(self, line: bytes) -> Answer:
        try:
            request = _decode_request(line)
        except Undecodable as error:
            return Answer(error=f"request: not understood, {error}; use the same version of penstock as the run's")
        try:
            return Answer(value=msgspec.Raw(msgspec.json.encode(self._do(request))))
        except PenstockError as error:
            return Answer(error=" ".join(str(error).split()))
        except Exception as error:  # a defect must not end the thread without an answer
            self._note(traceback.format_exc())
            return Answer(error=f"a defect of Penstock, {type(error).__name__}: {error}; see {self.info.log_path}")

    def _do(self, request: AnyRequest) -> Any:
        if isinstance(request, GetStatus):
            return self._handle.status()
        if isinstance(request, MoveTask):
            return [self._handle.move(request.task, request.slot)]
        if isinstance(request, ApplyPlan):
            return self._handle.apply(request.plan)
        if isinstance(request, SwitchTuplePolicies):
            return self._handle.switch(request.tuples)
        if isinstance(request, LimitSources):
            return self._handle.limit(request.limits)
        if isinstance(request, Steer):
            return self._handle.steer(request.policy, request.shadow, request.model)
        if isinstance(request, GetLog):
            return self._tail(request.after)
        if isinstance(request, DrainRun):
            self._handle.drain()
        elif isinstance(request, StopRun):
            self._handle.stop()
        return Acknowledgement()

    def _tail(self, after: int) -> LogTail:
        with self._lock:
            fresh = min(max(self._count - after, 0), len(self._lines))
            return LogTail(list(self._lines)[len(self._lines) - fresh :], self._count)

    def _note(self, text: str) -> None:
        with suppress(OSError), self.info.log_path.open("a", encoding="utf-8") as log:
            log.write(text)


def _listen() -> socket.socket:
    """Return a socket that listens in a new folder which only this user may enter."""
    tried = dict.fromkeys((tempfile.gettempdir(), "/tmp"))  # noqa: S108  mkdtemp makes a folder of our own in it
    for place in tried:
        try:
            folder = tempfile.mkdtemp(prefix=SOCKETS, dir=place)
        except OSError:
            continue
        path = os.path.join(folder, "control")
        if len(os.fsencode(path)) > LONGEST_PATH:
            os.rmdir(folder)
            continue
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(path)
            listener.listen()
        except OSError:
            listener.close()
            shutil.rmtree(folder, ignore_errors=True)
            continue
        return listener
    problem = f"found no folder for it in {' or '.join(tried)}, of a name shorter than {LONGEST_PATH} characters"
    raise PenstockError(f"control socket: {problem}; set TMPDIR to a short one that may be written")
