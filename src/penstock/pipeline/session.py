"""The Spark session: embedded by default, or whatever a master URL names.

An embedded session keeps its files in a folder of its own, listens on loopback only, and says nothing unless something
is wrong. On another master the executors need the same Python packages as the driver, under the interpreter that
`PYSPARK_PYTHON` names there (the driver's own where it is not set).
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

from penstock.model.errors import FileProblem, PenstockError
from penstock.pipeline.java import need_java

QUICK_TO_START = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
"""For brief sessions: Java's second compiler works for a minute before it pays, half of the time of a report."""

ANSWER_S = 3.0  # for a standalone master to accept a connection; Spark itself would try for a minute


class NoSpark(PenstockError):
    """A Spark session could not be had."""


@contextmanager
def session(
    name: str,
    master: str | None = None,
    *,
    settings: Mapping[str, str] | None = None,
    folder: Path | None = None,
    brief: bool = True,
) -> Iterator[SparkSession]:
    """Give a Spark session; `master` None means embedded, one thread a core.

    `settings` are Spark's own, on top of ours. `folder` is where the session's files go, to stay there; without it they
    are temporary. `brief` is for what takes a minute at most: Java starts quickly and compiles less well. Where this
    process has a session already, that one is given as it is, and left running: Spark allows
    no second.
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
    """A session that several have."""

    spark: SparkSession
    stack: ExitStack  # ends it, where it was started here
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
    """Give a session as `session` does, but have one that is started here go on until the last who has it lets go."""
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
    """Stop a session; one whose Java process has gone has stopped already."""
    with suppress(Py4JError, OSError):
        spark.stop()


def running_session() -> SparkSession | None:
    """Return the session that this process has, whichever thread has started it."""
    made = SparkSession.getActiveSession() or SparkSession._instantiatedSession
    return made if made is not None and made.sparkContext._jsc is not None else None


@contextmanager
def _home(folder: Path | None) -> Iterator[Path]:
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="penstock-") as made:
            yield Path(made)
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        folder = folder.resolve()  # a relative path would mean another place to Spark's other processes
    except OSError as error:
        raise FileProblem(f"{folder}: cannot be made, {error.strerror}; choose another place") from None
    yield folder


def _need_answer(master: str) -> None:
    """Raise `NoSpark` where nothing listens at any address of a `spark://` URL; other URLs are Spark's to judge."""
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
    options = f"-Dlog4j2.configurationFile={quiet.as_uri()}"
    conf.set("spark.driver.extraJavaOptions", f"{options} {QUICK_TO_START}" if brief else options)
    conf.set("spark.sql.ui.explainMode", "simple")  # nobody looks at plans, which Spark writes out for every query
    conf.set("spark.sql.shuffle.partitions", "8")
    if master.startswith("local"):
        conf.set("spark.driver.host", "127.0.0.1")
        conf.set("spark.driver.bindAddress", "127.0.0.1")
    return conf


def _start(conf: SparkConf, folder: Path) -> SparkSession:
    """Start a session whose Java process writes what it has to say to a file, not to the user's terminal."""
    said = folder / "spark.log"
    try:
        if SparkContext._gateway is None:  # a process keeps its Java process, whatever became of earlier sessions
            with said.open("wb") as log:
                SparkContext._ensure_initialized(gateway=_launch(conf, log), conf=conf)
        return SparkSession(SparkContext(conf=conf))
    except (PySparkException, Py4JError, RuntimeError, ValueError) as error:
        master, reason = conf.get("spark.master"), _reason(str(error), _text(said))
        raise NoSpark(f"master: {master!r} gave no Spark session, {reason}; check the URL and that it runs") from None


def _reason(error: str, log: str) -> str:
    """Pick the line that tells a person why: Spark's stated reason, else the first exception."""
    found = re.search(r"Reason: (.+?)[.!]*$", log, re.MULTILINE) or re.search(r"[\w.]+(?:Exception|Error): (.+)", error)
    return found[1] if found else (error.strip().splitlines() or ["it did not say why"])[0]


def _start_uninterrupted(conf: SparkConf, folder: Path) -> SparkSession:
    """Start a session in a thread of its own, the first Ctrl-C waiting for it.

    Interrupted before, PySpark leaves Java's process behind, running. In the main thread it would moreover have Ctrl-C
    cancel all jobs from then on.
    """
    with ThreadPoolExecutor(1, "penstock session") as thread, _interrupts_wait():
        return thread.submit(_start, conf, folder).result()


@contextmanager
def _interrupts_wait() -> Iterator[None]:
    """Have the first Ctrl-C wait for what is inside."""
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
