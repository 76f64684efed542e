"""The control socket: how another process of the same user asks something of a running application.

The driver listens on a Unix socket in a folder that only its user may enter. A request is one line of JSON, and so is
its answer; what may be asked is the union `Asked`. Each connection has a thread of its own, so that the status can be
had while a move is under way. A mistake travels as its text, and is raised where it was asked.

Whoever asks says hello first. A driver that lives answers that at once, however long the answer to the request itself
takes; one that does not is stopped or stuck, though its socket still takes connections.
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
from typing import Any, Generic, TypeVar, cast

import msgspec

from penstock.model.decoding import Undecodable, decode_json, json_decoder
from penstock.model.errors import PenstockError
from penstock.model.plan import Plan
from penstock.model.status import PilotStatus, Status
from penstock.model.tuples import TuplePolicies
from penstock.runtime.handle import Handle, LogLine, Outcome
from penstock.runtime.storage.run_folder import SOCKETS, NoRun, RunInfo, alive, ended, keep, load

LONGEST_PATH = 99  # characters that every system takes as the name of a socket
LONGEST_LINE = 16 * 1024 * 1024  # bytes of a request: a plan of a hundred thousand tasks
LONGEST_ANSWER = 16 * LONGEST_LINE
CONNECTIONS = 64  # at once; the one that has been idle for longest makes room for another
IDLE_SECONDS = 60.0  # for which a connection may ask nothing
KEPT_LINES = 1000  # of the log, for those who ask for its end
HELLO_SECONDS = 5.0  # in which a driver answers a hello
PARTING_SECONDS = 5.0  # that answers under way are waited for at the end

A = TypeVar("A")


class Request(msgspec.Struct, Generic[A], frozen=True):
    """Something to ask of a run; `A` is what the answer holds."""


class Done(msgspec.Struct, frozen=True):
    """The answer where there is nothing to say."""


class LogTail(msgspec.Struct, frozen=True):
    """The last lines of the log, and how many there have been, to ask for what follows."""

    lines: list[LogLine]
    number: int


class Hello(Request[Done], frozen=True, tag="hello"):
    """Are you there?"""


class GetStatus(Request[Status], frozen=True, tag="status"):
    """How is it going?"""


class MoveTask(Request[list[Outcome]], frozen=True, tag="move"):
    """Move one task."""

    task: str
    slot: str


class ApplyPlan(Request[list[Outcome]], frozen=True, tag="apply"):
    """Move what a plan puts elsewhere."""

    plan: Plan


class SwitchPolicies(Request[TuplePolicies], frozen=True, tag="switch"):
    """Have other tuple policies in force."""

    tuples: TuplePolicies


class LimitSources(Request[dict[str, float]], frozen=True, tag="limit"):
    """Let sources give so many tuples a second: by source, or all together; None: no limit."""

    limits: dict[str, float | None] | float | None


class Steer(Request[PilotStatus], frozen=True, tag="steer"):
    """Have the autopilot decide by another policy, `off` for none, or by other models; None leaves what it is."""

    policy: str | None = None
    shadow: bool | None = None
    model: str | None = None  # where the file of latency models is, which the driver reads for itself


class Drain(Request[Done], frozen=True, tag="drain"):
    """Stop the sources, process what is in flight, publish it, end; answered at the end."""


class Stop(Request[Done], frozen=True, tag="stop"):
    """End at once, as of the last checkpoint."""


class GetLog(Request[LogTail], frozen=True, tag="log"):
    """What was said lately?"""

    after: int = 0  # only lines after this many


Asked = Hello | GetStatus | MoveTask | ApplyPlan | SwitchPolicies | LimitSources | Steer | Drain | Stop | GetLog


_decode_request: Callable[[bytes], Asked] = json_decoder(Asked)


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What comes back: a value, or the mistake in one line."""

    value: msgspec.Raw = msgspec.Raw(b"null")
    mistake: str = ""


_ANSWERS: dict[type, Any] = {
    Hello: Done,
    GetStatus: Status,
    MoveTask: list[Outcome],
    ApplyPlan: list[Outcome],
    SwitchPolicies: TuplePolicies,
    LimitSources: dict[str, float],
    Steer: PilotStatus,
    Drain: Done,
    Stop: Done,
    GetLog: LogTail,
}


class NotAnswering(PenstockError):
    """A run whose driver is there but did not answer in time."""


class Unanswered(NoRun):
    """A run that ended, or was ended, before it could answer."""


def ask(
    info: RunInfo,
    request: Request[A],
    timeout: float | None = 10.0,
    heard: Callable[[], None] = lambda: None,
    hello_s: float = HELLO_SECONDS,
) -> A:
    """Ask something of a running application and return its answer; `timeout` None waits as long as it takes.

    `heard` is called when its driver is known to be there, before it is asked.
    """
    if not info.socket and alive(info.pid):
        raise NoRun(f"run {info.run} is still starting; ask again in a moment")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        greeted = False
        try:
            connection.settimeout(hello_s)
            connection.connect(info.socket)
            with connection.makefile("rb") as answers:
                connection.sendall(_line(Hello()))
                line = answers.readline(LONGEST_ANSWER)
                if line:  # whatever it says: an older version does not know the word
                    greeted = True
                    heard()
                    connection.settimeout(timeout)
                    connection.sendall(_line(request))
                    line = answers.readline(LONGEST_ANSWER)
        except (TimeoutError, BlockingIOError):  # or others wait already, more than the socket takes
            raise NotAnswering(_silent(info, timeout) if greeted else _stuck(info, hello_s)) from None
        except PermissionError:
            raise NoRun(f"run {info.run} is another user's; only who started it can ask it") from None
        except (BrokenPipeError, ConnectionResetError):
            line = b""
        except OSError:  # no such socket, or nobody listens there
            raise NoRun(_gone(info)) from None
    if not line.endswith(b"\n"):
        raise Unanswered(_gone(info))
    try:
        answer = decode_json(line, Answer)
        if answer.mistake:
            raise PenstockError(answer.mistake)
        return cast(A, decode_json(bytes(answer.value), _ANSWERS[type(request)]))
    except Undecodable as error:
        problem = f"its answer is not understood, {error}; use the same version of penstock as the run's"
        raise PenstockError(f"run {info.run}: {problem}") from None


