"""Run folders: where a run keeps its files, and how a later command finds them.

    runs/word-count-20250131-142501/
      run.json     application, settings, start time, process, control socket, outcome
      lock         held by the process that drives the run, and naming it
      plan.toml    the initial placement
      cluster.toml the emulated machines, if any
      checkpoints/ what the run continues from after a failure
      epochs/      the current epoch of each task of a sink, after a failure
      telemetry/   unless it is sent elsewhere
      output/      files of sinks with relative paths
      decisions.jsonl  the autopilot's decisions, their inputs and their measured effects
      run.log      log of operators and the runtime, with tracebacks
      status.json  the final status

`run.json` is written when the folder is made, when the control socket is open, and at the end. A run whose driver was
killed is never marked as ended; a command finds its socket dead. The kernel frees the lock of a process that dies, so
that another driver can resume the run.
"""

import fcntl
import os
import platform
import re
import shutil
import socket
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from threading import Lock
from typing import Annotated, TextIO

import msgspec
from msgspec import Meta

from penstock.model.decoding import Undecodable, decode_json
from penstock.model.errors import FileProblem, PenstockError, UnknownName, nearest
from penstock.model.files import write_whole
from penstock.model.status import Status
from penstock.runtime.config import RunConfig
from penstock.runtime.handle import LogLine

RUNS = Path("runs")
LATEST = "latest"  # names the run that started last
INFO = "run.json"
STATUS = "status.json"
LOCK = "lock"
CHECKPOINTS = "checkpoints"
LOOKS, LOOK_S = 3, 0.02  # attempts to lock a run, and the seconds between them
SOCKETS = "penstock-"  # prefix of the folders of sockets


class NoRun(PenstockError):
    """A run that does not exist, or is not running."""


class RunInUse(PenstockError):
    """A run that another driver has locked."""


Moment = Annotated[datetime, Meta(tz=True)]


class RunInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of `run.json`."""

    run: str  # the folder's name when it was made
    application: str
    master: str
    emulated: str | None  # the cluster that is emulated
    policy: str
    started: Moment
    ended: Moment | None = None
    pid: Annotated[int, Meta(ge=1, le=2**31 - 1)]  # of the driver
    socket: str = ""  # of the control server; empty: not open
    version: str  # of Penstock
    telemetry: str = "telemetry"  # below the folder, or elsewhere
    config: RunConfig
    resumed: int = 0  # how often it was resumed
    outcome: str = ""  # completed, stopped or failed; empty: it has not ended, or its driver died
    reason: str = ""  # for that outcome
    given_up: bool = False  # it was a path of an application; other paths have its tuples now
    folder: str = "."  # where it was found, whatever the file contains

    @property
    def path(self) -> Path:
        """The run's folder."""
        return Path(self.folder)

    @property
    def called(self) -> str:
        """Its name in commands: its own, or its folder if that is not among the other runs."""
        return self.path.name if self.path.absolute().parent == RUNS.absolute() else self.folder

    @property
    def telemetry_path(self) -> Path:
        """The folder of its telemetry."""
        return self.path / self.telemetry

    @property
    def output_path(self) -> Path:
        """The folder of its outputs."""
        return self.path / "output"

    @property
    def plan_path(self) -> Path:
        """Its initial plan."""
        return self.path / "plan.toml"

    @property
    def cluster_path(self) -> Path:
        """The cluster that it emulates."""
        return self.path / "cluster.toml"

    @property
    def checkpoints_path(self) -> Path:
        """The folder of its checkpoints."""
        return self.path / CHECKPOINTS

    @property
    def status_path(self) -> Path:
        """Its final status."""
        return self.path / STATUS

    @property
    def log_path(self) -> Path:
        """Its log."""
        return self.path / "run.log"


