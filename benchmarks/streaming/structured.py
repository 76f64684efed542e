"""Structured Streaming's micro-batches: latency from a socket, the maximum rate from files.

Default trigger: a batch starts when the previous one is done. Update mode, so each batch outputs the counts that it
changed; the sink collects them, and a sentence has arrived when its batch is there. The socket source keeps the order
of lines, so a batch's highest number shows which sentences it contained.

The socket source is used for latency only; its documentation limits it to tests. The maximum rate is measured with text
files of the same sentences, read a fixed number per batch: micro-batches are meant for bulk.
"""

import os
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.streaming.work import POOL, WARM_UP_S, WORDS, Measured, Schedule, now, paced_sentences, texts, unpaced

CORES = 2
"""Threads of the master, and partitions of the shuffle: more would only add tasks to each batch."""
DRAIN_S = 60
LINES_A_FILE = 16 * POOL
FILES_A_BATCH = 16
LEAST_BATCHES = 3
FILES_A_SECOND = 20
"""Files for each second of the bulk run; links to one, because their contents are the same."""


@contextmanager
def session(folder: Path, cores: int, **settings: str) -> Iterator[SparkSession]:
    """Start embedded Spark that leaves no files behind."""
    builder = (
        SparkSession.builder.master(f"local[{cores}]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.local.dir", str(folder / "local"))
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.sql.shuffle.partitions", str(CORES))
    )
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    try:
        yield spark
    finally:
        spark.stop()


def word_counts(lines: DataFrame) -> DataFrame:
    """Count the words of lines that have a number and a sentence; `last` is the latest sentence of a word."""
    parts = lines.select(sf.split("value", " ").alias("parts"))
    words = parts.select(
        sf.col("parts")[0].cast("long").alias("number"), sf.explode(sf.slice("parts", 2, WORDS)).alias("word")
    )
    return words.groupBy("word").agg(sf.count("*").alias("count"), sf.max("number").alias("last"))


class Batches:
    """The sink: the batches that have arrived."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.times: list[float] = []
        self.lasts: list[int] = []  # number of the last sentence in the batch
        self.words: list[int] = []  # counted so far

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Receive a batch."""
        rows = batch.collect()
        if not rows:
            return
        self.times.append(now())
        self.counts.update((row["word"], row["count"]) for row in rows)
        self.lasts.append(max(row["last"] for row in rows))
        self.words.append(sum(self.counts.values()))

    def long_enough(self, length: float) -> bool:
        """Return whether a bulk run is over, with enough batches after the warm-up to compute a rate."""
        after = sum(time > self.times[0] + WARM_UP_S for time in self.times)
        return after >= LEAST_BATCHES and now() > self.times[0] + length


def measure(rate: float | None, seconds: float) -> Measured:
    """Run word count in micro-batches."""
    with tempfile.TemporaryDirectory() as name, session(Path(name), CORES) as spark:
        if rate is None:
            return measure_bulk(spark, Path(name), seconds)
        return measure_paced(spark, Path(name), rate, seconds)


def start(lines: DataFrame, sink: Batches, folder: Path) -> StreamingQuery:
    """Start the query with the default trigger."""
    writer = word_counts(lines).writeStream.outputMode("update").foreachBatch(sink)
    return writer.option("checkpointLocation", str(folder / "checkpoint")).start()


def measure_paced(spark: SparkSession, folder: Path, rate: float, seconds: float) -> Measured:
    """Feed the query through a socket as sentences become due, until the last has arrived."""
    sink, schedule = Batches(), Schedule(rate, seconds)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        lines = spark.readStream.format("socket").option("host", "127.0.0.1").option("port", port).load()
        feeder = threading.Thread(target=feed, args=(server, schedule, sink), daemon=True)
        feeder.start()
        query = start(lines, sink, folder)
        feeder.join()
        wait_for(query, sink, schedule.taken - 1)
        query.stop()
    numbers = np.arange(schedule.taken)
    arrivals = np.array(sink.times)[np.searchsorted(np.maximum.accumulate(sink.lasts), numbers)]
    counted = sink.words[-1] - WORDS  # without the first sentence, which only started the query
    if counted != schedule.taken * WORDS:
        raise RuntimeError(f"{schedule.taken * WORDS} words were sent, {counted} counted")
    return paced_sentences(schedule.start + numbers / rate, arrivals, counted)


def feed(server: socket.socket, schedule: Schedule, sink: Batches) -> None:
    """Send each sentence when it is due to the first client that connects, then close.

    One sentence is sent first, and the schedule starts when it has arrived: otherwise all sentences that are due while
    the first batch is compiled would still be waiting after the warm-up.
    """
    connection, _ = server.accept()
    with connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(f"-1 {texts()[0]}\n".encode())
        deadline = now() + DRAIN_S
        while not sink.times and now() < deadline:
            time.sleep(0.05)
        while not schedule.ended(time_now := now()):
            sentences = schedule.take(time_now, POOL)
            connection.sendall("".join(f"{one.number} {one.text}\n" for one in sentences).encode())
            time.sleep(max(0.0, schedule.next_due(now()) - now()))


def wait_for(query: StreamingQuery, sink: Batches, number: int) -> None:
    """Wait until a sentence has arrived."""
    deadline = now() + DRAIN_S
    while not sink.lasts or sink.lasts[-1] < number:
        failure = query.exception()
        if failure is not None:
            raise RuntimeError(str(failure))
        if now() > deadline:
            raise RuntimeError(f"sentence {number} did not arrive within {DRAIN_S} s")
        time.sleep(0.05)


def measure_bulk(spark: SparkSession, folder: Path, seconds: float) -> Measured:
    """Read files of sentences as fast as batches follow one another."""
    sink, length = Batches(), WARM_UP_S + seconds
    lines = (
        spark.readStream.format("text").option("maxFilesPerTrigger", FILES_A_BATCH).load(write_files(folder, length))
    )
    query = start(lines, sink, folder)
    while not sink.long_enough(length):
        failure = query.exception()
        if failure is not None:
            raise RuntimeError(str(failure))
        time.sleep(0.05)
    query.stop()
    return unpaced(np.array(sink.times), np.diff(sink.words, prepend=0), sink.words[-1])


def write_files(folder: Path, length: float) -> str:
    """Write as many files of sentences as a run can read."""
    lines = folder / "lines"
    lines.mkdir()
    first = lines / "0.txt"
    first.write_text("".join(f"{number} {texts()[number % POOL]}\n" for number in range(LINES_A_FILE)))
    for number in range(1, round(length * FILES_A_SECOND)):
        os.link(first, lines / f"{number}.txt")
    return str(lines)
