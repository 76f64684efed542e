"""The cores of a session that the runs of this process hold: each worker has one until its run ends.

Spark would let a worker without a core wait until another run ends; so a run that needs more cores than are free is
rejected.
"""

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pyspark.sql import SparkSession

from penstock.pipeline.session import NoSpark
from penstock.runtime.spark.executors import Executor, executors, is_local, registered

_held: dict[str, Counter[str]] = {}  # a session's id -> workers by the id of their executor
_lock = threading.Lock()


def need_cores(spark: SparkSession, workers: int) -> list[Executor]:
    """Return the executors with the cores that are free on each; raise `NoSpark` if they are too few."""
    found = executors(spark, cores=workers + 1)
    with _lock:
        held = Counter(_held.get(_id(spark)))
    _refuse_too_many(spark, workers, found, held.total())
    free = [executor._replace(cores=executor.cores - held[executor.id]) for executor in found]
    return [executor for executor in free if executor.cores > 1 or not held[executor.id]]


@contextmanager
def hold(spark: SparkSession, places: Sequence[Executor]) -> Iterator[None]:
    """Hold a core on each of these executors, for each time it is listed; raise `NoSpark` if others took them."""
    wanted, there = Counter(executor.id for executor in places), registered(spark)
    with _lock:
        held = _held.setdefault(_id(spark), Counter())
        _refuse_too_many(spark, len(places), there, held.total())
        _refuse_taken(wanted, there, held)
        held.update(wanted)
    try:
        yield
    finally:
        with _lock:
            held.subtract(wanted)


def _refuse_taken(wanted: Counter[str], there: Sequence[Executor], held: Counter[str]) -> None:
    """Raise if an executor has no room for its workers, beside the core that it keeps free."""
    for executor in there:
        number, room = wanted[executor.id], max(1, executor.cores - 1)  # one core alone is not kept free
        if number and held[executor.id] + number > room:
            raise NoSpark(
                f"master: executor {executor.id} has room for {_count(room, 'worker')}, of which other runs of this "
                f"process hold {held[executor.id]}; this one needs {number}, but another run took them; try again"
            )


def _id(spark: SparkSession) -> str:
    return str(spark.sparkContext.applicationId)


def _refuse_too_many(spark: SparkSession, workers: int, found: Sequence[Executor], held: int) -> None:
    offered = sum(executor.cores for executor in found)
    needed = workers + len(found)
    if offered - held >= needed:
        return
    master = spark.sparkContext.master
    if held:
        room, all_of_them = max(0, offered - len(found)), workers + held
        more = f"start a larger session, with penstock.session(workers={all_of_them})"
        raise NoSpark(
            f"master: {master!r} has room for {_count(room, 'worker')}, of which other runs of this process hold "
            f"{held}; this one needs {workers}, {max(0, room - held)} are free; stop a run, or "
            f"{more if is_local(spark) else 'give it more'}, or plan for fewer machines"
        )
    remedy = f"use --master 'local[{needed}]'" if is_local(spark) else "give it more"
    raise NoSpark(
        f"master: {master!r} offers {_count(offered, 'core')}, the plan needs {needed}: "
        f"{_count(workers, 'worker')} and one kept free on {_count(len(found), 'executor')}; {remedy}, or plan "
        "for fewer machines"
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