def create(
    application: str,
    parent: Path = RUNS,
    *,
    config: RunConfig = RunConfig(),  # noqa: B008  frozen
    emulated: str | None = None,
    policy: str = "",
) -> RunInfo:
    """Make the folder of a new run below `parent`."""
    telemetry = config.telemetry.folder
    now = datetime.now().astimezone()
    plain = re.sub(r"[^\w.-]+", "-", application).strip("-.") or "run"  # Hadoop's paths cannot hold a colon
    umask = config.execution.umask
    folder = _new_folder(parent, f"{plain}-{now:%Y%m%d-%H%M%S}", umask)
    info = RunInfo(
        run=folder.name,
        application=application,
        master=_master(config),
        emulated=emulated,
        policy=policy,
        started=now,
        pid=os.getpid(),
        version=version("penstock"),
        telemetry="telemetry" if telemetry is None else str(Path(telemetry).absolute()),
        config=config,
        folder=str(folder),
    )
    try:
        for part in (info.telemetry_path, info.output_path):
            _make(part, umask, exist_ok=True)
        write_info(info)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return info


def _master(config: RunConfig) -> str:
    return config.execution.master or "embedded"


def write_info(info: RunInfo) -> None:
    """Write `run.json`."""
    write_whole(info.path / INFO, msgspec.json.format(msgspec.json.encode(info), indent=2) + b"\n")


def load(folder: Path) -> RunInfo:
    """Read `run.json`."""
    path = folder / INFO
    try:
        info: RunInfo = decode_json(path.read_bytes(), RunInfo)
    except OSError as error:
        raise FileProblem.of(error, path, "cannot be read", "name a run's folder") from None
    except Undecodable as error:
        raise FileProblem(f"{path}: not what a run writes, {error}; name another run") from None
    return msgspec.structs.replace(info, folder=str(folder))


def mark_ended(info: RunInfo) -> RunInfo:
    """Record that a run has ended, unless another driver has resumed it; return its `run.json`."""
    found = load(info.path)
    if (found.pid, found.resumed) == (info.pid, info.resumed):
        found = msgspec.structs.replace(found, ended=datetime.now().astimezone(), socket="")
        write_info(found)
    return found


def write_outcome(info: RunInfo, outcome: str, reason: str, status: Status) -> None:
    """Record the outcome of a run, unless another driver has resumed it."""
    found = load(info.path)
    if (found.pid, found.resumed) == (info.pid, info.resumed):
        write_whole(found.status_path, msgspec.json.encode(status))
        write_info(msgspec.structs.replace(found, outcome=outcome, reason=" ".join(reason.split())))


def last_status(info: RunInfo) -> Status | None:
    """Return the final status of a run; None: there is none, or it cannot be read."""
    try:
        found: Status = decode_json(info.status_path.read_bytes(), Status)
    except (OSError, Undecodable):
        return None
    return found


def in_progress(info: RunInfo) -> bool:
    """Return whether a driver has the run now: it holds the lock, or has only started."""
    if info.ended is not None:
        return False
    try:
        with (info.path / LOCK).open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # it has none yet
        return alive(info.pid)
    return False


def outcome(info: RunInfo) -> tuple[str, str]:
    """Return the outcome of a run (completed, stopped, failed, died) and its reason; both empty if it runs."""
    if info.outcome and not in_progress(info):
        return info.outcome, info.reason
    if info.ended is not None:
        return "ended", "its outcome was not recorded"
    if in_progress(info):
        return "", ""
    return "died", f"its driver (pid {info.pid}) died or was killed"


def all_runs(parent: Path = RUNS) -> list[RunInfo]:
    """Return the runs below a folder, the newest first."""
    return _newest_first(parent)


def remove(info: RunInfo) -> None:
    """Remove the folder of a run that has ended; refuse one that a driver has locked."""
    folder = info.path
    if folder.is_symlink() or not (folder / INFO).is_file():
        raise FileProblem(f"{folder}: is not a run's own folder; name one that penstock run has made")
    lock = RunLock(info)
    try:
        shutil.rmtree(folder)
    except OSError as error:
        raise FileProblem(f"{folder}: cannot be removed, {(error.strerror or str(error)).lower()}") from None
    finally:
        lock.release()


