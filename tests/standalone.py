"""A standalone Spark cluster on loopback, started from the installed PySpark, for tests that need true executors."""

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep

import pyspark

HOME = Path(pyspark.__file__).parent
UP_S = 60.0
# Small processes that live for seconds: no second compiler, no parallel collector.
SMALL_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SETTINGS = {"spark.executor.memory": "512m", "spark.executor.extraJavaOptions": SMALL_JAVA}


@contextmanager
def standalone(folder: Path, workers: int = 2, cores: int = 2) -> Iterator[str]:
    """Yield the URL of a master with these workers, of this number of cores each; all files are below `folder`."""
    processes: list[subprocess.Popen[bytes]] = []
    try:
        (folder / "conf").mkdir(parents=True)
        reported = folder / "master.log"
        processes.append(_start(folder, reported, "master.Master", "--port", "0"))
        (url,) = _wait_for(processes, reported, r"Starting Spark master at (spark://\S+)", 1)
        processes += [_start_worker(folder, url, number, cores) for number in range(workers)]
        _wait_for(processes, reported, r"Registering worker (\S+)", workers)
        yield url
    finally:
        for process in reversed(processes):
            _stop(process)


@contextmanager
def another_worker(folder: Path, url: str, cores: int = 2) -> Iterator[None]:
    """Run one more worker, inside the context, in the cluster whose files are below `folder`."""
    process = _start_worker(folder, url, len(list(folder.glob("worker-*.log"))), cores)
    try:
        yield
    finally:
        _stop(process)


def _start_worker(folder: Path, url: str, number: int, cores: int) -> "subprocess.Popen[bytes]":
    place, log = folder / f"worker-{number}", folder / f"worker-{number}.log"
    claim = ("--cores", str(cores), "--memory", "1g", "--work-dir", str(place), url)
    return _start(folder, log, "worker.Worker", "--port", "0", *claim)


def _start(folder: Path, log: Path, name: str, *arguments: str) -> "subprocess.Popen[bytes]":
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith(("SPARK", "PYSPARK", "PYTHON"))
    }
    environment |= {
        "SPARK_HOME": str(HOME),
        "SPARK_CONF_DIR": str(folder / "conf"),  # empty: no settings of the user who runs the tests
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": SMALL_JAVA,
    }
    command = [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", "--host", "127.0.0.1"]
    with log.open("wb") as file:
        # A session of its own, so that stopping it reaches the executors it has started.
        return subprocess.Popen(
            [*command, "--webui-port", "0", *arguments],
            cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True,
        )  # fmt: skip


def _wait_for(processes: "list[subprocess.Popen[bytes]]", log: Path, pattern: str, times: int) -> list[str]:
    deadline = monotonic() + UP_S
    while True:
        text = log.read_text(errors="replace")
        found = re.findall(pattern, text)
        if len(found) >= times:
            return found
        dead = [process.args for process in processes if process.poll() is not None]
        if dead or monotonic() > deadline:
            raise AssertionError(f"no {pattern!r} in {log}, ended: {dead}\n{text[-2000:]}")
        sleep(0.05)


def _stop(process: "subprocess.Popen[bytes]") -> None:
    for how in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, how)
        try:
            process.wait(10)
            break
        except subprocess.TimeoutExpired:
            continue
