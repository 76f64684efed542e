"""The Spark session: embedded by default, or on a master URL.

An embedded session has a folder of its own for files, listens on loopback only, and logs nothing unless there is a
problem. On another master, executors need the driver's Python packages in the interpreter named by `PYSPARK_PYTHON`
(default: the driver's own).
"""

import os
import re
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from penstock.model.errors import PenstockError
from penstock.model.files import make_folder
from penstock.pipeline.class_archive import java_options
from penstock.pipeline.java import need_java

QUICK_TO_START = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
"""For short sessions: Java's second compiler runs for a minute before it pays off, half of the time of a report."""

ANSWER_S = 3.0  # timeout for a connection to a standalone master; Spark itself would try for a minute


class NoSpark(PenstockError):
    """A Spark session could not be started."""


@contextmanager
def session(
    name: str,
    master: str | None = None,
    *,
    settings: Mapping[str, str] | None = None,
    folder: Path | None = None,
    brief: bool = True,
) -> Iterator[SparkSession]:
    """Start a Spark session; default master: embedded, one thread per core.

    `settings` override ours. `folder` keeps the session's files; default: a temporary one. `brief` suits sessions of up
    to a minute: Java starts quickly and optimises less. If this process already has a session, that one is returned
    unchanged and left running, because Spark allows only one.
    """
    running = running_session()
    if running is not None:
        _refuse_other(running, master)
        yield running
        return
    need_java()
    if master is not None:
        _need_answer(master)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    with _home(folder) as home:
        conf = _settings(name, master or f"local[{os.cpu_count() or 1}]", home, brief)
        for key, value in (settings or {}).items():
            conf.set(key, value)
        spark = None
        try:
            spark = _start_uninterrupted(conf, home)
            yield spark
        finally:
            if spark is not None:
                _stop(spark)


@dataclass
class _Common:
    """A session with several users."""

    spark: SparkSession
    stack: ExitStack  # stops it if it was started here
    users: int = 0


_commons: list[_Common] = []
_commons_lock = threading.Lock()


@contextmanager
def common_session(
    name: str,
    master: str | None = None,
    *,
    settings: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Iterator[SparkSession]:
    """Start a session as `session` does, or share the running one; it stops when its last user leaves."""
    with _commons_lock:
        running = running_session()
        found = next((one for one in _commons if running and one.spark.sparkContext is running.sparkContext), None)
        if found is None:
            with ExitStack() as stack:
                spark = stack.enter_context(session(name, master, settings=settings, folder=folder))
                found = _Common(spark, stack.pop_all())
            _commons.append(found)
        else:
            _refuse_other(found.spark, master)
        found.users += 1
    try:
        yield found.spark
    finally:
        with _commons_lock:
            found.users -= 1
            if not found.users:
                _commons.remove(found)
                found.stack.close()


def _refuse_other(running: SparkSession, master: str | None) -> None:
    if master is not None and master != running.sparkContext.master:
        raise NoSpark(f"master: a session on {running.sparkContext.master!r} is running; stop it to use {master!r}")


def _stop(spark: SparkSession) -> None:
    """Stop a session; it has already stopped if its Java process has failed."""
    with suppress(Py4JError, OSError):
        spark.stop()


def running_session() -> SparkSession | None:
    """Return the session of this process, started in any thread."""
    made = SparkSession.getActiveSession() or SparkSession._instantiatedSession
    return made if made is not None and made.sparkContext._jsc is not None else None


@contextmanager
def _home(folder: Path | None) -> Iterator[Path]:
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="penstock-") as made:
            yield Path(made)
        return
    make_folder(folder)
    yield folder.resolve()  # Spark's other processes have other working directories


def _need_answer(master: str) -> None:
    """Raise `NoSpark` if nothing listens at any address of a `spark://` URL; Spark checks other URLs."""
    if not master.startswith("spark://"):
        return
    asked = master.removeprefix("spark://").split(",")
    for address in asked:
        host, _, port = address.rpartition(":")
        if not port.isdecimal():
            return
        try:
            socket.create_connection((host.strip("[]"), int(port)), ANSWER_S).close()
            return
        except (OSError, OverflowError):
            continue
    where = " or ".join(asked)
    raise NoSpark(f"master: {master!r} does not answer, no connection to {where}; check the URL and that it runs")


def _settings(name: str, master: str, folder: Path, brief: bool = True) -> SparkConf:
    quiet = Path(__file__).with_name("log4j2.properties")
    conf = SparkConf().setAppName(f"penstock {name}").setMaster(master)
    conf.set("spark.ui.enabled", "false")
    conf.set("spark.local.dir", str(folder / "local"))
    conf.set("spark.sql.warehouse.dir", (folder / "warehouse").as_uri())
    options = (f"-Dlog4j2.configurationFile={quiet.as_uri()}", QUICK_TO_START if brief else "", java_options())
    conf.set("spark.driver.extraJavaOptions", " ".join(filter(None, options)))
    conf.set("spark.sql.ui.explainMode", "simple")  # Spark formats a plan for every query, which is never read
    conf.set("spark.sql.shuffle.partitions", "8")
    if master.startswith("local"):
        conf.set("spark.driver.host", "127.0.0.1")
        conf.set("spark.driver.bindAddress", "127.0.0.1")
    return conf


def _start(conf: SparkConf, folder: Path) -> SparkSession:
    """Start a session whose Java process logs to a file, not to the user's terminal."""
    output = folder / "spark.log"
    try:
        if SparkContext._gateway is None:  # a process keeps its Java process when sessions end
            with output.open("wb") as log:
                SparkContext._ensure_initialized(gateway=_launch(conf, log), conf=conf)
        return SparkSession(SparkContext(conf=conf))
    except (PySparkException, Py4JError, RuntimeError, ValueError) as error:
        master, reason = conf.get("spark.master"), _reason(str(error), _text(output))
        raise NoSpark(f"master: {master!r} started no session, {reason}; check the URL and that it runs") from None


def _reason(error: str, log: str) -> str:
    """Select the line that contains the cause: Spark's reason, else the first exception."""
    found = re.search(r"Reason: (.+?)[.!]*$", log, re.MULTILINE) or re.search(r"[\w.]+(?:Exception|Error): (.+)", error)
    return found[1] if found else (error.strip().splitlines() or ["no reason was reported"])[0]


def _start_uninterrupted(conf: SparkConf, folder: Path) -> SparkSession:
    """Start a session in a thread of its own, and delay the first Ctrl-C until it has started.

    If PySpark is interrupted earlier, it leaves Java's process running. In the main thread it would also make Ctrl-C
    cancel all jobs from then on.
    """
    with ThreadPoolExecutor(1, "penstock session") as thread, _interrupts_wait():
        return thread.submit(_start, conf, folder).result()


@contextmanager
def _interrupts_wait() -> Iterator[None]:
    """Delay the first Ctrl-C until the block has ended."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard: list[int] = []

    def hear(number: int, _: object) -> None:
        heard.append(number)
        if len(heard) > 1:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, hear)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if heard and (made := running_session()) is not None:
            made.stop()
    if heard:
        raise KeyboardInterrupt


def _launch(conf: SparkConf, log: BinaryIO) -> JavaGateway:
    return launch_gateway(conf, {"stderr": log})  # type: ignore[no-untyped-call]


def _text(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""