def record_resume(info: RunInfo, config: RunConfig, policy: str) -> RunInfo:
    """Record that this process drives a run from now on; remove what the previous driver could not."""
    _remove_dead_socket(Path(info.socket))
    if info.pid != os.getpid():  # else other runs of this process may be in the session that has its files there
        shutil.rmtree(info.path / "spark", ignore_errors=True)
    info.status_path.unlink(missing_ok=True)
    info = msgspec.structs.replace(
        info,
        pid=os.getpid(),
        socket="",
        ended=None,
        version=version("penstock"),
        outcome="",
        reason="",
        resumed=info.resumed + 1,
        config=config,
        master=_master(config),
        policy=policy,
    )
    umask = config.execution.umask
    with suppress(PermissionError):  # it may be another user's, who lets this one write to it
        info.path.chmod(0o777 & ~umask)  # with another setting, others could read it
    for part in (info.telemetry_path, info.output_path):
        _make(part, umask, exist_ok=True)
    write_info(info)
    return info


def _remove_dead_socket(path: Path) -> None:
    """Remove a socket that nobody answers, and its folder if that is empty then; keep everything else."""
    places = (Path(tempfile.gettempdir()).resolve(), Path("/tmp"))  # noqa: S108  where sockets are made
    if not path.parent.name.startswith(SOCKETS) or path.parent.parent.resolve() not in places:
        return
    with suppress(OSError):
        found = path.lstat()
        if path.parent.is_symlink() or not stat.S_ISSOCK(found.st_mode) or found.st_uid != os.getuid():
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(1.0)
            try:
                probe.connect(str(path))
            except ConnectionRefusedError:
                path.unlink()
                path.parent.rmdir()


def outside(info: RunInfo, name: str) -> Path | None:
    """Return the folder that a name in `run.json` means if it is outside the run's folder; None: it is inside."""
    place = info.path.absolute() / name
    below = place.resolve().is_relative_to(info.path.resolve())
    return None if below else place


def latest(parent: Path = RUNS) -> RunInfo:
    """Return the run below `parent` that was started last."""
    found = _newest_first(parent)
    if not found:
        raise NoRun(f"run: there is none in {parent}; start one with penstock run APP, or name its folder")
    return found[0]


def find_run(what: str | Path | None = None, parent: Path = RUNS) -> RunInfo:
    """Return the run of a name or in a folder; the latest for `latest`, or if nothing is named."""
    if what is None:
        return latest(parent)
    for folder in (parent / what, Path(what)):
        if (folder / INFO).is_file():
            return load(folder)
    if what == LATEST:
        return latest(parent)
    if Path(what).is_dir():
        raise NoRun(f"run: {what} is not a run's folder, it has no {INFO}; name one that penstock run has made")
    there = [info.run for info in _newest_first(parent)]
    known = nearest(what, there) if there else f"there is none in {parent}; start one with penstock run APP"
    raise UnknownName("run", f"no run is named {str(what)!r}; {known}")


def find_current(what: str | Path | None = None, parent: Path = RUNS) -> RunInfo:
    """Return a run as `find_run` does; `latest` is the last one that has not ended, if there is one."""
    info = find_run(what, parent)
    if what in (None, LATEST):
        going = [each for each in _newest_first(parent) if each.ended is None and alive(each.pid)]
        info = going[0] if going else info
    return info


def find_running(what: str | Path | None = None, parent: Path = RUNS) -> RunInfo:
    """Return a run as `find_current` does; refuse one that has ended."""
    info = find_current(what, parent)
    if info.ended is not None:
        problem = f"run {info.run} has ended, {info.ended:%Y-%m-%d %H:%M:%S}; its telemetry is in {info.telemetry_path}"
        newer = "" if what not in (None, LATEST) else "; a run that has just started answers soon"
        raise NoRun(f"{problem}: penstock report {info.called}{newer}")
    return info