def _line(message: Request[Any] | Answer) -> bytes:
    return msgspec.json.encode(message) + b"\n"


def _silent(info: RunInfo, seconds: float | None) -> str:
    problem = f"no answer within {seconds:g} s from its driver (pid {info.pid}); ask again, or see {info.log_path}"
    return f"run {info.run}: {problem}"


def _stuck(info: RunInfo, seconds: float) -> str:
    problem = f"its driver (pid {info.pid}) does not answer, not even to a hello within {seconds:g} s"
    resume = "" if info.config is None else f", which leaves the run to penstock runs resume {info.called}"
    return f"run {info.run}: {problem}; if it is stopped, kill -CONT {info.pid}; or end it, kill -9 {info.pid}{resume}"


def _gone(info: RunInfo) -> str:
    driver = f"its driver (pid {info.pid}) has gone"
    if info.config is None:
        return f"run {info.run} is not running: {driver}; its telemetry is in {info.telemetry_path}"
    return f"run {info.run} is not running: {driver}; go on with penstock runs resume {info.called}"


class ControlServer:
    """Answers what is asked of one run, in threads of its own, from when it is made until it is closed.

    The run's folder says where it listens, and from its closing on that the run has ended. It may be closed by any
    thread, one of its own included, and closes once.
    """

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._lines: deque[LogLine] = deque(maxlen=KEPT_LINES)
        self._spoken = 0
        self._closed = False
        self._lock = Lock()  # of the attributes above and below
        self._connections: dict[Thread, socket.socket] = {}  # in the order of when each was last answered
        self._answering: set[Thread] = set()
        self._listener = _listen()
        self.path = Path(self._listener.getsockname())
        info = load(handle.folder)
        self.info = msgspec.structs.replace(info, pid=os.getpid(), socket=str(self.path))
        keep(self.info)
        handle.on_log(self._hear)
        self._thread = Thread(target=self._accept, name="penstock control", daemon=True)
        self._thread.start()

    def __enter__(self) -> "ControlServer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Take no more requests, answer those under way, and write down that the run has ended."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            open_ones = dict(self._connections)
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as waker:
            waker.connect(str(self.path))
        self._thread.join(PARTING_SECONDS)
        self._listener.close()
        until = monotonic() + PARTING_SECONDS
        for thread, connection in open_ones.items():
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RD)
            if thread is not current_thread():
                thread.join(max(until - monotonic(), 0.0))
        shutil.rmtree(self.path.parent, ignore_errors=True)
        self.info = ended(self.info)

    def _hear(self, line: LogLine) -> None:
        with self._lock:
            self._lines.append(line)
            self._spoken += 1

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
                    connection.sendall(_line(Answer(mistake=f"{CONNECTIONS} others are being answered; ask again")))
                continue
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        me = current_thread()
        with suppress(OSError), connection, connection.makefile("rwb") as stream:  # OSError: the other side has gone
            connection.settimeout(IDLE_SECONDS)
            while line := stream.readline(LONGEST_LINE):
                with self._lock:
                    self._answering.add(me)
                whole = line.endswith(b"\n") or len(line) < LONGEST_LINE
                answer = self._answer(line) if whole else Answer(mistake=f"request: longer than {LONGEST_LINE} bytes")
                stream.write(_line(answer))
                stream.flush()
                with self._lock:
                    self._answering.discard(me)
                    if self._connections.pop(me, None) is not None:
                        self._connections[me] = connection  # it has been idle for the shortest time
                if not whole:
                    break
        with self._lock:
            self._answering.discard(me)
            self._connections.pop(me, None)

    def _answer(self, line: bytes) -> Answer:
        try:
            request = _decode_request(line)
        except Undecodable as error:
            return Answer(mistake=f"request: not understood, {error}; use the same version of penstock as the run's")
        try:
            return Answer(value=msgspec.Raw(msgspec.json.encode(self._do(request))))
        except PenstockError as mistake:
            return Answer(mistake=" ".join(str(mistake).split()))
        except Exception as error:  # a defect must not end the thread without an answer
            self._note(traceback.format_exc())
            return Answer(mistake=f"a defect of Penstock, {type(error).__name__}: {error}; see {self.info.log_path}")

    def _do(self, request: Asked) -> Any:
        if isinstance(request, GetStatus):
            return self._handle.status()
        if isinstance(request, MoveTask):
            return [self._handle.move(request.task, request.slot)]
        if isinstance(request, ApplyPlan):
            return self._handle.apply(request.plan)
        if isinstance(request, SwitchPolicies):
            return self._handle.switch(request.tuples)
        if isinstance(request, LimitSources):
            return self._handle.limit(request.limits)
        if isinstance(request, Steer):
            return self._handle.steer(request.policy, request.shadow, request.model)
        if isinstance(request, GetLog):
            return self._tail(request.after)
        if isinstance(request, Drain):
            self._handle.drain()
        elif isinstance(request, Stop):
            self._handle.stop()
        return Done()

    def _tail(self, after: int) -> LogTail:
        with self._lock:
            fresh = min(max(self._spoken - after, 0), len(self._lines))
            return LogTail(list(self._lines)[len(self._lines) - fresh :], self._spoken)

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
