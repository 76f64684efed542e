"""Which executors Spark has for us, and the settings a session for slots needs.

A slot holds a core for as long as it runs, and Spark does not pre-empt: so one core an executor stays free, for a slot
that moves there and for the pipeline's jobs.
"""

import os
from time import monotonic, sleep
from typing import Any, NamedTuple

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from penstock.model.cluster import Machine
from penstock.pipeline.session import NoSpark

REGISTERED_S = 60.0  # for a cluster to start executors: two JVMs on a busy machine took 15 s
SETTLED_S = 1.5  # no new executor for so long: the last has come
MOST_FAILURES = 1000  # of one slot's processes in a run, before Spark gives the job up
UNLIMITED_MB = 1e6  # Spark neither limits what Python processes take nor says what their host has
LOCAL_EXECUTOR = "driver"  # the name of the one executor of `local[n]`, which is the driver's own process


class Executor(NamedTuple):
    """A process of Spark's that runs tasks."""

    host: str
    id: str
    cores: int

    @property
    def location(self) -> str:
        """How a task asks Spark to be run here."""
        return f"executor_{self.host}_{self.id}"

    @property
    def machine(self) -> Machine:
        """What it is to those who plan: a slot for every core but the one that is kept free."""
        room = max(1, self.cores - 1)
        return Machine(
            name=f"{self.host}-{self.id}",
            host=self.host,
            cores=room,
            slots=room,
            memory_mb=UNLIMITED_MB,
        )


def embedded_master(workers: int) -> str:
    """Return the URL of an embedded session for so many workers, with threads to spare for the pipeline's jobs.

    Threads wait for their Python process, so there may be more of them than cores. Without the second number a
    `local` master gives a job up when its process has died once, whatever `spark.task.maxFailures` says.
    """
    return f"local[{workers + max(2, os.cpu_count() or 1)},{MOST_FAILURES}]"


def spark_settings(workers: int, embedded: bool) -> dict[str, str]:
    """Return what a session that holds slots has to be told, beyond what every session of ours is."""
    settings = {
        "spark.locality.wait": "3s",  # so long a slot waits for the executor it asked for
        "spark.task.maxFailures": str(MOST_FAILURES),
        "spark.speculation": "false",  # a second copy of a slot would be an impostor
        "spark.dynamicAllocation.enabled": "false",  # an idle executor is where the next slot goes
        "spark.python.worker.reuse": "true",
        "spark.python.worker.faulthandler.enabled": "true",  # a crash in native code leaves its stack in the error
        "spark.python.task.killTimeout": "500ms",  # from a cancelled job to the end of its Python process
    }
    if embedded:
        # One JVM holds the threads of all slots; the tuples are in the Python processes.
        settings["spark.driver.memory"] = f"{max(1024, 512 + 16 * workers)}m"
    return settings


def executors(spark: SparkSession, cores: int = 1, within_s: float = REGISTERED_S) -> list[Executor]:
    """Return the executors, by id, once they offer `cores` and no other has come for a while.

    At the end of `within_s` it returns those there are, and raises `NoSpark` where there is none.
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
    """Tell whether the tasks run in the driver's own JVM."""
    return is_local_master(str(spark.sparkContext.master))


def is_local_master(url: str) -> bool:
    """Tell whether a master's URL means the driver's own JVM."""
    return url == "local" or url.startswith("local[")


def why_ended(spark: SparkSession) -> str:
    """Say why a session is of no use any more; empty where it is."""
    context = spark.sparkContext._jsc
    if context is None:
        return "it was stopped"
    try:
        return "it was stopped" if context.sc().isStopped() else ""
    except (Py4JError, OSError):
        return "its Java process has gone"


def registered(spark: SparkSession) -> list[Executor]:
    """Return the executors that there are now, by id; the driver's own process only where there is no other kind."""
    alone = is_local(spark)
    # The status store is what the web pages show; it is kept whether they are served or not.
    listed: Any = spark.sparkContext._jsc.sc().statusStore().executorList(True)
    rows = [listed.apply(row) for row in range(listed.size())]
    found = [Executor(_host(row.hostPort()), row.id(), row.totalCores()) for row in rows]
    return sorted(
        (executor for executor in found if executor.cores > 0 and (alone or executor.id != LOCAL_EXECUTOR)),
        key=lambda executor: (len(executor.id), executor.id),
    )


def _host(address: str) -> str:
    """Return the host of `host:port`, or of the bare host that is shown until the port is known."""
    host, colon, port = address.rpartition(":")
    return host if colon and port.isdecimal() else address