def alive(pid: int) -> bool:
    """Return whether a process of that number runs on this machine."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


class RunLock:
    """The lock of a run: one process holds it, until it releases it or dies."""

    def __init__(self, info: RunInfo) -> None:
        try:
            self._file = (info.path / LOCK).open("a+")  # not inherited: Java's process outlives a driver for a moment
        except OSError as error:
            raise FileProblem.of(error, info.path / LOCK, "cannot be written", "is the folder yours?") from None
        try:
            _lock(self._file)
        except BlockingIOError:
            self._file.seek(0)
            holder = self._file.read().strip() or f"process {info.pid}"
            self._file.close()
            remedies = f"see penstock status {info.called}, end it by penstock stop {info.called}"
            raise RunInUse(f"run {info.run} is being run by {holder}; {remedies}") from None
        self._file.truncate(0)
        self._file.write(f"process {os.getpid()} on {platform.node()}\n")
        self._file.flush()

    def release(self) -> None:
        """Release the lock."""
        self._file.close()


def _lock(file: TextIO) -> None:
    """Lock a file, or raise `BlockingIOError`; a process that only checks the lock holds it for a moment too."""
    for attempt in range(LOOKS):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if attempt == LOOKS - 1:
                raise
            time.sleep(LOOK_S)
        else:
            return


def refuse_unwritable(path: Path, what: str) -> None:
    """Raise `FileProblem` for a folder that cannot be written, whether it exists or not; `what` names the option."""
    above = next(each for each in (path.absolute(), *path.absolute().parents) if each.exists())
    if not above.is_dir():
        raise FileProblem(f"{path}: cannot be made, {above} is not a folder; choose another {what}")
    if not os.access(above, os.W_OK | os.X_OK):
        raise FileProblem(f"{path}: cannot be written, {above} is not yours to write; choose another {what}")


class LogFile:
    """Appends log lines to a run's log; a listener for `Handle.on_log`."""

    def __init__(self, info: RunInfo) -> None:
        self._file = info.log_path.open("a", encoding="utf-8", buffering=1)
        self._lock = Lock()  # lines may come from several threads

    def __call__(self, line: LogLine) -> None:
        """Write one line, or several if its text has several."""
        when = datetime.fromtimestamp(line.at)
        self.write(
            f"{when:%Y-%m-%d %H:%M:%S}.{when.microsecond // 1000:03d} {line.level:<7} {line.speaker}: {line.text}"
        )

    def write(self, text: str) -> None:
        """Write a text of our own, such as a traceback."""
        with self._lock:
            if not self._file.closed:
                self._file.write(text.rstrip("\n") + "\n")

    def close(self) -> None:
        """Close the file; later lines are dropped."""
        with self._lock, suppress(OSError):  # a full disk was reported when it rejected a line
            self._file.close()


def _newest_first(parent: Path) -> list[RunInfo]:
    return sorted(_all(parent), key=lambda info: (info.started, info.run), reverse=True)


def _all(parent: Path) -> Iterator[RunInfo]:
    if not parent.is_dir():
        return
    for path in parent.glob(f"*/{INFO}"):
        try:
            yield load(path.parent)
        except FileProblem:  # a folder that is being made or removed, or not ours, hides no other
            continue


def _new_folder(parent: Path, name: str, umask: int) -> Path:
    """Make a new folder: if two runs start in one second, the later one gets a number."""
    _make(parent, None, exist_ok=True)
    number = 1
    while True:
        folder = parent / (name if number == 1 else f"{name}-{number}")
        try:
            _make(folder, umask)
        except FileExistsError:
            number += 1
        else:
            return folder


def _make(folder: Path, umask: int | None, exist_ok: bool = False) -> None:
    """Make a folder with the permissions that a umask leaves; None: the process's umask."""
    try:
        there = folder.is_dir()
        folder.mkdir(parents=True, exist_ok=exist_ok, mode=0o777 if umask is None else 0o700)
        if umask is not None and not there:
            folder.chmod(0o777 & ~umask)
    except FileExistsError:
        if not exist_ok:
            raise
        raise FileProblem(f"{folder}: cannot be made, a file has that name; choose another place") from None
    except OSError as error:
        raise FileProblem.of(error, folder, "cannot be made", "choose another place") from None
