"""Slots as Spark jobs: one single-partition job per slot, each in its own job group and driver thread.

So slots are added, cancelled and pinned one by one. Spark starts the process, and starts another if it dies or its
executor is lost. The caller launches a job again that has ended.
"""

import re
import threading
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Any
from uuid import uuid4

from py4j.protocol import Py4JError
from pyspark import RDD, InheritableThread
from pyspark.serializers import NoOpSerializer
from pyspark.sql import SparkSession

from penstock.runtime.spark.closures import pack
from penstock.runtime.spark.executors import Executor, why_ended
from penstock.runtime.spark.slot import Slot


class Job:
    """A slot's job: `done` is set when it has ended, `error` if it failed; after success or `cancel` it is None."""

    def __init__(self, spark: SparkSession, name: str, group: str, executor: Executor | None) -> None:
        self.name = name
        self.group = group
        self.executor = executor  # requested
        self.done = threading.Event()
        self.error: str | None = None
        self.cancelled = False
        self._spark = spark

    def cancel(self) -> None:
        """Cancel the job, started or not; does not wait for `done`.

        Its Python process is killed half a second later, so stop it first.
        """
        if not self.done.is_set():
            self.cancelled = True
            with suppress(Py4JError, OSError, AttributeError):  # without its session the job has ended
                self._spark.sparkContext._jsc.sc().cancelJobGroupAndFutureJobs(self.group)

    def found_on(self) -> str | None:
        """Return the id of the executor that the job runs on; None: it does not run.

        Spark reports it about 0.1 s late. It need not be the requested one.
        """
        context = self._spark.sparkContext
        tracker, store = context.statusTracker(), context._jsc.sc().statusStore()
        for number in () if self.done.is_set() else tracker.getJobIdsForGroup(self.group):
            job = tracker.getJobInfo(number)
            for stage in () if job is None else job.stageIds:
                latest = store.taskList(stage, 0, 1)
                if latest.size() and latest.apply(0).status() == "RUNNING":
                    return str(latest.apply(0).executorId())
        return None


class SlotJobs:
    """The jobs of one run: those that have not ended, and the last job of every name."""

    def __init__(self, spark: SparkSession, run: str | None = None) -> None:
        own = uuid4().hex[:8]  # runs in different folders may have the same name, and must not cancel each other's jobs
        self.run = own if run is None else f"{run}-{own}"
        self.jobs: list[Job] = []
        self._spark = spark
        self._launched = 0
        self._threads: list[threading.Thread] = []

    def launch(self, name: str, main: Callable[[str], None], argument: str, executor: Executor | None) -> Job:
        """Call `main(argument)` in a Python process on an executor; None: any.

        Returns at once. If `main` raises or its process dies, it is called again in another process: an error that a
        retry cannot solve must be reported by `main` itself, which then returns.
        """
        # Spark never runs a job group again that was cancelled before its job started, hence the number.
        job = Job(self._spark, name, f"penstock-{self.run}-{name}-{self._launched}", executor)
        self._launched += 1
        slot = Slot(pack(main), argument)
        thread = InheritableThread(
            target=self._hold, args=(job, slot), session=self._spark, name=job.group, daemon=True
        )
        self.jobs = [other for other in self.jobs if other.name != name or not other.done.is_set()]
        self._threads = [other for other in self._threads if other.is_alive()]
        self.jobs.append(job)
        self._threads.append(thread)
        thread.start()
        return job

    def why_ended(self) -> str:
        """Return why the session has ended; empty if it has not."""
        return why_ended(self._spark)

    def stop(self, within_s: float = 10.0) -> bool:
        """Cancel all jobs and wait for them; return whether all have ended."""
        deadline = monotonic() + within_s
        for job in self.jobs:
            job.cancel()
        for thread in self._threads:
            thread.join(max(0.0, deadline - monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _hold(self, job: Job, slot: Slot) -> None:
        """Run a job to its end, in its own thread: Spark's calls block."""
        try:
            self._spark.sparkContext.setJobGroup(job.group, f"penstock {job.name}", interruptOnCancel=True)
            errors = _pinned(self._spark, job.executor).mapPartitions(slot).collect()
            job.error = errors[0] if errors else None
        except Exception as error:  # of any kind: those who wait for the job must learn of it
            job.error = None if job.cancelled else _reason(str(error))
        finally:
            job.done.set()


def _pinned(spark: SparkSession, executor: Executor | None) -> "RDD[bytes]":
    """Return an RDD of one row in one partition that prefers an executor; PySpark has no method for that."""
    context = spark.sparkContext
    java: Any = context._jvm
    preferred = java.java.util.ArrayList()
    if executor is not None:
        preferred.add(executor.location)
    sequence = java.org.apache.spark.api.python.PythonUtils.toSeq
    rows = java.java.util.ArrayList()
    rows.add(java.scala.Tuple2(b"slot", sequence(preferred)))
    kind = java.scala.reflect.ClassTag.apply(java.java.lang.Class.forName("[B"))
    made = context._jsc.sc().makeRDD(sequence(rows), kind)
    return RDD(made.toJavaRDD(), context, NoOpSerializer())


def _reason(error: str) -> str:
    """Return the line of a Spark error that explains it: what Python raised, else the innermost cause."""
    _, raised, rest = error.rpartition("Traceback (most recent call last):\n")
    if raised:
        return next((line for line in rest.splitlines() if line and not line[0].isspace()), "no reason was given")
    causes = re.findall(r"SparkException: (.+)", error)
    return causes[-1].rstrip(": ") if causes else (error.strip().splitlines() or ["no reason was given"])[0]
