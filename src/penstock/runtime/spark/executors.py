"""The executors of a session, and the settings that a session for slots needs.

A slot holds a core while it runs, and Spark does not preempt: so one core per executor stays free, for a slot that
moves there and for the pipeline's jobs.
"""

import os
from time import monotonic, sleep
from typing import Any, NamedTuple

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from penstock.model.cluster import Machine
from penstock.pipeline.session import NoSpark

REGISTERED_S = 60.0  # for a cluster to start executors; two JVMs on a busy machine took 15 s
SETTLED_S = 1.5  # without a new executor, after which all are expected to have registered
MAX_FAILURES = 1000  # of one slot's processes in a run, before Spark gives up its job
UNLIMITED_MB = 1e6  # Spark neither limits the memory of Python processes nor reports that of their host
LOCAL_EXECUTOR = "driver"  # the only executor of `local[n]`: the driver's own process


class Executor(NamedTuple):
    """A Spark process that runs tasks."""

    host: str
    id: str
    cores: int

    @property
    def location(self) -> str:
        """The preferred location of a task that is to run here."""
        return f"executor_{self.host}_{self.id}"

    @property
    def machine(self) -> Machine:
        """The machine for planning: a slot for every core except the one that is kept free."""
        room = max(1, self.cores - 1)
        return Machine(
            name=f"{self.host}-{self.id}",
            host=self.host,
            cores=room,
            slots=room,
            memory_mb=UNLIMITED_MB,
        )


def embedded_master(workers: int) -> str:
    """Return the URL of an embedded session for a number of workers, with spare threads for the pipeline's jobs.

    Threads wait for their Python process, so there may be more of them than cores. Without the second number a
    `local` master gives up a job when its process has died once, whatever `spark.task.maxFailures` is.
    """
    return f"local[{workers + max(2, os.cpu_count() or 1)},{MAX_FAILURES}]"


def spark_settings(workers: int, embedded: bool) -> dict[str, str]:
    """Return the settings of a session for slots, in addition to those of every session."""
    settings = {
        "spark.locality.wait": "3s",  # how long a slot waits for its preferred executor
        "spark.task.maxFailures": str(MAX_FAILURES),
        "spark.speculation": "false",  # a slot must not run twice
        "spark.dynamicAllocation.enabled": "false",  # an idle executor is needed for the next slot
        "spark.python.worker.reuse": "true",
        "spark.python.worker.faulthandler.enabled": "true",  # a crash in native code leaves its stack in the error
        "spark.python.task.killTimeout": "500ms",  # from a cancelled job to the end of its Python process
    }
    if embedded:
        # One JVM holds the threads of all slots; the tuples are in the Python processes.
        settings["spark.driver.memory"] = f"{max(1024, 512 + 16 * workers)}m"
    return settings


def executors(spark: SparkSession, cores: int = 1, within_s: float = REGISTERED_S) -> list[Executor]:
    """Return the executors, by id, once they offer `cores` and no other has registered for a while.

    After `within_s` return those that have registered; raise `NoSpark` if there are none.
    """
    alone = is_local(spark)
    deadline = monotonic() + within_s
    found: list[Executor] = []
    settled = monotonic()
    while True:
        now = registered(spark)
        if now != found:
            found, settled = now, monotonic()
        if found and alone:
            return found
        if sum(executor.cores for executor in found) >= cores and monotonic() - settled >= SETTLED_S:
            return found
        if monotonic() >= deadline:
            break
        sleep(0.05)
    if found:
        return found
    remedy = "check that it has workers with free cores and memory"
    raise NoSpark(f"master: {spark.sparkContext.master!r} started no executor in {within_s:.0f} s; {remedy}")


def is_local(spark: SparkSession) -> bool:
    """Return whether tasks run in the driver's own JVM."""
    return is_local_master(str(spark.sparkContext.master))


def is_local_master(url: str) -> bool:
    """Return whether a master's URL means the driver's own JVM."""
    return url == "local" or url.startswith("local[")


def why_ended(spark: SparkSession) -> str:
    """Return why a session has ended; empty if it has not."""
    context = spark.sparkContext._jsc
    if context is None:
        return "it was stopped"
    try:
        return "it was stopped" if context.sc().isStopped() else ""
    except (Py4JError, OSError):
        return "its Java process has ended"


def registered(spark: SparkSession) -> list[Executor]:
    """Return the current executors, by id; the driver's own process only in a local session."""
    alone = is_local(spark)
    # The status store is maintained even if the web pages are not served.
    listed: Any = spark.sparkContext._jsc.sc().statusStore().executorList(True)
    rows = [listed.apply(row) for row in range(listed.size())]
    found = [Executor(_host(row.hostPort()), row.id(), row.totalCores()) for row in rows]
    return sorted(
        (executor for executor in found if executor.cores > 0 and (alone or executor.id != LOCAL_EXECUTOR)),
        key=lambda executor: (len(executor.id), executor.id),
    )


def _host(address: str) -> str:
    """Return the host of `host:port`, or of the host alone, until the port is known."""
    host, colon, port = address.rpartition(":")
    return host if colon and port.isdecimal() else address
