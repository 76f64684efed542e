"""Inject faults into a run from outside: kill and stop processes, cut connections, fill disks.

The run does not cooperate: workers are identified as processes, their connections as sockets. Used by the tests of
recovery and by the soak test. Linux only.
"""

import ctypes
import os
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from threading import Thread
from typing import NamedTuple

from penstock.model.status import Status

LISTENS, CONNECTED = "0A", "01"  # states of sockets in /proc/net/tcp
TAKE_FILE = 438  # the system call pidfd_getfd, which Python does not name


class Link(NamedTuple):
    """A TCP connection of a process."""

    pid: int
    number: int  # of its file
    here: int  # port
    there: int  # port


def wait_until(true: Callable[[], object], within_s: float = 60.0, what: str = "it") -> None:
    """Wait until a condition is true."""
    deadline = time.monotonic() + within_s
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not happen within {within_s:g} s")
        time.sleep(0.02)


# Processes


def below(pid: int) -> list[int]:
    """Return all descendants of a process."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            children.setdefault(parent(int(folder.name)), []).append(int(folder.name))
    found, waiting = [], [pid]
    while waiting:
        next_ones = children.get(waiting.pop(), [])
        found += next_ones
        waiting += next_ones
    return found


def parent(pid: int) -> int:
    """Return the parent of a process; 0 if it has ended."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _is_daemon(pid: int) -> bool:
    """Whether a process is Spark's Python daemon, or was forked from it."""
    return "pyspark" in command(pid) and "daemon" in command(pid)


def command(pid: int) -> str:
    """Return the command line of a process; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def workers(driver: int) -> list[int]:
    """Return the worker processes of a driver, including those of executors started by the same process.

    They are Spark's Python processes that listen for other workers; one without a job does not.
    """
    return [pid for pid in below(driver) if _is_daemon(pid) and _is_daemon(parent(pid)) and _listens(pid)]


def executors(driver: int) -> list[int]:
    """Return the Java processes of executors among the descendants of a process."""
    return [pid for pid in below(driver) if "CoarseGrainedExecutorBackend" in command(pid)]


def kill(pid: int) -> None:
    """Kill a process."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Stop a process, and continue it afterwards if it still exists."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


# Connections


def _sockets(pid: int) -> dict[str, int]:
    """Return the sockets of a process: from inode to file descriptor."""
    found = {}
    with suppress(OSError):
        for entry in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                if named := re.fullmatch(r"socket:\[(\d+)\]", os.readlink(f"/proc/{pid}/fd/{entry}")):
                    found[named[1]] = int(entry)
    return found


def _tcp(state: str) -> Iterator[tuple[str, int, int]]:
    """Yield the inode and both ports of all TCP sockets in a state."""
    for name in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in Path("/proc/net", name).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == state:
                    yield fields[9], int(fields[1].rpartition(":")[2], 16), int(fields[2].rpartition(":")[2], 16)


def _listens(pid: int) -> bool:
    own = _sockets(pid)
    return any(inode in own for inode, _, _ in _tcp(LISTENS))


def links(pids: list[int]) -> list[Link]:
    """Return the connections between processes, each once, from the client's side."""
    ports: dict[int, int] = {}
    own = {pid: _sockets(pid) for pid in pids}
    for inode, here, _ in _tcp(LISTENS):
        for pid in pids:
            if inode in own[pid]:
                ports[here] = pid
    return [
        Link(pid, own[pid][inode], here, there)
        for inode, here, there in _tcp(CONNECTED)
        for pid in pids
        if inode in own[pid] and ports.get(there, pid) != pid
    ]


def cut(link: Link) -> None:
    """Break a connection while both of its ends live: duplicate the process's file descriptor and shut it down."""
    process = os.pidfd_open(link.pid)
    try:
        number = ctypes.CDLL(None, use_errno=True).syscall(TAKE_FILE, process, link.number, 0)
        if number < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        with socket.socket(fileno=number) as shared:
            shared.shutdown(socket.SHUT_RDWR)
    finally:
        os.close(process)


# Moments

MOMENTS = ("in between", "during a checkpoint", "during a move")


@contextmanager
def amid(moment: str, spared: int, status: Callable[[], Status], move: Callable[[str, str], object]) -> Iterator[None]:
    """Start a checkpoint or a move, which a stopped worker keeps from completing."""
    if moment == MOMENTS[0]:
        yield
    elif moment == MOMENTS[1]:
        with stopped(spared):
            wait_until(lambda: status().operation == "checkpoint", what="a checkpoint")
            yield
    else:
        now = status()
        task = "count[0]"
        slots = [slot for machine in now.machines if machine.alive for slot in machine.slots]
        slot = next(slot for slot in slots if slot != now.placement[task])
        asked = Thread(target=move, args=(task, slot), daemon=True)
        with stopped(spared):
            asked.start()
            with suppress(TimeoutError):  # it may have arrived before the worker was stopped
                wait_until(lambda: status().operation.startswith("move"), 1.0)
            yield
        asked.join(60)


# Disks


class SmallDisk:
    """A file system of its own over a folder, which can be filled completely; needs permission to mount.

    The folder keeps its contents.
    """

    def __init__(self, folder: Path, size_mb: int = 64) -> None:
        self.folder = folder
        before = {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        mount = ["mount", "-t", "tmpfs", "-o", f"size={size_mb}m", "tmpfs", str(folder)]
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
        if done.returncode:
            raise PermissionError(done.stderr.strip() or "may not mount")
        for path, content in before.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)

    @contextmanager
    def full(self) -> Iterator[None]:
        """Leave no free space until the end of the block, even if other processes free some."""
        ended = threading.Event()
        filler = self.folder / "_filler"

        def fill(file: FileIO) -> None:
            with suppress(OSError):
                while file.write(bytes(4096)) == 4096:
                    pass

        def keep_full(file: FileIO) -> None:
            while not ended.wait(0.005):
                fill(file)

        with filler.open("wb", buffering=0) as file:
            fill(file)
            thread = threading.Thread(target=keep_full, args=(file,), daemon=True)
            thread.start()
            try:
                yield
            finally:
                ended.set()
                thread.join()
                filler.unlink()

    def close(self) -> None:
        """Unmount the file system and delete its contents."""
        subprocess.run(["umount", "-l", str(self.folder)], capture_output=True, check=False)
